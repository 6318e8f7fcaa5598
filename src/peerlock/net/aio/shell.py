"""Sockets and timers of a node whose users are tasks: those of the event loop that it was made in.

The core runs in the callback that has read a socket. What other threads have to say (`post`) goes through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from peerlock.errors import UsageError
from peerlock.net.aio.spin import SpinPolicy
from peerlock.net.files import short_name
from peerlock.net.registries.base import Registry
from peerlock.net.shell import HELLO_S, Shell, nodes_of_this_process
from peerlock.net.transport.certificates import name_in
from peerlock.net.transport.connect import dialled
from peerlock.net.transport.link import Link, host_of, long_lived, user_of
from peerlock.net.transport.listen import Listener, max_unidentified
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer

CLOSE_S = 0.5  # for links to be closed on both sides
CONNECT_S = 3.0  # then it is tried anew: the kernel would ask again less and less often


class AioLink(Link, asyncio.BufferedProtocol):
    transport: asyncio.Transport | None = None
    late: asyncio.TimerHandle | None = None  # until it has said who it is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = writes = cast(asyncio.Transport, transport)  # those of uvloop are not of asyncio's classes
        self.shell.up.add(self)
        made = transport.get_extra_info("socket")
        if made is not None and made.family in (socket.AF_INET, socket.AF_INET6):
            long_lived(made)
        writes.set_write_buffer_limits(self.most)
        self.certificate = name_in(transport.get_extra_info("peercert"))
        if self.dialled is not None:
            self.shell.connected(self)
        else:
            assert isinstance(self.shell, AioShell)
            self.local = made is not None and made.family == socket.AF_UNIX
            self.host = host_of(transport)
            self.shell._unknown(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room() if self.end else self.whole

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
            self.shell._unidentified.pop(self, None)  # type: ignore[attr-defined]
        if isinstance(exc, ssl.SSLError) and not self.closed:
            self.shell.broken(self, exc)
        self.shell.lost(self)

    def owner(self) -> int:
        return user_of(self.transport.get_extra_info("socket") if self.transport is not None else None)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.closed:
            self.transport.write(data)

    def close(self) -> None:
        self.closed = True
        if self.transport is not None:
            self.transport.close()

    def drop(self) -> None:
        self.closed = True
        if self.transport is not None:
            asyncio.get_running_loop().call_soon(self.transport.abort)  # it may be in the middle of a write

    def trust(self, most: int) -> None:
        super().trust(most)
        if self.transport is not None:
            self.transport.set_write_buffer_limits(most)

    def pause_writing(self) -> None:
        if not self.closed:
            self.choked()


class AioShell(Shell):
    """The shell of a node on an event loop."""

    def __init__(self, registry: Registry, group: str, algorithm: str, limits: Limits | None) -> None:
        self._loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        # The clock of every loop but one in virtual time, without the call in between.
        self._time = self._loop.time if getattr(self._loop, "virtual", False) else registry.clock
        self._listeners: list[Listener] = []
        self._unidentified: dict[AioLink, None] = {}  # the oldest first
        self._most = max_unidentified()
        self._tasks: set[asyncio.Task[None]] = set()
        virtual = getattr(self._loop, "virtual", False)  # there no time passes while a waiter spins
        if (limits or Limits()).spin and not virtual:
            self.spin = SpinPolicy(self._loop.call_soon, self._time)  # type: ignore[method-assign]
        super().__init__(registry, group, algorithm, limits)
        self.clock = self._time

    def now(self) -> float:
        return self._time()

    def over(self) -> bool:
        return self._loop.is_closed()

    def descriptors(self) -> list[int]:
        sockets = [made for each in self._listeners for made in (each.listening, *each.coming.values())]
        found = [made.fileno() for made in sockets]
        for link in self.up:
            if isinstance(link, AioLink) and link.transport is not None:
                made = link.transport.get_extra_info("socket")
                found += [made.fileno()] if made is not None else []
        return found

    def post(self, act: Callable[[], None]) -> None:
        def run() -> None:
            self.at_work(act)
            self.core.flush()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(run)

    def is_over(self) -> bool:
        """The lease, although nobody may have noticed."""
        table = self.core.table
        return table.may_hold and self._time() >= table.until

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not a timer had its turn."""
        table = self.core.table
        if (
            self.forked or self.core.busy
        ):  # a finalizer in the middle of the core: what has changed is seen a moment later
            return
        if table.may_hold and self._time() >= table.until:
            self.core.lapse(self._time())
            self.core.flush()
        if table.may_hold and not self.stands():
            self.on_group_lost()

    def after(self, seconds: float, act: Callable[[], None]) -> asyncio.Handle:
        if seconds <= 0:
            return self._loop.call_soon(self.at_work, act)
        return self._loop.call_later(seconds, self.at_work, act)

    def at_work(self, act: Callable[[], None]) -> None:
        """Do something with the core. A finalizer that runs meanwhile may not."""
        self.core.busy = True
        try:
            act()
        finally:
            self.core.busy = False

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
            self.not_connected(peer, problem)

    def relisten(self) -> None:
        self._unlisten()
        self._listeners = [self._listener(listening) for listening in self.registry.listeners()]

    def _listener(self, listening: socket.socket) -> Listener:
        tls = self.registry.tls(server=True) if listening.family != socket.AF_UNIX else None
        return Listener(listening, lambda: AioLink(self, None), tls, self.complain)

    def _unlisten(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    def _unknown(self, link: AioLink) -> None:
        """A connection that has not said who it is. It has a little time for that."""
        if self.closing:  # it came in while we went
            link.close()
            return
        self._unidentified[link] = None
        link.late = self._loop.call_later(HELLO_S, self._late, link)
        if len(self._unidentified) > self._most:
            self._late(next(iter(self._unidentified)))

    def _late(self, link: AioLink) -> None:
        self._unidentified.pop(link, None)
        if link.peer is None and link.client is None and not link.closed:
            self.ends(link, "it did not say who it is")
            link.drop()

    def fall_silent(self) -> None:
        """Nobody is spoken to any more."""
        for link in list(self.up):
            link.close()
        for task in list(self._tasks):
            task.cancel()
        self._unlisten()

    async def hung_up(self) -> None:
        """A link with TLS is closed when the other end has closed it, too: the event loop must not end before."""
        end = time.monotonic() + CLOSE_S
        while self.up and time.monotonic() < end:
            await asyncio.sleep(0.002)


def refuse_on_the_loop_of(group: str, registry: Registry) -> None:
    """To wait on this thread for a group of which its event loop runs a member would be to wait for oneself."""
    loop = asyncio._get_running_loop()
    if loop is not None and any(
        isinstance(node, AioShell)
        and node._loop is loop
        and node.group == group
        and node.registry.place == registry.place
        and not node.closing
        for node in list(nodes_of_this_process)
    ):
        raise UsageError(
            f"The event loop of this thread has a node of the group {group} already, which could not answer while "
            "peerlock.sync.join waits: use that node, or call await asyncio.to_thread(peerlock.sync.join, ...)."
        )
