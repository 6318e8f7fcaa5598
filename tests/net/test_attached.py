"""Processes that are attached to a host node (`share="always"`): the same locks, and none of them can stop the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import peerlock
import peerlock.sync
from peerlock.bench.crowd import Crowd
from peerlock.net.attached.directory import AttachedDirectory
from processes import Member, members

pytestmark = pytest.mark.as_users_do


def host_of(directory: Path, group: str = "g") -> int:
    """The pid of the newest host node."""
    place = AttachedDirectory(group, directory)
    newest = (place.path / "generations" / str(place.generations()[-1])).read_bytes()
    return int(json.loads(newest)["pid"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a group. Its host node ends with the test."""
    yield tmp_path
    with contextlib.suppress(FileNotFoundError, IndexError, ProcessLookupError):
        os.kill(host_of(tmp_path), signal.SIGKILL)


def attached(place: Path, *names: str) -> contextlib.AbstractContextManager[list[Member]]:
    return members(place, *names, share="always")


def test_tasks(place: Path) -> None:
    async def main() -> None:
        async with peerlock.join("g", dir=place, share="always", name="anna") as node:
            lock = node.lock("x")
            async with lock as first:
                assert first.held
            async with lock as second:
                assert second.fence > first.fence
            with pytest.raises(peerlock.AlreadyHeld):
                async with lock, lock:
                    pass
            waits = asyncio.create_task(node.lock("y").acquire())
            hold = await waits
            other = asyncio.create_task(node.lock("y").acquire())
            await asyncio.sleep(0.01)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            hold.release()
            assert await node.lock("y").try_acquire() is not None
            assert len(node.members) == 1

    asyncio.run(main())


def test_readers_share_and_writers_do_not(place: Path) -> None:
    async def main() -> None:
        async with (
            peerlock.join("g", dir=place, share="always", name="anna") as anna,
            peerlock.join("g", dir=place, share="always", name="ben") as ben,
        ):
            async with anna.rwlock("x").read() as one, ben.rwlock("x").read() as other:
                assert one.held
                assert other.held
                writer = asyncio.create_task(anna.rwlock("x").write().acquire())
                await asyncio.sleep(0.05)
                assert not writer.done()
            hold = await writer
            assert hold.fence > max(one.fence, other.fence)
            hold.release()

    asyncio.run(main())


def test_the_smaller_priority_goes_first(place: Path) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(peerlock.join("g", dir=place, share="always", name=name))
                for name in ("anna", "ben", "cleo", "dora")
            ]
            served = []

            async def want(node: peerlock.Node, priority: int) -> None:
                async with node.lock("x", priority=priority):
                    served.append(node.name)

            anna, ben, cleo, dora = nodes
            for _ in range(2):
                hold = await anna.lock("x", priority=5).acquire(timeout=5)
                tasks = []
                for node, priority in ((ben, 1000), (cleo, 100), (dora, 1)):
                    tasks.append(asyncio.create_task(want(node, priority)))
                    await asyncio.sleep(0.1)
                hold.release()
                await asyncio.wait_for(asyncio.gather(*tasks), 10)
            assert served == ["dora", "cleo", "ben"] * 2

    asyncio.run(main())


def test_hand_overs_between_processes(place: Path) -> None:
    with attached(place, "anna", "ben", "cleo") as three:
        fences = []
        for turn in range(12):
            one = three[turn % 3]
            fences.append(one.ask("acquire", "x")["fence"])
            waiting = three[(turn + 1) % 3]
            waiting.tell("acquire", "x")
            one.ask("release", "x")
            fences.append(waiting.answer()["fence"])
            waiting.ask("release", "x")
        assert fences == sorted(set(fences))


def test_a_process_that_dies_inside(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        fence = anna.ask("acquire", "x")["fence"]
        ben.tell("acquire", "x")
        anna.kill()
        began = time.monotonic()
        assert ben.answer()["fence"] > fence
        assert time.monotonic() - began < 1.0


def test_a_process_that_is_stopped_and_inside_nothing_is_not_waited_for(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        fence = anna.ask("acquire", "x")["fence"]
        anna.ask("release", "x")  # it keeps the lock, for it may want it again
        anna.kill(signal.SIGSTOP)
        began = time.monotonic()
        assert ben.ask("acquire", "x")["fence"] > fence
        assert time.monotonic() - began < 1.5
        ben.ask("release", "x")
        anna.kill(signal.SIGCONT)
        assert anna.ask("acquire", "x", 5)["fence"] > fence


def test_a_process_that_is_stopped_while_it_waits_is_passed_over(place: Path) -> None:
    with attached(place, "anna", "ben", "cleo") as (anna, ben, cleo):
        anna.ask("acquire", "x")
        ben.tell("acquire", "x")
        time.sleep(0.2)
        cleo.tell("acquire", "x")
        time.sleep(0.2)
        ben.kill(signal.SIGSTOP)
        anna.ask("release", "x")
        began = time.monotonic()
        fence = cleo.answer()["fence"]
        assert time.monotonic() - began < 1.5
        cleo.ask("release", "x")
        ben.kill(signal.SIGCONT)
        assert ben.answer()["fence"] > fence


def test_a_process_that_is_stopped_inside_holds_up_nothing_else(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        anna.ask("acquire", "x")
        anna.kill(signal.SIGSTOP)
        ben.tell("acquire", "x")
        with attached(place, "cleo") as (cleo,):  # a join, and a leave, change nothing for the others
            began = time.monotonic()
            cleo.ask("acquire", "y")
            cleo.ask("release", "y")
            assert time.monotonic() - began < 0.5
            cleo.ask("leave")
        anna.kill(signal.SIGCONT)
        anna.ask("release", "x")
        ben.answer()


def test_a_process_looks_before_it_enters_again(place: Path) -> None:
    """It has kept the lock, and the host node has given the lock to another process without asking it."""

    async def main() -> None:
        async with (
            peerlock.join("g", dir=place, share="always", name="anna") as anna,
            peerlock.join("g", dir=place, share="always", name="ben") as ben,
        ):
            lock = anna.lock("x")
            for _ in range(3):
                async with lock:
                    pass
            async with ben.lock("x") as hold:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3), lock:
                        pass
                assert hold.held
            async with lock as later:
                assert later.fence > hold.fence

    asyncio.run(main())


def test_a_process_that_is_inside_is_seen_to_be(place: Path) -> None:
    """It has entered again without a message."""

    async def main() -> None:
        async with (
            peerlock.join("g", dir=place, share="always", name="anna") as anna,
            peerlock.join("g", dir=place, share="always", name="ben") as ben,
        ):
            lock = anna.lock("x")
            async with lock:
                pass
            async with lock:
                assert await ben.lock("x").try_acquire(patience_s=0.8) is None
            async with ben.lock("x"):
                pass

    asyncio.run(main())


def test_four_processes_and_host_nodes_that_are_killed(place: Path) -> None:
    """They share a counter: nobody overlaps, no update is lost, fences increase. One of them is killed, too."""
    (place / "board").mkdir()
    crowd = Crowd(place / "board", "g", "suzuki-kasami-a", 4, share="always")
    board = place / "board"
    try:
        for _ in range(2):
            time.sleep(2.0)
            os.kill(host_of(board), signal.SIGKILL)
        time.sleep(1.0)
        crowd.kill(crowd.processes.pop())
        time.sleep(1.0)
        account = crowd.end()
    finally:
        os.kill(host_of(board), signal.SIGKILL)
    assert (account.overlaps, account.lost_updates, account.fences_out_of_order, account.starved) == (0, 0, 0, 0)
    assert account.entries > 1000


def test_what_is_held_outlives_the_host_node(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        fence = anna.ask("acquire", "x")["fence"]
        ben.tell("acquire", "x")
        first = host_of(place)
        os.kill(first, signal.SIGKILL)
        time.sleep(1.5)
        assert host_of(place) != first
        with pytest.raises(AssertionError):  # nobody has it but anna
            peerlock_try(place, "x")
        anna.ask("release", "x")
        assert ben.answer()["fence"] > fence


def test_a_host_node_that_is_stopped_is_ended(place: Path) -> None:
    with attached(place, "anna", "ben", "cleo") as (anna, ben, cleo):
        kept = anna.ask("acquire", "x")["fence"]
        anna.ask("release", "x")
        fence = cleo.ask("acquire", "y")["fence"]
        first = host_of(place)
        os.kill(first, signal.SIGSTOP)
        began = time.monotonic()
        assert ben.ask("acquire", "x")["fence"] > kept
        assert time.monotonic() - began < 5.0
        assert host_of(place) != first
        ben.tell("acquire", "y")
        time.sleep(0.2)
        cleo.ask("release", "y")
        assert ben.answer()["fence"] > fence


def test_a_process_that_comes_finds_a_host_node_that_is_stopped(place: Path) -> None:
    with attached(place, "anna") as (anna,):
        fence = anna.ask("acquire", "x")["fence"]
        anna.ask("release", "x")
        os.kill(host_of(place), signal.SIGSTOP)
        with attached(place, "ben") as (ben,):
            assert ben.ask("acquire", "x", 10)["fence"] > fence


def test_what_a_silent_process_is_inside_of_outlives_the_host_node(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        fence = anna.ask("acquire", "x")["fence"]
        anna.ask("acquire", "z")
        anna.ask("release", "z")
        anna.kill(signal.SIGSTOP)
        os.kill(host_of(place), signal.SIGKILL)
        assert ben.ask("acquire", "z", 10)["fence"]  # anna was not inside, and is revoked
        ben.tell("acquire", "x")
        time.sleep(1.0)
        anna.kill(signal.SIGCONT)
        anna.ask("release", "x")
        assert ben.answer()["fence"] > fence
        ben.ask("release", "z")
        assert anna.ask("acquire", "z", 10)["fence"]


def test_a_member_of_the_group_waits_for_what_is_attached_to_a_dead_host_node(place: Path) -> None:
    with members(place, "olga") as (olga,), attached(place, "anna") as (anna,):
        fence = anna.ask("acquire", "x")["fence"]
        anna.kill(signal.SIGSTOP)  # so that it starts no host node
        os.kill(host_of(place), signal.SIGKILL)
        olga.tell("acquire", "x")
        time.sleep(3.0)
        anna.kill(signal.SIGCONT)
        began = time.monotonic()
        time.sleep(2.0)
        anna.ask("release", "x")
        assert olga.answer()["fence"] > fence
        assert time.monotonic() - began > 2.0


def test_a_host_node_that_had_no_process_is_excluded(place: Path) -> None:
    with members(place, "olga") as (olga,):
        with attached(place, "anna") as (anna,):
            anna.ask("acquire", "x")
            os.kill(host_of(place), signal.SIGKILL)
            anna.kill()
        assert olga.ask("acquire", "x", 20)["fence"]


def test_a_forked_child_is_not_attached(place: Path) -> None:
    with peerlock.sync.join("g", dir=place, share="always") as node:
        hold = node.lock("x").acquire()
        child = os.fork()
        if not child:
            code = 1
            try:
                node.lock("y").acquire(timeout=1)
            except peerlock.AfterFork:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hold.held
        hold.release()


def test_the_status_names_the_processes(place: Path) -> None:
    with attached(place, "anna", "ben") as (anna, ben):
        anna.ask("acquire", "x")
        ben.tell("acquire", "x")
        time.sleep(0.2)
        with peerlock.sync.join("g", dir=place, share="always") as node:
            (lock,) = node.status().locks
        assert [holder.node for holder in lock.holders] == [f"anna (pid {anna.process.pid})"]
        assert [waiter.node for waiter in lock.waiters] == [f"ben (pid {ben.process.pid})"]
        anna.ask("release", "x")
        ben.answer()


def test_no_lock_under_another_algorithm(place: Path) -> None:
    with (
        peerlock.sync.join("g", dir=place, share="always") as anna,
        peerlock.sync.join("g", dir=place, share="always", algorithm="naimi-trehel") as ben,
    ):
        with anna.lock("x"), pytest.raises(peerlock.Disagreement, match="suzuki-kasami-a"):
            ben.lock("x").acquire(timeout=5)
        with anna.lock("y"):
            pass


def test_a_command_gets_its_turn(place: Path) -> None:
    """`peerlock run` takes its lock through the host node, and an attached process has kept the lock."""
    with attached(place, "anna") as (anna,):
        fence = anna.ask("acquire", "x")["fence"]
        anna.ask("release", "x")
        words = ["run", "x", "-g", "g", "--dir", str(place), "--", "sh", "-c", "echo $PEERLOCK_FENCE"]
        done = subprocess.run(
            [sys.executable, "-m", "peerlock", *words], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > fence
        assert anna.ask("acquire", "x", 5)["fence"] > int(done.stdout)


def test_a_node_that_was_forgotten_keeps_nobody_waiting(place: Path) -> None:
    """The process goes on without its event loop, and without having left."""

    async def forgets() -> None:
        node = await peerlock.join("g", dir=place)
        await node.lock("x").acquire()

    async def main() -> None:
        async with peerlock.join("g", dir=place) as node:
            await node.lock("x").acquire(timeout=5)

    asyncio.run(forgets())
    asyncio.run(main())


def test_a_service_takes_the_place_of_a_host_node(place: Path) -> None:
    """What is held stays held, a process that comes finds the service, and a second one is refused."""
    words = [sys.executable, "-m", "peerlock", "node", "-g", "g", "--dir", str(place)]
    with attached(place, "anna", "ben") as (anna, ben):
        fence = anna.ask("acquire", "x")["fence"]
        ben.tell("acquire", "x")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
            try:
                assert service.stdout is not None
                assert "is a member of g" in service.stdout.readline()
                assert host_of(place) == service.pid
                second = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
                assert (second.returncode, "runs on this host already" in second.stderr) == (2, True)
                with attached(place, "cleo") as (cleo,):
                    cleo.tell("acquire", "x")
                    time.sleep(0.5)
                    assert host_of(place) == service.pid
                    anna.ask("release", "x")
                    after = ben.answer()["fence"]
                    ben.ask("release", "x")
                    assert fence < after < cleo.answer()["fence"]
            finally:
                service.kill()


AS_ANOTHER_USER = """
import os, sys
import peerlock.sync, peerlock.net.threads.shell, peerlock.net.control.session
os.setgroups([65534])
os.setgid(65534)
os.setuid(65534)
try:
    peerlock.sync.join("g", dir=sys.argv[1], share="never", timeout=3)
except peerlock.LockTimeout:
    print("waited", flush=True)
with peerlock.sync.join("g", dir=sys.argv[1], share="never", timeout=20) as node:
    with node.lock("x").acquire(timeout=20) as hold:
        print(hold.fence, flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the test acts for two users")
def test_another_user_sees_whether_a_host_node_and_its_processes_are_dead() -> None:
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        os.chown(made, 0, 65534)
        os.chmod(made, 0o2770)
        with attached(place, "anna") as (anna,):
            fence = anna.ask("acquire", "x")["fence"]
            anna.kill(signal.SIGSTOP)  # so that it starts no other host node
            os.kill(host_of(place), signal.SIGKILL)
            words = [sys.executable, "-c", AS_ANOTHER_USER, made]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
                assert other.stdout is not None
                assert other.stdout.readline() == "waited\n", "anna holds it"
                anna.kill()
                assert int(other.stdout.readline()) > fence


@pytest.mark.parametrize("kind", ["asyncio", "threads"])
def test_a_directory_that_is_removed_ends_the_node(place: Path, kind: str) -> None:
    """A caller that waits is told, and the process can join again."""

    async def main() -> None:
        node = await peerlock.join("g", dir=place)
        await node.lock("x").acquire(timeout=5)
        waits = asyncio.create_task(node.lock("x").acquire())
        await asyncio.sleep(0.05)
        shutil.rmtree(place / "g")
        with pytest.raises(peerlock.NodeClosed):
            await asyncio.wait_for(waits, 10)
        async with peerlock.join("g", dir=place, timeout=20) as again, again.lock("x"):
            pass

    if kind == "asyncio":
        asyncio.run(main())
        return
    node = peerlock.sync.join("g", dir=place)
    with peerlock.sync.join("g", dir=place) as other:
        other.lock("x").acquire()
        threading.Timer(0.3, shutil.rmtree, [place / "g"]).start()
        with pytest.raises(peerlock.NodeClosed):
            node.lock("x").acquire(timeout=10)
    with peerlock.sync.join("g", dir=place, timeout=20) as again, again.lock("x"):
        pass


def test_metrics(place: Path) -> None:
    import prometheus_client

    from peerlock.prometheus import Metrics

    with peerlock.sync.join("g", dir=place) as node:
        registry = prometheus_client.CollectorRegistry()
        registry.register(Metrics(node))
        with node.lock("x"), node.lock("y"):
            text = prometheus_client.generate_latest(registry).decode()
    labels = f'{{group="g",node="{node.name}"}}'
    assert f"peerlock_held{labels} 2.0" in text
    assert f"peerlock_grants_total{labels} 2.0" in text
    assert f"peerlock_members{labels} 1.0" in text


def test_a_hundred_processes_that_start_at_once(place: Path) -> None:
    """Forked, so that Python's own start does not count; each has the lock once."""
    began, children = time.monotonic(), []
    for _ in range(100):
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException), peerlock.sync.join("g", dir=place, timeout=60) as node:
                node.lock("x").acquire(timeout=60).release()
                code = 0
            os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 100
    assert time.monotonic() - began < 60


def test_many_locks(place: Path) -> None:
    """More than a process can use at once: idle ones make room."""
    with peerlock.sync.join("g", dir=place, share="always") as node:
        for number in range(5000):
            with node.lock(f"lock-{number}"):
                pass


def peerlock_try(place: Path, lock: str) -> None:
    """Another process gets it."""
    code = f"""
import peerlock.sync
with peerlock.sync.join("g", dir={str(place)!r}, share="always") as node:
    node.lock({lock!r}).acquire(timeout=0.5)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
