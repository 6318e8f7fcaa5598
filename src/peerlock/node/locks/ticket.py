"""One request for a lock, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from peerlock.contract import Mode, NodeId, Wire
from peerlock.errors import PeerlockError

if TYPE_CHECKING:
    from peerlock.node.locks.local_lock import LocalLock

WAITING, HELD, DONE, LOST, FAILED = range(5)


class Limits(Struct, frozen=True):
    local_grants: int = 8  # in a row at one node while another node asks
    idle_locks: int = 50_000  # that a node remembers before it asks for a new view
    spin: bool = True  # a waiter may, for a moment, where that pays


class Ticket:
    """One wish for a lock. Shells build on it; `woken` is called when a waiting or a held one
    changes its state.
    """

    # Defaults of the class and no __init__: making one is part of every entry.
    mode: Mode = "write"
    state: int = WAITING
    fence: int = 0
    since: float = 0.0  # when it began to wait; once held, when it was granted
    local_lock: LocalLock | None = None
    error: PeerlockError | None = None
    lends = False  # it stands for callers in other processes

    def others_ask(self) -> None:
        """Another node asks for the lock that this ticket holds. For tickets that lend."""

    def woken(self) -> None:
        pass


class LockObserver(Protocol):
    """Hears what an algorithm does, for a trace of one lock."""

    def sent(self, local_lock: LocalLock, to: NodeId, message: Wire, seq: int) -> None: ...

    def received(self, local_lock: LocalLock, source: NodeId, message: Wire, seq: int) -> None: ...

    def asked(self, local_lock: LocalLock) -> None: ...

    def entered(self, local_lock: LocalLock) -> None: ...

    def left(self, local_lock: LocalLock) -> None: ...

    def idled(self, local_lock: LocalLock) -> None: ...
