"""A member's lease: for how long it may hold what its algorithm has granted.

A heartbeat is sent to all voters (or to a store). Each voter that confirms it promises not to
exclude this member for D, measured on the voter's clock from the arrival of the heartbeat. With a
majority the lease runs until D after the heartbeat was *sent*, on the member's clock. Clock rates
differ by at most RHO, so the lease is made shorter by RHO and the promise longer: when a promise
ends, all leases that rest on it have ended before.

    member   sent |-------- D (1 - RHO) --------| the lease ends
    voter         came |------------ D (1 + RHO) ------------| the promise ends
"""

from __future__ import annotations

from math import inf
from typing import Any, TypeAlias

from peerlock.contract import State

# Clock rates are within 1 ± RHO. Quartz is wrong by a twentieth of a percent at most. But a time
# service corrects a clock by letting it run fast or slow, chrony by up to 8.3 % unless told
# otherwise, and the monotonic clocks follow. Linux bounds that: it lets no clock be slewed by more
# than 11 %.
RHO = 0.11
REMEMBERED = 8  # heartbeats without an answer

Voter: TypeAlias = Any


def support_s(lease_s: float) -> float:
    """How long a promise of `lease_s` is, on the clock of the voter that gives it."""
    return lease_s * (1 + RHO)


class Lease(State):
    lease_s: float
    number: int = 0  # of the last heartbeat
    until: float = -inf
    rests_on: int = 0  # the heartbeat whose confirmation the lease rests on; 0: it does not run
    sent: tuple[tuple[int, float], ...] = ()  # heartbeats that are not confirmed: number, when
    confirmed: tuple[tuple[int, tuple[Voter, ...]], ...] = ()  # of each heartbeat, by these voters

    def runs(self, now: float) -> bool:
        return now < self.until

    def heartbeat(self, now: float, number: int = 0) -> int:
        """The number of a heartbeat that is sent now; the next one, if no greater one is given."""
        self.number = max(self.number + 1, number)
        self.sent = (*self.sent, (self.number, now))[-REMEMBERED:]
        self.confirmed = (*self.confirmed, (self.number, ()))[-REMEMBERED:]
        return self.number

    def confirm(self, voter: Voter, number: int, needed: int, now: float) -> bool:
        """A voter has confirmed a heartbeat. True: with that the lease runs on."""
        by = dict(self.confirmed).get(number)
        if by is None or voter in by:
            return False
        by = tuple(sorted((*by, voter)))
        if len(by) < needed:
            self.confirmed = tuple((at, by if at == number else others) for at, others in self.confirmed)
            return False
        until = dict(self.sent)[number] + self.lease_s * (1 - RHO)
        self.sent = tuple(entry for entry in self.sent if entry[0] > number)
        self.confirmed = tuple(entry for entry in self.confirmed if entry[0] > number)
        if until <= now or until <= self.until:
            return False  # the answers were too slow
        self.until, self.rests_on = until, number
        return True

    def forget(self) -> None:
        """What is under way does not count: other voters decide from now on."""
        self.sent = self.confirmed = ()

    def end(self) -> None:
        """It has run out, or the member does not want it any more."""
        self.until, self.rests_on = -inf, 0
