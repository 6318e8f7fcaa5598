"""The host node's side: it listens for processes that want to be attached, and shares its locks with
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.errors import ProtocolError
from peerlock.net.aio.shell import AioLink, AioShell
from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.page import HostPage, HostPages
from peerlock.net.files import listen_at
from peerlock.net.transport.link import FOR_A_CLIENT, Link
from peerlock.net.transport.listen import Listener
from peerlock.node.attached.messages import Attach, Attached, Group, ProcessId, ToHostNode
from peerlock.node.attached.sharing import Sharing
from peerlock.node.effects import EpochStarted
from peerlock.node.wire import framed

if TYPE_CHECKING:
    from peerlock.net.control.session import Client

TICK_S = 0.05  # between two looks at owners that others wait for
GONE_S = 0.02  # between two looks whether a process whose connection has ended is dead


class HostNode:
    """What a member does for the processes of its host."""

    def __init__(self, directory: AttachedDirectory, make: Callable[[], AioShell]) -> None:
        self.directory, self.make = directory, make
        self.shell: AioShell = None  # type: ignore[assignment]  # `make_shell`
        self.pages = HostPages()
        self.links: dict[ProcessId, Link] = {}
        self.ticking = False
        self.listener: Listener | None = None
        self.users = asyncio.Event()

    def make_shell(self) -> AioShell:
        self.shell = self.make()
        self.shell.clients.host_node = self
        return self.shell

    def begin(self) -> None:
        """The member is in a view: processes may come."""
        shell = self.shell
        where = self.directory.path / f"socket-{os.getpid()}"
        where.unlink(missing_ok=True)
        made = listen_at(where, 0o600)
        self.listener = Listener(made, lambda: AioLink(shell, None), None, shell.complain_of_stranger)
        self.where = where
        for process in self.directory.processes():
            page = HostPage(self.directory.page(process))
            if page.is_dead():
                self.directory.remove(process)
            page.close()
        self.sharing = Sharing(shell.core, self.pages, self.directory.begin(where))
        self.sharing.on_change = self.flush
        shell.listeners.add(self.on_epoch)

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
        self.where.unlink(missing_ok=True)

    async def until_unused(self, ended: asyncio.Event, linger_s: float) -> None:
        """Until it is told to end, or has had no user for a while."""
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), linger_s)
            if not self.pages.pages:
                return

    # -- processes -------------------------------------------------------------------------------------

    def attach(self, client: Client, frame: Attach) -> None:
        link, process = client.link, frame.process
        pid, user, _ = struct.unpack("3i", peer_of(link))
        why = ""
        if user not in (os.geteuid(), 0):
            why = f"the host node belongs to user {os.geteuid()}, not to {user}"
        elif pid != frame.pid:
            why = "the process is in another namespace of process numbers"
        elif process in self.pages.pages:
            raise ProtocolError(f"{frame.name} is attached already")
        if why:
            link.write(framed(Attached(0, self.shell.name, why)))
            return
        self.pages.pages[process] = HostPage(self.directory.page(process))
        self.links[process] = link
        self.sharing.attach(process, frame.name, pid)
        link.client = AttachedProcess(self, client, process)
        link.trust(FOR_A_CLIENT)
        link.write(framed(Attached(self.sharing.generation, self.shell.name)))
        link.write(framed(self.group()))

    def detached(self, process: ProcessId) -> None:
        """Its connection has ended. That is no proof that it is dead."""
        self.links.pop(process, None)
        self.look_for_death(process)

    def look_for_death(self, process: ProcessId) -> None:
        page = self.pages.pages.get(process)
        if page is None or process in self.links:
            return
        if not page.is_dead():
            self.shell.after(GONE_S, lambda: self.look_for_death(process))
            return
        self.sharing.died(process, self.shell.now())
        self.pages.close(process)
        self.directory.remove(process)
        self.flush()

    # -- frames ----------------------------------------------------------------------------------------

    def receive(self, process: ProcessId, frame: ToHostNode) -> None:
        self.sharing.receive(process, frame, self.shell.now())
        self.flush()
        if not self.ticking:
            self.ticking = True
            self.shell.after(TICK_S, self.tick)

    def flush(self) -> None:
        """Tell each process what there is for it: one write each."""
        for process, frame in self.sharing.take_frames():
            link = self.links.get(process)
            if link is not None:
                link.write(framed(frame))

    def tick(self) -> None:
        self.ticking = self.sharing.tick(self.shell.now())
        self.flush()
        if self.ticking:
            self.shell.after(TICK_S, self.tick)

    # -- the group -------------------------------------------------------------------------------------

    def group(self) -> Group:
        return Group(self.shell.epoch, self.shell.members)

    def on_epoch(self, started: EpochStarted) -> None:
        frame = framed(self.group())
        for link in self.links.values():
            link.write(frame)


class AttachedProcess:
    """In the place of a `Client`: the other end of a link is an attached process."""

    def __init__(self, host: HostNode, client: Client, process: ProcessId) -> None:
        self.host, self.client, self.process = host, client, process

    def __call__(self, frame: object) -> None:
        if type(frame) is ToHostNode:
            self.host.receive(self.process, frame)
        elif frame is None:
            self.client(None)
            self.host.detached(self.process)
        else:
            self.client(frame)


def peer_of(link: Link) -> bytes:
    transport = link.transport if isinstance(link, AioLink) else None
    made: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    if made is None or made.family != socket.AF_UNIX:
        raise ProtocolError("only a process of this host can be attached")
    return made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)


__all__ = ["AttachedProcess", "HostNode"]
