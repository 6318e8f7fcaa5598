"""The host node's side: it listens for processes that want to be attached, and shares its locks with
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import TYPE_CHECKING

from peerlock.errors import ProtocolError, RegistryError
from peerlock.net.aio.shell import AioLink, AioShell
from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.page import HostPage, HostPages
from peerlock.net.base_shell import log
from peerlock.net.files import listen_at
from peerlock.net.registries.group_directory import ATTACHED
from peerlock.net.registries.host import HostRegistry
from peerlock.net.registries.liveness_lock import LivenessLock
from peerlock.net.transport.link import FOR_A_CLIENT, Link
from peerlock.net.transport.listen import Listener
from peerlock.node.attached.chain import ProcessId
from peerlock.node.attached.messages import Attach, Attached, Group, ToHostNode
from peerlock.node.attached.sharing import Sharing
from peerlock.node.effects import EpochStarted
from peerlock.node.locks.fence import fence
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire import framed
from peerlock.node.wire_algorithms import DEFAULT

if TYPE_CHECKING:
    from peerlock.net.control.session import Client

TICK_S = 0.05  # between two looks at owners that others wait for
REPORT_S = 0.5  # for the processes of an earlier host node to report
GONE_S = 0.02  # between two looks whether a process whose connection has ended is dead


class HostNode:
    """What a member does for the processes of its host."""

    def __init__(
        self, directory: AttachedDirectory, lock: LivenessLock, registry: HostRegistry, group: str, service: bool = False,
        algorithm: str = DEFAULT, limits: Limits | None = None,
    ) -> None:  # fmt: skip
        self.directory, self.registry = directory, registry
        self.lock = lock  # of `host`: for as long as this one lives, no other begins
        self.shell = shell = AioShell(registry, group, algorithm, limits)
        shell.clients.host_node = self
        shell.listeners.add(self.on_epoch)
        self.pages = HostPages()
        self.links: dict[ProcessId, Link] = {}
        self.ticking = False
        self.adopted = False
        where = directory.path / f"socket-{os.getpid()}"
        for old in directory.path.glob("socket-*"):  # this is the only host node
            old.unlink(missing_ok=True)
        self.where = where
        self.listener = Listener(
            listen_at(where, 0o600), lambda: AioLink(shell, None), None, shell.complain_of_stranger
        )
        self.sharing = Sharing(shell.core, self.pages)
        self.sharing.on_change = self.changed
        self.sharing.in_group = False
        for process in directory.processes():
            self.was_attached(process)
        directory.sweep_hands(set(self.pages.pages))
        self.sharing.generation = directory.begin(where, service)

    def was_attached(self, process: ProcessId) -> None:
        """Its page is there: it was attached to an earlier host node."""
        try:
            page = HostPage(self.directory.page(process))
        except (OSError, RegistryError):  # it has just begun, or was removed
            return
        if page.is_dead():
            page.close()
            self.directory.remove(process)
        else:
            self.pages.pages[process] = page
            self.sharing.was_attached(process)

    async def collect(self) -> None:
        """What do the processes have that were attached to an earlier host node? Each reports, or is
        read.
        """
        end = self.shell.now() + REPORT_S
        while self.sharing.unresolved and self.shell.now() < end:
            for process in list(self.sharing.unresolved):
                self.look_for_death(process, again=False)
            await asyncio.sleep(0.01)
        newest = self.registry.newest()
        older = fence((newest.epoch if newest is not None else 0) + 1, 0) - 1
        for process in list(self.sharing.unresolved):
            log.warning("group %s: process %x does not report, and is read", self.shell.group, process)
            self.sharing.read(process, self.pages.pages[process].slots(), older, self.shell.now())
        for process in list(self.pages.pages):
            self.look_for_death(process)

    def record(self) -> bytes:
        """In the member's file: where its processes are."""
        return ATTACHED + self.directory.path.name.encode() + b"\n"

    def on_incarnation(self) -> None:
        self.shell.clients.record()
        if not self.adopted:
            self.adopted = True
            self.registry.member.hold_from_the_start()
            self.registry.files.adopts = self.directory.path.name
            self.sharing.adopt(self.shell.now())
        self.sharing.in_group = True

    def close(self) -> None:
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
        elif process in self.links:
            raise ProtocolError(f"{frame.name} is attached already")
        if why:
            link.write(framed(Attached(0, self.shell.name, why)))
            return
        if process not in self.pages.pages:
            self.pages.pages[process] = HostPage(self.directory.page(process))
        self.links[process] = link
        self.sharing.attach(process, frame.name, pid)
        link.client = AttachedProcess(self, client, process)
        link.trust(FOR_A_CLIENT)
        link.write(framed(Attached(self.sharing.generation, self.shell.name)))
        if self.shell.epoch:
            link.write(framed(self.group()))

    def detached(self, process: ProcessId) -> None:
        """Its connection has ended. That is no proof that it is dead."""
        self.links.pop(process, None)
        self.look_for_death(process)

    def look_for_death(self, process: ProcessId, again: bool = True) -> None:
        page = self.pages.pages.get(process)
        if page is None or process in self.links:
            return
        if not page.is_dead():
            if again:
                self.shell.after(GONE_S, lambda: self.look_for_death(process))
            return
        self.sharing.died(process, self.shell.now())
        self.pages.close(process)
        self.directory.remove(process)
        self.flush()

    # -- frames ----------------------------------------------------------------------------------------

    def receive(self, process: ProcessId, frame: ToHostNode) -> None:
        self.sharing.receive(process, frame, self.shell.now())
        self.changed()

    def changed(self) -> None:
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
        self.sharing.touch_all(self.shell.now())
        self.flush()


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
