"""Links that break, and links that talk nonsense: real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

import peerlock
from peerlock.net.aio.node import Node
from peerlock.net.transport.link import Link
from peerlock.net.transport.listen import Listener, listen
from peerlock.node.peer import Peer
from peerlock.node.wire import (
    LARGEST,
    VERSION,
    Ack,
    Hello,
    LockMessage,
    LockReport,
    NewView,
    Ping,
    Query,
    Report,
    framed,
    packed,
)
from peerlock.node.wire_algorithms import wire_algorithm
from places import joined
from ports import free_port
from shells import member


class Proxy:
    """Passes bytes on, and cuts: some bytes of what is under way still arrive, in the middle of a frame if need be."""

    def __init__(self, target: int, seed: int) -> None:
        self.target, self.chance = target, random.Random(seed)
        self.port = free_port()
        self.pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self.cuts = self.cut_in_frame = 0
        self.cutting = False

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        pair = (writer, other)
        self.pairs.append(pair)
        ways = [
            asyncio.create_task(self.pass_on(*way)) for way in ((reader, other, pair), (other_reader, writer, pair))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in pair:
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Any) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                if self.cutting and len(data) > 6:
                    writer.write(data[: self.chance.randrange(1, len(data))])
                    self.cut_in_frame += 1
                    self.cutting = False
                    self.cut(pair)
                    return
                writer.write(data)

    def cut(self, pair: Any) -> None:
        self.cuts += 1
        if pair in self.pairs:
            self.pairs.remove(pair)
        for writer in pair:
            made = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            writer.transport.abort()

    async def trouble(self, seconds: float) -> None:
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self.chance.uniform(0.005, 0.05))
            if self.chance.random() < 0.5:
                self.cutting = True
            elif self.pairs:
                self.cut(self.chance.choice(self.pairs))


@pytest.mark.parametrize("algorithm", ["suzuki-kasami-a", "ricart-agrawala", "helary-plouzeau-raynal"])
def test_a_reset_in_a_frame_or_with_unacknowledged_data_loses_nothing(algorithm: str, tmp_path: Path) -> None:
    async def whole() -> None:
        ports = {name: free_port() for name in ("anna", "ben")}
        proxy = Proxy(ports["anna"], seed=1)
        await proxy.start()
        lists = {
            "anna": {name: f"127.0.0.1:{port}" for name, port in ports.items()},
            "ben": {"anna": f"127.0.0.1:{proxy.port}", "ben": f"127.0.0.1:{ports['ben']}"},  # the greater one dials
        }
        joining = [
            peerlock.join("cut", name=name, nodes=nodes, algorithm=algorithm, state=tmp_path / f"{name}.json")
            for name, nodes in lists.items()
        ]
        nodes = await asyncio.gather(*(asyncio.ensure_future(joined(one)) for one in joining))
        inside, fences, done = 0, [], False

        async def work(node: Node) -> int:
            nonlocal inside
            entries = 0
            while not done:
                async with node.lock("x") as hold:
                    inside += 1
                    assert inside == 1
                    fences.append(hold.fence)
                    await asyncio.sleep(0)
                    inside -= 1
                    entries += 1
                await asyncio.sleep(0)
            return entries

        tasks = [asyncio.create_task(work(node)) for node in nodes]
        await proxy.trouble(3.0)
        done = True
        entries = await asyncio.wait_for(asyncio.gather(*tasks), 30)
        assert min(entries) > 20
        assert fences == sorted(set(fences))
        assert nodes[0].epoch == 1, "no message was lost, so nothing had to start again"
        assert proxy.cuts > 30
        assert proxy.cut_in_frame > 5
        for node in nodes:
            await node.leave()
        proxy.server.close()
        for pair in list(proxy.pairs):
            proxy.cut(pair)
        await asyncio.sleep(0.1)

    asyncio.run(whole())


# -- nonsense ------------------------------------------------------------------------------------------------


def garbage(chance: random.Random, me: Peer, group: str) -> bytes:
    """Something that a link may bring: foreign, cut, flipped, too long, or right in form and wrong in content."""
    somebody = Peer("eve", chance.randrange(1, 2**62))
    hello = Hello(VERSION, group, somebody, me.id, 0)
    body = LockMessage(1, 0, chance.randrange(4), "x", chance.randrange(12), 0, packed(chance.randrange(9)))  # type: ignore[arg-type]
    frames: list[Any] = [
        hello,
        Hello(VERSION, "another", somebody, me.id, 0),
        Hello(VERSION + 1, group, somebody, me.id, 0),
        Report(1, 0, chance.randrange(10**9), (somebody, me), (LockReport("x", 1, "write"),)),
        NewView(chance.randrange(10**9), (somebody,)),
        body, Ack(chance.randrange(10)), Ping(), Query(1),
    ]  # fmt: skip
    match chance.randrange(7):
        case 0:
            return chance.randbytes(chance.randrange(1, 200))
        case 1:
            return struct.pack(">I", chance.choice((LARGEST + 1, 2**32 - 1, 5000))) + chance.randbytes(50)
        case 2:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        case 3:
            data = bytearray(framed(hello) + b"".join(framed(chance.choice(frames)) for _ in range(3)))
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return bytes(data)
        case 4:
            data = bytearray(framed(chance.choice(frames)))
            return bytes(data[: chance.randrange(1, len(data))])
        case 5:
            return framed(chance.choice(frames))
        case _:
            return framed(hello) + b"".join(framed(chance.choice(frames)) for _ in range(4))


class Dumb(Link):
    """A link whose bytes come from the test."""

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_a_hundred_thousand_pieces_of_nonsense(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")

    async def whole() -> None:
        async with peerlock.join("fuzz", dir=tmp_path) as node:
            chance = random.Random(0)
            epoch, before = node.epoch, 0
            for number in range(100_000):
                link = Dumb(member(node), None)
                link.local = bool(number % 2)
                link.feed(garbage(chance, member(node).core.me, "fuzz"))
                member(node).links.lost(link)
                if number == 10_000:
                    gc.collect()
                    before = len(gc.get_objects())
                if number % 5_000 == 0:
                    async with node.lock("x"):
                        await asyncio.sleep(0)
            gc.collect()
            assert len(gc.get_objects()) < before + 2_000, "nothing is kept of it"
            assert not member(node).core.links.sessions
            assert node.epoch == epoch
            assert (await node.lock("x").acquire(timeout=5)).held

    asyncio.run(whole())


def test_a_connection_that_comes_while_its_listener_closes_is_closed() -> None:
    """The task that was to take it in was cancelled before its first step, and the socket was left open."""

    async def whole() -> None:
        (listening,) = listen("127.0.0.1", 0)
        listener = Listener(listening, asyncio.Protocol, None, lambda sentence: None)
        with socket.create_connection(listening.getsockname()) as client:
            listener._accept()
            (made,) = listener.coming.values()
            listener.close()
            await asyncio.sleep(0.01)
            assert made.fileno() == -1
            assert client.recv(1) == b""

    asyncio.run(whole())


def test_nonsense_over_real_sockets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")

    async def whole() -> None:
        async with (
            peerlock.join("fuzz", dir=tmp_path, name="a") as a,
            peerlock.join("fuzz", dir=tmp_path, name="b") as b,
        ):
            chance = random.Random(1)
            path = str(member(a).registry.endpoint(member(a).core.me).path)
            for _ in range(500):
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(garbage(chance, member(a).core.me, "fuzz"))
                if chance.random() < 0.5:
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    with contextlib.suppress(TimeoutError, OSError):
                        await asyncio.wait_for(reader.read(100), 0.01)
                writer.close()
            await asyncio.sleep(0.1)
            assert len(member(a).unidentified) < 10
            async with a.lock("x"):
                pass
            async with b.lock("x"):
                pass
            assert a.members == b.members == ("a", "b")

    asyncio.run(whole())


def test_well_formed_nonsense_of_a_member_closes_its_link_and_starts_afresh(tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            peerlock.join("fuzz", dir=tmp_path, name="a") as a,
            peerlock.join("fuzz", dir=tmp_path, name="b") as b,
        ):
            async with b.lock("x"):
                pass
            session = member(b).core.links.sessions[member(a).core.me]
            message = packed(wire_algorithm("suzuki-kasami-a").spec.algorithm.__module__)
            said = LockMessage(session.seq + 1, session.received, b.epoch, "x", 1, 0, message)  # type: ignore[arg-type]
            session.post(b.epoch, framed(said))
            b._shell.core.table.dirty[session] = None
            b._shell.carry_out()
            await asyncio.sleep(0.2)
            assert (await asyncio.wait_for(a.lock("x").acquire(), 10)).held

    asyncio.run(whole())
