"""Sockets and timers of a node whose users are tasks: those of the event loop that it was made in.

The core runs in the callback that has read a socket. What other threads have to say (`post`) goes through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from peerlock.net.awake import Awake
from peerlock.net.certificates import name_in
from peerlock.net.dialling import dialled
from peerlock.net.link import Link, long_lived
from peerlock.net.places import short_name
from peerlock.net.registry import Registry
from peerlock.net.shell import HELLO_S, STRANGERS, Shell
from peerlock.node.desk import Limits
from peerlock.node.wire import Peer

CONNECT_S = 3.0  # then it is tried anew: the kernel would ask again less and less often


class AioLink(Link, asyncio.BufferedProtocol):
    transport: asyncio.Transport | None = None
    late: asyncio.TimerHandle | None = None  # until it has said who it is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # those of uvloop are not of asyncio's classes
        self.shell.up.add(self)
        made = transport.get_extra_info("socket")
        if made is not None and made.family in (socket.AF_INET, socket.AF_INET6):
            long_lived(made)
        self.certificate = name_in(transport.get_extra_info("peercert"))
        if self.dialled is not None:
            self.shell.connected(self)
        else:
            assert isinstance(self.shell, Looped)
            self.local = made is not None and made.family == socket.AF_UNIX
            self.shell._unknown(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room() if self.end else self.whole

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
            self.shell._strangers.pop(self, None)  # type: ignore[attr-defined]
        self.shell.lost(self)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.closed:
            self.transport.write(data)

    def close(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.close()


class Looped(Shell):
    """The shell of a node on an event loop."""

    def __init__(self, registry: Registry, group: str, algorithm: str, limits: Limits | None) -> None:
        self._loop = asyncio.get_running_loop()
        # The clock of every loop but one in virtual time, without the call in between.
        self._time = self._loop.time if getattr(self._loop, "virtual", False) else registry.clock
        self._servers: list[asyncio.Server] = []
        self._listening: list[socket.socket] = []
        self._strangers: dict[AioLink, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        virtual = getattr(self._loop, "virtual", False)  # there no time passes while somebody is awake
        if (limits or Limits()).stay_awake and not virtual:
            self.stay_awake = Awake(self._loop.call_soon, self._time)  # type: ignore[method-assign]
        super().__init__(registry, group, algorithm, limits)
        self.clock = self._time

    def now(self) -> float:
        return self._time()

    def over(self) -> bool:
        return self._loop.is_closed()

    def descriptors(self) -> list[int]:
        found = [listener.fileno() for listener in self._listening]
        for link in self.up:
            if isinstance(link, AioLink) and link.transport is not None:
                made = link.transport.get_extra_info("socket")
                found += [made.fileno()] if made is not None else []
        return found

    def post(self, act: Callable[[], None]) -> None:
        def run() -> None:
            act()
            self.core.flush()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(run)

    def is_over(self) -> bool:
        """The lease, although nobody may have noticed."""
        table = self.core.table
        return table.gate and self._time() >= table.until

    def heed_the_clock(self) -> None:
        """If the lease is over, whoever looks next must see it, whether or not a timer had its turn."""
        table = self.core.table
        if self.forked:
            return
        if table.gate and self._time() >= table.until:
            self.core.lapse(self._time())
            self.core.flush()

    def after(self, seconds: float, act: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(act) if seconds <= 0 else self._loop.call_later(seconds, act)

    def connect(self, peer: Peer) -> None:
        task = self._loop.create_task(self._connect(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, peer: Peer) -> None:
        where = self.registry.endpoint(peer)
        try:
            if where.path:
                with short_name(Path(where.path)) as short:
                    await self._loop.create_unix_connection(lambda: AioLink(self, peer), short)
            else:
                await dialled(
                    lambda: AioLink(self, peer), where, name=peer.name, tls=self.registry.tls(server=False),
                    source=self.registry.source, connect_s=CONNECT_S,
                )  # fmt: skip
        except OSError as problem:
            self.not_connected(peer, str(problem) or "no answer")

    def relisten(self) -> None:
        self._unlisten()
        self._listening = self.registry.listeners()
        for listener in self._listening:
            task = self._loop.create_task(self._listen(listener))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _unlisten(self) -> None:
        for server in self._servers:
            server.close()
        for listener in self._listening:
            listener.close()  # one whose server was not made yet
        self._servers, self._listening = [], []

    async def _listen(self, listener: socket.socket) -> None:
        make = lambda: AioLink(self, None)  # noqa: E731
        if listener.family == socket.AF_UNIX:
            server = await self._loop.create_unix_server(make, sock=listener)
        else:
            server = await self._loop.create_server(make, sock=listener, ssl=self.registry.tls(server=True))
        if listener in self._listening:
            self._servers.append(server)
        else:
            server.close()

    def _unknown(self, link: AioLink) -> None:
        """Somebody has dialled and has not said who it is. It has a little time for that."""
        if self.closing:  # it came in while we went
            link.close()
            return
        self._strangers[link] = None
        link.late = self._loop.call_later(HELLO_S, self._late, link)
        if len(self._strangers) > STRANGERS:
            self._late(next(iter(self._strangers)))

    def _late(self, link: AioLink) -> None:
        self._strangers.pop(link, None)
        if link.peer is None and link.client is None and not link.closed:
            self.ends(link, "somebody dialled and did not say who it is")

    def fall_silent(self) -> None:
        """Nobody is spoken to any more."""
        for link in list(self.up):
            link.close()
        for task in list(self._tasks):
            task.cancel()
        self._unlisten()
