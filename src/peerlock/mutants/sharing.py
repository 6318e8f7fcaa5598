"""A host node with one of its rules taken away, for the simulator: what `mutants/attached.py` has not,
since it is about all locks of a host node, or about the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from peerlock.node.attached.chain import ProcessId
from peerlock.node.attached.host import HostLock
from peerlock.node.attached.messages import Open
from peerlock.node.attached.pages import unmarked
from peerlock.node.attached.shared_lock import SharedLock
from peerlock.node.attached.sharing import Sharing


class TakesNothingOver(Sharing):
    """What processes have from an earlier host node is forgotten."""

    def adopt(self, now: float) -> None:
        self.locks.clear()


class WaitsForNoReport(Sharing):
    """Processes of an earlier host node are not asked."""

    def was_attached(self, process: ProcessId) -> None:
        super().was_attached(process)
        self.unresolved.discard(process)


class ReadsWithoutRevoking(Sharing):
    """A process that does not report is read, and goes on with what it was given."""

    def read(self, process: ProcessId, slots: Iterable[tuple[int, str, int]], older: int, now: float) -> None:
        for slot, name, algorithm in slots:
            self.processes[process].locks[name] = Open(slot, algorithm)
            word = self.pages.marks(process, slot)[0]
            if word:
                self.lock(name).resolved(process, *unmarked(word))
        self.resolve(process)
        self.settle(now)


class AsksOnlyBeforeItGrants(SharedLock):
    """Other hosts have their turn when no process waits: that is looked at before a grant alone."""

    def serve(self) -> None:
        if self.turns <= 0 or (self.turns < inf and not self.queue and not self.named):
            self.asked = True
        HostLock.serve(self)


class KeepsTheLockInside(Sharing):
    """The group's lock stays while processes that do not wait have it."""

    lock_of = AsksOnlyBeforeItGrants


__all__ = ["KeepsTheLockInside", "ReadsWithoutRevoking", "TakesNothingOver", "WaitsForNoReport"]
