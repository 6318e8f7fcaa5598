"""All locks of a host node that attached processes use.

For each lock there is a `HostLock`, the host node's half of the local protocol, and a ticket: to the
group the processes of this host are one caller. The ticket is asked for when a process waits, and
given back when no process has the lock any more, or when other hosts ask and the processes that
waited then had their turn.

The host node does not wait for a process that does not use what it has. If a process keeps a number
without being inside, and another process wants the lock, the number is revoked at once: that costs
the first process nothing, and no message. If a number was named for a process and the process does
not take it for `GRACE_S`, it is revoked, too. A process that is inside is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from peerlock.contract import Mode
from peerlock.errors import ProtocolError
from peerlock.node.attached.chain import Number, ProcessId
from peerlock.node.attached.messages import (
    FromHost,
    FromHostNode,
    Lost,
    Open,
    Refused,
    Reported,
    ToHost,
    ToHostNode,
    Want,
)
from peerlock.node.attached.pages import Pages, unmarked
from peerlock.node.attached.shared_lock import HostTicket, SharedLock
from peerlock.node.core import Core
from peerlock.node.locks.ticket import FAILED, HELD, LOST
from peerlock.node.wire import LockStatus, WaiterStatus
from peerlock.node.wire_algorithms import is_known_algorithm, wire_algorithm

GRACE_S = 0.25  # for a process to take a number that was named for it


class Attached:
    """A process that is attached."""

    __slots__ = ("locks", "name", "outbox", "pid")

    def __init__(self, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.locks: dict[str, Open] = {}
        self.outbox: list[tuple[str, FromHost | Refused | Lost]] = []


class Sharing:
    lock_of = SharedLock

    def __init__(self, core: Core, pages: Pages, generation: int = 0) -> None:
        self.core, self.pages, self.generation = core, pages, generation
        self.processes: dict[ProcessId, Attached] = {}
        self.locks: dict[str, SharedLock] = {}
        self.touched: dict[SharedLock, None] = {}  # something may have to be done about them
        self.idle: list[SharedLock] = []  # no process has them
        self.found: list[tuple[SharedLock, ProcessId, int]] = []  # marks that were read after a revocation
        self.to_tell: dict[ProcessId, None] = {}  # processes with something in their outbox
        # 10: processes that were attached to an earlier generation, and have not reported or been read.
        self.unresolved: set[ProcessId] = set()
        core.table.status_of_attached = self.status
        self.in_group = True  # this node is in a view, or about to be
        self.on_change: Callable[[], object] = lambda: None  # the group has given or taken something

    # -- processes -------------------------------------------------------------------------------------

    def attach(self, process: ProcessId, name: str, pid: int) -> None:
        known = self.processes.get(process)
        if known is None:
            self.processes[process] = Attached(name, pid)
        else:
            known.name, known.pid = name, pid

    def was_attached(self, process: ProcessId) -> None:
        """To an earlier generation, and it lives."""
        self.processes[process] = Attached(f"process {process:x}", 0)
        self.unresolved.add(process)

    def resolve(self, process: ProcessId) -> None:
        """There is no lock that it has, or that it is inside of, but those that are known."""
        self.unresolved.discard(process)
        for lock in list(self.locks.values()):
            if process in lock.unresolved:
                lock.resolved(process, 0, "write")
                lock.serve()
                self.touched[lock] = None

    def read(self, process: ProcessId, slots: Iterable[tuple[int, str, int]], older: Number, now: float) -> None:
        """11: a process that does not report. What it may still be given under a number of an earlier
        generation is revoked; then what it is inside of is its own.
        """
        opened = [(slot, name, Open(slot, algorithm)) for slot, name, algorithm in slots]
        words = [self.pages.revoke(process, slot, older) for slot, _, _ in opened]
        words = [self.pages.marks(process, slot)[0] for slot, _, _ in opened] if words else []
        for (_, name, word_of), word in zip(opened, words, strict=True):
            self.processes[process].locks[name] = word_of
            if word:
                self.lock(name).resolved(process, *unmarked(word))
        self.resolve(process)
        self.settle(now)

    def adopt(self, now: float) -> None:
        """The locks that processes have had from an earlier generation are this member's, before it is
        in a view: its first report says so. Numbers can be made when the first epoch has started.
        """
        self.core.table.now = now
        for lock in self.locks.values():
            if not lock.owners or lock.ticket is not None:
                continue
            algorithm = self.processes[next(iter(lock.owners))].locks[lock.name].algorithm
            local_lock = self.core.table.local_lock(lock.name, wire_algorithm(algorithm))
            lock.ticket = ticket = HostTicket()
            ticket.shared, ticket.local_lock, ticket.state, ticket.since = lock, local_lock, HELD, now
            local_lock.want, local_lock.has, local_lock.holder = "write", True, ticket

    def died(self, process: ProcessId, now: float) -> None:
        """The kernel says so, or it has left."""
        gone = self.processes.pop(process, None)
        if gone is None:
            return
        self.core.table.now = now
        self.to_tell.pop(process, None)
        self.unresolved.discard(process)
        for lock in list(self.locks.values()):
            if lock.name in gone.locks or process in lock.unresolved:
                lock.waits.pop(process, None)
                lock.died(process)
                self.touched[lock] = None
        self.settle(now)

    def say(self, process: ProcessId, lock: str, message: FromHost | Refused | Lost) -> None:
        to = self.processes.get(process)
        if to is not None:
            to.outbox.append((lock, message))
            self.to_tell[process] = None

    def take_frames(self) -> list[tuple[ProcessId, FromHostNode]]:
        told, self.to_tell = self.to_tell, {}
        frames = []
        for process in told:
            to = self.processes[process]
            frames.append((process, FromHostNode(tuple(to.outbox))))
            to.outbox = []
        return frames

    # -- what a process says ---------------------------------------------------------------------------

    def receive(self, process: ProcessId, frame: ToHostNode, now: float) -> None:
        said_by = self.processes.get(process)
        if said_by is None:
            return
        self.core.table.now = now
        for name, message in frame.said:
            if isinstance(message, Open):
                said_by.locks[name] = message
                continue
            if isinstance(message, Reported):
                self.resolve(process)
                continue
            opened = said_by.locks.get(name)
            if opened is None:
                raise ProtocolError(f"{said_by.name} speaks of the lock {name}, which it has not opened")
            self.hear(process, name, opened, message, now)
        self.settle(now)

    def hear(self, process: ProcessId, name: str, opened: Open, message: ToHost, now: float) -> None:
        if not is_known_algorithm(opened.algorithm):
            raise ProtocolError(f"no algorithm has the number {opened.algorithm}")
        lock = self.lock(name)
        if isinstance(message, Want):
            local_lock = self.core.table.local_lock(name, wire_algorithm(opened.algorithm))
            if local_lock.wire_algorithm.number != opened.algorithm:
                self.say(process, name, Refused(local_lock.wire_algorithm.number))
                return
            self.take_from_the_idle(lock)
        lock.hear(process, message)
        self.touched[lock] = None

    def lock(self, name: str) -> SharedLock:
        found = self.locks.get(name)
        if found is None:
            found = self.locks[name] = self.lock_of(name, self, frozenset(self.unresolved))
        return found

    def take_from_the_idle(self, lock: SharedLock) -> None:
        """An owner that keeps the lock and is not inside does not have to be asked."""
        if lock.named or lock.revoking or lock.mode != "write":
            return
        for process, number in tuple(lock.owners.items()):
            if self.marks(lock, process) == (0, number):
                lock.revoke(process)
        self.tell_what_was_found()

    def marks(self, lock: SharedLock, process: ProcessId) -> tuple[int, Number]:
        to = self.processes.get(process)
        opened = to.locks.get(lock.name) if to is not None else None
        return self.pages.marks(process, opened.slot) if opened is not None else (0, 0)

    def tell_what_was_found(self) -> None:
        while self.found:
            lock, process, word = self.found.pop(0)
            lock.found(process, *unmarked(word))
            self.touched[lock] = None

    # -- the group -------------------------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Ask the group for what is waited for, and give back what no process has."""
        while self.touched or self.found or self.idle:
            self.tell_what_was_found()
            for lock in self.idle:
                self.give_back(lock, now)
            self.idle = []
            touched, self.touched = self.touched, {}
            for lock in touched:
                self.look_at(lock, now)

    def touch_all(self, now: float) -> None:
        """A new epoch has started."""
        self.core.table.now = now
        self.touched = dict.fromkeys(self.locks.values())
        for lock in list(self.locks.values()):
            if not lock.has and lock.ticket is not None and lock.ticket.state == HELD:
                self.gained(lock)  # it was taken over
                lock.since = now
        self.settle(now)

    def look_at(self, lock: SharedLock, now: float) -> None:
        if lock.has and lock.is_unused():
            lock.has, lock.asked = False, False
            self.give_back(lock, now)
        if not lock.has and lock.queue and lock.ticket is None and not lock.unresolved and self.in_group:
            self.ask(lock, now)
        elif lock.is_unused() and lock.ticket is None:
            self.locks.pop(lock.name, None)

    def ask(self, lock: SharedLock, now: float) -> None:
        process = lock.queue[0][0]
        opened = self.processes[process].locks[lock.name]
        local_lock = self.core.table.local_lock(lock.name, wire_algorithm(opened.algorithm))
        if opened.priority:
            local_lock.priority = opened.priority
        lock.ticket = ticket = HostTicket()
        ticket.shared = lock
        self.core.acquire(local_lock, ticket, now)
        if ticket.state == HELD and not lock.has:
            self.gained(lock)

    def on_ticket(self, lock: SharedLock) -> None:
        """The ticket was granted or lost."""
        ticket = lock.ticket
        if ticket is None:
            return
        if ticket.state == HELD and not lock.has:
            self.gained(lock)
        elif ticket.state in (LOST, FAILED):
            lock.ticket = None
            for process in lock.owners if ticket.state == LOST else ():
                self.say(process, lock.name, Lost(str(ticket.error)))
            lock.lose()
            self.touched[lock] = None
        self.settle(self.core.table.now)
        self.on_change()

    def gained(self, lock: SharedLock) -> None:
        lock.turns = inf
        lock.gained()
        local_lock = lock.ticket.local_lock if lock.ticket is not None else None
        if local_lock is not None and (local_lock.others_ask or local_lock.queue):
            lock.others_ask()  # they did before this host had the lock
        self.touched[lock] = None

    def give_back(self, lock: SharedLock, now: float) -> None:
        ticket, lock.ticket, lock.turns = lock.ticket, None, inf
        if ticket is not None and ticket.state == HELD:
            self.core.release(ticket, now)
        self.touched[lock] = None

    # -- time ------------------------------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        """Look at the owners that others wait for. True: look again in a while."""
        self.core.table.now = now
        waited_for = [lock for lock in self.locks.values() if lock.is_waited_for()]
        for lock in waited_for:
            for process, number in tuple(lock.owners.items()):
                self.look_at_owner(lock, process, number, now)
        self.tell_what_was_found()
        self.settle(now)
        return any(lock.owners and lock.is_waited_for() for lock in self.locks.values())

    def look_at_owner(self, lock: SharedLock, process: ProcessId, number: Number, now: float) -> None:
        inside, _ = unmarked(self.marks(lock, process)[0])
        if process in lock.revoking:
            lock.revoke_page(process, number)  # it was inside: is it still?
        elif inside == number:
            lock.seen = (0, 0)
        elif lock.seen != (process, number):
            lock.seen, lock.seen_at = (process, number), now
        elif now - lock.seen_at >= GRACE_S:
            lock.eager.pop(process, None)  # it does not take what it is given
            lock.revoke(process)

    def status(self, now: float) -> Iterator[LockStatus]:
        """Which process has each lock, and which ones wait."""
        for lock in self.locks.values():
            held = self.core.table.locks.get(lock.name)
            algorithm = held.wire_algorithm.name if held is not None else ""
            given = [*lock.owners.items(), *((named.process, named.number) for named in lock.named)]
            given = [(process, number) for process, number in given if process in self.processes]
            inside = {
                process: number for process, number in given if unmarked(self.marks(lock, process)[0])[0] == number
            }
            for process, number in inside.items():
                yield LockStatus(lock.name, algorithm, lock.mode, number, now - lock.since, (), self.says(process))
            waiting: dict[ProcessId, Mode] = dict(lock.queue)
            for named in lock.named:
                waiting.setdefault(named.process, "write")
            waiters = tuple(
                WaiterStatus(mode, now - lock.waits.get(process, now), self.says(process))
                for process, mode in waiting.items()
                if process not in inside and process in self.processes
            )
            if waiters:
                yield LockStatus(lock.name, algorithm, None, None, None, waiters)

    def says(self, process: ProcessId) -> str:
        """Which process it is, for people."""
        known = self.processes.get(process)
        if known is None:
            return ""
        return known.name if str(known.pid) in known.name else f"{known.name} (pid {known.pid})"


__all__ = ["GRACE_S", "Attached", "Sharing"]
