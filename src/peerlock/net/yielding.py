"""When an acquire that never waits lets other tasks and processes have their turn.

An acquire that never waits would starve the event loop: one that is granted at once yields if half
a millisecond has passed since the last that did. Where a caller has waited of late it is less: what
others ask for may have come already and is seen when the loop has its turn.
"""

from __future__ import annotations

YIELD_S = 0.0005
SOON_S = 0.000002  # after a wait; then twice as long each time


class YieldPolicy:
    """One a node, for all its locks."""

    __slots__ = ("step", "yield_at")

    def __init__(self) -> None:
        self.yield_at = 0.0  # when an acquire that does not have to wait must let others have their turn
        self.step = YIELD_S
