"""An attached process without input and output: its locks, and what it tells its host node.

It stands where a member has its `Core`: callers acquire, release and cancel in the same way, and
the shell carries out the same effects. There are no views, no sessions and no other members here. A
process that has lost the connection to its host node goes on with what it has, and asks the next
host node for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.errors import Disagreement, NodeClosed, UsageError
from peerlock.node.attached.chain import ProcessId
from peerlock.node.attached.local_lock import AttachedLock
from peerlock.node.attached.messages import FromHostNode, Handed, Lost, Passed, Reported, ToHost, ToHostNode
from peerlock.node.attached.pages import SLOTS, Page
from peerlock.node.effects import LookAtHost
from peerlock.node.inputs import Callers
from peerlock.node.locks.deadline import Deadline
from peerlock.node.locks.table import LockTable
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import WireAlgorithm, is_known_algorithm, wire_algorithm

if TYPE_CHECKING:
    from peerlock.node.locks.local_lock import LocalLock

MOST_SAID = 1000  # messages in a frame


class AttachedTable(LockTable):
    """All locks of one attached process."""

    def __init__(
        self,
        process: ProcessId,
        limits: Limits,
        deadline: Deadline,
        page: Page,
        hand: Callable[[ProcessId, Handed], bool],
    ) -> None:
        super().__init__(limits, deadline)
        self.process, self.page, self.hand = process, page, hand
        self.generation = 0
        self.connected = False
        self.outbox: list[tuple[str, ToHost]] = []
        self.looks = False  # at the host node, for there is a caller that waits
        self.late = False  # what is in there need not go out at once
        self.free_slots = list(range(SLOTS - 1, -1, -1))
        self.attached_locks: dict[str, AttachedLock] = {}
        self.running = self.may_hold = self.open = True

    def say(self, lock: str, message: ToHost, late: bool = False) -> None:
        if self.connected:  # else the next host node gets a report
            outbox = self.outbox
            if late and outbox and outbox[-1][0] == lock and type(outbox[-1][1]) is Passed:
                outbox[-1] = lock, message  # 8: the later one implies the earlier one
            else:
                outbox.append((lock, message))
            if late:
                self.late = True
            else:
                self.dirty[None] = None  # type: ignore[index]  # there is no session: only that there is something

    def local_lock(self, name: str, wanted: WireAlgorithm) -> LocalLock:
        found = self.attached_locks.get(name)
        if found is None:
            if not self.free_slots:
                self.forget_idle()
            slot = self.free_slots[-1]
            self.page.open(slot, name, wanted.number)
            self.free_slots.pop()
            found = self.locks[name] = self.attached_locks[name] = AttachedLock(name, wanted, self, slot)
            self.say(name, found.opening())
        return found

    def forget_idle(self) -> None:
        """Idle locks make room for others."""
        for name, lock in list(self.attached_locks.items()):
            if lock.is_idle() and not lock.queue:
                lock.give_back()
                lock.free = False
                del self.locks[name], self.attached_locks[name]
                self.free_slots.append(lock.slot)
        if not self.free_slots:
            raise UsageError(f"This process holds or waits for {SLOTS} locks; that is the most that it can.")

    def request_epoch(self) -> None:
        """To have idle locks forgotten; here they can just be."""
        self.forget_idle()

    def alarm(self) -> None:
        """The host node looks after the waiters, and this process after the host node."""
        if not self.looks:
            self.looks = True
            self.effects.append(LookAtHost())

    def looked_at_host(self) -> None:
        """Once more, if a caller still waits."""
        self.looks = False
        if any(lock.queue for lock in self.attached_locks.values()):
            self.alarm()

    def refused(self, lock: AttachedLock, algorithm: int) -> None:
        theirs = wire_algorithm(algorithm).name if is_known_algorithm(algorithm) else f"algorithm {algorithm}"
        lock.fail(
            Disagreement(
                f"The lock {lock.name} is used with {theirs} in this group, and here with {lock.wire_algorithm.name}: "
                "use the same algorithm everywhere."
            )
        )
        if lock.is_idle():
            del self.locks[lock.name], self.attached_locks[lock.name]
            self.free_slots.append(lock.slot)


class AttachedCore(Callers[AttachedTable]):
    def __init__(
        self, me: Peer, group: str, limits: Limits, page: Page, hand: Callable[[ProcessId, Handed], bool]
    ) -> None:
        self.me, self.group = me, group
        self.handling = False
        self.deadline = Deadline()
        self.table = AttachedTable(me.id, limits, self.deadline, page, hand)
        self.effects = self.table.effects
        self.epoch = 0
        self.views = 0  # epochs that this process has heard of
        self.members: tuple[str, ...] = ()

    # -- the host node ---------------------------------------------------------------------------------

    def welcomed(self, generation: int, now: float) -> None:
        """A host node of that generation is connected. It is told everything that it must know."""
        table = self.table
        assert generation >= table.generation, f"a host node of the generation {generation} after {table.generation}"
        table.now, table.generation, table.connected = now, generation, True
        table.outbox = []
        for name, lock in table.attached_locks.items():
            report = lock.begin(generation)
            table.say(name, lock.opening())
            table.say(name, report)
        table.say("", Reported())

    def in_view(self, epoch: int, members: tuple[str, ...]) -> None:
        """The host node says in which view the group is."""
        self.views += epoch != self.epoch
        self.epoch, self.members = epoch, members

    def disconnected(self) -> None:
        """What is said from now on is lost; what is held is held."""
        self.table.connected, self.table.outbox = False, []

    def take_frames(self) -> list[ToHostNode]:
        """What the host node is to be told."""
        table = self.table
        table.dirty, table.late = {}, False
        said, table.outbox = table.outbox, []
        return [ToHostNode(tuple(said[first : first + MOST_SAID])) for first in range(0, len(said), MOST_SAID)]

    def receive(self, generation: int, frame: FromHostNode, now: float) -> None:
        assert not self.handling, "receive was called in the middle of another input"
        self.handling = True
        try:
            table = self.table
            table.now = now
            for name, message in frame.said:
                lock = table.attached_locks.get(name)
                if lock is not None:
                    lock.on_message(generation, message, now)
        finally:
            self.handling = False

    def handed(self, handed: Handed, now: float) -> None:
        """Another process has handed a lock over."""
        assert not self.handling, "handed was called in the middle of another input"
        self.handling = True
        try:
            self.table.now = now
            lock = self.table.attached_locks.get(handed.lock)
            if lock is None:
                return
            if handed.hand is not None:
                lock.on_message(handed.generation, handed.hand, now)
            else:
                lock.on_hint()
        finally:
            self.handling = False

    def request_epoch(self) -> None:
        """To have idle locks forgotten; here they can just be."""
        self.table.forget_idle()

    def looked_at_host(self) -> None:
        self.table.looked_at_host()

    def abandon(self, why: str) -> None:
        """A thread was interrupted in the middle of an input. The holders lose their locks, and
        nothing else is left. The process attaches again, as another one.
        """
        self.handling = False
        self.table.abandon(why)

    def begin_again(self, me: Peer, page: Page) -> None:
        self.me = me
        effects, hand = list(self.effects), self.table.hand
        self.table = AttachedTable(me.id, self.table.limits, self.deadline, page, hand)
        self.effects = self.table.effects
        self.effects += effects

    # -- the end ---------------------------------------------------------------------------------------

    def close(self, now: float) -> None:
        table = self.table
        table.now = now
        error = NodeClosed(f"The node {self.me.name} has left the group {self.group}. The lock was never held.")
        for name, lock in list(table.attached_locks.items()):
            lock.catch_up()
            held = lock.has
            lock.on_end(Lost(f"The node left the group {self.group} while it held the lock {name}."))
            lock.fail(error)
            if held:
                lock.want = None
        table.closed, table.open, table.running = True, False, False


__all__ = ["AttachedCore", "AttachedTable"]
