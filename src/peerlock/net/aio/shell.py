"""Sockets and timers of a node whose users are tasks: those of the event loop that it was made in.

The core runs in the callback that has read a socket. What other threads have to say (`post`) goes
through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeAlias, cast

from peerlock.contract import Mode
from peerlock.errors import UsageError
from peerlock.net.aio.lock import Lock
from peerlock.net.aio.spin import SpinPolicy
from peerlock.net.base_shell import BaseShell, C, Handlers, shells_of_this_process
from peerlock.net.files import short_name
from peerlock.net.link_table import HELLO_S
from peerlock.net.registries.base import Registry
from peerlock.net.shell import Shell
from peerlock.net.transport.certificates import name_in
from peerlock.net.transport.connect import dialled
from peerlock.net.transport.link import Link, host_of, long_lived, user_of
from peerlock.net.transport.listen import Listener, max_unidentified
from peerlock.net.yielding import YieldPolicy
from peerlock.node.core import Core
from peerlock.node.effects import MaySpin
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import DEFAULT, WireAlgorithm

CLOSE_S = 0.5  # for links to be closed on both sides
FAREWELL_S = 2.0  # for what must still go out when a node leaves
CONNECT_S = 3.0  # then it is tried anew: the kernel would ask again less and less often


class AioLink(Link, asyncio.BufferedProtocol):
    shell: AioShell
    transport: asyncio.Transport | None = None
    late: asyncio.TimerHandle | None = None  # until it has said who it is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = writes = cast(asyncio.Transport, transport)  # those of uvloop are not of asyncio's classes
        self.shell.links.up.add(self)
        made = transport.get_extra_info("socket")
        if made is not None and made.family in (socket.AF_INET, socket.AF_INET6):
            long_lived(made)
        writes.set_write_buffer_limits(self.most)
        self.certificate = name_in(transport.get_extra_info("peercert"))
        if self.dialled is not None:
            self.shell.run(lambda: self.shell.links.connected(self))
        else:
            self.local = made is not None and made.family == socket.AF_UNIX
            self.host = host_of(transport)
            self.shell.unidentified_link(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room() if self.end else self.whole

    def connection_lost(self, exc: Exception | None) -> None:
        if self.late is not None:
            self.late.cancel()
            self.shell.unidentified.pop(self, None)
        if isinstance(exc, ssl.SSLError) and not self.closed:
            self.shell.links.broken(self, exc)
        self.shell.run(lambda: self.shell.links.lost(self))

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


class OnLoop(BaseShell[C]):
    """A shell whose callers are tasks of one event loop."""

    def use_loop(self, clock: Callable[[], float]) -> None:
        """The running one. Before anything else is made."""
        self.loop, self.thread = asyncio.get_running_loop(), threading.get_ident()
        self.virtual = getattr(self.loop, "virtual", False)  # there no time passes while a waiter spins
        # The clock of every loop but one in virtual time, without the call in between.
        self.time = self.loop.time if self.virtual else clock
        self.at_end: AsyncGenerator[None, None] | None = None
        self.pace = YieldPolicy()
        self.done = self.loop.create_future()  # what an end of a body gives back that has nothing to wait for
        self.done.set_result(None)
        self.spin: SpinPolicy | None = None

    def may_spin(self, limits: Limits | None) -> Handlers:
        """How the effect `MaySpin` is carried out, if it is."""
        if not (limits or Limits()).spin or self.virtual:
            return {}
        self.spin = SpinPolicy(self.loop.call_soon, self.time)
        return {MaySpin: self.spin}

    def now(self) -> float:
        return self.time()

    def over(self) -> bool:
        return self.loop.is_closed()

    def usable(self) -> None:
        super().usable()
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(
                "A node belongs to the event loop that it joined in: use it there, or peerlock.sync for threads."
            )

    # -- the core ----------------------------------------------------------------------------------------

    def run(self, act: Callable[[], object]) -> None:
        """Do something with the core. A finalizer that runs meanwhile may not."""
        before, self.at_work = self.at_work, True
        try:
            act()
            self.carry_out()
        finally:
            self.at_work = before

    def after(self, seconds: float, act: Callable[[], object]) -> asyncio.Handle:
        if seconds <= 0:
            return self.loop.call_soon(self.run, act)
        return self.loop.call_later(seconds, self.run, act)

    def post(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.run, act)

    def is_gone(self) -> bool:
        return self.loop.is_closed()

    def is_over(self) -> bool:
        """The lease, although that may not have been noticed."""
        return self.core.deadline.expired(self.time())

    def make_lock(self, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> Lock:
        return Lock(self, name, algorithm, mode, priority)

    # -- the end -----------------------------------------------------------------------------------------

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not a timer had its turn."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Leave the group. What is still held is lost, and its body ends; waiters get `NodeClosed`."""
        raise NotImplementedError

    def leave_now(self) -> None:
        """The same, where nothing can be waited for: the event loop ends."""
        raise NotImplementedError

    async def hung_up(self) -> None:
        """Links are closed. The event loop must not end before."""

    async def leave_at_the_end(self) -> None:
        """A program may forget to leave. `asyncio.run` closes what is an asynchronous generator
        before it closes the loop.
        """
        self.at_end = self._forgotten()
        await anext(self.at_end)

    async def _forgotten(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self.closing and not self.forked:
                if not self.virtual:  # in a test's group that is ordinary
                    self.complain(
                        "the event loop ends and this node has not left: use async with, or await node.leave()"
                    )
                self.leave_now()


LoopShell: TypeAlias = OnLoop[Any]  # of a member, or of an attached process


class AioShell(OnLoop[Core], Shell):
    """The shell of a member on an event loop."""

    def __init__(self, registry: Registry, group: str, algorithm: str = DEFAULT, limits: Limits | None = None) -> None:
        self.servers: list[Listener] = []
        self.unidentified: dict[AioLink, None] = {}  # the oldest first
        self.most_unidentified = max_unidentified()
        self.tasks: set[asyncio.Task[None]] = set()
        self.use_loop(registry.clock)
        super().__init__(registry, group, algorithm, limits)
        self.clock = self.time
        self.handlers |= self.may_spin(limits)

    def descriptors(self) -> list[int]:
        sockets = [made for each in self.servers for made in (each.listening, *each.coming.values())]
        found = [made.fileno() for made in sockets]
        for link in self.links.up:
            if isinstance(link, AioLink) and link.transport is not None:
                made = link.transport.get_extra_info("socket")
                found += [made.fileno()] if made is not None else []
        return found

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not a timer had its turn."""
        if self.forked or self.at_work:
            return  # a finalizer in the middle of the core: what has changed is seen a moment later
        if self.is_over():
            self.run(lambda: self.core.lapse(self.time()))
        if self.core.table.may_hold and not self.membership.stands():
            self.run(self.membership.on_group_lost)

    # -- sockets -----------------------------------------------------------------------------------------

    def connect(self, peer: Peer) -> None:
        task = self.loop.create_task(self._connect(peer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _connect(self, peer: Peer) -> None:
        where = self.registry.endpoint(peer)
        try:
            if where.path:
                with short_name(Path(where.path)) as short:
                    await self.loop.create_unix_connection(lambda: AioLink(self, peer), short)
            else:
                await dialled(
                    lambda: AioLink(self, peer), where, name=peer.name, tls=self.registry.tls(server=False),
                    source=self.registry.source, connect_s=CONNECT_S,
                )  # fmt: skip
        except OSError as problem:
            self.run(lambda problem=problem: self.links.not_connected(peer, problem))  # type: ignore[misc]

    def relisten(self) -> None:
        self._unlisten()
        self.servers = [self._listener(listening) for listening in self.registry.listeners()]

    def _listener(self, listening: socket.socket) -> Listener:
        tls = self.registry.tls(server=True) if listening.family != socket.AF_UNIX else None
        return Listener(listening, lambda: AioLink(self, None), tls, self.complain_of_stranger)

    def _unlisten(self) -> None:
        for listener in self.servers:
            listener.close()
        self.servers = []

    def unidentified_link(self, link: AioLink) -> None:
        """A connection that has not said who it is. It has a little time for that."""
        if self.closing:  # it came in while we went
            link.close()
            return
        self.unidentified[link] = None
        link.late = self.loop.call_later(HELLO_S, self._late, link)
        if len(self.unidentified) > self.most_unidentified:
            self._late(next(iter(self.unidentified)))

    def _late(self, link: AioLink) -> None:
        self.unidentified.pop(link, None)
        if link.peer is None and link.client is None and not link.closed:
            self.links.refuse(link, "it did not say who it is")
            link.drop()

    def fall_silent(self) -> None:
        """No peer is spoken to any more."""
        self.links.close()
        for task in list(self.tasks):
            task.cancel()
        self._unlisten()

    # -- the end -----------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Leave the group. What is still held is lost, and its body ends; waiters get `NodeClosed`."""
        if self.closing or self.forked:
            return
        self.run(self.say_farewell)
        self.fall_silent()
        try:
            if not self.registry.left(0.0):
                await self.loop.run_in_executor(None, self.registry.left, FAREWELL_S)
            await asyncio.sleep(0)
        finally:
            self.registry.close()  # also if no caller waits for the farewell any more
            if self.at_end is not None:
                await self.at_end.aclose()

    def leave_now(self) -> None:
        self.run(self.say_farewell)
        self.fall_silent()
        self.registry.left(FAREWELL_S)
        self.registry.close()

    async def hung_up(self) -> None:
        """A link with TLS is closed when the other end has closed it, too: the event loop must not
        end before.
        """
        end = time.monotonic() + CLOSE_S
        while self.links.up and time.monotonic() < end:
            await asyncio.sleep(0.002)


def refuse_on_the_loop_of(group: str, registry: Registry) -> None:
    """To wait on this thread for a group of which its event loop runs a member would be to wait for
    oneself.
    """
    loop = asyncio._get_running_loop()
    if loop is not None and any(
        isinstance(shell, AioShell)
        and shell.loop is loop
        and shell.group == group
        and shell.registry.place == registry.place
        and not shell.closing
        for shell in list(shells_of_this_process)
    ):
        raise UsageError(
            f"The event loop of this thread has a node of the group {group} already, which could not answer while "
            "peerlock.sync.join waits: use that node, or call await asyncio.to_thread(peerlock.sync.join, ...)."
        )
