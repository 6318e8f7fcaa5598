"""Strangers that say nothing, and peers that never read, cost a node a bounded number of descriptors and bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from mistaken import Authority
from peerlock.net.aio.node import Node
from peerlock.net.aio.shell import AioLink
from peerlock.net.threads.node import Node as ThreadNode
from peerlock.net.transport.link import Link
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Heartbeat, VoterHello, enveloped
from peerlock.node.wire import OLDEST, VERSION, ClientCall, Hello, Query, framed
from places import joined, until
from ports import free_port
from shells import member

DESCRIPTORS = 160  # of the process that is flooded
SILENT = 300  # connections that say nothing
LEASE_S = 2.0

MEMBER = {
    "threads": """
import json, sys, peerlock.sync
with peerlock.sync.join("g", **json.loads(sys.argv[1])) as node:
    sys.stdin.readline()
""",
    "asyncio": """
import asyncio, json, sys, peerlock
async def main():
    async with peerlock.join("g", **json.loads(sys.argv[1])) as node:
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
""",
}


class Flood:
    """Keeps that many silent connections open to a port, and opens new ones in the place of those that are closed."""

    def __init__(self, port: int) -> None:
        self.port, self.over, self.opened = port, threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        while not self.over.is_set():
            for _ in range(min(20, SILENT - len(selector.get_map()))):
                made = socket.socket()
                made.setblocking(False)
                made.connect_ex(("127.0.0.1", self.port))
                selector.register(made, selectors.EVENT_READ)
                self.opened += 1
            for key, _ in selector.select(0.02):
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
            self.over.wait(0.02)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        selector.close()

    def __enter__(self) -> Flood:
        self.thread.start()
        return self

    def __exit__(self, *what: object) -> None:
        self.over.set()
        self.thread.join(10)


@contextlib.contextmanager
def few_descriptors(words: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=stream, stderr=stream, text=True, preexec_fn=limit
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()


def listens(port: int) -> None:
    for _ in range(1000):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        time.sleep(0.02)
    raise AssertionError("it does not listen")


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("kind", ["voter", "asyncio", "threads"])
def test_silent_connections_keep_nobody_out(kind: str, secure: bool, tmp_path: Path) -> None:
    """A node with 160 descriptors has 300 silent connections: it takes another one in, and writes its records."""
    authority, port, log = Authority(tmp_path / "certs"), free_port(), tmp_path / "log"
    files = {name: {"tls": authority.sign(name)} if secure else {} for name in ("anna", "ben")}
    words: dict[str, Any]
    if kind == "voter":
        words = {"voters": {"anna": f"127.0.0.1:{port}"}, "lease_s": LEASE_S}
        path = tmp_path / "group.toml"
        tls = "".join(f'{key} = "{file}"\n' for key, file in files["anna"].get("tls", {}).items())
        path.write_text(
            f'lease_s = {LEASE_S}\n[voters]\nanna = "127.0.0.1:{port}"\n' + (f"[tls]\n{tls}" if secure else "")
        )
        command = ["-m", "peerlock", "node", "--voter", "--first-start", "-g", "g", "--name", "anna"]
        command += ["--config", str(path), "--state", str(tmp_path / "anna")]
    else:
        words = {"nodes": {"anna": f"127.0.0.1:{port}", "ben": f"127.0.0.1:{free_port()}"}}
        hers = {"name": "anna", "state": str(tmp_path / "anna"), **words, **files["anna"]}
        command = ["-c", MEMBER[kind], json.dumps(hers)]
    with few_descriptors(command, log):
        listens(port)
        with Flood(port) as flood:
            asyncio.run(until(lambda: flood.opened >= SILENT))
            began = time.monotonic()
            ben = {"name": "ben", "state": tmp_path / "ben", "timeout": 15.0, **words, **files["ben"]}
            with peerlock.sync.join("g", **ben) as node, node.lock("x").acquire(timeout=10):
                assert "ben" in node.members
            assert time.monotonic() - began < 15
        said = log.read_text()
    assert "Traceback" not in said
    assert "Too many open files" not in said, "descriptors are left for its own needs"
    assert len(said) < 20_000, said[:2000]


# -- who never reads -------------------------------------------------------------------------------------------


async def pair(directory: Path, shell: str) -> tuple[Any, Node]:
    """anna, who is asked, and ben, who asks. She holds so many locks that an answer is long."""
    nodes = {name: f"127.0.0.1:{free_port()}" for name in ("anna", "ben")}

    def words(name: str) -> dict[str, Any]:
        return {"name": name, "nodes": nodes, "state": directory / name, "timeout": 20.0}

    if shell == "threads":
        anna, ben = await asyncio.gather(
            asyncio.to_thread(peerlock.sync.join, "g", **words("anna")), joined(peerlock.join("g", **words("ben")))
        )
        await asyncio.to_thread(lambda: [anna.lock(f"a-lock-{number}").acquire() for number in range(2000)])
        return anna, ben
    one, ben = await asyncio.gather(*(joined(peerlock.join("g", **words(name))) for name in nodes))
    for number in range(2000):
        await one.lock(f"a-lock-{number}").acquire()
    return one, ben


async def leave(node: Any) -> None:
    if isinstance(node, ThreadNode):
        await asyncio.to_thread(node.leave)
    else:
        await node.leave()


def waiting(link: Link) -> int:
    """Bytes that a node keeps for the other end."""
    if isinstance(link, AioLink):
        return link.transport.get_write_buffer_size() if link.transport is not None else 0
    return len(link.out)  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", ["asyncio", "threads"])
def test_a_peer_that_asks_and_never_reads(tmp_path: Path, shell: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peerlock")

    async def whole() -> None:
        anna, ben = await pair(tmp_path, shell)
        link = next(iter(member(ben).links.by_peer.values()))
        hers = next(iter(anna._shell.links.by_peer.values()))
        assert isinstance(link, AioLink)
        assert link.transport is not None
        link.transport.pause_reading()
        most = 0
        for _ in range(2000):
            link.write(b"".join(framed(Query(1)) for _ in range(4)))
            await asyncio.sleep(0.001)
            most = max(most, waiting(hers))
            if hers.closed:
                break
        assert hers.closed
        assert "it does not read" in caplog.text
        assert most < 96 * 2**20
        async with asyncio.timeout(20):  # by a new link
            async with ben.lock("x"):
                pass
        for node in (ben, anna):
            await leave(node)

    asyncio.run(whole())


@pytest.mark.parametrize("shell", ["asyncio", "threads"])
def test_a_client_that_asks_and_never_reads(tmp_path: Path, shell: str, caplog: pytest.LogCaptureFixture) -> None:
    """On the socket for the command line."""
    caplog.set_level(logging.INFO, "peerlock")

    def pump(path: Path) -> int:
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(str(path))
            made.settimeout(100)  # both threads want one interpreter
            made.sendall(framed(Hello(OLDEST, "g", Peer("client", 0, "", 1), newest=VERSION)))
            assert made.recv(4)
            asked = 0
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while asked < 5000:
                    made.sendall(framed(ClientCall(asked, "status", {})))
                    asked += 1
            return asked

    async def whole() -> None:
        anna, ben = await pair(tmp_path, shell)
        assert await asyncio.to_thread(pump, anna._shell.registry.control) < 5000
        await until(lambda: "it does not read" in caplog.text)
        await until(lambda: not anna._shell.clients.process_groups)
        async with asyncio.timeout(20):
            async with ben.lock("x"):
                pass
        for node in (ben, anna):
            await leave(node)

    asyncio.run(whole())


def test_a_member_that_never_reads_what_its_voter_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Heartbeats are answered: a line whose other end does not read is closed."""
    port = free_port()
    voters = {"anna": f"127.0.0.1:{port}"}

    def pump() -> None:
        peer = Peer("ben", 7, "127.0.0.1:1", 1)
        heartbeats = b"".join(
            enveloped(0, 0, Heartbeat(number, peer, 0, "look", lease_s=LEASE_S)) for number in range(100)
        )
        with socket.socket() as made, contextlib.suppress(ConnectionError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", port))
            made.settimeout(10)
            made.sendall(enveloped(0, 0, VoterHello(OLDEST, "g", "ben", False, 0, LEASE_S, -1, "", VERSION)))
            for _ in range(100_000):  # until it is closed: the kernel keeps many of the answers
                made.sendall(heartbeats)

    async def whole() -> None:
        words: dict[str, Any] = {"voters": voters, "first_start": True, "state": tmp_path / "anna", "lease_s": LEASE_S}
        async with peerlock.join("g", name="anna", timeout=20, **words) as node:
            pumping = asyncio.create_task(asyncio.to_thread(pump))
            await until(lambda: "it does not read" in caplog.text, 30)
            await pumping
            async with node.lock("x"):
                pass

    asyncio.run(whole())
    assert caplog.text.count("line from ben at 127.0.0.1 closed: more than 4096 KiB wait for it") == 1


def test_the_first_frame_of_a_stranger_is_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """To a voter, too: a frame of a mebibyte from each of hundreds would be much."""
    port = free_port()

    async def whole() -> bytes:
        words: dict[str, Any] = {
            "voters": {"anna": f"127.0.0.1:{port}"},
            "first_start": True,
            "state": tmp_path / "anna",
        }
        async with peerlock.join("g", name="anna", lease_s=LEASE_S, timeout=20, **words):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((100_000).to_bytes(4, "big") + bytes(5000))
            async with asyncio.timeout(3):
                data = await reader.read()
            writer.close()
            return data

    assert asyncio.run(whole()) == b""
    assert "a frame of 100000 bytes; the limit is 4096" in caplog.text
