"""Every certificate of the authority is good for one name: its owner answers for nobody else, whoever dials."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import RegistryError
from peerlock.net.aio.node import Node
from peerlock.net.aio.shell import AioShell
from peerlock.net.settings import gather, registry_for
from peerlock.net.threads.node import Node as ThreadNode
from peerlock.net.threads.shell import ThreadShell
from peerlock.net.transport.certificates import make_certificates
from peerlock.net.transport.tls import Tls, tls_context
from peerlock.net.voters.replacement import replace_voter
from peerlock.net.voters.server import VoterServer
from peerlock.node import wire
from peerlock.node.peer import Peer
from peerlock.node.quorum import messages as voting
from peerlock.node.quorum.messages import Outcome, ReplaceVoter, VoterHello
from places import files, joined, until
from ports import free_port
from shells import member

LEASE_S = 4.0


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    make_certificates(("anna", "ben", "eve", "zoe"), tmp_path / "certs", 2)
    return tmp_path / "certs"


def tls(certs: Path, name: str) -> dict[str, str]:
    return {key: str(certs / file) for key, file in files(name).items()}


@contextlib.contextmanager
def eve(certs: Path, port: int, answer: Callable[[bytes], bytes]) -> Iterator[list[Any]]:
    """Listens with a certificate of her own, and answers the first frame of whoever dials. What she was told."""
    told: list[Any] = []
    context = tls_context(Tls(**tls(certs, "eve")), server=True)
    server = socket.create_server(("127.0.0.1", port))
    over = threading.Event()

    def serve(made: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), context.wrap_socket(made, server_side=True) as link:
            link.settimeout(10)
            head = read(link, wire.LENGTH.size)
            body = read(link, wire.LENGTH.unpack(head)[0])
            told.append(body)
            if words := answer(body):
                link.sendall(words)
            while data := link.recv(65536):
                told.append(data)

    def listen() -> None:
        while not over.is_set():
            made, _ = server.accept()
            threading.Thread(target=serve, args=(made,), daemon=True).start()

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        yield told
    finally:
        over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
        listening.join(5)
        server.close()


def read(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = link.recv(count - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def vanish(node: Node) -> None:
    """As if the process were gone: nobody is told, and the port is free."""
    node._shell.closing = True
    member(node)._unlisten()
    for link in list(member(node).links.up):
        link.close()
    member(node).registry.close()


def as_ben(body: bytes) -> bytes:
    """What ben would answer."""
    hello = wire.opened(body)
    assert isinstance(hello, wire.Hello)
    me = Peer("ben", hello.to, "", 1)
    return wire.framed(wire.Hello(wire.OLDEST, "g", me, hello.peer.id, 0, newest=wire.VERSION))


@pytest.mark.parametrize("shell", ["asyncio", "threads"])
def test_nobody_answers_for_a_member(tmp_path: Path, certs: Path, shell: str, caplog: pytest.LogCaptureFixture) -> None:
    """ben, a member of a group with a voter, is gone. Eve has his port, and zoe dials him."""
    caplog.set_level(logging.INFO, "peerlock")
    voters = {"zoe": f"127.0.0.1:{free_port()}"}

    def words(name: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name, "voters": voters, "lease_s": LEASE_S, "state": tmp_path / f"s-{name}", "tls": tls(certs, name),
            **more,
        }  # fmt: skip

    async def whole() -> None:
        zoe: Any
        if shell == "threads":
            zoe = await asyncio.to_thread(peerlock.sync.join, "g", **words("zoe", first_start=True))
        else:
            zoe = await asyncio.wait_for(joined(peerlock.join("g", **words("zoe", first_start=True))), 20)
        port = free_port()
        ben = await asyncio.wait_for(joined(peerlock.join("g", **words("ben", address=f"127.0.0.1:{port}"))), 20)
        peer = member(ben).core.me
        await until(lambda: len(zoe.members) == 2)
        vanish(ben)
        with eve(certs, port, as_ben) as told:
            await until(lambda: told, 5)
            first = wire.opened(told[0])
            assert isinstance(first, wire.Hello)
            assert first.sentence == "not ben: its certificate is for eve"
            assert (
                f"link to ben at 127.0.0.1:{port} closed: it is not who it should be: its certificate is for eve"
                in caplog.text
            )
            assert peer not in zoe._shell.links.by_peer
            assert peer not in zoe._shell.registry.links
        if isinstance(zoe, ThreadNode):
            await asyncio.to_thread(zoe.leave)
        else:
            await zoe.leave()

    asyncio.run(whole())


@pytest.mark.parametrize("shell", ["asyncio", "threads"])
def test_nobody_says_for_a_node_of_the_list_that_another_is_dead(
    tmp_path: Path, certs: Path, shell: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ben waits for anna. Eve has her port, and says that the group goes on without him."""
    caplog.set_level(logging.INFO, "peerlock")
    nodes = {name: f"127.0.0.1:{free_port()}" for name in ("anna", "ben")}
    words: dict[str, Any] = {"name": "ben", "nodes": nodes, "state": tmp_path / "ben", "tls": tls(certs, "ben")}

    def dead(body: bytes) -> bytes:
        hello = wire.opened(body)
        assert isinstance(hello, wire.Hello)
        me = Peer("anna", 7, "", 1)
        refusal = wire.Hello(wire.OLDEST, "g", me, hello.peer.id, 0, "ben was said to be dead", True, wire.VERSION)
        return wire.framed(refusal)

    async def whole() -> None:
        with eve(certs, int(nodes["anna"].rpartition(":")[2]), dead) as told:
            make = ThreadShell if shell == "threads" else AioShell
            node = make(registry_for("g", gather(**words)), "g")
            if isinstance(node, ThreadShell):
                node.reader.start()
                with node.mutex:
                    node.membership.enter_group()
            else:
                node.run(node.membership.enter_group)
            await until(lambda: len(told) > 2)
            await until(lambda: "its certificate is for eve" in caplog.text, 3)
            if isinstance(node, ThreadShell):
                await asyncio.to_thread(node.leave)
            else:
                await node.leave()
        assert "everything that was held here is lost" not in caplog.text
        assert "was said to be dead" not in caplog.text

    asyncio.run(whole())


def as_voter(name: str, word: Any) -> Callable[[bytes], bytes]:
    def answer(body: bytes) -> bytes:
        hello = VoterHello(wire.OLDEST, "g", name, True, 1, LEASE_S, 0, "", wire.VERSION)
        return voting.enveloped(1, 0, hello) + voting.enveloped(1, 0, word)

    return answer


def test_nobody_answers_for_a_voter(tmp_path: Path, certs: Path) -> None:
    """A member dials anna, the voter, and Eve says that it is not let in: that is no word of anna's."""
    port = free_port()
    refusal = VoterHello(wire.OLDEST, "g", "anna", True, 1, LEASE_S, 0, "go away", wire.VERSION)

    async def whole() -> None:
        with (
            eve(certs, port, lambda body: voting.enveloped(1, 0, refusal)),
            pytest.raises(RegistryError, match="says to be anna, and its certificate is for eve"),
        ):
            words: dict[str, Any] = {"voters": {"anna": f"127.0.0.1:{port}"}, "lease_s": LEASE_S}
            words |= {"name": "ben", "state": tmp_path / "ben", "tls": tls(certs, "ben")}
            await asyncio.wait_for(joined(peerlock.join("g", **words)), 10)

    asyncio.run(whole())


def test_nobody_carries_out_an_order_for_a_voter(certs: Path) -> None:
    """`peerlock voters replace` dials anna, and Eve says that it is done."""
    port = free_port()
    contexts = [tls_context(Tls(**tls(certs, "ben")), server=server) for server in (False, True)]

    async def whole() -> Outcome:
        voters = (("anna", f"127.0.0.1:{port}"),)
        order = ReplaceVoter("cleo", "dora", "127.0.0.1:1")
        return await replace_voter("g", voters, order, (contexts[0], contexts[1]), "ben")

    with eve(certs, port, as_voter("anna", Outcome(True, "it is done"))) as told:
        outcome = asyncio.run(whole())
    assert not outcome.ok
    assert "its certificate is for eve" in outcome.sentence
    assert b"dora" not in b"".join(told), "the order was not even given"


def test_nobody_votes_for_a_voter(tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture) -> None:
    """anna dials ben, a voter like her, and Eve answers that she knows of no view yet."""
    caplog.set_level(logging.INFO, "peerlock")
    voters = tuple((name, f"127.0.0.1:{free_port()}") for name in ("anna", "ben", "zoe"))
    contexts = [tls_context(Tls(**tls(certs, "anna")), server=server) for server in (False, True)]

    async def whole() -> None:
        voter_server = VoterServer(
            "g", "anna", voters, tmp_path / "anna", LEASE_S, tls=(contexts[0], contexts[1]), first_start=True
        )  # fmt: skip
        tasks = set[asyncio.Task[Any]]()

        def spawn(work: Any) -> asyncio.Task[Any]:
            task = asyncio.get_running_loop().create_task(work)
            tasks.add(task)
            return task

        await voter_server.open(spawn)
        await until(lambda: "says to be ben, and its certificate is for eve" in caplog.text)
        assert not voter_server.cleared | voter_server.at_first
        voter_server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with eve(certs, int(voters[1][1].rpartition(":")[2]), as_voter("ben", Outcome(True, ""))):
        asyncio.run(whole())
