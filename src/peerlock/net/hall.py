"""A group's directory on one host, and the kernel's record locks. In it:

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
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
import time
import weakref
from pathlib import Path

import msgspec

from peerlock.errors import RegistryError
from peerlock.net.charges import end_charges
from peerlock.net.places import make_for, write_all
from peerlock.net.registry import Decision, Registry
from peerlock.node.wire import Peer

ALIVE, HOLDING = 0, 1  # bytes of a member's file
CHARGE, CHARGE_BYTES = 4096, 2**20  # where a member's file says what works under its locks
KEEP = 16  # views that are kept


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
    def of(cls, directory: Path, shared: bool, user: Registry | None = None) -> Hall:
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
        self.owners: dict[int, weakref.ref[Registry]] = {}  # whose each of our own is
        self.users: weakref.WeakSet[Registry] = weakref.WeakSet()  # that are not closed
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
            shell = registry.shell if registry is not None else None
            if registry is None or (shell is not None and shell.over()):
                if shell is not None:
                    shell.buried()
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


os.register_at_fork(after_in_child=Hall.after_fork)
