"""The lock for threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import peerlock.sync
from peerlock.errors import AlreadyHeld, LockLost, LockTimeout, NodeClosed, UsageError
from peerlock.net.control.client import Caller
from peerlock.net.threads.node import Node
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.wire import LENGTH, LockReport
from places import until
from shells import thread_member


@contextlib.contextmanager
def group(directory: Path, *names: str):  # type: ignore[no-untyped-def]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(peerlock.sync.join("g", dir=directory, name=name)) for name in names]


def test_threads_of_several_nodes_exclude_each_other(tmp_path: Path) -> None:
    inside, entries, fences = [], [], []

    def work(node: Node) -> None:
        lock = node.lock("x")
        for _ in range(200):
            with lock as hold:
                inside.append(1)
                assert len(inside) == 1
                fences.append(hold.fence)
                inside.pop()
                entries.append(1)

    with group(tmp_path, "a", "b", "c") as nodes:
        threads = [threading.Thread(target=work, args=(node,)) for node in nodes for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(entries) == 1800
    assert fences == sorted(set(fences))


def test_the_same_words(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b", "c") as (a, b, c):
        hold = a.lock("x").acquire()
        assert b.lock("x").try_acquire(patience_s=0.05) is None
        with pytest.raises(LockTimeout, match="never held"):
            b.lock("x").acquire(timeout=0.05)
        assert b.status().locks[0].holders[0].node.startswith("a")
        hold.release()
        with pytest.raises(UsageError, match="released before"):
            hold.release()
        with b.lock("x") as hold:
            hold.detach()
        assert hold.held
        hold.release()
        with a.rwlock("y").read(), b.rwlock("y").read():
            assert c.rwlock("y").write().try_acquire(patience_s=0.05) is None
        with a.lock_all(["q", "p"]) as holds:
            assert [hold.name for hold in holds] == ["p", "q"]
        with a.lock("x"), pytest.raises(AlreadyHeld, match="This thread"):
            a.lock("x").acquire()


def test_leaving_while_others_wait(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        hold = a.lock("x").acquire()
        failed = []

        def wait() -> None:
            try:
                b.lock("x").acquire()
            except NodeClosed as problem:
                failed.append(str(problem))

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.1)
        b.leave()
        waiter.join(5)
        assert "never held" in failed[0]
        a.leave()
        assert hold.lost.is_set()
        with pytest.raises(LockLost):
            hold.check()
        with pytest.raises(NodeClosed, match="join again"):
            a.lock("x").acquire()


def test_an_exception_while_waiting_gives_the_ticket_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        hold = a.lock("x").acquire()
        lock = b.lock("x")

        class Interrupted:
            def acquire(self, timeout: float = -1) -> bool:
                raise KeyboardInterrupt

            def locked(self) -> bool:
                return True

            def release(self) -> None:
                pass

        before: Any = lock._wait

        def wait(hold: peerlock.sync.Hold, *more: float | None) -> bool:
            hold._wake = Interrupted()
            return bool(before(hold, *more))

        monkeypatch.setattr(lock, "_wait", wait)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
        hold.release()
        assert a.lock("x").acquire(timeout=5).held


def test_asyncio_and_threads_in_one_group(tmp_path: Path) -> None:
    import asyncio

    async def other() -> None:
        async with peerlock.join("g", dir=tmp_path, name="aio") as node:
            for _ in range(50):
                async with node.lock("x"):
                    pass

    with group(tmp_path, "a") as (a,):
        thread = threading.Thread(target=lambda: asyncio.run(other()))
        thread.start()
        for _ in range(50):
            with a.lock("x"):
                pass
        thread.join(30)
        assert not thread.is_alive()


def test_without_a_descriptor_left_the_reader_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener stays readable as long as nobody accepts: whoever only tries again does nothing else."""
    tries, real, full = list[float](), socket.socket.accept, [True]

    def accept(self: socket.socket) -> Any:
        tries.append(time.monotonic())
        if full[0]:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with group(tmp_path, "a") as (first,), contextlib.ExitStack() as stack:
        joining = threading.Thread(target=lambda: stack.enter_context(peerlock.sync.join("g", dir=tmp_path, name="b")))
        joining.start()
        time.sleep(1.0)
        assert 1 <= len(tries) <= 5
        full[0] = False
        joining.join(20)
        assert not joining.is_alive()
        assert set(first.members) == {"a", "b"}


def test_a_handler_that_raises_anywhere_breaks_nothing(tmp_path: Path) -> None:
    """Alarms at random moments, in a process of its own: its main thread is where handlers run."""
    script = """
import random, signal, sys, threading, time
import peerlock.sync

class Soft(Exception):
    pass

def handler(*_):
    raise Soft

signal.signal(signal.SIGALRM, handler)
a, b = (peerlock.sync.join("g", dir=sys.argv[1], name=name) for name in "ab")
stop, inside, overlaps = False, [], []

def enters(lock):
    with lock as hold:
        inside.append(hold)
        overlaps.extend([1] if sum(other.state == 1 for other in inside) > 1 else [])
        inside.remove(hold)

def other():
    lock = b.lock("x")
    while not stop:
        enters(lock)
        time.sleep(0.0003)

thread = threading.Thread(target=other, daemon=True)
thread.start()
random.seed(1)
lock, interrupted, end = a.lock("x"), 0, time.monotonic() + 3
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00005, 0.002))
        while True:
            hold = lock.acquire()
            hold.release()
    except (Soft, peerlock.errors.LockLost):
        interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    with a._shell.mutex:
        left = a._shell.core.table.locks["x"].holder if "x" in a._shell.core.table.locks else None
    if left is not None and left.state == 1:
        left.release()  # granted, and interrupted before anybody had it
    found = lock.try_acquire(patience_s=10)
    assert found is not None, "it waits for ever"
    found.release()
stop = True
thread.join(10)
assert not thread.is_alive() and not overlaps
print(interrupted, flush=True)
b.leave()
a.leave()
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50


def test_a_body_that_ends_in_another_thread(tmp_path: Path) -> None:
    with group(tmp_path, "a") as (node,):
        lock, problems = node.lock("x"), list[BaseException]()
        lock.__enter__()

        def end() -> None:
            try:
                lock.__exit__(None, None, None)
            except UsageError as problem:
                problems.append(problem)

        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        assert "ends in another thread than it began in" in str(problems[0])
        lock.__exit__(None, None, None)
        with lock as outer:
            outer.detach()
            outer.release()
            with lock as inner:
                assert inner.held
        assert not inner.held


def test_an_outer_body_is_told_of_its_loss_whatever_happens_within(tmp_path: Path) -> None:
    with group(tmp_path, "a") as (node,):
        lock = node.lock("x")
        with pytest.raises(LockLost, match="for this test"), lock:
            with node._shell.mutex:
                node._shell.core.table.locks["x"].lose("The lock x is lost, for this test.")
                node._shell.core.table.locks["x"].settled(node._shell.now())
                node._shell.carry_out()
            with lock as inner:
                assert inner.held
            assert not inner.held


@pytest.mark.parametrize("frame", [b"\x91" * 3000, b"\xc1"])
def test_nonsense_ends_the_link_and_not_the_node(tmp_path: Path, frame: bytes) -> None:
    with group(tmp_path, "a") as (node,):
        path = thread_member(node).registry.endpoint(node._shell.core.me).path
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(path)
            made.sendall(LENGTH.pack(len(frame)) + frame)
            made.settimeout(5)
            while made.recv(4096):
                pass
        assert node._shell.reader.is_alive()
        assert node.lock("x").acquire(timeout=5).held


def test_on_loss_may_exit_and_may_not_ask_a_node_that_leaves(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        asked = list[BaseException]()

        def ask() -> None:
            try:
                a.lock("x").acquire(timeout=1)
            except UsageError as problem:  # on_loss runs in the middle of the node's work
                asked.append(problem)
            sys.exit(1)

        hold = a.lock("x").acquire()
        hold.on_loss = ask
        a.leave()
        assert len(asked) == 1
        assert b.lock("x").acquire(timeout=5).held


@pytest.mark.parametrize("lie", [LockReport("x", 1, "write"), LockReport("x", 99, None), LockReport("x", 99, "read")])
def test_a_report_that_lies_ends_no_node(tmp_path: Path, lie: LockReport) -> None:
    with group(tmp_path, "a", "b", "liar") as (a, b, liar):
        hold = a.lock("x").acquire()
        table: Any = liar._shell.core.table
        truth, table.report = table.report, lambda now: (*truth(now), lie)
        b.collect()  # a new epoch
        asyncio.run(until(lambda: a.epoch == b.epoch == liar.epoch > 3))
        for node in (a, b, liar):
            with node.lock("y").acquire(timeout=20):
                pass
        hold.check()
        table.report = truth
        hold.release()
        b.collect()
        for node in (a, b):
            with node.lock("x").acquire(timeout=20):
                pass


def test_a_node_that_was_interrupted_joins_again_and_its_waiters_ask_again(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        others, lost, granted = a.lock("x").acquire(), b.lock("y").acquire(), list[bool]()
        waiter = threading.Thread(target=lambda: granted.append(b.lock("x").acquire(timeout=20).held))
        waiter.start()
        while not b._shell.waiting:
            time.sleep(0.01)
        with b._shell.mutex:
            b._shell.upset(KeyboardInterrupt())
        assert lost.lost.is_set()
        with pytest.raises(LockLost, match="a signal's handler raised"):
            lost.release()
        assert a.lock("y").acquire(timeout=10).fence > lost.fence
        others.release()
        waiter.join(20)
        assert granted == [True]


def test_a_node_that_was_interrupted_is_reminded_again_of_what_it_holds_back(tmp_path: Path) -> None:
    """Else a request that has missed its successor waits for ever: nobody else is told of it."""
    with group(tmp_path, *"abcde") as nodes:
        node = nodes[0]
        with node._shell.mutex:
            node._shell.core.table.withheld_timer_set = True  # interrupted right there
            node._shell.upset(KeyboardInterrupt())
        node.lock("x").acquire(timeout=10).release()
        local_lock = node._shell.core.table.locks["x"]
        with node._shell.mutex:
            local_lock.left_at, local_lock.waited = node._shell.now(), 0.0
            node._shell.core.table.withhold(local_lock)
        end = time.monotonic() + 10
        while node._shell.core.table.withheld:
            assert time.monotonic() < end, "no reminder came"
            time.sleep(0.01)


def test_a_command_that_waits_at_a_node_that_was_interrupted_is_told(tmp_path: Path) -> None:
    """And its place in the queue of what was forgotten does no harm when it goes."""
    with group(tmp_path, "a", "b") as (a, b):
        hold = a.lock("x").acquire()
        caller = Caller(Path(thread_member(a).registry.endpoint(a._shell.core.me).path), "g")
        caller.send("acquire", lock="x", mode="")
        while not a._shell.core.table.locks["x"].queue:
            time.sleep(0.01)
        with a._shell.mutex:
            a._shell.upset(KeyboardInterrupt())
        assert not hold.held
        answer = caller.read()
        assert not answer.ok
        assert "The lock was never held" in answer.value["sentence"]
        other = b.lock("x").acquire(timeout=10)
        caller.close()
        assert a.lock("x").try_acquire(patience_s=0.5) is None
        other.release()
        assert a.lock("x").acquire(timeout=10).fence > other.fence


def test_a_leave_that_is_interrupted_closes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with group(tmp_path, "b") as (b,):
        a = peerlock.sync.join("g", dir=tmp_path, name="a")
        hold = a.lock("x").acquire()

        def interrupted() -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(thread_member(a).registry, "leave", interrupted)
        with pytest.raises(KeyboardInterrupt):
            a.leave()
        a.leave()
        assert not hold.held
        a._shell.reader.join(10)
        assert not a._shell.reader.is_alive()
        assert b.lock("x").acquire(timeout=10).fence > hold.fence


@pytest.mark.parametrize("interrupted", ["settled", "lose"])
def test_a_lapse_that_is_interrupted_leaves_nobody_with_a_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    with group(tmp_path, "a") as (a,):
        holds = [a.rwlock("x").read().acquire().detach() for _ in range(2)] + [a.lock("y").acquire()]
        real, times = getattr(LocalLock, interrupted), list[int]()

        def once(self: LocalLock, *words: Any) -> Any:
            times.append(1)
            if len(times) == 2:
                raise KeyboardInterrupt
            return real(self, *words)

        monkeypatch.setattr(LocalLock, interrupted, once)
        with a._shell.mutex:
            a._shell.core.deadline.until = a._shell.now()  # as if there were a lease
        with pytest.raises((KeyboardInterrupt, LockLost)):
            holds[0].check()
        assert len(times) >= 2
        assert not any(hold.held for hold in holds)
