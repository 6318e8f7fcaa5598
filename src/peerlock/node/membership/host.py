"""The registry of one host as a protocol over a file system: which files a member makes, locks,
syncs and removes.

A group on one host is a directory. Its registry has no process of its own: every member runs this
protocol, and the kernel arbitrates. In the directory:

    members/ID      One file per incarnation, never used again. Two bytes of it carry locks.
                    Byte 0, *alive*: locked by the member from before the file appears until its process ends. A process
                    that can lock it knows that the member is dead. Probes lock it shared, so a probing process is never
                    mistaken for a live owner.
                    Byte 1, *holding*: a member locks it before it may hold anything. A process that can lock it shared
                    knows that the member holds nothing, and cannot begin to while the shared lock lasts.
    joining/ID      The member asks to be in the next view.
    sockets/ID      Where the member listens.
    views/EPOCH     The members of an epoch. The view with the largest number is in force.
    drafts/         Files that are not complete yet. Each is locked by its writer. A draft that another process removed
                    before its writer could lock it is written again.

Each rule below is one method or one line, named in the list. `peerlock check-registries` explores
this class, as it ships, over a model of the file system (`check/protocols/disk.py`), in every
interleaving, with crashes, failing calls and loss of power, with all rules and without each of
them.

1. *A member's file is locked before it is seen.* It is written as a draft and renamed into
   members/. A file that appears there without its lock would be a dead member's, and could be
   removed under a live one.
2. *A member is durable before it asks to join.* Else a view may survive a loss of power that names
   a member whose file does not, and no file proves that member dead.
3. *A missing file proves nothing.* Only a lock that can be taken proves a death.
4. *One view per epoch.* A view is put in its place by link(2), which fails if there is one already.
5. *A view is durable before it is used*, by the member that decides it and by each member that
   reads it: its content before the link, its directory entry after. Else an epoch, and its fences,
   may come a second time.
6. *An epoch that was decided long ago stays decided.* Old views are removed, so a slow member may
   link a view of an old epoch again. Only the view with the largest number is ever read.
7. *Lock, then look.* A member that wants to hold locks its *holding* byte and then reads the newest
   view. A member that excludes it takes the same lock shared and then decides, and releases the
   lock after that.
8. *The wish to join goes first.* A process that excludes a member removes its file in joining/
   before it decides, so no later view admits that incarnation again.
9. *Garbage is proved to be garbage.* A member's file is removed when the member is dead, was dead
   and had no file in joining/ in an earlier epoch, and the newest view is without it. Then nothing
   can bring it back.
10. *A member's file is where it was*, and so is the newest view that it knows, or a newer one. A
    member that does not find them has lost its group: the directory, or what is in it, was removed,
    moved or replaced. It may not hold anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from peerlock.errors import RegistryError
from peerlock.node.membership.files import (
    ALIVE,
    DIRECTORIES,
    HOLDING,
    RECORD_BYTES,
    File,
    Files,
    ids_in,
    name_of,
    path_of,
)
from peerlock.node.membership.proofs import Proofs
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer

VIEW = msgspec.json.Decoder(View)
KEPT_VIEWS = 16
TRIES = 1000  # views that other members may decide while this one tries to


class GroupLost(RegistryError):
    """The group's directory was removed, moved or replaced while this member was in the group."""


class HostMember(Proofs):
    """One member's half of the registry."""

    kept_views = KEPT_VIEWS

    def __init__(self, files: Files, where: str = "The group's directory") -> None:
        super().__init__(files)
        self.where = where
        self.me: Peer | None = None
        self.alive: File | None = None  # our file, locked
        self.holding: File | None = None  # the same file, locked at *holding*; None: nothing may be held
        self.asked = False  # it may have been seen in joining/
        self.admitted = False  # some view had this incarnation in it
        self.leaving = False
        self.known: View | None = None  # the newest view that was read
        self.highest = 0  # epoch that was read or decided
        self.suspects: dict[int, int] = {}  # files that may be garbage, and the epoch in which they were seen

    # -- to be a member ----------------------------------------------------------------------------------

    def appear(self, peer: Peer) -> None:
        """Make this incarnation's file. From then on other processes can tell whether it is alive."""
        for _ in range(TRIES):
            try:
                return self.try_to_appear(peer)
            except FileNotFoundError:  # another process took the draft for garbage, or there is no directory any more
                for directory in ("drafts", "members"):
                    self.files.names(directory)
        raise RegistryError(f"{self.where}: other members removed {TRIES} files that this one had begun to write.")

    def try_to_appear(self, peer: Peer) -> None:
        path = path_of("members", peer.id)
        with self.draft(name_of(peer.id), b"\n\n" + msgspec.json.encode(peer)) as (draft, file):
            self.files.keep(file)
            try:
                self.files.rename(draft, path)
                self.files.sync_directory("members")
            except BaseException:
                self.files.unlink(path)
                raise
            self.me, self.alive, self.asked, self.admitted = peer, file, False, False

    @contextlib.contextmanager
    def draft(self, name: str, data: bytes) -> Iterator[tuple[str, File]]:
        """A complete file, locked and durable, under a name that no protocol looks at."""
        files, path = self.files, f"drafts/{name}"
        file = files.create(path)
        try:
            if not files.lock(file, ALIVE):
                raise FileNotFoundError(f"{path}: another process took this draft for garbage")
            files.write(file, data)
            files.sync(file)
            yield path, file
        finally:
            if file is not self.alive:
                files.close(file)
            files.unlink(path)

    def ask_in(self) -> None:
        """Ask for a place in the next view. The caller listens already."""
        assert self.me is not None
        self.asked = True
        self.files.close(self.files.create(path_of("joining", self.me.id)))

    def stands(self) -> bool:
        """Is the group where we joined it? Our own file is gone if we were excluded; then the
        newest view says so.
        """
        if self.me is None:
            return True
        try:
            if self.files.is_at(self.alive, path_of("members", self.me.id)):
                return not self.highest or self.files.exists(f"views/{self.highest}") or self.has_gone_on()
            newest = self.newest()
        except FileNotFoundError:
            return False  # there is no directory at all
        return newest is not None and newest.epoch >= self.highest and self.me not in newest.members

    def has_gone_on(self) -> bool:
        """The newest view that this member knows is gone: because newer ones have taken its place,
        or it was removed.
        """
        return max(self.epochs(), default=0) >= self.highest

    def put_away(self) -> None:
        """This incarnation is over. While the newest view has it, its file stays: it proves that
        the member is dead.
        """
        me, self.me = self.me, None
        if me is None:
            return
        files, alive = self.files, self.alive
        with contextlib.suppress(OSError):
            self.stop_holding()
        try:
            files.unlink(path_of("joining", me.id))
            files.unlink(path_of("sockets", me.id))
            newest = self.newest() if self.admitted else None
            if not self.asked or (newest is not None and me not in newest.members):
                files.unlink(path_of("members", me.id))
        finally:
            self.alive = None
            files.close(alive)  # last: from then on this member is dead

    # -- to hold something -------------------------------------------------------------------------------

    def start_holding(self) -> bool:
        """May this member hold locks from now on? False: not now, or not in this view."""
        assert self.me is not None
        if self.holding is not None:  # since before it was in a view
            newest = self.newest()
            return newest is not None and self.me in newest.members
        files, path = self.files, path_of("members", self.me.id)
        file = files.open(path)
        if file is None:
            if self.stands():
                return False  # excluded
            raise self.group_lost()
        try:
            if not files.lock(file, HOLDING):
                return False  # another process is about to exclude us
            files.keep(file)
            newest = self.newest()
            if not self.stands():
                raise self.group_lost()
            if newest is not None and self.me in newest.members:
                self.holding = file
                return True
            return False
        finally:
            if self.holding is not file:
                files.close(file)

    def hold_from_the_start(self) -> None:
        """This member holds something already, which it takes over from a dead one. So it is never
        idle: no view without it is decided while it lives. Before it asks for a place in a view.
        """
        assert self.me is not None and not self.asked
        file = self.files.open(path_of("members", self.me.id))
        if file is None or not self.files.lock(file, HOLDING):
            raise self.group_lost()
        self.files.keep(file)
        self.holding = file

    def stop_holding(self) -> None:
        holding, self.holding = self.holding, None
        if holding is not None:
            self.files.close(holding)

    def group_lost(self) -> GroupLost:
        return GroupLost(
            f"{self.where} was removed, moved or replaced while this node was a member of the group. "
            "Others may have founded a new group there: nothing that was held is safe, and fences may start again."
        )

    # -- views -------------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        return sorted(int(name) for name in self.files.names("views") if name.isdigit())

    def newest(self) -> View | None:
        """The view in force, durable."""
        for _ in range(100):
            epochs = self.epochs()
            if not epochs:
                return None
            if self.known is not None and self.known.epoch == epochs[-1]:
                return self.known
            path = f"views/{epochs[-1]}"
            data = self.files.read(path)
            if data is None:
                continue  # by now it is older than those that are kept
            try:
                found = VIEW.decode(data)
            except msgspec.DecodeError as problem:
                raise RegistryError(
                    f"{path} in {self.where} cannot be read ({problem}): the group cannot know its members. If no process "
                    "of the group runs, remove the directory and start again; fences then start again, too."
                ) from None
            self.make_durable()
            self.learn(found)
            return found
        raise RegistryError(f"{self.where}: views come and go faster than they can be read.")

    def learn(self, view: View) -> None:
        self.known, self.highest = view, max(self.highest, view.epoch)

    def make_durable(self) -> None:
        self.files.sync_directory("views")

    def decide(self, view: View) -> bool:
        """Make this the view of its epoch. False: the epoch has one already."""
        assert self.me is not None
        with self.draft(f"{name_of(self.me.id)}-{view.epoch}", msgspec.json.encode(view)) as (draft, _):
            if not self.put_in_place(draft, f"views/{view.epoch}"):
                return False
        self.files.sync_directory("views")
        epochs = self.epochs()
        for old in epochs[: -self.kept_views]:
            self.files.unlink(f"views/{old}")
        return self.is_newest(view.epoch, epochs)

    def put_in_place(self, draft: str, path: str) -> bool:
        return self.files.link(draft, path)

    def is_newest(self, epoch: int, epochs: list[int]) -> bool:
        """If not, the epoch was decided and its view removed long ago, and no member has read ours."""
        return epochs[-1] == epoch

    def change(self, even_if_the_same: bool = False, without: frozenset[int] = frozenset()) -> View | None:
        """A view of all that are alive and want to be in it. The newest view, whichever member
        decided it.
        """
        for _ in range(TRIES):
            newest = self.newest()
            epoch, members = (newest.epoch, newest.members) if newest else (0, ())
            self.admit(members)
            if self.is_excluded(members):
                return newest
            proofs: dict[int, File] = {}
            try:
                for peer in members:
                    if peer != self.me and peer.id not in without and (proof := self.dead(peer.id)) is not None:
                        proofs[peer.id] = proof
                wanted = self.wanted(members, without | set(proofs))
                if not wanted or (wanted == members and not even_if_the_same):
                    return newest
                excluded = [peer.id for peer in members if peer not in wanted]
                self.withdraw(excluded)
                view = View(epoch + 1, wanted)
                if self.try_to_decide(view):
                    self.learn(view)
                    self.admit(wanted)
                    self.tidy(view, excluded)
                    return view
                even_if_the_same = False
            finally:
                for proof in proofs.values():
                    self.files.close(proof)
        raise RegistryError(f"{self.where}: other members decided {TRIES} views while this one tried to.")

    def try_to_decide(self, view: View) -> bool:
        try:
            return self.decide(view)
        except FileNotFoundError:
            return False  # another process took the draft for garbage

    def wanted(self, members: tuple[Peer, ...], without: frozenset[int] | set[int]) -> tuple[Peer, ...]:
        stay = {peer for peer in (*members, *self.joiners(members)) if peer.id not in without}
        if self.leaving and self.me is not None:
            stay.discard(self.me)
        return tuple(sorted(stay))

    def is_excluded(self, members: tuple[Peer, ...]) -> bool:
        return self.admitted and self.me is not None and self.me not in members and not self.leaving

    def admit(self, members: tuple[Peer, ...]) -> None:
        if self.me is not None and self.me in members and not self.admitted:
            self.admitted = True
            self.files.unlink(path_of("joining", self.me.id))

    def withdraw(self, ids: list[int]) -> None:
        """No later view admits them again."""
        for incarnation in ids:
            self.files.unlink(path_of("joining", incarnation))

    def joiners(self, members: tuple[Peer, ...]) -> list[Peer]:
        """Processes that are alive and ask for a place. What dead ones have left behind is removed."""
        known, found = {peer.id for peer in members}, []
        for incarnation in ids_in(self.files.names("joining")):
            if incarnation in known:
                continue
            proof = self.dead(incarnation)
            if proof is not None:
                self.files.unlink(path_of("joining", incarnation))
                self.files.close(proof)
            elif (peer := self.read(incarnation)) is not None:
                found.append(peer)
        return found

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[View | None, tuple[Peer, ...]]:
        """A view without those that are dead, or hold nothing. The newest view, and those that have
        to stay.
        """
        proofs: list[File] = []
        stay: list[Peer] = []
        without: set[int] = set()
        try:
            for peer in peers:
                proof = self.idle(peer.id)
                if proof is not None:
                    proofs.append(proof)
                    without.add(peer.id)
                elif self.lives(peer.id) is not False:
                    stay.append(peer)
            return self.change(without=frozenset(without)), tuple(stay)
        finally:
            for proof in proofs:
                self.files.close(proof)

    # -- tidying up --------------------------------------------------------------------------------------

    def tidy(self, view: View, excluded: list[int]) -> None:
        """Remove what no process needs any more. A failure here loses nothing: the next view tries
        again.
        """
        with contextlib.suppress(OSError):
            for incarnation in excluded:
                if self.me is None or incarnation != self.me.id:
                    self.remove(incarnation)
            self.sweep(view)

    def remove(self, id: int) -> None:
        for kind in ("joining", "sockets", "members"):
            self.files.unlink(path_of(kind, id))
        self.suspects.pop(id, None)

    def sweep(self, newest: View) -> None:
        """Remove what dead processes have left behind.

        A process that admits a member has read the newest view and then seen the member's file in
        joining/. So if a dead member has no file there in one epoch, and another epoch was decided
        since, no process can admit it any more. It must be dead when joining/ is looked at: a live
        member may still ask.
        """
        files = self.files
        known = {peer.id for peer in newest.members} | ({self.me.id} if self.me is not None else set())
        for incarnation in ids_in(files.names("members")):
            proof = self.dead(incarnation) if incarnation not in known else None
            if proof is None:
                self.suspects.pop(incarnation, None)
                continue
            try:
                if not files.exists(path_of("joining", incarnation)) and self.is_garbage(incarnation, newest.epoch):
                    self.remove(incarnation)
            finally:
                files.close(proof)
        for incarnation in ids_in(files.names("sockets")):
            if not files.exists(path_of("members", incarnation)):
                files.unlink(path_of("sockets", incarnation))
        for name in files.names("drafts"):
            self.sweep_draft(f"drafts/{name}")

    def is_garbage(self, id: int, epoch: int) -> bool:
        return self.suspects.setdefault(id, epoch) < epoch

    def sweep_draft(self, path: str) -> None:
        """Its writer has it locked for as long as it lives."""
        file = self.files.open(path)
        if file is None:
            return
        try:
            if self.files.lock(file, ALIVE, shared=True):
                self.files.unlink(path)
        finally:
            self.files.close(file)


__all__ = [
    "ALIVE", "DIRECTORIES", "HOLDING", "KEPT_VIEWS", "RECORD_BYTES",
    "File", "Files", "GroupLost", "HostMember", "name_of", "path_of",
]  # fmt: skip
