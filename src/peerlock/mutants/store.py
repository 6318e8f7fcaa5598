"""Stores and their members with one of their rules taken away."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from peerlock.node.store.member import StoreMember, StoreOutput
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Renew, Request, Snapshot, Swap


class ComparesNoHeartbeats(StoreMember):
    """Excludes a member, whether or not it has renewed since."""

    def swap(self, steady: float, out: StoreOutput, take_in: bool = False) -> bool:
        blind: Any = _Blind(out)
        return super().swap(steady, blind, take_in)


class _Blind:
    def __init__(self, out: StoreOutput) -> None:
        self.out = out

    def ask(self, request: Request) -> None:
        assert isinstance(request, Swap)
        self.out.ask(replace(request, heartbeats=()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


class HasNoPatience(StoreMember):
    def dead(self, steady: float) -> tuple[int, ...]:
        return tuple(who for who, _, _ in self.seen)


class RenewsWhenMarked(StoreMember):
    @property
    def is_marked(self) -> bool:
        return False


class LeavesTheStoreAndBelieves(StoreMember):
    def leave(self, steady: float, out: StoreOutput) -> None:
        self.wish = "leave"
        self.maintain_view(steady, out)


class RenewsInAnyView(MemoryStore):
    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        if isinstance(request, Renew):
            request = replace(request, revision=self.snapshot.revision)
        return super().ask(request)


class SwapsAnyView(MemoryStore):
    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        if isinstance(request, Swap):
            request = replace(request, revision=self.snapshot.revision)
        return super().ask(request)


class BelievesWhatItKnew(StoreMember):
    """A renewal counts, whatever became known since it was asked for."""

    @property
    def is_member(self) -> bool:
        return True


class RenewsByNameInAStore(StoreMember):
    """Takes a view with its name for one with it."""

    @property
    def is_member(self) -> bool:
        return self.wish != "leave" and any(peer.name == self.me.name for peer in self.members)


class PatienceFromTheStart(StoreMember):
    """Counts from its first look at the store, not from the heartbeat that it saw."""

    @staticmethod
    def since(before: tuple[int, float] | None, revision: int, steady: float) -> float:
        return before[1] if before is not None else steady
