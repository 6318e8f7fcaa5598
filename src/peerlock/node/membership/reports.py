"""Reports that one frame has no room for: they go out in parts, and are put together before they
are used.
"""

from __future__ import annotations

from peerlock.node.peer import Peer
from peerlock.node.wire import MOST_LOCKS, LockReport

Locks = tuple[LockReport, ...]


def split(locks: Locks) -> tuple[list[Locks], Locks]:
    """The parts that go ahead, and the last part."""
    ahead = [locks[at : at + MOST_LOCKS] for at in range(0, max(0, len(locks) - MOST_LOCKS), MOST_LOCKS)]
    return ahead, locks[len(ahead) * MOST_LOCKS :]


class PartialReports:
    """The parts of each peer's report that have come, and of which epoch they are."""

    def __init__(self) -> None:
        self.parts: dict[Peer, tuple[int, Locks]] = {}

    def add(self, peer: Peer, epoch: int, locks: Locks) -> None:
        self.parts[peer] = epoch, (*self.of(peer, epoch), *locks)

    def complete(self, peer: Peer, epoch: int, last: Locks) -> Locks:
        before = self.of(peer, epoch)
        self.forget(peer)
        return (*before, *last)

    def of(self, peer: Peer, epoch: int) -> Locks:
        about, locks = self.parts.get(peer, (0, ()))
        return locks if about == epoch else ()

    def forget(self, peer: Peer) -> None:
        self.parts.pop(peer, None)
