"""Voters at their places, in one process: names that take long, disks that are full, ports that are taken, orders at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import peerlock
from peerlock.errors import RegistryError
from peerlock.net.registries import quorum as embedded
from peerlock.net.transport import connect as dialling
from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.voters import replacement as order
from peerlock.net.voters.connection import VoterConnection
from peerlock.net.voters.server import VoterServer
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import ReplaceVoter
from places import until
from ports import free_port, free_ports


@contextlib.asynccontextmanager
async def voter_servers(
    directory: Path, *names: str, late: tuple[str, ...] = ()
) -> AsyncIterator[dict[str, VoterServer]]:
    """Voters of a group, and those that are to take the places of others later."""
    ports = dict(zip((*names, *late), free_ports(len(names) + len(late)), strict=True))
    first = tuple((name, f"127.0.0.1:{ports[name]}") for name in names)
    tasks: set[asyncio.Task[Any]] = set()

    def spawn(work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    found: dict[str, VoterServer] = {}
    try:
        for name, port in ports.items():
            voters = first if name in names else (*first, (name, f"127.0.0.1:{port}"))
            found[name] = VoterServer("g", name, voters, directory / name, 1.0, first_start=True)
            await found[name].open(spawn)
        await until(lambda: all(found[name].driver is not None for name in names))
        yield found
    finally:
        for voter_server in found.values():
            voter_server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Nothing(asyncio.Protocol):
    pass


async def reach(where: Endpoint, connect_s: float) -> None:
    transport, _ = await dialling.dialled(_Nothing, where, name="", tls=None, source=None, connect_s=connect_s)
    transport.abort()


def test_a_name_may_take_longer_than_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = list[str](), socket.getaddrinfo

    def slow(host: Any, *words: Any, **more: Any) -> Any:
        asked.append(host)
        time.sleep(0.4)
        return real("127.0.0.1", *words, **more)

    async def whole() -> None:
        server = await asyncio.get_running_loop().create_server(_Nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        await reach(Endpoint(host="far.example", port=port), connect_s=0.2)
        server.close()

    asyncio.run(whole())
    assert asked == ["far.example"]


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        server = await asyncio.get_running_loop().create_server(_Nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", (f"127.0.0.{last}", port)) for last in (7, 1)]
        )
        await reach(Endpoint(host="two.example", port=port), connect_s=5.0)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await reach(Endpoint(host="two.example", port=port), connect_s=5.0)

    asyncio.run(whole())


def test_a_voter_whose_disk_is_full_tries_once_a_second_and_votes_when_there_is_room(tmp_path: Path) -> None:
    async def whole() -> None:
        async with voter_servers(tmp_path, "a", "b", "c") as found:
            voter_server, tries, full = found["a"], list[float](), [True]
            real = voter_server.file.write

            def write(stored: Any) -> None:
                tries.append(time.monotonic())
                if full[0]:
                    raise RegistryError("No space left on device.")
                real(stored)

            voter_server.file.write = write  # type: ignore[method-assign]
            for _ in range(20):
                voter_server.cannot_write(
                    RegistryError("No space left on device.")
                )  # each is news that cannot be written
            await asyncio.sleep(2.5)
            assert 1 <= len(tries) <= 3, "the timers multiply"
            assert voter_server.driver is None
            full[0] = False
            await until(lambda: voter_server.driver is not None, 5.0)

    asyncio.run(whole())


def test_of_two_orders_at_once_none_undoes_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = order.VisitingPeer.reach

    async def slow(self: order.VisitingPeer, name: str, where: Endpoint) -> None:
        if name == "v7":
            await asyncio.sleep(0.5)  # by then the other order is carried out
        await real(self, name, where)

    monkeypatch.setattr(order.VisitingPeer, "reach", slow)

    async def whole() -> None:
        async with voter_servers(tmp_path, "v1", "v2", "v3", "v4", "v5", late=("v6", "v7")) as found:
            voters = found["v1"].known
            where = {name: str(voter_server.where) for name, voter_server in found.items()}
            found["v4"].close()
            found["v5"].close()
            outcomes = await asyncio.gather(*(
                order.replace_voter("g", voters, ReplaceVoter(old, new, where[new]), None, f"operator of {new}")
                for old, new in (("v4", "v6"), ("v5", "v7"))
            ))  # fmt: skip
            assert all(outcome.ok for outcome in outcomes), outcomes
            await until(lambda: set(found["v1"].decided_here.electors) == {"v1", "v2", "v3", "v6", "v7"})

    asyncio.run(whole())


def test_of_two_orders_to_one_voter_the_second_waits_for_the_first(tmp_path: Path) -> None:
    async def whole() -> None:
        async with voter_servers(tmp_path, "v1", "v2", "v3", late=("v4", "v5")) as found:
            voters, where = found["v1"].known, {name: str(voter_server.where) for name, voter_server in found.items()}
            outcomes = await asyncio.gather(*(
                order.replace_voter("g", voters, ReplaceVoter("v3", new, where[new]), None, f"operator of {new}")
                for new in ("v4", "v5")
            ))  # fmt: skip
            assert sorted(outcome.ok for outcome in outcomes) == [False, True]
            (no,) = (outcome for outcome in outcomes if not outcome.ok)
            assert "v3 must be one of them" in no.sentence

    asyncio.run(whole())


def test_an_earlier_incarnation_of_a_member_is_forgotten(tmp_path: Path) -> None:
    async def whole() -> None:
        async with voter_servers(tmp_path, "a") as found:
            voter_server, connection, other = found["a"], VoterConnection(found["a"]), VoterConnection(found["a"])
            for number in range(1, 100):
                voter_server.heartbeats_on(connection, Peer("m", number))
            voter_server.heartbeats_on(other, Peer("n", 1))
            assert voter_server.members == {Peer("m", 99): connection, Peer("n", 1): other}
            assert voter_server.decided_here == View(0, (), voter_server.known)

    asyncio.run(whole())


def test_a_voter_listens_when_its_port_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded, "LISTEN_AGAIN_S", 0.1)
    port = free_port()
    other = socket.create_server(("127.0.0.1", port))

    async def whole() -> None:
        joining = asyncio.ensure_future(asyncio.wait_for(_joined(port), 20.0))
        await until(lambda: "cannot listen" in caplog.text)
        await asyncio.sleep(0.3)
        other.close()
        node = await joining
        async with node.lock("x"):
            pass
        await node.leave()

    async def _joined(port: int) -> Any:
        return await peerlock.join(
            "g", name="a", voters={"a": f"127.0.0.1:{port}"}, first_start=True, lease_s=1.0, state=tmp_path / "a"
        )

    asyncio.run(whole())
    assert caplog.text.count("cannot listen") == 1


def test_a_leave_that_is_cut_short_closes_all_the_same(tmp_path: Path) -> None:
    """Nobody decides any more, so the farewell is not heard of; who has waited long enough goes."""
    ports = free_ports(3)
    voters = {name: f"127.0.0.1:{port}" for name, port in zip("abc", ports, strict=True)}

    async def joined(name: str) -> Any:
        return await peerlock.join("g", name=name, voters=voters, first_start=True, lease_s=1.0, state=tmp_path / name)

    async def whole() -> None:
        a, b, c = await asyncio.wait_for(asyncio.gather(*map(joined, "abc")), 20.0)
        await b.leave()
        await c.leave()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(a.leave(), 0.3)
        assert a._shell.registry.heartbeat_thread.stopped
        assert not a._shell.registry.voter_server.server.is_serving()
        again = asyncio.ensure_future(joined("a"))  # the record is nobody's: it is not refused
        await asyncio.sleep(0.5)
        assert not again.done()
        again.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await again

    asyncio.run(whole())
