"""A link for threads: a socket that does not block, served by the reader thread."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
from typing import TYPE_CHECKING

from peerlock.net.transport.certificates import name_in
from peerlock.net.transport.link import Link, user_of
from peerlock.net.transport.tls import NO_TLS, alert, reason
from peerlock.node.peer import Peer

if TYPE_CHECKING:
    from peerlock.net.threads.shell import ThreadShell


class ThreadLink(Link):
    """A socket that does not block, served by the reader thread."""

    shell: ThreadShell

    def __init__(self, shell: ThreadShell, dialled: Peer | None, made: socket.socket, connecting: bool) -> None:
        super().__init__(shell, dialled)
        self.socket = made
        self.connecting, self.shaking = connecting, False  # TCP, then TLS
        self.out = bytearray()
        self.wants = 0  # what the selector waits for
        shell.links.up.add(self)

    def watch(self) -> None:
        """Tell the selector what this link waits for."""
        if self.closed:
            return
        wants = selectors.EVENT_READ
        if self.connecting:
            wants = selectors.EVENT_WRITE
        elif self.out:
            wants |= selectors.EVENT_WRITE
        if wants != self.wants:
            if self.wants:
                self.shell.selector.modify(self.socket, wants, self)
            else:
                self.shell.selector.register(self.socket, wants, self)
            self.wants = wants

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if self.out or self.shaking or self.connecting:
            self.out += data
        else:
            sent = self.send(data)
            if sent < len(data):
                self.out += data[sent:]
        if self.out:
            self.watch()
            if len(self.out) > self.most:
                self.choked()

    def send(self, data: bytes | bytearray) -> int:
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return 0
        except OSError:
            self.shell.soon(self.gone)  # the reader finds out why
            return len(data)

    def owner(self) -> int:
        return user_of(self.socket)

    def ready(self, mask: int) -> None:
        """The selector says so."""
        if self.connecting:
            self.connecting = False
            problem = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                self.fail(OSError(problem, os.strerror(problem)))
                return
            self.shell.connects(self)
            return
        if self.shaking:
            self.shake()
            return
        if mask & selectors.EVENT_READ:
            self.read()
        if mask & selectors.EVENT_WRITE and self.out and not self.closed:
            del self.out[: self.send(self.out)]
        self.watch()

    def shake(self) -> None:
        """TLS."""
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.watch()
            return
        except (OSError, ValueError) as problem:
            if isinstance(problem, ssl.SSLError) and reason(problem) == NO_TLS:
                alert(self.socket, b"")
            self.fail(problem)
            return
        self.shaking = False
        self.certificate = name_in(self.socket.getpeercert())
        self.shell.shaken(self)

    def read(self) -> None:
        while not self.closed:
            try:
                count = self.socket.recv_into(self.room())
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
                return
            except ssl.SSLError as problem:
                self.shell.links.broken(self, problem)
                count = 0
            except OSError:
                count = 0
            if not count:
                self.gone()
                return
            self.buffer_updated(count)

    def fail(self, problem: OSError | ValueError) -> None:
        self.shut()
        if self.dialled is not None:
            self.shell.links.not_connected(self.dialled, problem if isinstance(problem, OSError) else str(problem))
        elif not isinstance(problem, ConnectionResetError | ssl.SSLEOFError):  # else it has left without a word
            self.shell.complain_of_stranger(f"a connection from {self.host} was not let in: {reason(problem)}")

    def gone(self) -> None:
        """The other side is gone."""
        if self.shut():
            self.shell.links.lost(self)

    def shut(self) -> bool:
        if self.wants:
            self.shell.selector.unregister(self.socket)
            self.wants = 0
        self.shell.unidentified.pop(self, None)
        self.shell.links.up.discard(self)
        if self.socket.fileno() < 0:
            return False
        self.closed = True
        self.socket.close()
        self.buffer = bytearray()
        return True

    def close(self) -> None:
        if self.closed:
            return
        if self.out and not self.connecting and not self.shaking:
            del self.out[: self.send(self.out)]
        self.closed = True
        self.shell.soon(self.gone)

    def drop(self) -> None:
        if not self.closed:
            self.out.clear()
            self.closed = True
            self.shell.soon(self.gone)
