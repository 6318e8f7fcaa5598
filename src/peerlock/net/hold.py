"""What holds of asyncio and of threads have in common, and the sentences of what can go wrong with
them.
"""

from __future__ import annotations

from math import inf
from typing import Any

from peerlock.errors import AlreadyHeld, Disagreement, LockLost, LockTimeout, PeerlockError, UsageError, shown
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.ticket import HELD, LOST, Ticket
from peerlock.node.wire_algorithms import WireAlgorithm


class BaseHold(Ticket):
    """A lock that was granted, until it is released or lost."""

    _lock: Any

    @property
    def name(self) -> str:
        """Of the lock."""
        found: str = self._lock.name
        return found

    @property
    def held(self) -> bool:
        """Not released, and not lost. `check` says why not."""
        shell = self._lock._shell
        shell.alive()
        shell.check_lease()
        return self.state == HELD and self.remaining() > 0

    def check(self) -> None:
        """Raises `LockLost` if the lock is not held any more."""
        self._lock._shell.check_lease()
        if self.state == LOST:
            raise self.loss()
        if self.state != HELD:
            raise LockLost(f"The lock {self.name} was released: this hold is over.")
        self._lock._shell.alive()
        if self.remaining() <= 0:  # in the middle of the core, where it cannot be noted
            raise LockLost(f"The lock {self.name} is lost: the lease is over, and others may hold it now.")

    def remaining(self) -> float:
        """Seconds for which the hold is safe without another sign of life: for ever, where there is
        no lease.
        """
        if self.state != HELD:
            return 0.0
        shell = self._lock._shell
        shell.alive()
        until: float = shell.core.deadline.until
        if until == inf:
            return 0.0 if shell.core.table.leases else inf  # with leases: it has just ended, in another thread
        left: float = until - shell.now()
        return max(0.0, left)

    def loss(self) -> PeerlockError:
        return self.error or LockLost(f"The lock {self.name} is lost: others may hold it now.")

    def released_before(self) -> UsageError:
        return UsageError(f"The lock {self.name} was released before: a hold can be released once.")

    def __repr__(self) -> str:
        state = ("waiting for", "hold of", "released hold of", "lost hold of", "refused")[self.state]
        return f"<{state} {self.name} ({self.mode}), fence {self.fence}>"


def other_algorithm(local_lock: LocalLock, wanted: WireAlgorithm) -> Disagreement:
    return Disagreement(
        f"The lock {local_lock.name} is used with {local_lock.wire_algorithm.name} in this group, and here with {wanted.name}: "
        "use the same algorithm everywhere."
    )


def already_held(who: str, name: str) -> AlreadyHeld:
    return AlreadyHeld(
        f"This {who} holds the lock {name} already and would wait for itself: use the hold that it has, or release it first."
    )


def seconds(what: str, value: Any) -> float | None:
    """A number of seconds that a caller gave; None: no limit. Checked before anything is asked for."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise UsageError(f"{what} must be a number of seconds, or None for no limit; got {shown(value)}.")
    try:
        return float(value)
    except OverflowError:
        return inf


def not_in_time(name: str, timeout: float) -> LockTimeout:
    return LockTimeout(f"The lock {name} was not granted within {timeout:g} s. It was never held.")
