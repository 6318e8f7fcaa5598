"""How a connection that comes on an event loop is taken in: accepted, then TLS, then handed to its
protocol.

asyncio's own server says nothing of a handshake that fails, and fills the log when there is no
descriptor left. Here each connection is a task, which knows where the connection comes from and
says why nothing comes of it.

Any program can connect and say nothing. So the number of unidentified connections is limited, by
the descriptors that this process may have. The newest takes the place of the oldest: a handshake
takes milliseconds, so a connection in the middle of one is rarely the oldest.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections.abc import Callable

from peerlock.net.transport.tls import HANDSHAKE_S, SHUTDOWN_S, handshake_on, reason

MAX_UNIDENTIFIED = 256  # connections at one time without a certificate, and links without a hello
SHARE = 8  # of the descriptors: the rest is for peers, files and whatever else the program does
AT_ONCE = 16  # connections that are accepted before others have their turn
AGAIN_S = 1.0  # when this process or the machine has no room for another socket
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def max_unidentified() -> int:
    """What one that listens can afford."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_UNIDENTIFIED if allowed == resource.RLIM_INFINITY else max(2, min(MAX_UNIDENTIFIED, allowed // SHARE))


class Listener:
    """Serves one socket that listens, in the event loop that runs, until it is closed."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        complain: Callable[[str], None],
    ) -> None:
        self.listening, self.make, self.tls, self.complain = listening, make, tls, complain
        self.loop = asyncio.get_running_loop()
        self.coming: dict[asyncio.Task[None], socket.socket] = {}  # no TLS yet; the oldest first
        self.not_begun: set[socket.socket] = set()  # their tasks have not run yet; a task cancelled now never does
        self.closed = False
        self.most = max_unidentified()
        self.loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                made, address = self.listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                if problem.errno in NO_ROOM:
                    self._rest(problem)
                    return
                continue  # the connection is gone already
            made.setblocking(False)
            task = self.loop.create_task(self._take_in(made, str(address[0]) if self.tls is not None else ""))
            self.coming[task] = made
            self.not_begun.add(made)
            task.add_done_callback(lambda task, made=made: self._ended(task, made))  # type: ignore[misc]
            if len(self.coming) > self.most:
                self._drop_the_oldest()

    def _drop_the_oldest(self) -> None:
        task = next(iter(self.coming))
        del self.coming[task]
        task.cancel()
        self.complain(f"more than {self.most} connections have shown no certificate: the oldest are closed")

    def _rest(self, problem: OSError) -> None:
        """Or the event loop would do nothing else but try."""
        self.complain(f"a connection was not accepted: {problem.strerror}")
        self.loop.remove_reader(self.listening.fileno())
        self.loop.call_later(AGAIN_S, self._again)

    def _again(self) -> None:
        if not self.closed:
            self.loop.add_reader(self.listening.fileno(), self._accept)

    async def _take_in(self, made: socket.socket, host: str) -> None:
        self.not_begun.discard(made)
        timeouts = (
            {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S} if self.tls is not None else {}
        )
        try:
            with handshake_on(made):
                await self.loop.connect_accepted_socket(self.make, made, ssl=self.tls, **timeouts)
        except ConnectionResetError:
            pass  # it has left without a word
        except OSError as problem:
            self.complain(f"a connection from {host} was not let in: {reason(problem)}")

    def _ended(self, task: asyncio.Task[None], made: socket.socket) -> None:
        self.coming.pop(task, None)
        if made in self.not_begun:
            self.not_begun.discard(made)
            made.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.loop.remove_reader(self.listening.fileno())
        self.listening.close()
        for task in list(self.coming):
            task.cancel()


def listen(host: str, port: int) -> list[socket.socket]:
    """A socket for each address that the host has under that name."""
    made: list[socket.socket] = []
    problem: OSError | None = None
    for family, kind, proto, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        one = socket.socket(family, kind, proto)
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(128)
            one.setblocking(False)
            made.append(one)
        except OSError as why:
            one.close()
            problem = why
            if why.errno != errno.EADDRNOTAVAIL:  # else an address of a family that this host does not have
                break
    if not made or (problem is not None and problem.errno != errno.EADDRNOTAVAIL):
        for one in made:
            one.close()
        raise problem or OSError(f"{host} has no address")
    return made
