"""One end of a link: bytes in, bytes out, and a peer at the other end.

What does not parse ends the link, and that link only: a sentence says why, it is logged on both
sides, and the node goes on.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

from peerlock.errors import ProtocolError, RegistryError
from peerlock.net.transport.tls import ALERT_OF_TLS, HELLO_OF_TLS, NOT_TLS, ONLY_THERE
from peerlock.node.peer import Peer
from peerlock.node.wire import LARGEST, LARGEST_HELLO, LENGTH, UNREADABLE, LockMessage, unpacked

if TYPE_CHECKING:
    from peerlock.net.shell import Shell

HEAD, unpack_length = LENGTH.size, LENGTH.unpack_from
FIRST = 2048  # bytes of a link's buffer, until it needs more

# Bytes that may wait to be sent. A peer that lets more pile up does not read, and must not cost the
# node its memory.
FOR_UNIDENTIFIED = 2**16
FOR_A_CLIENT = LARGEST + 4 * 2**20  # one answer, however large, and a few small ones
FOR_A_PEER = 64 * 2**20  # reports and what is sent again after a broken link


class Link:
    """One end of a link: frames out of bytes, and the peer at the other end."""

    def __init__(self, shell: Shell, dialled: Peer | None) -> None:
        self.shell = shell
        self.dialled = dialled  # the peer that we have dialled; None: it has dialled us
        self.peer: Peer | None = None  # the peer that has greeted us
        self.client: Any = None  # what serves the other end, if it is not a member
        self.buffer = bytearray(FIRST)
        self.whole = memoryview(self.buffer)
        self.start = self.end = 0
        self.limit = LARGEST_HELLO
        self.most = FOR_UNIDENTIFIED if dialled is None else FOR_A_PEER
        self.certificate: str | None = None
        self.refused = False  # we have ended it, for what came made no sense
        self.greeted_at = 0.0  # when the node that we have dialled has answered
        self.local = False  # a Unix socket
        self.host = ""  # where the other end is, if it has dialled us
        self.closed = False

    # The rest of a link is the shell's.

    def write(self, data: bytes) -> None:
        raise NotImplementedError  # asyncio and threads write in their own ways

    def close(self) -> None:
        raise NotImplementedError

    def owner(self) -> int:
        """The user at the other end of a Unix socket; -1: not known."""
        return -1

    def drop(self) -> None:
        """Close it, and forget what was not sent."""
        raise NotImplementedError

    def trust(self, most: int) -> None:
        """The other end is known: it may say more, and be told more."""
        self.limit, self.most = LARGEST, most

    def choked(self) -> None:
        link = f"link {self.shell.links.other_end(self)}"
        self.shell.complain(f"{link} closed: more than {self.most // 1024} KiB wait for it, and it does not read")
        self.drop()

    # -- in ------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if not self.end:
            return self.whole
        if self.start:
            left = self.end - self.start
            self.buffer[:left] = self.buffer[self.start : self.end]
            self.start, self.end = 0, left
        if self.end == len(self.buffer):
            self.grow(2 * len(self.buffer))
        return memoryview(self.buffer)[self.end :]

    def grow(self, size: int) -> None:
        """A larger buffer. A new one: a read into the old one may still have a view of it."""
        larger = bytearray(size)
        larger[: self.end] = self.buffer[: self.end]
        self.buffer, self.whole = larger, memoryview(larger)

    def feed(self, data: bytes) -> None:
        """Bytes that do not come from a socket."""
        while data and not self.closed:
            room = self.room()
            part = data[: len(room)]
            room[: len(part)] = part
            self.buffer_updated(len(part))
            data = data[len(part) :]

    def buffer_updated(self, nbytes: int) -> None:
        """That many bytes are there (asyncio's name for it). Frames are handled one by one; a bad
        one ends the link.
        """
        self.end = end = self.end + nbytes
        shell, before = self.shell, self.shell.at_work
        shell.at_work = True
        try:
            self.handle_frames(end)
            if shell.core.table.dirty or shell.core.effects:
                shell.carry_out()
        finally:
            shell.at_work = before

    def handle_frames(self, end: int) -> None:
        shell, first, length = self.shell, self.start + HEAD, 0
        try:
            while first <= end and not self.closed:
                (length,) = unpack_length(self.buffer, self.start)
                if length > self.limit:
                    raise ProtocolError(self.too_long(length))
                after = first + length
                if after > end:
                    if after > len(self.buffer):
                        self.grow(after)
                    break
                frame = unpacked(bytes(self.whole[first:after]))
                self.start, first = after, after + HEAD
                if type(frame) is LockMessage and self.peer is not None:  # almost all are
                    shell.core.receive(self.peer, frame, shell.clock())
                else:
                    shell.links.on_frame(self, frame)
        except (ProtocolError, RegistryError) as problem:
            shell.links.refuse(self, str(problem))
        except UNREADABLE as problem:
            shell.links.refuse(self, f"a frame of {length} bytes is no message of this protocol: {problem}")
        if self.start == self.end:
            self.start = self.end = 0
            if len(self.buffer) > 65536:
                self.buffer = bytearray(16384)  # a large frame is rare
                self.whole = memoryview(self.buffer)

    def too_long(self, length: int) -> str:
        first = length >> 16 if self.peer is None and self.client is None else 0
        if first == HELLO_OF_TLS:
            self.write(NOT_TLS)
        elif first == ALERT_OF_TLS and self.dialled is not None:
            self.shell.membership.refuse(
                f"{self.dialled.name} at {self.shell.registry.endpoint(self.dialled)} {ONLY_THERE}"
            )
        if first in (HELLO_OF_TLS, ALERT_OF_TLS):
            return f"it {ONLY_THERE}"
        return f"a frame of {length} bytes; the limit is {self.limit}"


def host_of(transport: asyncio.BaseTransport, port: bool = False) -> str:
    """Where the other end is. The port of the dialling side is left out: it is another one each
    time.
    """
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple):
        return ""
    return f"{name[0]}:{name[1]}" if port else str(name[0])


def user_of(made: socket.socket | None) -> int:
    """The user that a Unix socket was connected by, as the kernel says."""
    if made is None or made.family != socket.AF_UNIX:
        return -1
    _, user, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def long_lived(made: socket.socket) -> None:
    """For TCP: nothing waits for more data before it goes out, and a peer that is gone without a
    word is noticed.
    """
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
