"""One lock that a host node shares with attached processes: its numbers, its ticket, and which
processes are likely to want it again.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from peerlock.contract import Mode
from peerlock.node.attached.chain import Number, ProcessId
from peerlock.node.attached.host import HostLock
from peerlock.node.attached.messages import Cancel, FromHost, Recall, Successors, ToHost
from peerlock.node.locks.fence import CLOCK_BITS
from peerlock.node.locks.ticket import Ticket

if TYPE_CHECKING:
    from peerlock.node.attached.sharing import Sharing

LOW = 8  # successors: if there are fewer, processes that are likely to want the lock again are named
ROUNDS, MOST_TURNS = 8, 1024
EAGER = 3  # times in a row that a process must have used what it was given
FEW_FENCES, MOST_FENCES = 4, 1 << 16  # of a number: of a lock that changes hands, and of one that a process uses alone


class HostTicket(Ticket):
    """The processes of this host, as one caller of the group's lock."""

    lends = True
    shared: SharedLock

    def woken(self) -> None:
        self.shared.sharing.on_ticket(self.shared)

    def others_ask(self) -> None:
        self.shared.others_ask()
        self.shared.sharing.settle(self.shared.sharing.core.table.now)
        self.shared.sharing.on_change()


class SharedLock(HostLock):
    """One lock, its numbers, and its ticket."""

    __slots__ = (
        "asked_before", "eager", "fences", "granted_to", "name", "owned_by", "places",
        "seen", "seen_at", "sharing", "since", "ticket", "turns", "waits",
    )  # fmt: skip

    def __init__(self, name: str, sharing: Sharing, living: frozenset[ProcessId] = frozenset()) -> None:
        super().__init__(self, living)
        self.name, self.sharing = name, sharing
        self.ticket: HostTicket | None = None
        self.turns = inf  # numbers that may still be made before the lock is given back to the group
        self.granted_to: ProcessId = 0  # the last number
        self.fences = FEW_FENCES
        self.seen: tuple[ProcessId, Number] = (0, 0)  # an owner that others wait for
        self.seen_at = 0.0
        self.since = 0.0  # when the owner got it
        self.owned_by: frozenset[ProcessId] = frozenset()
        self.waits: dict[ProcessId, float] = {}  # since when a process waits
        self.asked_before = 0
        # How often in a row a process used what it was given and asked again; the one that was named
        # last comes last.
        self.eager: dict[ProcessId, int] = {}
        # Of a lock that is asked for with priorities, the place of each process in the queue: how many have asked before
        # it, and its priority.
        self.places: dict[ProcessId, int] = {}

    # -- what the protocol asks for --------------------------------------------------------------------

    def send(self, process: ProcessId, message: FromHost) -> None:
        sharing = self.sharing
        to = sharing.processes.get(process)
        if to is None:
            return
        if isinstance(message, Successors | Recall):
            opened = to.locks.get(self.name)
            if opened is not None:
                sharing.pages.signal(process, opened.slot, message.number)
        sharing.say(process, self.name, message)

    def numbers(self, process: ProcessId) -> tuple[Number, int]:
        assert self.ticket is not None and self.ticket.local_lock is not None
        if process != self.granted_to or self.queue:
            self.fences = FEW_FENCES
        elif not self.named:
            self.fences = min(8 * self.fences, MOST_FENCES)
        self.granted_to = process
        if process in self.eager:
            self.eager[process] = self.eager.pop(process)
        self.turns -= 1
        local_lock = self.ticket.local_lock
        table = local_lock.table
        first = table.first_fence + local_lock.clock + 1
        local_lock.clock += self.fences
        if local_lock.clock >> CLOCK_BITS - 1:
            table.request_epoch()
        return first, first + self.fences - 1

    def revoke_page(self, process: ProcessId, number: Number) -> None:
        sharing = self.sharing
        to = sharing.processes.get(process)
        opened = to.locks.get(self.name) if to is not None else None
        word = sharing.pages.revoke(process, opened.slot, number) if opened is not None else 0
        sharing.found.append((self, process, word))

    def give_back(self) -> None:
        self.sharing.idle.append(self)

    # -- the group -------------------------------------------------------------------------------------

    def others_ask(self) -> None:
        """Other hosts ask: each process that waits now has its turn first."""
        if self.turns == inf:
            self.turns = max(self.sharing.core.table.limits.local_grants, len(self.queue))
        if not self.queue:
            self.sharing.take_from_the_idle(self)
        self.serve()
        self.sharing.touched[self] = None

    def serve(self) -> None:
        super().serve()
        if self.owners.keys() != self.owned_by:
            self.owned_by, self.since = frozenset(self.owners), self.sharing.core.table.now
        if not self.asked and (self.turns <= 0 or (self.turns < inf and not self.queue and not self.named)):
            self.asked = True  # by other hosts: no process of this one that waited is left
            super().serve()
        if len(self.named) < LOW and self.turns == inf and self.owners and self.has and not self.unresolved:
            likely = self.likely_next()
            if likely:
                self.name_successors()
            if likely and not self.queue:
                self.append(likely)

    def likely_next(self) -> list[ProcessId]:
        """Processes that will want the lock again soon, as far as can be guessed. The lock then goes
        round among them without the host node.
        """
        eager = [process for process, times in self.eager.items() if times >= EAGER]
        if len(eager) < 2 or self.mode != "write" or self.recalled or self.places:
            return []
        return eager * max(2, min(ROUNDS, MOST_TURNS // len(eager)))

    def passed(self, process: ProcessId, number: Number, to: Number, used: bool) -> None:
        times = self.eager.get(process, 0)
        if used:
            self.eager[process] = min(times + 1, EAGER)
        elif times == EAGER:
            self.eager[process] = EAGER - 1  # it was late: once more in time, and it is named again
        else:
            self.eager.pop(process, None)
        super().passed(process, number, to, used)

    def died(self, process: ProcessId) -> None:
        self.eager.pop(process, None)
        self.places.pop(process, None)
        super().died(process)

    def hear(self, process: ProcessId, message: ToHost) -> None:
        if isinstance(message, Cancel):
            self.waits.pop(process, None)
        super().hear(process, message)

    def want(self, process: ProcessId, mode: Mode) -> None:
        self.waits[process] = self.sharing.core.table.now
        super().want(process, mode)
        opened = self.sharing.processes[process].locks.get(self.name)
        if self.places or (opened is not None and opened.priority):
            self.asked_before += 1
            self.places[process] = self.asked_before + (opened.priority if opened is not None else 0)
            self.queue = tuple(sorted(self.queue, key=lambda entry: self.places.get(entry[0], 0)))

    def may_succeed(self) -> bool:
        """With priorities nobody is named ahead: a process that asks later may come before."""
        return not self.places and super().may_succeed()

    def lose(self) -> None:
        """The group's lock is lost, and no process of this host has it any more."""
        self.owners, self.named, self.handed_over = {}, (), None
        self.revoking, self.recalled, self.has, self.asked, self.turns = frozenset(), False, False, False, inf

    def most_named(self) -> int:
        return int(min(super().most_named(), self.turns))

    def is_unused(self) -> bool:
        return not self.owners and not self.queue and not self.unresolved and not self.named


__all__ = ["HostTicket", "SharedLock"]
