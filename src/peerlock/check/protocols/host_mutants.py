"""The registry of one host: the groups that are explored, and each of its rules taken away in turn.

`peerlock check-registries` runs them all. The numbers are those of the rules in
`node/membership/host.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from peerlock.check.protocols.host import HostGroup
from peerlock.node.membership.files import ALIVE, HOLDING, File, path_of
from peerlock.node.membership.host import HostMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer


class GivesUpItsDraft(HostMember):
    def appear(self, peer: Peer) -> None:
        self.try_to_appear(peer)


class SeenBeforeItIsLocked(HostMember):  # 1
    def appear(self, peer: Peer) -> None:
        files, path = self.files, path_of("members", peer.id)
        file = files.create(path)
        files.lock(file, ALIVE)
        files.write(file, b"\n\n" + msgspec.json.encode(peer))
        files.sync(file)
        files.sync_directory("members")
        self.me, self.alive = peer, file


class AsksBeforeItIsDurable(HostMember):  # 2
    def appear(self, peer: Peer) -> None:
        with self.draft(f"{peer.id:016x}", b"\n\n" + msgspec.json.encode(peer)) as (draft, file):
            self.files.rename(draft, path_of("members", peer.id))
            self.me, self.alive = peer, file


class TakesAMissingFileForADeath(HostMember):  # 3
    def wanted(self, members: tuple[Peer, ...], without: frozenset[int] | set[int]) -> tuple[Peer, ...]:
        missing = {peer.id for peer in members if not self.files.exists(path_of("members", peer.id))}
        return super().wanted(members, without | missing)


class ReplacesAView(HostMember):  # 4
    def put_in_place(self, draft: str, path: str) -> bool:
        self.files.rename(draft, path)
        return True


class LinksWhatIsNotDurable(HostMember):  # 5
    @contextlib.contextmanager
    def draft(self, name: str, data: bytes) -> Iterator[tuple[str, File]]:
        files, path = self.files, f"drafts/{name}"
        file = files.create(path)
        files.lock(file, ALIVE)
        files.write(file, data)
        yield path, file
        if file is not self.alive:
            files.close(file)
        files.unlink(path)


class ReadsWhatIsNotDurable(HostMember):  # 5
    def make_durable(self) -> None:
        pass


class BelievesItsOldView(HostMember):  # 6
    def decide(self, view: View) -> bool:
        return super().decide(view) or self.files.exists(f"views/{view.epoch}")


class LooksThenLocks(HostMember):  # 7
    def start_holding(self) -> bool:
        assert self.me is not None
        newest = self.newest()
        file = self.files.open(path_of("members", self.me.id))
        if file is not None and self.files.lock(file, HOLDING) and newest is not None and self.me in newest.members:
            self.holding = file
        return self.holding is not None


class ReleasesBeforeItDecides(HostMember):  # 7
    def idle(self, id: int) -> File | None:
        file = super().idle(id)
        if file is not None:
            self.files.close(file)
        return file


class LeavesTheWish(HostMember):  # 8
    def withdraw(self, ids: list[int]) -> None:
        pass

    def admit(self, members: tuple[Peer, ...]) -> None:
        self.admitted = self.admitted or self.me in members


class SweepsTheLiving(HostMember):  # 9
    def dead(self, id: int) -> File | None:
        return super().dead(id) or (self.files.open(path_of("members", id)) if self.sweeping else None)

    sweeping = False

    def sweep(self, newest: View) -> None:
        self.sweeping = True
        super().sweep(newest)
        self.sweeping = False


class SweepsAtOnce(HostMember):  # 9
    def is_garbage(self, id: int, epoch: int) -> bool:
        return True


class LooksForNoFile(HostMember):  # 10
    def start_holding(self) -> bool:
        newest = self.newest()
        if self.files.lock(self.alive, HOLDING) and newest is not None and self.me in newest.members:
            self.holding = self.alive
        return self.holding is not None


_JOIN = ("join hold", "join hold")
_EXCLUDE: dict[str, Any] = {"scripts": ("join hold stop hold", "join exclude hold"), "before": (1, 1)}
_SLOW: dict[str, Any] = {"scripts": ("join renew hold", "join renew"), "before": (1,), "kept_views": 1}
# The first process asks to join and dies. The second is about to admit it, the third is about to
# sweep.
_DIES: dict[str, Any] = {
    "scripts": ("join", "join renew", "join renew", "join renew"), "before": (0, 1, 1, 1),
    "then": ((2, "names members"), (0, "names views"), (1, "create"), (0, "crash")),
}  # fmt: skip

CLEAN = {
    "2 processes join": HostGroup(_JOIN),
    "2 processes join, one crashes": HostGroup(_JOIN, crashes=1),
    "2 processes join, a call fails": HostGroup(("join hold", "join"), errors=1),
    "2 processes join, the power fails": HostGroup(_JOIN, power=True),
    "2 processes join, all are stopped": HostGroup(_JOIN, stopped=True),
    "one holds, one excludes it": HostGroup(**_EXCLUDE, crashes=1, errors=1, power=True, stopped=True),
    "one leaves, one decides": HostGroup(("join leave", "join renew hold"), before=(1, 1), crashes=1, power=True),
    "one is slow, views are removed": HostGroup(**_SLOW),
    "one is excluded, a third decides": HostGroup(("join hold", "join exclude_first", "join renew"), before=(1, 1, 1)),
    "one joins, sweeps go on": HostGroup(("join", "join renew renew"), before=(0, 1)),
    "a file is removed": HostGroup(("join hold", "join remove renew"), before=(2, 1)),
    "the directory is replaced": HostGroup(("join hold", "replace"), before=(1, 1)),
}
DEEP = {
    "one joins or crashes, sweeps go on": HostGroup(
        ("join", "join renew renew"), before=(0, 1), crashes=1, stopped=True
    ),
    "one dies before it is admitted": HostGroup(**_DIES),
    "3 processes: one joins, one holds, one excludes": HostGroup(("join hold", "join exclude", "join"), before=(1, 1)),
    "2 processes join, hold and leave": HostGroup(("join hold stop leave", "join hold stop leave")),
    "2 processes join, a call fails, one crashes": HostGroup(_JOIN, errors=1, crashes=1, power=True),
}
MUTANTS = {
    "a draft that another process removed is written again": HostGroup(_JOIN, GivesUpItsDraft),
    "a member's file is locked before it is seen":
        HostGroup(("join", "join renew renew"), SeenBeforeItIsLocked, before=(0, 1)),
    "a member is durable before it asks to join": HostGroup(_JOIN, AsksBeforeItIsDurable, power=True),
    "a missing file proves nothing":
        HostGroup(("join hold", "join remove renew"), TakesAMissingFileForADeath, before=(2, 1)),
    "one view per epoch": HostGroup(_JOIN, ReplacesAView),
    "a view is durable before it is linked": HostGroup(_JOIN, LinksWhatIsNotDurable, power=True),
    "a view is durable before it is read": HostGroup(_JOIN, ReadsWhatIsNotDurable, power=True),
    "an epoch that was decided long ago stays decided": HostGroup(kind=BelievesItsOldView, **_SLOW),
    "lock, then look": HostGroup(kind=LooksThenLocks, **_EXCLUDE),
    "the lock lasts until the view is decided": HostGroup(kind=ReleasesBeforeItDecides, **_EXCLUDE),
    "the wish to join goes first":
        HostGroup(("join hold", "join exclude_first", "join renew"), LeavesTheWish, before=(1, 1, 1)),
    "garbage is dead": HostGroup(("join hold", "join renew renew"), SweepsTheLiving, before=(0, 1)),
    "garbage was seen in an earlier epoch": HostGroup(kind=SweepsAtOnce, **_DIES),
    "a member's file is where it was": HostGroup(("join hold", "replace"), LooksForNoFile, before=(1, 1)),
}  # fmt: skip
