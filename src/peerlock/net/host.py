"""The registry of one host: a directory, and the kernel's record locks.

Processes of one user that name the same group meet in a directory that depends on the machine, the user and the group
alone, so a shell, cron and `sudo -u` lead to the same place, and it outlives logout and reboot. `hall.py` says what is in it.

No lock is held while anything is written that others wait for, except on the files of whom we leave out; a process
that is stopped anywhere in here stops nobody else. A file that is missing says nothing about its process: unknown,
never dead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import weakref
from pathlib import Path

from peerlock.errors import AfterFork, RegistryError, UsageError
from peerlock.net.charges import end_charges
from peerlock.net.hall import ALIVE, CHARGE, CHARGE_BYTES, HOLDING, Hall
from peerlock.net.places import (
    check_name,
    check_shared,
    directory_for,
    listen_at,
    make_for,
    make_private,
)
from peerlock.net.registry import Decision, Endpoint, Registry
from peerlock.node.wire import Peer


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
        try:
            if self.shared:
                make_for(self.directory, 0o2770)
            else:
                make_private(self.directory)
            self.hall = Hall.of(self.directory, self.shared, self)
        except OSError as problem:
            raise RegistryError(f"{self.directory} cannot be used: {problem.strerror}.") from None
        self.name = check_name("node", name) if name is not None else f"{socket.gethostname().split('.')[0]}-{self.pid}"
        self.address = "resident" if resident else ""  # a node that serves the command line says so
        self.me: Peer | None = None
        self.admitted = False  # some view had us in it
        self.leaving = False

    def _alone(self) -> None:
        if os.getpid() != self.pid:
            raise AfterFork(
                f"This process was forked from {self.pid}, which joined the group {self.group}: "
                "the child is not a member. Call peerlock.join in the child."
            )

    def incarnate(self) -> Peer:
        self._alone()
        with self.hall.guard:
            if self.me is not None:
                self._put_away(self.me)
            self.me = peer = Peer(self.name, secrets.randbits(63), self.address, self.pid)
            self.hall.peers[peer.id] = peer
            self.hall.owners[peer.id] = weakref.ref(self)
            self.hall.make(peer)
            self.admitted = False
        return peer

    def listeners(self) -> list[socket.socket]:
        """From then on it may be taken into a view."""
        assert self.me is not None
        made = listen_at(self.hall.path("sockets", self.me.id), self.hall.mode)
        self.hall.wants_in(self.me.id)
        return [made]

    def endpoint(self, peer: Peer) -> Endpoint:
        return Endpoint(path=str(self.hall.path("sockets", peer.id)))

    def newest(self) -> Decision | None:
        with self.hall.guard:
            return self.hall.newest()

    def confirms(self, decision: Decision) -> bool:
        newest = self.newest()
        return newest is not None and (newest.epoch > decision.epoch or newest == decision)

    def lives(self, peer: Peer) -> bool | None:
        with self.hall.guard:
            return self.hall.lives(peer.id)

    def change(self, even_if_the_same: bool = False, without: frozenset[int] = frozenset()) -> Decision | None:
        self._alone()
        hall = self.hall
        with hall.guard:
            hall.bury_our_own()
            for _ in range(1000):
                newest = hall.newest()
                epoch, members = (newest.epoch, newest.members) if newest else (0, ())
                if self._left_out(members):
                    return newest
                proofs = {peer.id: proof for peer in members if (proof := hall.dead(peer.id)) is not None}
                try:
                    joiners = hall.joiners(members)
                    stay = {peer for peer in (*members, *joiners) if peer.id not in proofs and peer.id not in without}
                    if self.leaving and self.me is not None:
                        stay.discard(self.me)
                    wanted = tuple(sorted(stay))
                    if not wanted or (wanted == members and not even_if_the_same):
                        return newest
                    decision = Decision(epoch + 1, wanted)
                    leaves = [peer.id for peer in members if peer not in stay]
                    for who in leaves:
                        # First: nobody who looks from now on takes it in again.
                        hall.path("joining", who).unlink(missing_ok=True)
                    if hall.decide(decision):
                        for who in leaves:
                            if who not in hall.mine:
                                hall.remove(who)
                        hall.sweep(decision)
                        self._admit(wanted)
                        return hall.newest()
                    even_if_the_same = False
                finally:
                    for proof in proofs.values():
                        proof.close()
        raise RegistryError(f"{self.directory}: a thousand views were decided while this one was not.")

    def _left_out(self, members: tuple[Peer, ...]) -> bool:
        self._admit(members)
        return self.admitted and self.me is not None and self.me not in members and not self.leaving

    def _admit(self, members: tuple[Peer, ...]) -> None:
        if self.me is not None and self.me in members and not self.admitted:
            self.admitted = True
            self.hall.path("joining", self.me.id).unlink(missing_ok=True)

    def learned(self, decision: Decision) -> None:
        self._admit(decision.members)

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[Decision | None, tuple[Peer, ...]]:
        self._alone()
        hall = self.hall
        with hall.guard:
            proofs, without, stay = [], set(), []
            try:
                for peer in peers:
                    if peer.id in hall.mine:
                        (stay.append(peer) if peer.id in hall.believers else without.add(peer.id))
                        continue
                    proof = hall.lock(peer.id, HOLDING, fcntl.LOCK_SH)
                    if proof is None:
                        if hall.lives(peer.id) is not False:
                            stay.append(peer)
                        continue
                    dead = hall.lock(peer.id, ALIVE, fcntl.LOCK_SH)
                    if dead is not None:
                        ended = end_charges(os.pread(dead.fd, CHARGE_BYTES, CHARGE))
                        dead.close()
                        if not ended:  # not stopped and idle, but dead, and what worked under its locks goes on
                            proof.close()
                            stay.append(peer)
                            continue
                    proofs.append(proof)
                    hall.path("joining", peer.id).unlink(missing_ok=True)
                    without.add(peer.id)
                return self.change(without=frozenset(without)), tuple(stay)
            finally:
                for proof in proofs:
                    proof.close()

    def believe(self) -> bool:
        self._alone()
        hall, me = self.hall, self.me
        assert me is not None
        with hall.guard:
            fd = hall.mine[me.id]
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, HOLDING)
            except OSError as problem:
                if problem.errno in (errno.EACCES, errno.EAGAIN):
                    return False  # somebody is about to leave us out
                raise
            try:
                newest = hall.newest()
                there = os.stat(hall.path("members", me.id))
                mine = os.fstat(fd)
                same = (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
                if same and newest is not None and me in newest.members:
                    hall.believers.add(me.id)
                    return True
            except FileNotFoundError:
                pass  # our file is gone
            finally:
                if me.id not in hall.believers:
                    fcntl.lockf(fd, fcntl.LOCK_UN, 1, HOLDING)
            return False

    def doubt(self) -> None:
        hall, me = self.hall, self.me
        if me is None or os.getpid() != self.pid:
            return
        with hall.guard:
            hall.believers.discard(me.id)
            if me.id in hall.mine:
                fcntl.lockf(hall.mine[me.id], fcntl.LOCK_UN, 1, HOLDING)

    def charge(self, words: bytes) -> None:
        if self.me is not None and self.me.id in self.hall.mine:
            fd = self.hall.mine[self.me.id]
            before = max(0, os.fstat(fd).st_size - CHARGE)
            if len(words) > CHARGE_BYTES:
                raise RegistryError(f"{len(words)} bytes of commands under locks are more than {CHARGE_BYTES}.")
            # Written over what was there before anything is cut off: killed in between, we have left nobody out.
            os.pwrite(fd, words.ljust(before, b"\n"), CHARGE)
            os.ftruncate(fd, CHARGE + len(words))

    def kick(self, name: str) -> str:
        newest = self.newest()
        for peer in newest.members if newest else ():
            if peer.name == name:
                raise UsageError(
                    f"{peer} is alive, or the group would know. End it, and it is left out: kill {peer.pid}"
                )
        raise UsageError(f"The group {self.group} has no member {name}: peerlock status shows who there is.")

    def leave(self) -> Decision | None:
        self.leaving = True
        me = self.me
        if me is None:
            return None
        self.doubt()
        self.hall.path("joining", me.id).unlink(missing_ok=True)
        decision = self.change()
        self._put_away(me)
        self.me = None
        return decision

    def _put_away(self, me: Peer) -> None:
        """This incarnation is over. While the newest view has it in it, its file stays, for others to see: it is dead."""
        hall = self.hall
        with hall.guard:
            newest = hall.newest()
            if self.admitted and newest is not None and me not in newest.members:
                hall.path("members", me.id).unlink(missing_ok=True)
            hall.put_away(me.id)

    def close(self) -> None:
        if self.me is not None and os.getpid() == self.pid:
            self._put_away(self.me)
            self.me = None
        self.hall.users.discard(self)
