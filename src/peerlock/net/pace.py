"""When a node lets others have their turn, and how it comes to its own.

**An acquire that never waits** would starve the event loop: one that is granted at once yields if half a millisecond has
passed since the last that did. Where somebody has waited of late it is less: what others ask for may have come already
and is seen when the loop has its turn.

**Who misses turns.** A release wakes the next holder at once, and with fewer processors than processes the kernel may
give it the processor of the one that has just released. That one asks again only when the other has been inside and
gone, and has missed a turn; if the kernel leaves the processes where they are, it is always the same one. A node can
tell: the release took long, and until its next grant the group made more grants, which every grant counts, than it has
members. One that has fallen behind so, and that asks again right after it has released, sends the two together: the
release waits for the request, or for the next turn of the loop.

That turn may be far away, if the program does not ask again but computes. So only a request that came at once lets the
next release wait, and each time one has waited in vain, twice as many turns have to be missed for the next attempt.
"""

from __future__ import annotations

from peerlock.node.table import Desk

YIELD_S = 0.0005
SOON_S = 0.000002  # after a wait; then twice as long each time
DISPLACED_S = 0.00002  # a release that took longer may have cost us the processor
AT_ONCE_S, LATE_S = 0.00001, 0.0001  # from a release to a request that follows it at once, or does not
BEHIND, WARY = 8.0, 1e6  # turns missed, before something is done about it, at first and at most
FORGIVEN = 0.05  # of a turn, at each: in the long run somebody has always had one more
TRUST = 1 / 256  # of a turn, for each release that has not waited in vain


class Pace:
    """One a node, for all its locks."""

    __slots__ = (
        "_at_once",
        "_behind",
        "_desk",
        "_displaced",
        "_gave_at",
        "_given",
        "_patience",
        "step",
        "together",
        "yield_at",
    )

    def __init__(self) -> None:
        self.yield_at = 0.0  # when an acquire that does not have to wait must let others have their turn
        self.step = YIELD_S
        self.together = False  # a release waits for the next request
        self._behind, self._patience = 0.0, BEHIND  # turns that we have missed, and how many are too many
        self._at_once = self._displaced = False  # the last request came right after a release; that took long
        self._desk: Desk | None = None  # whose release it was
        self._given, self._gave_at = 0, 0.0  # the clock of what went to others, and when

    def gave(self, desk: Desk, members: int, began: float, now: float) -> None:
        """A release has had something to say to others, and with that a round is over.

        If all members want it, one of as many grants as there are members is ours. If there were more in this round, we have
        missed one, unless by our own doing: who computes before it asks again must not expect more.
        """
        if desk is not self._desk:
            self._desk, self._behind, self.together = desk, 0.0, False
        else:
            missed = desk.clock - self._given - members
            if missed > 0:
                missed = 1 if self._displaced and self._at_once else 0
            behind = self._behind + missed - FORGIVEN
            if behind <= 0:
                behind, self.together = 0.0, False
            elif behind > self._patience:
                behind, self.together = self._patience, self._at_once
            self._behind = behind
        self._given, self._gave_at, self._displaced = desk.clock, now, now - began > DISPLACED_S

    def asked(self, now: float) -> None:
        """A request has to wait."""
        since = now - self._gave_at
        self._at_once = since < AT_ONCE_S
        if self.together and since > LATE_S:
            self._behind, self.together = 0.0, False  # the release has waited in vain
            self._patience = min(2 * self._patience, WARY)
        elif self.together and self._patience > BEHIND:
            self._patience -= TRUST
