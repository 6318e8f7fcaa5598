"""The lock used from where it should not be: other loops and threads, handlers, finalizers, twice in one task."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import AlreadyHeld, LockLost, LockTimeout, UsageError
from peerlock.net.threads.lock import Lock as ThreadLock
from peerlock.net.threads.lock import LockAll
from peerlock.net.threads.node import Node
from processes import members

# -- another event loop ----------------------------------------------------------------------------------------


def test_a_lock_is_not_granted_to_a_task_of_another_loop(tmp_path: Path) -> None:
    """While a task of the node's own loop runs: the fast way found that one, and took it for the asker."""
    granted: list[str] = []

    async def elsewhere(lock: Any) -> None:
        with pytest.raises(UsageError, match="belongs to the event loop"):
            async with lock:
                granted.append("two holders")
        with pytest.raises(UsageError, match="belongs to the event loop"):
            await lock.acquire(timeout=1)

    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            lock = node.lock("x")
            for _ in range(5):
                async with lock:
                    pass
            assert lock._local_lock.free
            other = threading.Thread(target=asyncio.run, args=(elsewhere(lock),))
            other.start()
            other.join()  # this task runs meanwhile

    asyncio.run(whole())
    assert granted == []


def test_a_release_from_another_thread_is_carried_out_by_the_loop(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            hold = await node.lock("x").acquire()
            await asyncio.to_thread(hold.release)
            assert await node.lock("x").acquire(timeout=5)

    asyncio.run(whole())


def test_sync_join_on_the_loop_of_a_node_of_the_group(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path):
            with pytest.raises(UsageError, match="to_thread"):
                peerlock.sync.join("g", dir=tmp_path)
            other = await asyncio.to_thread(peerlock.sync.join, "g", dir=tmp_path)
            await asyncio.to_thread(other.leave)

    asyncio.run(whole())


# -- twice in one task ---------------------------------------------------------------------------------------------


def test_sync_join_on_a_loop_that_has_a_node_of_another_group_of_that_name(tmp_path: Path) -> None:
    async def whole() -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        async with peerlock.join("g", dir=tmp_path / "a"):
            peerlock.sync.join("g", dir=tmp_path / "b", timeout=10).leave()

    asyncio.run(whole())


def test_a_task_that_has_the_lock_is_told_so(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            lock = node.lock("x")
            hold = await lock.acquire()
            for again in (lock.acquire, lambda: asyncio.wait_for(lock.acquire(), 5), lock.try_acquire, lock.__aenter__):
                with pytest.raises(AlreadyHeld):
                    await again()
            hold.release()
            hold = await asyncio.wait_for(lock.acquire(), 5)
            with pytest.raises(AlreadyHeld):
                await asyncio.wait_for(lock.acquire(), 5)
            hold.detach()
            assert await lock.try_acquire(patience_s=0.05) is None, "detached: it may be another's to release"
            hold.release()
            async with lock:
                with pytest.raises(AlreadyHeld):
                    await lock.acquire()
            async with node.rwlock("y").read():
                with pytest.raises(AlreadyHeld):
                    await node.rwlock("y").read().acquire()

    asyncio.run(whole())


def test_a_thread_that_has_the_lock_is_told_so(tmp_path: Path) -> None:
    with peerlock.sync.join("g", dir=tmp_path) as node:
        lock = node.lock("x")
        hold = lock.acquire()
        for again in (lock.acquire, lock.try_acquire, lock.__enter__):
            with pytest.raises(AlreadyHeld):
                again()
        hold.detach()
        assert lock.try_acquire(patience_s=0.05) is None
        hold.release()
        with node.rwlock("y").read(), pytest.raises(AlreadyHeld):
            node.rwlock("y").read().acquire()


# -- finalizers and signal handlers ----------------------------------------------------------------------------------


class Finalizer:
    """Garbage with a cycle, which releases a hold whenever the collector comes by."""

    def __init__(self, hold: Any) -> None:
        self.hold, self.me = hold, self

    def __del__(self) -> None:
        self.hold.release()


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(5, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("eager_collector")
def test_a_finalizer_that_releases_in_the_middle_of_an_acquire(tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            peerlock.join("g", dir=tmp_path, name="a") as a,
            peerlock.join("g", dir=tmp_path, name="b") as b,
        ):
            for turn in range(60):
                Finalizer((await a.lock("y").acquire(timeout=10)).detach())
                node = (a, b)[turn % 2]
                async with asyncio.timeout(10), node.lock("x"):
                    pass
                async with asyncio.timeout(10), b.lock("y"):
                    pass

    asyncio.run(whole())


def test_a_release_in_the_middle_of_the_core_waits_its_turn(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            hold = await node.lock("x").acquire()
            node._shell.at_work = True  # as a finalizer finds it
            hold.release()
            assert hold.held
            with pytest.raises(UsageError, match="released before"):
                hold.release()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not hold.held
            async with node.lock("x"):
                pass

    asyncio.run(whole())


def test_a_signal_handler_that_uses_the_lock(tmp_path: Path) -> None:
    """It may run between any two steps of the node's work in the main thread."""
    refused = [0]
    with members(tmp_path, "b") as (b,), peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        kept: list[Any] = []

        def handler(number: int, frame: FrameType | None) -> None:
            try:
                if kept:
                    kept.pop().release()
                else:
                    kept.append(node.lock("y").acquire(timeout=0))
            except (UsageError, LockTimeout):
                refused[0] += 1

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0003)
        try:
            end = time.monotonic() + 2.0
            while time.monotonic() < end:
                with node.lock("x"):
                    pass
                b.ask("acquire", "x")
                b.ask("release", "x")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        for hold in kept:
            hold.release()
        assert b.ask("acquire", "y")["fence"]
        assert b.ask("acquire", "x")["fence"]


# -- nothing that raises leaves a ticket behind -------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", ["5", b"5", [], object(), float("nan"), True, 1j])
@pytest.mark.parametrize("busy", [False, True])
def test_a_wrong_time_limit_leaves_nothing_behind(timeout: Any, busy: bool, tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            hold = (await node.lock("x").acquire()).detach() if busy else None
            with pytest.raises(UsageError, match="number of seconds"):
                await node.lock("x").acquire(timeout=timeout)
            with pytest.raises(UsageError, match="number of seconds"):
                await node.lock("x").try_acquire(patience_s=timeout)
            if hold is not None:
                hold.release()
            assert (await node.lock("x").acquire(timeout=5)).held

    asyncio.run(whole())


class Fault(Exception):
    pass


def run_with_a_fault_at(line: int, act: Any) -> bool:
    """Raise at the given line of this package's code that `act` comes to. False: it came to fewer."""
    left = [line]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if f"{os.sep}net{os.sep}aio{os.sep}" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                raise Fault
        return trace

    sys.settrace(trace)
    try:
        act()
    except Fault:
        return True
    finally:
        sys.settrace(None)
    return left[0] <= 0


def test_a_fault_at_every_line_of_acquire_leaks_no_ticket(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            for busy in (False, True):
                line = 1
                while True:
                    hold = (await node.lock("x").acquire(timeout=5)).detach() if busy else None
                    coroutine = node.lock("x").acquire(timeout=5)
                    faulted = run_with_a_fault_at(line, lambda coroutine=coroutine: step(coroutine))
                    coroutine.close()
                    if hold is not None:
                        hold.release()
                    await asyncio.sleep(0.001)
                    assert not any(
                        local_lock.queue or local_lock.holder for local_lock in node._shell.core.table.locks.values()
                    ), (busy, line)
                    if not faulted:
                        break
                    line += 1
                assert line > 10

    def step(coroutine: Any) -> None:
        try:
            coroutine.send(None)
        except StopIteration as granted:
            sys.settrace(None)
            granted.value.release()

    asyncio.run(whole())


# -- a loop that ends ---------------------------------------------------------------------------------------------------


def test_a_node_that_was_forgotten_keeps_nobody_out(tmp_path: Path) -> None:
    kept: list[Any] = []

    async def forgetful() -> None:
        node = await peerlock.join("g", dir=tmp_path, name="a")
        async with node.lock("x"):
            pass
        kept.append(node)

    asyncio.run(forgetful())
    with members(tmp_path, "b") as (b,):
        assert b.hello["members"] == ["b"]
        assert b.ask("acquire", "x")["fence"]


# -- cancelled and lost at once -----------------------------------------------------------------------------------------


def test_a_body_that_is_cancelled_before_it_begins_leaves_nothing_behind(tmp_path: Path) -> None:
    """A lock that is free is granted at once, and then the event loop may have its turn: a cancellation comes there."""

    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            lock, ended = node.lock("x"), 0
            for _ in range(300):
                node._shell.pace.yield_at = 0.0  # a turn of the loop is due
                try:
                    async with asyncio.timeout(0), lock:
                        pass
                except TimeoutError:
                    ended += 1
                assert node._shell.core.table.locks["x"].holder is None
            assert ended

    asyncio.run(whole())


LEAVES = """
import signal, sys, threading, peerlock.sync
node = peerlock.sync.join("g", dir=sys.argv[1], name="a")
def handler(*_):
    if sys.argv[2] == "leave":
        node.leave()
    else:
        try:
            node.status(0.05)
        except peerlock.UsageError:
            pass
signal.signal(signal.SIGALRM, handler)
with node._shell.mutex:  # the node's work is interrupted in the middle
    signal.raise_signal(signal.SIGALRM)
if sys.argv[2] == "leave":
    node._shell.reader.join(10)
    assert not node._shell.reader.is_alive()
else:
    with node.lock("x"):
        node.status(0.05)
    node.leave()
print("fine")
"""


@pytest.mark.parametrize("what", ["leave", "status"])
def test_a_signal_handler_that_leaves_or_asks_for_the_status(what: str, tmp_path: Path) -> None:
    """A handler of SIGTERM leaves, naturally. It waited for the reader thread, which waited for it."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, str(tmp_path), what], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "fine\n", done.stderr


def test_a_signal_handler_that_asks_for_the_lock_its_thread_waits_for(tmp_path: Path) -> None:
    said: list[Exception] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            node.lock("x").acquire(timeout=5)
        except AlreadyHeld as problem:
            said.append(problem)
        free.set()

    free = threading.Event()
    with peerlock.sync.join("g", dir=tmp_path) as node:
        hold = node.lock("x").acquire().detach()

        def release() -> None:
            free.wait(20)
            hold.release()

        threading.Thread(target=release).start()
        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with node.lock("x"):
                pass
        finally:
            signal.signal(signal.SIGALRM, before)
        assert "waits for the lock x" in str(said[0])


@pytest.mark.parametrize("acquired", [False, True])
def test_a_task_that_is_cancelled_while_its_lock_is_lost_is_cancelled(acquired: bool, tmp_path: Path) -> None:
    """Also in the body of `async with await lock.acquire()`."""

    async def whole() -> None:
        node = await peerlock.join("g", dir=tmp_path)
        inside = asyncio.Event()

        async def body() -> None:
            async with await node.lock("x").acquire() if acquired else node.lock("x"):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel()
        await node.leave()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(whole())


def test_a_grant_whose_lease_is_over_when_its_task_has_its_turn_is_lost(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as node:
            hold = await node.lock("x").acquire()
            waiter = asyncio.create_task(node.lock("x").acquire())
            await asyncio.sleep(0.01)
            hold.release()  # granted; the task has not had its turn
            node._shell.core.deadline.until = node._shell.now() - 1.0  # it was stopped for that long
            with pytest.raises(LockLost):
                await waiter

    asyncio.run(whole())


KINDS: dict[str, Any] = {
    "lock": lambda node: node.lock("x"),
    "reader": lambda node: node.rwlock("x").read(),
    "lock_all": lambda node: node.lock_all(["x", "y"]),
}


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_raises_before_the_first_step_of_the_end_leaves_no_hold(
    kind: str, kept: bool, tmp_path: Path
) -> None:
    """`kept`: one lock object serves many `with` blocks, and lives on."""

    class Interrupt(Exception):
        pass

    def raises(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code in (ThreadLock._exit.__code__, LockAll._exit.__code__) and event == "call":
            sys.settrace(None)
            raise Interrupt

    def interrupted(lock: Any) -> None:
        with pytest.raises(Interrupt):
            sys.settrace(raises)
            try:
                with lock:
                    pass
            finally:
                sys.settrace(None)

    with peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        lock = KINDS[kind](node)
        for _ in range(3):
            interrupted(lock if kept else KINDS[kind](node))
            with lock:
                pass
            assert all(free(node, name, kind) for name in ("x", "y"))


@pytest.mark.parametrize("names", [["x"], ["x", "y"]])
def test_an_interrupted_body_leaves_no_hold(names: list[str], tmp_path: Path) -> None:
    class Interrupt(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupt

    with peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        before = signal.signal(signal.SIGALRM, handler)
        try:
            for turn in range(300):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00002 + turn % 50 * 0.00001)
                    with node.lock_all(names) if len(names) > 1 else node.lock(*names):
                        pass
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except (Interrupt, LockLost):
                    signal.setitimer(signal.ITIMER_REAL, 0)
                assert all(free(node, name) for name in names), turn
        finally:
            signal.signal(signal.SIGALRM, before)


def free(node: Node, name: str, kind: str = "lock") -> bool:
    found: list[Any] = []

    def attempt() -> None:  # another thread: this one would be told that it has the lock already
        lock = node.rwlock(name).write() if kind == "reader" else node.lock(name)
        hold = lock.try_acquire(patience_s=3)
        found.append(hold)
        if hold is not None:
            hold.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found[0] is not None
