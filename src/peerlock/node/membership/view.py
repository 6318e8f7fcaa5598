"""A view: the members of one epoch, and the voters that decide the next view."""

from __future__ import annotations

from msgspec import Struct

from peerlock.node.peer import Peer


class View(Struct, frozen=True, omit_defaults=True):
    """The view of an epoch."""

    epoch: int
    members: tuple[Peer, ...]
    voters: tuple[tuple[str, str], ...] = ()  # that decide the next one: name and address; none: another registry does
    since: int = 0  # the first epoch with these voters
    leaving: tuple[Peer, ...] = ()  # with a store: members that may renew their leases no more
    lease_s: float = 0.0  # with a store: what all of them take a lease to be

    @property
    def electors(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.voters)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1
