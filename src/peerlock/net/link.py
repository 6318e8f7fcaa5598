"""One end of a link: bytes in, bytes out, and a peer at the other end.

What does not parse ends the link, and that link only: a sentence says why, it is logged on both sides, and the node
goes on.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from peerlock.errors import ProtocolError, RegistryError
from peerlock.node.wire import LARGEST_HELLO, LENGTH, UNREADABLE, Peer, Said, unpacked

if TYPE_CHECKING:
    from peerlock.net.shell import Shell

HEAD, unpack_length = LENGTH.size, LENGTH.unpack_from
FIRST = 2048  # bytes of a link's buffer, until it needs more


class Link:
    """One end of a link: frames out of bytes, and who is at the other end."""

    def __init__(self, shell: Shell, dialled: Peer | None) -> None:
        self.shell = shell
        self.dialled = dialled  # whom we have dialled; None: somebody has dialled us
        self.peer: Peer | None = None  # who has greeted us
        self.client: Any = None  # what serves the other end, if it is not a member
        self.buffer = bytearray(FIRST)
        self.whole = memoryview(self.buffer)
        self.start = self.end = 0
        self.limit = LARGEST_HELLO
        self.certificate: str | None = None
        self.local = False  # a Unix socket
        self.closed = False

    # The rest of a link is the shell's.

    def write(self, data: bytes) -> None:
        raise NotImplementedError  # asyncio and threads write in their own ways

    def close(self) -> None:
        raise NotImplementedError

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
        """A larger buffer. A new one: whoever reads into the old one may still have a view of it."""
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
        """That many bytes are there (asyncio's name for it). Frames are handled one by one; a bad one ends the link."""
        self.end = end = self.end + nbytes
        shell, first, length = self.shell, self.start + HEAD, 0
        try:
            while first <= end and not self.closed:
                (length,) = unpack_length(self.buffer, self.start)
                if length > self.limit:
                    raise ProtocolError(f"a frame of {length} bytes; the limit is {self.limit}")
                after = first + length
                if after > end:
                    if after > len(self.buffer):
                        self.grow(after)
                    break
                frame = unpacked(bytes(self.whole[first:after]))
                self.start, first = after, after + HEAD
                if type(frame) is Said and self.peer is not None:  # almost all are
                    shell.core.receive(self.peer, frame, shell.clock())
                else:
                    shell.on_frame(self, frame)
        except (ProtocolError, RegistryError) as problem:
            shell.ends(self, str(problem))
        except UNREADABLE as problem:
            shell.ends(self, f"a frame of {length} bytes is no message of this protocol: {problem}")
        if self.start == self.end:
            self.start = self.end = 0
            if len(self.buffer) > 65536:
                self.buffer = bytearray(16384)  # a large frame is rare
                self.whole = memoryview(self.buffer)
        if shell.core.table.dirty:
            shell.core.flush()


def long_lived(made: socket.socket) -> None:
    """For TCP: nothing waits for more data before it goes out, and a peer that is gone without a word is noticed."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 10_000)):
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
