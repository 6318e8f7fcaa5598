"""The end of the time for which a node may hold locks."""

from __future__ import annotations

from math import inf


class Deadline:
    """One number, read at each grant and each check of a hold.

    The node's thread sets it and ends it. The heartbeat thread may extend it while the node's
    thread is busy, so a lease that is renewed in time does not end because an event loop is.
    Infinity: the registry gives no leases, or nothing may be held.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = inf

    def expired(self, now: float) -> bool:
        """May nothing be held any more? (`LocalLock.acquire` and `release`, and the fast way of
        asyncio, compare in place.)
        """
        return now >= self.until

    def extend(self, until: float, now: float) -> None:
        """A lease that runs runs on. A lease that is over stays over."""
        if now < self.until < until:
            self.until = until
