"""The registry of one host: a directory, and the kernel's record locks.

Processes of one user that name the same group meet in a directory that depends on the machine, the user and the group
alone, so a shell, cron and `sudo -u` lead to the same place, and it outlives logout and reboot. In it:

    members/ID      one file an incarnation, never used again, with two record locks:
                    byte 0, *alive*: taken before joining, ended by the kernel with the process. Who can take it knows: dead;
                    who looks takes it shared, so that nobody who looks seems to be alive.
                    byte 1, *holding*: needed to believe. Who can take it shared knows: this one does not believe, and cannot
                    while we have it.
    joining/ID      wants to be in the next view. Whoever leaves out ID takes this away first, so nobody takes ID in again.
    sockets/ID      where it listens
    views/EPOCH     who the members of an epoch are, made by link(2): that fails if it is there already, so one view an epoch.
                    The newest is the view; older ones are removed, the newest never.

Record locks are the kernel's answer to "is it dead?" with no time-out in it: they go when the process goes, kill -9
included, and a child does not inherit them. But closing *any* descriptor of a file drops the process's locks on it.
So there is one `Hall` a process and directory, which opens each of its own files once, and answers for nodes of its
own process from a table instead of asking the kernel.

No lock is held while anything is written that others wait for, except on the files of whom we leave out; a process
that is stopped anywhere in here stops nobody else. A file that is missing says nothing about its process: unknown,
never dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pwd
import re
import secrets
import socket
import stat
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec

from peerlock.errors import AfterFork, RegistryError, UsageError
from peerlock.net.charges import end_charges
from peerlock.net.registry import Decision, Endpoint, Registry
from peerlock.node.wire import Peer

ALIVE, HOLDING = 0, 1  # bytes of a member's file
CHARGE, CHARGE_BYTES = 4096, 2**20  # where a member's file says what works under its locks
KEEP = 16  # views that are kept
MACHINE = Path("/etc/machine-id")
LONGEST = 100  # bytes of a path that a socket can be bound to
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def check_name(what: str, name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a {what}: use up to 64 letters, digits, dots, dashes and underscores."
        )
    return name


def directory_for(group: str) -> Path:
    """Depends on the machine, the user and the group, and never on the environment."""
    check_name("group", group)
    uid = os.geteuid()
    try:
        machine = MACHINE.read_text().strip()[:12]
    except OSError:
        machine = ""
    machine = machine or check_name("host", socket.gethostname())
    # The home is what the user database says, and if that is not there there is no other: two places would be two groups.
    home = None
    with contextlib.suppress(KeyError, OSError):
        said = Path(pwd.getpwuid(uid).pw_dir)
        home = said if said.is_absolute() and said.stat().st_uid == uid else None
    if home is None:
        raise RegistryError(
            f"User {uid} has no home of its own, where the group {group} would have its place: give a directory with dir=."
        )
    return home / ".local" / "state" / "peerlock" / machine / group


def make_private(directory: Path) -> None:
    """Make a directory that only this user can enter, and check that it is one."""
    ours = [directory, *directory.parents[:4]]  # the group, the machine, peerlock, state, .local
    for path in reversed(ours):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = os.lstat(path)
        if found.st_uid not in (os.geteuid(), 0) or (not stat.S_ISLNK(found.st_mode) and found.st_mode & 0o022):
            raise RegistryError(
                f"{path} can be changed by others (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}): somebody "
                f"could put another group in the place of yours. Run: chmod go-w {path}"
            )
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise RegistryError(f"{directory} is not a directory: move it away, the group needs its place.")
    if found.st_uid != os.geteuid():
        raise RegistryError(
            f"{directory} belongs to user {found.st_uid}, not to you ({os.geteuid()}): the group of another user. "
            "For a group shared between users give a directory of its own with dir=."
        )
    if found.st_mode & 0o077:
        raise RegistryError(
            f"{directory} can be entered by others (mode {stat.S_IMODE(found.st_mode):o}): anybody could join. "
            f"Run: chmod 700 {directory}"
        )


def check_shared(directory: Path) -> None:
    try:
        found = directory.stat()
    except OSError as problem:
        raise RegistryError(
            f"{directory} cannot be used ({problem.strerror}): make it first, with the owner and mode of those who share it, "
            "like: install -d -m 2770 -g GROUP DIRECTORY"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise RegistryError(f"{directory} is not a directory.")
    if found.st_mode & 0o002:
        raise RegistryError(f"{directory} can be written by everybody: anybody could join. Run: chmod o-w {directory}")


def make_for(path: Path, mode: int) -> None:
    """A directory of ours that has that mode, also if whoever made it was killed before it had."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & mode != mode:
        path.chmod(mode)


class Proof:
    """A record lock on a file of another process, until closed."""

    def __init__(self, hall: Hall, id: int, fd: int, byte: int) -> None:
        self.hall, self.id, self.fd, self.byte = hall, id, fd, byte

    def close(self) -> None:
        fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, self.byte)
        self.hall.give_back(self.id)


class Hall:
    """A group's directory, as one process sees it. There is one of these a process and directory."""

    _known: dict[tuple[int, int], Hall] = {}  # noqa: RUF012 - it is the process's; by device and inode: paths have synonyms
    _guard = threading.Lock()

    @classmethod
    def of(cls, directory: Path, shared: bool, user: HostRegistry | None = None) -> Hall:
        with cls._guard:
            found = directory.stat()
            key = found.st_dev, found.st_ino
            hall = cls._known.get(key)
            if (
                hall is None or not hall.in_use()
            ):  # what is not in use may have gone, and its inode be another directory's
                hall = cls._known[key] = cls(directory, shared)
            if user is not None:
                hall.users.add(user)
            return hall

    @classmethod
    def after_fork(cls) -> None:
        """In the child: its parent's are not ours, and whoever had the guard is not here."""
        cls._known, cls._guard = {}, threading.Lock()

    def in_use(self) -> bool:
        return bool(self.mine or self.borrowed or self.users)

    def __init__(self, directory: Path, shared: bool) -> None:
        self.directory, self.shared, self.pid = directory, shared, os.getpid()
        self.mode = 0o660 if shared else 0o600
        self.mine: dict[int, int] = {}  # id -> descriptor of its file; never closed while it is a member
        self.peers: dict[int, Peer] = {}  # the same, as others know them
        self.borrowed: dict[int, list[int]] = {}  # files of others: id -> descriptor, how often it is in use
        self.believers: set[int] = set()  # of this process
        self.owners: dict[int, weakref.ref[HostRegistry]] = {}  # whose each of our own is
        self.users: weakref.WeakSet[HostRegistry] = weakref.WeakSet()  # that are not closed
        self.suspects: dict[int, int] = {}  # files that may be garbage, and the epoch in which they were seen
        self.guard = threading.RLock()
        self.cached: Decision | None = None
        for name in ("members", "joining", "sockets", "views"):
            make_for(directory / name, 0o2770 if shared else 0o700)

    def path(self, kind: str, id: int) -> Path:
        return self.directory / kind / f"{id:016x}"

    # -- files -----------------------------------------------------------------------------------------

    def make(self, peer: Peer) -> None:
        path = self.path("members", peer.id)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.mode)
        os.fchmod(fd, self.mode)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, ALIVE)
        # The two bytes that are locked, then what it says.
        self.mine[peer.id] = fd
        write_all(fd, b"\n\n" + msgspec.json.encode(peer))

    def wants_in(self, id: int) -> None:
        fd = os.open(self.path("joining", id), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, self.mode)
        os.close(fd)

    def borrow(self, id: int) -> int | None:
        """The one descriptor that this process has of another one's file. A second one would drop locks when closed."""
        assert id not in self.mine, "a second descriptor of our own file would drop its locks when closed"
        found = self.borrowed.get(id)
        if found is None:
            try:
                found = self.borrowed[id] = [os.open(self.path("members", id), os.O_RDWR | os.O_CLOEXEC), 0]
            except OSError:
                return None
        found[1] += 1
        return found[0]

    def give_back(self, id: int) -> None:
        found = self.borrowed[id]
        found[1] -= 1
        if not found[1]:
            del self.borrowed[id]
            os.close(found[0])

    def read(self, id: int) -> Peer | None:
        """What a member's file says."""
        fd = self.borrow(id)
        if fd is None:
            return None
        try:
            return msgspec.json.decode(os.pread(fd, CHARGE - 2, 2).rstrip(b"\0"), type=Peer)
        except (OSError, msgspec.DecodeError):
            return None  # it is being written
        finally:
            self.give_back(id)

    def lock(self, id: int, byte: int, kind: int) -> Proof | None:
        """A record lock on the file of another process; None: somebody has it, or there is no such file."""
        fd = self.borrow(id)
        if fd is None:
            return None
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB, 1, byte)
        except OSError:
            self.give_back(id)
            return None
        return Proof(self, id, fd, byte)

    def dead(self, id: int) -> Proof | None:
        """The lock that proves it; None: alive, or unknown. What worked under its locks is ended first."""
        if id in self.mine:
            return None
        proof = self.lock(id, ALIVE, fcntl.LOCK_SH)
        if proof is not None and not end_charges(os.pread(proof.fd, CHARGE_BYTES, CHARGE)):
            proof.close()
            return None
        return proof

    def lives(self, id: int) -> bool | None:
        if id in self.mine:
            return True
        proof = self.dead(id)
        if proof is not None:
            proof.close()
            return False
        return True if self.path("members", id).exists() else None

    def remove(self, id: int) -> None:
        """The files of somebody who is in no view, and whom nobody can take into one any more."""
        for kind in ("joining", "sockets", "members"):
            self.path(kind, id).unlink(missing_ok=True)
        self.suspects.pop(id, None)

    def sweep(self, newest: Decision) -> None:
        """Remove what the dead have left behind.

        Whoever takes somebody in saw a file in joining/ before it read the newest view, so with the next view decided a
        file that has gone from joining/ before cannot matter any more; only then the one in members/ may go.
        """
        known = {peer.id for peer in newest.members} | set(self.mine)
        for name in os.listdir(self.directory / "members"):
            try:
                who = int(name, 16)
            except ValueError:
                continue
            if who in known or self.path("joining", who).exists():
                self.suspects.pop(who, None)
            elif self.suspects.setdefault(who, newest.epoch) < newest.epoch:
                proof = self.dead(who)
                if proof is not None:
                    self.remove(who)
                    proof.close()
        for name in os.listdir(self.directory / "sockets"):
            if not (self.directory / "members" / name).exists():
                (self.directory / "sockets" / name).unlink(missing_ok=True)
        for name in os.listdir(self.directory / "views"):
            path = self.directory / "views" / name
            with contextlib.suppress(OSError):
                if name.startswith("draft-") and time.time() - path.stat().st_mtime > 60:
                    path.unlink()

    def bury_our_own(self) -> None:
        """Nodes of this process whose event loop has ended, or that nobody has any more, without leaving: they are dead."""
        for who, owner in list(self.owners.items()):
            registry = owner()
            if registry is None or registry.over():
                if registry is not None and registry.shell is not None:
                    registry.shell.buried()
                self.put_away(who)

    def put_away(self, who: int) -> None:
        self.path("joining", who).unlink(missing_ok=True)
        self.path("sockets", who).unlink(missing_ok=True)
        self.believers.discard(who)
        self.peers.pop(who, None)
        self.owners.pop(who, None)
        fd = self.mine.pop(who, None)
        if fd is not None:
            os.close(fd)

    # -- views -----------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        return sorted(int(entry.name) for entry in os.scandir(self.directory / "views") if entry.name.isdigit())

    def newest(self) -> Decision | None:
        for _ in range(100):
            epochs = self.epochs()
            if not epochs:
                return None
            if self.cached is not None and self.cached.epoch == epochs[-1]:
                return self.cached
            path = self.directory / "views" / str(epochs[-1])
            try:
                found = msgspec.json.decode(path.read_bytes(), type=Decision)
            except FileNotFoundError:
                continue  # it was the newest when we looked, and is older than the ones that are kept by now
            except (OSError, msgspec.DecodeError) as problem:
                raise RegistryError(
                    f"{path} cannot be read ({problem}): the group cannot know its members. "
                    f"If no process of the group runs, remove {self.directory} and start again; fences then start again, too."
                ) from None
            self.cached = found
            return found
        raise RegistryError(f"{self.directory}: views come and go faster than they can be read.")

    def decide(self, decision: Decision) -> bool:
        """Make it the view of its epoch, if that has none yet."""
        views = self.directory / "views"
        draft = views / f"draft-{secrets.token_hex(8)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.mode)
        try:
            try:
                os.fchmod(fd, self.mode)
                write_all(fd, msgspec.json.encode(decision))
                os.fsync(fd)
            finally:
                os.close(fd)
            os.link(draft, views / str(decision.epoch))
        except FileExistsError:
            return False
        except OSError as problem:
            raise RegistryError(
                f"{views}: the view of epoch {decision.epoch} cannot be written: {problem.strerror}."
            ) from None
        finally:
            draft.unlink(missing_ok=True)
        fd = os.open(views, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        epochs = self.epochs()
        for old in epochs[:-KEEP]:
            (views / str(old)).unlink(missing_ok=True)
        # If the epoch had been decided and removed long ago, ours is not the newest, and nobody has looked at it.
        return epochs[-1] == decision.epoch

    def joiners(self, members: tuple[Peer, ...]) -> list[Peer]:
        """Who else wants in and is alive. What the dead have left behind is removed."""
        known, found = {peer.id for peer in members}, []
        for name in os.listdir(self.directory / "joining"):
            try:
                who = int(name, 16)
            except ValueError:
                continue
            if who in known:
                continue
            if who in self.mine:
                found.append(self.peers[who])
                continue
            proof = self.dead(who)
            if proof is not None:
                self.path("joining", who).unlink(missing_ok=True)
                proof.close()
                continue
            peer = self.read(who)
            if peer is not None:
                found.append(peer)
        return found


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

    def over(self) -> bool:
        """The node has ended without leaving."""
        return self.shell is not None and self.shell.over()

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


os.register_at_fork(after_in_child=Hall.after_fork)


def write_all(fd: int, data: bytes) -> None:
    """All of it, or an error: half a file must not be taken for a whole one."""
    while data:
        data = data[os.write(fd, data) :]


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file as a whole: after a crash there is the old one or the new one."""
    draft = path.with_name(path.name + ".new")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, path)
        fd = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as problem:
        raise RegistryError(f"{path} cannot be written: {problem.strerror}.") from None


def listen_on(name: str, host: str, port: int) -> socket.socket:
    """A socket that other hosts reach."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
        made.setblocking(False)
    except OSError as problem:
        raise RegistryError(f"{name} cannot listen at {host}:{port}: {problem.strerror or problem}.") from None
    return made


def listen_at(path: Path, mode: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        with short_name(path) as short:
            made.bind(short)
        path.chmod(mode)
        made.listen(128)
        made.setblocking(False)
    except OSError as problem:
        made.close()
        raise RegistryError(f"{path} cannot be listened at: {problem.strerror}.") from None
    return made


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a path that a socket address has room for."""
    text = str(path)
    if len(os.fsencode(text)) <= LONGEST:
        yield text
        return
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
