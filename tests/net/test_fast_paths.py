"""The ways that almost every entry takes, in the moments in which they must not be taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

import peerlock
from peerlock.errors import LockError, LockLost
from peerlock.net.aio.node import Joining, Node
from peerlock.net.aio.shell import AioShell
from peerlock.net.registries.host import HostRegistry
from peerlock.net.settings import gather, leased_registry
from peerlock.net.threads.link import ThreadLink
from peerlock.net.threads.node import started
from peerlock.net.threads.shell import ThreadShell
from peerlock.net.transport.tls import Tls, tls_context
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import VoterHello, enveloped
from peerlock.node.wire import OLDEST, VERSION, Hello, framed
from peerlock.verify.worker import Clock
from places import files, joined, make_certs
from ports import free_port
from shells import member

ENTRIES = 4  # after so many that nobody competes for, a lock is granted without asking its algorithm


def alone(tmp_path: Path, lease_s: float = 2.0, stall_s: float = 10.0) -> tuple[Clock, Any]:
    """The registry of a node that is its group's one voter, and the clock that it lives by."""
    clock = Clock()
    words: dict[str, Any] = {"voters": {"anna": f"127.0.0.1:{free_port()}"}, "state": tmp_path / "anna"}
    settings = gather(name="anna", lease_s=lease_s, stall_s=stall_s, first_start=True, **words)
    return clock, leased_registry("g", settings, clock, clock.steady)


def on_the_fast_path(act: Callable[[Clock, Any], Any], tmp_path: Path) -> None:
    async def whole() -> None:
        clock, registry = alone(tmp_path)
        node = await asyncio.wait_for(joined(Joining(lambda: AioShell(registry, "g"))), 20.0)
        lock = node.lock("x")
        for _ in range(ENTRIES):
            async with lock:
                pass
        assert node._shell.core.table.locks["x"].free
        await act(clock, lock)
        await node.leave()

    asyncio.run(whole())


def test_nothing_is_granted_after_the_lease(tmp_path: Path) -> None:
    async def enter(clock: Clock, lock: Any) -> None:
        clock.jump(10.0)
        async with asyncio.timeout(20), lock as hold:
            hold.check()  # under a lease that came later

    on_the_fast_path(enter, tmp_path)


def test_a_clock_that_jumps_ahead_ends_a_lease_and_no_promise_of_a_voter(tmp_path: Path) -> None:
    async def whole() -> None:
        clock, registry = alone(tmp_path)
        node = await asyncio.wait_for(joined(Joining(lambda: AioShell(registry, "g"))), 20.0)
        hold = await node.lock("x").acquire()
        server, found = registry.voter_server, Queue[tuple[bool, bool]]()

        def look() -> None:  # in the thread of the voter, before any heartbeat could extend what has ended
            clock.jump(60.0)
            server.driver.voter.expire(server.clock())
            found.put((hold.held, server.driver.voter.supports(member(node).core.me)))

        registry.heartbeat_thread.call(look)
        assert await asyncio.to_thread(found.get) == (False, True)
        await node.leave()

    asyncio.run(whole())


def test_the_end_of_a_body_tells_of_the_loss(tmp_path: Path) -> None:
    async def leave(clock: Clock, lock: Any) -> None:
        with pytest.raises(LockLost):
            async with lock:
                clock.jump(10.0)

    on_the_fast_path(leave, tmp_path)


def test_a_thread_that_looks_is_told_at_once(tmp_path: Path) -> None:
    clock, registry = alone(tmp_path)
    with started(ThreadShell(registry, "g"), 20.0) as node:
        hold = node.lock("x").acquire(timeout=20.0)
        clock.jump(10.0)
        assert not hold.held
        with pytest.raises(LockLost):
            hold.release()


def test_a_thread_is_granted_nothing_after_the_lease(tmp_path: Path) -> None:
    clock, registry = alone(tmp_path)
    with started(ThreadShell(registry, "g"), 20.0) as node:
        node.lock("x").acquire(timeout=20.0).release()
        clock.jump(10.0)
        hold = node.lock("x").acquire(timeout=20.0)  # under a lease that came later
        assert hold.remaining() > 0
        hold.check()


def test_a_node_that_hangs_loses_its_lease(tmp_path: Path) -> None:
    async def whole() -> None:
        _, registry = alone(tmp_path, lease_s=0.5, stall_s=0.5)
        node = await asyncio.wait_for(joined(Joining(lambda: AioShell(registry, "g"))), 20.0)
        with pytest.raises(LockLost):
            async with node.lock("x"):
                time.sleep(2.5)  # the loop does not run
        await node.leave()

    asyncio.run(whole())


def test_a_grant_that_is_lost_before_its_task_runs_is_none(tmp_path: Path) -> None:
    async def whole() -> None:
        node = await peerlock.join("g", dir=tmp_path)
        first = await node.lock("x").acquire()
        waiter = asyncio.ensure_future(node.lock("x").acquire())
        await asyncio.sleep(0)
        first.release()  # the waiter has the lock, and has not had its turn
        await node.leave()
        with pytest.raises(LockError):
            await waiter

    asyncio.run(whole())


def test_what_a_socket_does_not_take_at_once_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = ThreadLink.send
    monkeypatch.setattr(ThreadLink, "send", lambda link, data: send(link, data[:7]))
    with (
        started(ThreadShell(HostRegistry("g", "anna", tmp_path), "g"), 20.0) as anna,
        started(ThreadShell(HostRegistry("g", "ben", tmp_path), "g"), 20.0) as ben,
    ):
        assert ben.epoch == 2, "none of them had to be excluded"
        for node in (anna, ben, anna):
            node.lock("x").acquire(timeout=20.0).release()


@pytest.mark.parametrize("whose", ["member", "voter"])
def test_a_certificate_is_for_one_name(whose: str, tmp_path: Path) -> None:
    """Eve has a certificate of our authority, and says to be ben."""
    make_certs(tmp_path / "certs", "anna", "eve")

    def tls(name: str) -> Tls:
        return Tls(**{key: str(tmp_path / "certs" / file) for key, file in files(name).items()})

    async def whole() -> None:
        voters = {"anna": f"127.0.0.1:{free_port()}"}
        words: dict[str, Any] = {"voters": voters, "tls": tls("anna"), "state": tmp_path / "anna", "first_start": True}
        node: Node = await asyncio.wait_for(joined(peerlock.join("g", name="anna", **words)), 20.0)
        if whose == "member":
            address, to = member(node).core.me.address, member(node).core.me.id
            first = framed(Hello(OLDEST, "g", Peer("ben", 7, "127.0.0.1:1", 1), to, 0, newest=VERSION))
        else:
            address, first = voters["anna"], enveloped(0, 0, VoterHello(OLDEST, "g", "ben", False, newest=VERSION))
        host, _, port = address.rpartition(":")
        context = tls_context(tls("eve"), server=False)
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="anna")
        writer.write(first)
        async with asyncio.timeout(10):
            answer = await reader.read(4096)
        assert b"it says to be ben, and its certificate is for eve" in answer
        writer.close()
        await node.leave()

    asyncio.run(whole())
