"""Connections to and between voters: frames in envelopes over TCP, with TLS where there is a
certificate.

A side that wants to say something dials, and dials again when the connection breaks. What is said
while it is broken is lost: everything here is said again when it matters. The first frame each way
is a `VoterHello`; a line whose other end is not who it should be, or says what makes no sense, is
closed with a sentence in the log of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from peerlock.errors import ProtocolError
from peerlock.net.complaints import Complaints
from peerlock.net.transport.certificates import name_in
from peerlock.net.transport.connect import dialled
from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.transport.link import host_of, long_lived
from peerlock.net.transport.listen import Listener, listen
from peerlock.net.transport.tls import ALERT_OF_TLS, HELLO_OF_TLS, NOT_TLS, ONLY_THERE, reason, refuses_us
from peerlock.node.quorum.messages import Envelope, VoterHello, Word, enveloped, unsealed
from peerlock.node.wire import LARGEST_HELLO, FrameTooLong, incompatible, next_frame

log = logging.getLogger("peerlock")

LARGEST = 2**20
CONNECT_S = 1.0  # or a quarter of a lease: a member that is farther away cannot renew one
HELLO_S = 5.0
CLOSE_S = 0.5  # for the other end to close, too
AGAIN_S = (0.02, 0.1, 0.3, 0.5)
WAITING = 4 * 2**20  # bytes for a peer that does not read


class VoterConnection(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, owner: VoterPeer, dialled: str | None = None) -> None:
        self.owner, self.dialled = owner, dialled
        self.name = dialled or ""
        self.is_voter = dialled is not None
        self.known = False  # the other end has said who it is
        self.run = 0
        self.epoch = -1
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.host = ""
        self.closed = asyncio.get_running_loop().create_future()
        self.late: asyncio.TimerHandle | None = None
        self.heard = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(WAITING)
        self.host = host_of(transport, port=self.dialled is not None)
        if self.owner.closed:  # it came in while we went
            transport.abort()
            return
        made = transport.get_extra_info("socket")
        if made is not None and made.family in (socket.AF_INET, socket.AF_INET6):
            long_lived(made)
        self.late = asyncio.get_running_loop().call_later(HELLO_S, self.drop, "it did not say who it is")
        if self.dialled is not None:
            self.say(self.owner.hello())
        else:
            self.owner.admit(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        try:
            while not self.closed.done():
                body = next_frame(self.buffer, LARGEST if self.known else LARGEST_HELLO)
                if body is None:
                    break
                self.on_frame(unsealed(body))
        except FrameTooLong as problem:
            self.end(self.too_long(problem))
        except ProtocolError as problem:
            self.end(str(problem))

    def too_long(self, problem: FrameTooLong) -> str:
        first = problem.length >> 16 if not self.known else 0
        if first == HELLO_OF_TLS and self.transport is not None:
            self.transport.write(NOT_TLS)
        elif first == ALERT_OF_TLS and self.dialled is not None:
            self.owner.not_let_in(self, f"it {ONLY_THERE}")
        if first in (HELLO_OF_TLS, ALERT_OF_TLS):
            return f"it {ONLY_THERE}"
        return str(problem)

    def on_frame(self, envelope: Envelope) -> None:
        self.heard = asyncio.get_running_loop().time()
        if self.known:
            self.owner.hear(self, envelope)
            return
        hello = envelope.word
        if not isinstance(hello, VoterHello):
            raise ProtocolError("the first frame is not a hello")
        # First the name: a refusal is a word of the voter that was dialled, and of no other node.
        why = self.misnamed(hello) or hello.sentence or self.unfit(hello)
        if why:
            if not hello.sentence:
                self.say(self.owner.hello(why))
            self.owner.not_let_in(self, why)
            raise ProtocolError(why)
        self.known, self.name, self.is_voter, self.run = True, hello.name, hello.voter, hello.run
        self.epoch = hello.epoch
        if self.late is not None:
            self.late.cancel()
        if self.dialled is None:
            self.say(self.owner.hello())
        self.owner.greeted(self, envelope)

    def unfit(self, hello: VoterHello) -> str:
        if why := incompatible(hello.oldest, hello.newest):
            return why
        if hello.group != self.owner.group:
            return f"it is of the group {hello.group!r}, and this one of {self.owner.group!r}"
        if hello.lease_s and self.owner.lease_s and hello.lease_s != self.owner.lease_s:
            return (
                f"{hello.name} takes a lease to be {hello.lease_s:g} s, and {self.owner.name} {self.owner.lease_s:g} s: "
                "it must be the same for all nodes and voters of a group. Set lease_s"
            )
        return ""

    def misnamed(self, hello: VoterHello) -> str:
        if self.dialled is not None and (hello.name != self.dialled or not hello.voter):
            return f"it says to be {hello.name}, and the voter {self.dialled} was dialled"
        certificate = name_in(self.transport.get_extra_info("peercert")) if self.transport else None
        if self.owner.tls is not None and certificate != hello.name:
            return f"it says to be {hello.name}, and its certificate is for {certificate}"
        return ""

    def say(self, word: Word) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(enveloped(*self.owner.counters(self.name), word))

    def end(self, why: str) -> None:
        if not self.closed.done():
            self.owner.complain(f"line {self.other_end()} closed: {why}")
        if self.transport is not None:
            self.transport.close()

    def pause_writing(self) -> None:
        self.drop(f"more than {WAITING // 1024} KiB wait for it, and it does not read")

    def drop(self, why: str) -> None:
        """Close it, and forget what was not sent."""
        if not self.closed.done():
            self.owner.complain(f"line {self.other_end()} closed: {why}")
        if self.transport is not None:
            asyncio.get_running_loop().call_soon(self.transport.abort)  # it may be in the middle of a write

    def other_end(self) -> str:
        who = f"to the voter {self.dialled}" if self.dialled else f"from {self.name or 'a node without a name'}"
        return f"{who} at {self.host}"

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
        if isinstance(exc, ssl.SSLError):
            self.owner.complain(f"line {self.other_end()} broken: {reason(exc)}")
            if self.dialled is not None and not self.known and refuses_us(exc):
                self.owner.not_let_in(self, reason(exc))
        if not self.closed.done():
            self.closed.set_result(None)
        self.owner.lost(self)


class VoterPeer:
    """The owner of connections: a member, or a voter."""

    group = ""
    name = ""
    lease_s = 0.0
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None  # as client, as server
    source: str | None = None  # the address that lines are made from
    closed = False  # it has no lines any more

    def hello(self, sentence: str = "") -> VoterHello:
        raise NotImplementedError

    def counters(self, name: str) -> tuple[int, int]:
        """Of our record, and the highest that we have seen of that voter."""
        return 0, 0

    def admit(self, connection: VoterConnection) -> None:
        """A connection that has not said who it is."""

    def greeted(self, connection: VoterConnection, envelope: Envelope) -> None:
        pass

    def not_let_in(self, connection: VoterConnection, why: str) -> None:
        pass

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        raise NotImplementedError

    def lost(self, connection: VoterConnection) -> None:
        pass

    complaints: Complaints | None = None

    def complain(self, sentence: str) -> None:
        if self.complaints is None:
            self.complaints = Complaints()
        if self.complaints.are_new(sentence, time.monotonic()):
            log.warning("group %s: %s", self.group, sentence)

    def unreached(self, sentence: str) -> None:
        """A voter that is dialled does not answer."""


class Reconnector:
    """Keeps a line to one voter, as long as it is wanted."""

    def __init__(self, owner: VoterPeer, name: str, where: Endpoint, spawn: Callable[..., Any]) -> None:
        self.owner, self.name, self.where = owner, name, where
        self.connection: VoterConnection | None = None
        self.task = spawn(self.keep())

    async def keep(self) -> None:
        tries = 0
        while True:
            try:
                await self.once()
                tries = 0
            except (OSError, TimeoutError, UnicodeError) as problem:
                sentence = f"the voter {self.name} at {self.where} is not reached: {reason(problem)}"
                self.owner.unreached(sentence)
                if tries == len(AGAIN_S) or isinstance(problem, ssl.SSLError | ConnectionAbortedError):
                    self.owner.complain(sentence)
            await asyncio.sleep(AGAIN_S[min(tries, len(AGAIN_S) - 1)])
            tries += 1

    async def once(self) -> None:
        transport, connection = await connected(self.owner, self.name, self.where)
        self.connection = connection
        try:
            await asyncio.shield(connection.closed)
        finally:
            self.connection = None
            transport.abort()
        if not connection.known:
            await asyncio.sleep(AGAIN_S[-1])  # it was not let in

    def say(self, word: Word) -> None:
        if self.connection is not None and self.connection.known:
            self.connection.say(word)

    def hang_up_if_silent(self, seconds: float) -> None:
        """Something was said and nothing came back: the other end may be gone without a word."""
        connection = self.connection
        if (
            connection is not None
            and connection.known
            and asyncio.get_running_loop().time() - connection.heard > seconds
        ):
            connection.end("no answer")

    def stop(self) -> None:
        self.task.cancel()
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()


async def connected(owner: VoterPeer, name: str, where: Endpoint) -> tuple[asyncio.Transport, VoterConnection]:
    """A line to the voter of that name."""
    return await dialled(
        lambda: VoterConnection(owner, name), where, name=name, tls=owner.tls[0] if owner.tls is not None else None,
        source=owner.source, connect_s=max(CONNECT_S, owner.lease_s / 4),
    )  # fmt: skip


async def hang_up(transport: asyncio.Transport, connection: VoterConnection) -> None:
    """What was said goes out, and nothing is left open when the event loop ends."""
    transport.close()
    await asyncio.wait([connection.closed], timeout=CLOSE_S)
    transport.abort()


async def serve(owner: VoterPeer, where: Endpoint) -> Server:
    found = await asyncio.get_running_loop().run_in_executor(None, listen, where.host, where.port)
    tls = owner.tls[1] if owner.tls is not None else None
    return Server([Listener(made, lambda: VoterConnection(owner), tls, owner.complain) for made in found])


class Server:
    def __init__(self, listeners: list[Listener]) -> None:
        self.listeners = listeners

    def is_serving(self) -> bool:
        return not all(listener.closed for listener in self.listeners)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


def close_server(server: Server | None) -> None:
    if server is not None:
        with contextlib.suppress(RuntimeError):
            server.close()
