"""A group in etcd: real servers that are killed, stopped, cut off, and restored from a backup."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import logging
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import peerlock
from etcds import Cluster, etcd
from peerlock.errors import LockLost, LockTimeout, RegistryError, UsageError
from peerlock.net.aio.node import Node
from peerlock.net.registries.etcd import Etcd, EtcdRegistry, EtcdStore
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Look, Renew, StoredHeartbeat, Swap
from places import joined, make_certs
from ports import free_port

LEASE_S = 1.5


@contextlib.asynccontextmanager
async def nodes(directory: Path, endpoints: list[str], *names: str, **more: Any) -> AsyncIterator[list[Node]]:
    def words(name: str) -> dict[str, Any]:
        return {
            "name": name,
            "etcd": {"endpoints": endpoints, **more},
            "lease_s": LEASE_S,
            "state": directory / f"s-{name}",
        }

    found = await asyncio.wait_for(asyncio.gather(*(joined(peerlock.join("g", **words(name))) for name in names)), 20)
    try:
        yield found
    finally:
        for node in found:
            await node.leave()


async def inside(node: Node, seconds: float = 15.0) -> int:
    async with asyncio.timeout(seconds), node.lock("x") as hold:
        return hold.fence


def test_grants_go_on_while_leases_run_and_come_back_with_etcd(tmp_path: Path) -> None:
    async def whole(cluster: Cluster) -> None:
        async with nodes(tmp_path, cluster.clients, "a", "b") as group:
            fence = await inside(group[0])
            await inside(group[1])  # both have a lease now
            cluster.send(0, signal.SIGSTOP)
            try:
                later = await inside(group[1], 0.5)  # nobody needs etcd for that
                assert later > fence
                with pytest.raises(LockLost, match="lease of this node has run out"):
                    async with group[0].lock("x"):
                        await asyncio.sleep(3 * LEASE_S)
                for node in group:
                    with pytest.raises(LockTimeout):
                        await node.lock("x").acquire(timeout=0.2)
                assert "etcd" in (await group[0].status()).waits_for
            finally:
                cluster.send(0, signal.SIGCONT)
            assert await inside(group[1]) > later
            assert await inside(group[0]) > later

    with etcd(tmp_path) as cluster:
        asyncio.run(whole(cluster))


def test_etcd_killed_and_started_again(tmp_path: Path) -> None:
    async def whole(cluster: Cluster) -> None:
        async with nodes(tmp_path, cluster.clients, "a", "b") as group:
            fence = await inside(group[0])
            cluster.send(0, signal.SIGKILL)
            await asyncio.sleep(2 * LEASE_S)
            cluster.start(0)
            assert await inside(group[1]) > fence
            assert await inside(group[0]) > fence

    with etcd(tmp_path) as cluster:
        asyncio.run(whole(cluster))


def test_three_servers_one_of_them_the_leader_killed(tmp_path: Path) -> None:
    async def whole(cluster: Cluster) -> None:
        # One endpoint that nobody listens at: it is passed over.
        endpoints = [f"http://127.0.0.1:{free_port()}", *cluster.clients]
        async with nodes(tmp_path, endpoints, "a", "b", "c") as group:
            fence = await inside(group[0])
            first = cluster.leader()
            cluster.send(first, signal.SIGKILL)
            for _ in range(10):
                for node in group:
                    fence, before = await inside(node), fence
                    assert fence > before
                await asyncio.sleep(0.1)
            cluster.start(first)
            second = next(at for at in range(3) if at != first)
            await asyncio.sleep(1.0)
            cluster.send(second, signal.SIGSTOP)
            for node in group:
                assert await inside(node) > fence
            # The third as well: what is left of etcd is a minority.
            third = next(at for at in range(3) if at not in (first, second))
            cluster.send(third, signal.SIGSTOP)
            await asyncio.sleep(2 * LEASE_S + 1)
            for node in group:
                with pytest.raises(LockTimeout):
                    await node.lock("x").acquire(timeout=0.2)
            cluster.send(second, signal.SIGCONT)
            cluster.send(third, signal.SIGCONT)
            for node in group:
                assert await inside(node) > fence

    with etcd(tmp_path, 3) as cluster:
        asyncio.run(whole(cluster))


def test_a_store_that_goes_back_in_time_is_not_believed(tmp_path: Path) -> None:
    async def whole(cluster: Cluster) -> None:
        async with nodes(tmp_path, cluster.clients, "a", "b") as group:
            await inside(group[0])
            # As after a restored backup: the view of an epoch that is long over.
            key = "/peerlock/g/view"
            old = json.dumps({"epoch": 1, "members": []})
            cluster.call("/kv/put", {"key": _64(key), "value": _64(old)})
            with pytest.raises(LockLost):
                async with group[0].lock("x"):
                    await asyncio.sleep(3 * LEASE_S)
            await asyncio.sleep(LEASE_S)  # the other's lease may have begun a little later
            with pytest.raises(LockTimeout):
                await group[1].lock("x").acquire(timeout=0.3)

    with etcd(tmp_path) as cluster:
        asyncio.run(whole(cluster))


def _64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_user_and_password(tmp_path: Path) -> None:
    async def whole(cluster: Cluster) -> None:
        cluster.call("/auth/role/add", {"name": "root"})
        cluster.call("/auth/user/add", {"name": "root", "password": "secret"})
        cluster.call("/auth/user/grant", {"user": "root", "role": "root"})
        cluster.call("/auth/enable", {})
        async with nodes(tmp_path, cluster.clients, "a", "b", user="root", password="secret") as group:
            assert await inside(group[0]) < await inside(group[1])
        with pytest.raises(RegistryError, match="does not know the user 'root' with that password"):
            async with nodes(tmp_path, cluster.clients, "c", user="root", password="wrong"):
                pass

    with etcd(tmp_path) as cluster:
        asyncio.run(whole(cluster))


def test_tls_with_a_certificate_of_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peerlock")
    make_certs(tmp_path / "certs", "localhost", "node")
    make_certs(tmp_path / "others", "node")
    ours, others = (
        {"ca": str(where / "ca.pem"), "cert": str(where / "node.pem"), "key": str(where / "node.key")}
        for where in (tmp_path / "certs", tmp_path / "others")
    )

    async def whole(cluster: Cluster) -> None:
        async with nodes(tmp_path, cluster.clients, "a", "b", **ours) as group:
            assert await inside(group[0]) < await inside(group[1])
            where: dict[str, Any] = {"endpoints": cluster.clients, **ours, "ca": others["ca"]}
            with pytest.raises(
                RegistryError, match=r"certificate of etcd .* is not signed by the authority in .*others"
            ):
                await asyncio.wait_for(joined(peerlock.join("g", name="c", etcd=where, lease_s=LEASE_S)), 5)
            for wrong in ({"ca": ours["ca"]}, {**others, "ca": ours["ca"]}):
                where = {"endpoints": cluster.clients, **wrong}
                sentence = (
                    "refuses a client without a certificate" if "cert" not in wrong else r"refuses .*others/node\.pem"
                )
                with pytest.raises(RegistryError, match=f"etcd at .* {sentence}.*: give cert and key"):
                    await asyncio.wait_for(joined(peerlock.join("g", name="c", etcd=where, lease_s=LEASE_S)), 5)
            plain = [endpoint.replace("https", "http") for endpoint in cluster.clients]
            with pytest.raises(LockTimeout, match=r"etcd does not answer: http://.* does it want https\?"):
                await peerlock.join("g", name="c", etcd={"endpoints": plain}, lease_s=LEASE_S, timeout=0.5)
            assert await inside(group[0])

    async def to_plain(cluster: Cluster) -> None:
        where: dict[str, Any] = {"endpoints": [cluster.clients[0].replace("http", "https")], **ours}
        with pytest.raises(LockTimeout, match=r"etcd does not answer: https://.* does it speak TLS\?"):
            await peerlock.join("g", name="c", etcd=where, lease_s=LEASE_S, timeout=0.5)

    with etcd(tmp_path, certs=tmp_path / "certs") as cluster:
        asyncio.run(whole(cluster))
    (tmp_path / "plain").mkdir()
    with etcd(tmp_path / "plain") as cluster:
        asyncio.run(to_plain(cluster))
    gc.collect()  # a connection that nobody has closed would say so


def test_the_real_store_does_what_the_one_in_memory_does(tmp_path: Path) -> None:
    """The checker and the simulator use `MemoryStore`: etcd must answer the same to the same requests."""
    a, b = Peer("a", 11), Peer("b", 12)
    requests: list[Any] = [
        Look(1), Swap(2, 0, (), View(1, (a,)), 11), Swap(3, 0, (), View(9, (b,)), 12), "renew a", "swap b in",
        Renew(6, 1, 11), "renew b", "leave a out, seen before", "renew a", "leave a out, seen now", Look(9),
    ]  # fmt: skip

    async def whole(cluster: Cluster) -> None:
        store, memory = EtcdStore("g", Etcd(tuple(cluster.clients))), MemoryStore()
        old: Any = None
        pairs: list[Any] = []
        for number, request in enumerate(requests, 1):
            asked = []
            states: tuple[Any, Any] = (pairs[-1][0][1], pairs[-1][1][1]) if pairs else (None, None)
            for state in states:
                match request:
                    case "renew a":
                        made: Any = Renew(number, state.revision, 11, (12,))
                    case "renew b":
                        made = Renew(number, state.revision, 12)
                    case "swap b in":
                        made = Swap(number, state.revision, (), View(2, (a, b)), 12)
                    case "leave a out, seen before":
                        made = Swap(number, state.revision, ((11, 1),), View(3, (b,)), 0, (11,))
                    case "leave a out, seen now":
                        seen = {heartbeat.id: heartbeat.revision for heartbeat in state.heartbeats}[11]
                        made = Swap(number, state.revision, ((11, seen),), View(3, (b,)), 0, (11,))
                    case _:
                        made = request
                asked.append(made)
            pairs.append((await store.ask(asked[0]), memory.ask(asked[1])))
            (done, real), (also, mine) = pairs[-1]
            assert done == also, request
            assert real.view == mine.view
            assert [(heartbeat.id, heartbeat.apart) for heartbeat in real.heartbeats] == [
                (heartbeat.id, heartbeat.apart) for heartbeat in mine.heartbeats
            ]
            assert old is None or real.at >= old.at
            old = real
        await store.close()

    with etcd(tmp_path) as cluster:
        asyncio.run(whole(cluster))
    assert StoredHeartbeat(1, 2).apart == ()


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="http://HOST:PORT"):
        EtcdRegistry("g", Etcd(("127.0.0.1:2379",)))
    with pytest.raises(UsageError, match="Say where etcd is"):
        EtcdRegistry("g", Etcd(()))
    with pytest.raises(UsageError, match="certificates for etcd"):
        EtcdRegistry("g", Etcd(("https://127.0.0.1:1",), ca="/nowhere/ca.pem"))


def test_an_endpoint_that_answers_nothing_is_left_for_the_next(tmp_path: Path) -> None:
    """A proxy without a server behind it: 503, and not a word."""
    heard = list[int]()

    def answers(number: int, words: bytes) -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                heard.append(number)
                writer.write(words)
                await writer.drain()
            writer.close()

        return answer

    async def whole() -> None:
        nothing = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        something = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        servers = [
            await asyncio.start_server(answers(number, words), "127.0.0.1", 0)
            for number, words in enumerate((nothing, something))
        ]
        endpoints = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
        store = EtcdStore("g", Etcd(endpoints=tuple(endpoints)))
        with pytest.raises(OSError, match="503 Service Unavailable"):
            await store.post("/kv/range", {})
        assert await store.post("/kv/range", {}) == {}
        await store.close()
        for server in servers:
            server.close()

    asyncio.run(whole())
    assert heard == [0, 1]
