"""What every registry must give, whoever decides who the members are: one suite over all kinds."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import peerlock
import peerlock.sync
from etcds import Cluster, etcd
from peerlock.errors import LockLost, LockTimeout, NodeClosed
from peerlock.net.aio.node import Node
from peerlock.net.registries.static import StaticRegistry
from places import KINDS, LEASED, NAMES, Place, until
from shells import member


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, server: Cluster) -> Place:
    tmp_path.chmod(0o700)
    return Place(request.param, tmp_path, server.clients)


def test_everybody_sees_the_same_group(place: Place) -> None:
    async def whole() -> None:
        async with place.all() as nodes:
            await until(lambda: all(set(node.members) == set(NAMES) for node in nodes))
            await until(lambda: len({node.epoch for node in nodes}) == 1)

    asyncio.run(whole())


def test_one_holder_and_fences_that_increase(place: Place) -> None:
    async def whole() -> None:
        inside, fences = 0, list[int]()

        async def work(node: Node) -> None:
            nonlocal inside
            for _ in range(40):
                async with node.lock("x") as hold:
                    inside += 1
                    assert inside == 1
                    fences.append(hold.fence)
                    await asyncio.sleep(0)
                    inside -= 1

        async with place.all() as nodes:
            await asyncio.gather(*map(work, nodes))
        assert fences == sorted(set(fences))
        assert len(fences) == 120

    asyncio.run(whole())


def test_a_new_view_leaves_holders_alone(place: Place) -> None:
    async def whole() -> None:
        async with place.all() as nodes:
            await until(lambda: all(set(node.members) == set(NAMES) for node in nodes))
            async with nodes[0].lock("x") as hold:
                before = nodes[1].epoch
                nodes[2].collect()
                await until(lambda: all(node.epoch > before for node in nodes))
                hold.check()
                with pytest.raises(LockTimeout):
                    await nodes[1].lock("x").acquire(timeout=0.2)
            async with nodes[1].lock("x") as later:
                assert later.fence > hold.fence

    asyncio.run(whole())


def test_who_leaves_is_not_waited_for(place: Place) -> None:
    async def whole() -> None:
        nodes = await asyncio.gather(*(place.join(name) for name in NAMES))
        await until(lambda: all(set(node.members) == set(NAMES) for node in nodes))
        hold = await nodes[2].lock("x").acquire()
        waiting = asyncio.ensure_future(nodes[0].lock("x").acquire())
        await asyncio.sleep(0.05)
        await nodes[2].leave()
        with pytest.raises(LockLost):
            hold.check()
        later = await asyncio.wait_for(waiting, 10.0)
        assert later.fence > hold.fence
        assert set(nodes[0].members) == {"anna", "ben"}
        with pytest.raises(NodeClosed):
            await nodes[2].lock("x").acquire()
        later.release()
        for node in nodes[:2]:
            await node.leave()

    asyncio.run(whole())


HOLDS = """
import json, sys, time, peerlock.sync
node = peerlock.sync.join("g", **json.loads(sys.argv[1]))
print(node.lock("x").acquire().fence, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_holder_that_is_heard_of_no_more(place: Place, how: str) -> None:
    """Who may know that it is dead, or that its lease is over, goes on without it; the others wait, and say for whom."""

    async def whole() -> None:
        words = {key: str(value) if isinstance(value, Path) else value for key, value in place.words("cleo").items()}
        process = subprocess.Popen([sys.executable, "-c", HOLDS, json.dumps(words)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            anna, ben = await asyncio.gather(place.join("anna"), place.join("ben"))
            fence = int(await asyncio.to_thread(process.stdout.readline))
            process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            if place.kind == "static" or (place.kind, how) == ("host", "stopped"):
                waiting = asyncio.ensure_future(anna.lock("x").acquire(timeout=30))
                while not any("cleo" in name for name in (await anna.status(0.2)).waits_for):
                    assert not waiting.done()
                    await asyncio.sleep(0.1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                process.kill()
            if isinstance(registry := member(anna).registry, StaticRegistry):
                await until(lambda: "cleo" not in registry.member.present)
                registry.kick("cleo")
            hold = await anna.lock("x").acquire(timeout=15)
            assert hold.fence > fence
            assert set(anna.members) == {"anna", "ben"}
            hold.release()
            for node in (anna, ben):
                await node.leave()
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    asyncio.run(whole())


STOPPED = """
import json, sys, peerlock.sync
node = peerlock.sync.join("g", **json.loads(sys.argv[1]))
hold = node.lock("x").acquire()
print(hold.fence, flush=True)
sys.stdin.readline()
sys.stdin.readline()
hold.check()
print("held", flush=True)
hold.release()
sys.stdin.readline()
"""

HANGS = """
import asyncio, json, sys, time, peerlock
async def main():
    async with peerlock.join("g", **json.loads(sys.argv[1])) as node:
        async with node.lock("x") as hold:
            print(hold.fence, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            sys.stdin.readline()  # the event loop has no turn
            hold.check()
            print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["stopped", "its event loop hangs"])
def test_a_holder_that_is_silent_for_less_than_a_lease_keeps_its_lock(place: Place, how: str) -> None:
    """A lease is 2 s, and an event loop may hang for 10 s. Without leases, this is so for any time."""
    silent_s = 7.0 if how != "stopped" else 1.0 if place.kind in LEASED else 4.0

    async def whole() -> None:
        words = {key: str(value) if isinstance(value, Path) else value for key, value in place.words("cleo").items()}
        program = STOPPED if how == "stopped" else HANGS
        process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            anna, ben = await asyncio.gather(place.join("anna"), place.join("ben"))
            fence = int(await asyncio.to_thread(process.stdout.readline))
            await until(lambda: set(anna.members) == set(ben.members) == set(NAMES))
            process.stdin.write("\n")
            process.stdin.flush()
            if how == "stopped":
                process.send_signal(signal.SIGSTOP)
            with pytest.raises(LockTimeout):
                await anna.lock("x").acquire(timeout=silent_s)
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            assert await asyncio.to_thread(process.stdout.readline) == "held\n"
            async with asyncio.timeout(10), anna.lock("x") as hold:
                assert hold.fence > fence
            process.stdin.close()
            await asyncio.to_thread(process.wait, 20)
            for node in (anna, ben):
                await node.leave()
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    asyncio.run(whole())


def test_who_comes_back_is_somebody_new(place: Place) -> None:
    async def whole() -> None:
        async with place.all() as nodes:
            await until(lambda: all(set(node.members) == set(NAMES) for node in nodes))
            async with nodes[2].lock("x") as hold:
                fence = hold.fence
            before = member(nodes[2]).core.me
            await nodes[2].leave()
            nodes[2] = await place.join("cleo")
            assert member(nodes[2]).core.me.id != before.id
            async with nodes[2].lock("x") as hold:
                assert hold.fence > fence

    asyncio.run(whole())


def test_fences_increase_across_a_restart_of_everybody(place: Place) -> None:
    async def whole() -> None:
        last = 0
        for _ in range(3):
            async with place.all() as nodes, nodes[0].lock("x") as hold:
                assert hold.fence > last
                last = hold.fence

    asyncio.run(whole())


def test_threads(place: Place) -> None:
    async def first() -> tuple[Node, Node]:
        return await asyncio.gather(place.join("anna"), place.join("ben"))

    async def whole() -> None:
        threaded = asyncio.to_thread(lambda: peerlock.sync.join("g", **place.words("cleo"), timeout=60))
        node, others = await asyncio.gather(threaded, first())
        try:
            for _ in range(20):
                hold = await asyncio.to_thread(node.lock("x").acquire)
                with pytest.raises(LockTimeout):
                    await others[0].lock("x").acquire(timeout=0.02)
                hold.release()
                async with others[1].lock("x") as later:
                    assert later.fence > hold.fence
        finally:
            await asyncio.to_thread(node.leave)
            for other in others:
                await other.leave()

    asyncio.run(whole())


def test_how_long_a_hold_is_safe(place: Place) -> None:
    async def whole() -> None:
        async with place.all() as nodes, nodes[0].lock("x") as hold:
            left = hold.remaining()
            assert (0.5 < left < 2.0) if place.kind in LEASED else left == float("inf")

    asyncio.run(whole())
