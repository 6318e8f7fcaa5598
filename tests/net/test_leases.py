"""What becomes of a hold when its lease runs out: whoever can be told is told, and nobody else is let in before."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from etcds import Cluster, etcd
from peerlock.errors import LockLost
from peerlock.net.aio.node import Node
from peerlock.net.registries.leased import LeasedRegistry
from shells import thread_member

LEASE_S = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


class Place:
    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.directory, self.cluster = directory, cluster

    def words(self, name: str, **more: Any) -> dict[str, Any]:
        etcd = {"endpoints": self.cluster.clients, "prefix": f"/{self.directory.name}"}
        return {"name": name, "etcd": etcd, "lease_s": LEASE_S, "state": self.directory / name, **more}

    @contextmanager
    def away(self) -> Iterator[None]:
        """The registry is not reached."""
        import signal

        self.cluster.send(0, signal.SIGSTOP)
        try:
            yield
        finally:
            self.cluster.send(0, signal.SIGCONT)


@pytest.fixture
def place(tmp_path: Path, server: Cluster) -> Place:
    return Place(tmp_path, server)


async def _join(joining: Any) -> Node:
    """A node that has a lease."""
    node: Node = await joining
    async with node.lock("x"):
        pass
    return node


@asynccontextmanager
async def joined(place: Place, name: str, **more: Any) -> AsyncIterator[Node]:
    node = await _join(peerlock.join("g", **place.words(name, **more)))
    try:
        yield node
    finally:
        await node.leave()


def test_a_body_is_cancelled_and_the_loss_is_raised(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node:
            reached = []
            hold: Any = None
            with place.away():
                with pytest.raises(LockLost, match="It was held until now"):
                    async with node.lock("x") as hold:
                        try:
                            await asyncio.sleep(10 * LEASE_S)
                        finally:
                            reached.append(hold.held)
                assert reached == [False]
                assert hold.lost.is_set()
                assert hold.remaining() == 0.0
                await asyncio.sleep(0.05)  # the task itself was not cancelled
            async with asyncio.timeout(10), node.lock("x") as later:
                assert later.fence > hold.fence

    asyncio.run(whole())


def test_who_looks_is_told_before_any_timer_had_its_turn(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node:
            with place.away():
                with pytest.raises(LockLost):
                    async with node.lock("x") as hold:
                        time.sleep(1.5 * LEASE_S)  # the loop does not run
                        hold.check()
                        pytest.fail("it was held after its lease")
                await asyncio.sleep(0)
                async with asyncio.timeout(5):
                    hold = await asyncio.ensure_future(_after(node, place))
                with pytest.raises(LockLost):
                    time.sleep(1.5 * LEASE_S)
                    hold.release()
                await asyncio.sleep(0)

    async def _after(node: Node, place: Place) -> Any:
        import signal

        place.cluster.send(0, signal.SIGCONT)
        hold = await node.lock("x").acquire()
        place.cluster.send(0, signal.SIGSTOP)
        return hold

    asyncio.run(whole())


def test_the_end_of_a_body_tells_it_too(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node:
            with place.away(), pytest.raises(LockLost):
                async with node.lock("x"):
                    time.sleep(1.5 * LEASE_S)
            await asyncio.sleep(0)

    asyncio.run(whole())


def test_a_busy_loop_keeps_its_locks(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node, node.lock("x") as hold:
            for _ in range(3):
                time.sleep(1.5 * LEASE_S)
                hold.check()
            assert hold.remaining() > 0

    asyncio.run(whole())


def test_a_loop_that_hangs_loses_them(place: Place) -> None:
    async def whole() -> None:
        other = await asyncio.to_thread(lambda: peerlock.sync.join("g", **place.words("b")))
        node = await _join(peerlock.join("g", **place.words("a", stall_s=1.0)))
        got: list[float] = []

        def want() -> None:
            with other.lock("x"):
                got.append(time.monotonic())

        thread = threading.Thread(target=want)
        with pytest.raises(LockLost):
            async with node.lock("x"):
                thread.start()
                time.sleep(1.0 + 4 * LEASE_S)  # longer than stall_s and a lease
                assert got, "the other was let in although this one never came back"
        thread.join()
        await node.leave()
        await asyncio.to_thread(other.leave)

    asyncio.run(whole())


STOPS = """
import asyncio, json, os, signal, sys, time, peerlock
from peerlock.errors import LockLost
from peerlock.net.aio.hold import Hold
from peerlock.node.locks.ticket import HELD

woken = Hold.woken
def stops(hold):
    woken(hold)
    if hold.state == HELD:  # the lock is granted, and the task that waits for it has not had its turn
        Hold.woken = woken
        print("granted", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)

async def main():
    node = await peerlock.join("g", **json.loads(sys.argv[1]))
    async with node.lock("z"):
        pass
    Hold.woken = stops
    print("waits", flush=True)
    try:
        async with node.lock("x"):
            print("inside", flush=True)
    except LockLost:
        print("lost", flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_a_process_that_is_stopped_between_a_grant_and_its_body_does_not_begin_the_body(place: Place) -> None:
    words = {key: str(value) if isinstance(value, Path) else value for key, value in place.words("a").items()}
    with (
        peerlock.sync.join("g", **place.words("b")) as other,
        subprocess.Popen(
            [sys.executable, "-c", STOPS, json.dumps(words)], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            hold = other.lock("x").acquire()
            assert process.stdout.readline() == "waits\n"
            time.sleep(0.2)
            hold.release()
            assert process.stdout.readline() == "granted\n"
            with other.lock("x"):  # when the lease of the stopped process is over
                process.send_signal(signal.SIGCONT)
                assert process.stdout.readline() == "lost\n"
        finally:
            process.kill()


def test_threads_are_told(place: Place) -> None:
    with peerlock.sync.join("g", **place.words("a")) as node:
        with node.lock("x"):
            pass
        with place.away(), pytest.raises(LockLost), node.lock("x") as hold:
            assert hold.lost.wait(5 * LEASE_S)
            with pytest.raises(LockLost):
                hold.check()
        held = node.lock("x").acquire(timeout=10)
        with place.away():
            time.sleep(1.5 * LEASE_S)
            with pytest.raises(LockLost):
                held.release()


def test_nested_locks_are_lost_together(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node:
            with place.away(), pytest.raises(LockLost):
                async with node.lock("x"), node.lock("y"):
                    await asyncio.sleep(10 * LEASE_S)
            await asyncio.sleep(0.01)
            async with asyncio.timeout(10), node.lock_all(["x", "y"]) as holds:
                assert all(hold.held for hold in holds)

    asyncio.run(whole())


def test_a_users_own_cancellation_goes_on(place: Place) -> None:
    async def whole() -> None:
        async with joined(place, "a") as node:

            async def body() -> None:
                async with node.lock("x"):
                    await asyncio.sleep(60)

            task = asyncio.ensure_future(body())
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(5), node.lock("x"):
                pass

    asyncio.run(whole())


STUCK = """
import sys, json, time, peerlock.sync, signal, os
node = peerlock.sync.join("g", **json.loads(sys.argv[1]), watchdog=True)
hold = node.lock("x").acquire()
print(hold.fence, flush=True)
{stuck}
print("it goes on", flush=True)
"""


@pytest.mark.parametrize(
    "stuck",
    ["os.kill(os.getpid(), signal.SIGSTOP)", "import ctypes; ctypes.PyDLL(None).usleep(60_000_000)"],
    ids=["stopped", "C code that keeps the interpreter's lock"],
)
def test_the_watchdog_ends_a_process_that_is_stuck(place: Place, stuck: str) -> None:
    words = place.words("a")
    words["state"] = str(words["state"])
    import msgspec

    with subprocess.Popen(
        [sys.executable, "-c", STUCK.format(stuck=stuck), msgspec.json.encode(words).decode()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        fence = int(process.stdout.readline())
        assert process.wait(15) == -9
        assert "it goes on" not in process.stdout.read()
    with peerlock.sync.join("g", **place.words("b")) as node, node.lock("x") as hold:
        assert hold.fence > fence


CHILD = "os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '77.7'); os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.mark.parametrize("leads", [True, False], ids=["leads its process group", "is one of a group"])
def test_the_watchdog_ends_the_group_of_who_leads_one(place: Place, leads: bool) -> None:
    import msgspec

    words = place.words("a")
    words["state"] = str(words["state"])
    told = msgspec.json.encode(words).decode()
    program = STUCK.format(stuck=CHILD)
    start = (
        program
        if leads
        else f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}, sys.argv[1]])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", start, told],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            process.stdout.readline()
            assert process.wait(15) == (-9 if leads else 0)  # who has started it is left alone
            for _ in range(500):
                if not leads or not any(alive_in_group(process.pid)):
                    break
                time.sleep(0.01)
            assert any(alive_in_group(process.pid)) != leads
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def alive_in_group(group: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _parent, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                yield int(entry.name)


def test_without_its_watchdog_a_node_has_no_lease(place: Place) -> None:
    with peerlock.sync.join("g", **place.words("a"), watchdog=True) as node:
        with node.lock("x"):
            pass
        registry = thread_member(node).registry
        assert isinstance(registry, LeasedRegistry)
        assert registry.watchdog is not None
        registry.watchdog.process.kill()
        end = time.monotonic() + 15
        while node._shell.core.table.may_hold:
            assert time.monotonic() < end, "its lease goes on"
            time.sleep(0.05)


SHADOWS = (
    "contextlib",
    "mmap",
    "os",
    "select",
    "signal",
    "socket",
    "struct",
    "subprocess",
    "time",
    "peerlock/__init__",
)
STARTED = """
import os, sys
from peerlock.net.processes.watchdog import Watchdog
os.chdir(sys.argv[1])
watchdog = Watchdog()
watchdog.close()
"""


@pytest.mark.parametrize("path", [None, "/", "", "."], ids=["no PYTHONPATH", "absolute", "an empty entry", "relative"])
def test_the_watchdog_imports_nothing_from_the_current_directory(tmp_path: Path, path: str | None) -> None:
    """Files of a stranger lie there. PYTHONPATH may have relative entries, which meant another directory at the start."""
    seen = tmp_path / "seen"
    folder = tmp_path / "folder"
    for name in SHADOWS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(f"open({str(seen)!r}, 'a').write({name!r} + ' ')\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ours = str(Path(peerlock.__file__).parent.parent)
    if path is not None:
        environment["PYTHONPATH"] = f"{ours}:{path}"
    program = f"import sys; sys.path.insert(0, {ours!r})\n{STARTED}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(folder)],
        capture_output=True, text=True, timeout=30, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not seen.exists(), seen.read_text()


HEALTHY = "time.sleep(3); hold.release(); node.leave()"
INTERRUPTED = """
with node._shell.mutex:
    node._shell.upset(KeyboardInterrupt())  # as if a signal's handler had raised there: it joins again
assert not hold.held
with node.lock("x") as again:  # which takes a lease, in which nothing is held that the watchdog would have to end
    assert again.fence > hold.fence
node.leave()
"""


@pytest.mark.parametrize("fate", [HEALTHY, INTERRUPTED], ids=["healthy", "interrupted in the middle of its work"])
def test_the_watchdog_leaves_alone_who_holds_what_it_may(place: Place, fate: str) -> None:
    import msgspec

    words = place.words("a")
    words["state"] = str(words["state"])
    done = subprocess.run(
        [sys.executable, "-c", STUCK.replace("{stuck}", fate), msgspec.json.encode(words).decode()],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "it goes on" in done.stdout
