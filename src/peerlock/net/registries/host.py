"""The registry of one host: a directory, and the kernel's locks.

Processes of one user that name the same group meet in a directory that depends on the machine, the
user and the group alone. A shell, cron and `sudo -u` lead to the same place, and it outlives logout
and reboot. What is in it, and which rules keep it safe, is in `node/membership/host.py`; this is
the registry that a shell asks.

No lock is held while anything is written that others wait for, except on the files of members that
are being excluded. A process that is stopped anywhere in here stops no other process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import weakref
from pathlib import Path

from peerlock.errors import AfterFork, RegistryError, UsageError
from peerlock.net.files import check_name, check_shared, directory_for, listen_at, make_for, make_private
from peerlock.net.registries.base import Registry, View
from peerlock.net.registries.group_directory import PROCESS_GROUP_BYTES, GroupDirectory
from peerlock.net.transport.endpoint import Endpoint
from peerlock.node.membership.files import path_of
from peerlock.node.membership.host import GroupLost, HostMember
from peerlock.node.peer import Peer

_registries: weakref.WeakSet[HostRegistry] = weakref.WeakSet()  # of this process


class HostRegistry(Registry):
    """The registry of one node on one host."""

    kind = "host"

    def __init__(
        self, group: str, name: str | None = None, directory: str | Path | None = None, resident: bool = False
    ) -> None:
        self.group = check_name("group", group)
        self.shared = directory is not None
        self.pid = os.getpid()
        if directory is not None:
            self.directory = Path(directory).absolute() / group
            check_shared(Path(directory))
        else:
            self.directory = directory_for(group)
        self.place = str(self.directory)
        self.files = GroupDirectory(self.directory, self.shared)
        self.member = HostMember(self.files, str(self.directory))
        self._make_directory()
        self.name = check_name("node", name) if name is not None else f"{socket.gethostname().split('.')[0]}-{self.pid}"
        self.address = "resident" if resident else ""  # a node that serves the command line says so
        _registries.add(self)

    def _make_directory(self) -> None:
        try:
            if self.shared:
                make_for(self.directory, 0o2770)
            else:
                make_private(self.directory)
            self.files.make()
        except OSError as problem:
            raise RegistryError(f"{self.directory} cannot be used: {problem.strerror}.") from None

    @property
    def me(self) -> Peer | None:
        return self.member.me

    def _alone(self) -> None:
        if os.getpid() != self.pid:
            raise AfterFork(
                f"This process was forked from {self.pid}, which joined the group {self.group}: "
                "the child is not a member. Call peerlock.join in the child."
            )

    # -- to be a member ----------------------------------------------------------------------------------

    def incarnate(self) -> Peer:
        self._alone()
        self._put_away()
        self.member = HostMember(self.files, str(self.directory))
        self._make_directory()  # it may have been removed while we were a member
        peer = Peer(self.name, secrets.randbits(63), self.address, self.pid)
        self.member.appear(peer)
        return peer

    def crowd(self) -> int:
        return len(self.files.names("joining"))

    def listeners(self) -> list[socket.socket]:
        """From then on it may be admitted to a view."""
        assert self.me is not None
        try:
            made = listen_at(self.files.path(path_of("sockets", self.me.id)), 0o660 if self.shared else 0o600)
            try:
                self.member.ask_in()
            except BaseException:
                made.close()
                raise
        except BaseException:
            self._put_away()
            raise
        return [made]

    def endpoint(self, peer: Peer) -> Endpoint:
        return Endpoint(path=str(self.files.path(path_of("sockets", peer.id))))

    def stands(self) -> bool:
        return self.member.stands()

    def lost(self) -> RegistryError:
        return self.member.group_lost()

    # -- views -------------------------------------------------------------------------------------------

    def newest(self) -> View | None:
        return self.member.newest()

    def confirms(self, view: View) -> bool:
        newest = self.newest()
        return newest is not None and (newest.epoch > view.epoch or newest == view)

    def lives(self, peer: Peer) -> bool | None:
        return self.member.lives(peer.id)

    def change(self, even_if_the_same: bool = False) -> View | None:
        self._alone()
        forget_closed_loops()
        return self.member.change(even_if_the_same)

    def learned(self, view: View) -> None:
        self.member.admit(view.members)

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[View | None, tuple[Peer, ...]]:
        self._alone()
        forget_closed_loops()
        return self.member.exclude(peers)

    def begin_holding(self) -> bool:
        self._alone()
        return self.member.start_holding()

    def end_holding(self) -> None:
        if os.getpid() == self.pid:
            self.member.stop_holding()

    def record_process_groups(self, words: bytes) -> None:
        if self.me is None:
            return
        if len(words) > PROCESS_GROUP_BYTES:
            raise RegistryError(f"{len(words)} bytes of commands under locks are more than {PROCESS_GROUP_BYTES}.")
        if not self.stands():
            raise self.lost()
        self.files.record_process_groups(path_of("members", self.me.id), words)

    def kick(self, name: str) -> str:
        newest = self.newest()
        for peer in newest.members if newest else ():
            if peer.name == name:
                raise UsageError(
                    f"{peer} is alive, or the group would know. End it, and it is excluded: kill {peer.pid}"
                )
        raise UsageError(f"The group {self.group} has no member {name}: peerlock status shows the members.")

    # -- the end -----------------------------------------------------------------------------------------

    def leave(self) -> View | None:
        self.member.leaving = True
        me = self.me
        if me is None:
            return None
        self.end_holding()
        self.files.unlink(path_of("joining", me.id))
        try:
            return self.change()
        finally:
            self._put_away()

    def _put_away(self) -> None:
        """Whatever fails, this incarnation is dead for the others afterwards, and can be seen to
        be.
        """
        if os.getpid() == self.pid:
            with contextlib.suppress(OSError, RegistryError):
                self.member.put_away()

    def close(self) -> None:
        self._put_away()
        _registries.discard(self)


def forget_closed_loops() -> None:
    """Nodes of this process whose event loop has ended without leaving are dead, and no other
    process can see it.
    """
    for registry in list(_registries):
        shell = registry.shell
        if shell is not None and shell.over() and registry.me is not None and registry.pid == os.getpid():
            shell.on_loop_closed()
            registry.close()


__all__ = ["GroupLost", "HostRegistry", "forget_closed_loops"]
