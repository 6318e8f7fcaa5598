"""One lock at an attached process, with its waiters.

To the waiters it is a local lock like that of a member: first come, first served, readers share it,
and tickets become holds. The local protocol (`process.py`) stands in the place of an algorithm. Its
numbers are the fences: a number comes with a range of them, and each grant takes the next.

Where this process has the number and nothing was said about it, the lock is `free`: an entry marks
the page, looks at it and takes a fence. `net/aio` does that in line. `catch_up` tells the protocol of
it before anything else happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.contract import Mode
from peerlock.node.attached.chain import Number, ProcessId, first
from peerlock.node.attached.messages import FromHost, Hand, Handed, Lost, Open, Recall, Refused, ToHost
from peerlock.node.attached.pages import marked
from peerlock.node.attached.process import ProcessLock
from peerlock.node.effects import MaySpin
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.participant import AnyOut
from peerlock.node.locks.ticket import Ticket
from peerlock.node.wire_algorithms import WireAlgorithm

if TYPE_CHECKING:
    from peerlock.node.attached.core import AttachedTable


ASLEEP_S = 0.0003  # a process that waits for longer sleeps, and is woken a turn before its own


class AttachedLock(LocalLock):
    __slots__ = ("attached", "last_fence", "mark_word", "number", "page", "process_lock", "said_priority", "slot")

    def __init__(self, name: str, wire_algorithm: WireAlgorithm, table: AttachedTable, slot: int) -> None:
        super().__init__(name, wire_algorithm, table)
        self.attached, self.page, self.slot = table, table.page, slot
        self.process_lock = ProcessLock(Output(self), table.process, table.generation)
        # For entries in line, while the lock is free: the number that this process has, its last
        # fence, and what stands on the page while this process is inside.
        self.number = self.last_fence = self.mark_word = 0

    def opening(self) -> Open:
        self.said_priority = self.priority
        return Open(self.slot, self.wire_algorithm.number, self.priority)

    # -- in the place of an algorithm ------------------------------------------------------------------

    def ask_at_once(self, mode: Mode) -> None:
        self.want, self.at, self.mode = mode, "asked", mode
        if self.priority:
            self.prefer()
        self.ask(self)

    def prefer(self) -> None:
        if self.priority != self.said_priority:
            self.attached.say(self.name, self.opening())

    def ask(self, out: AnyOut) -> None:
        self.process_lock.request(self.mode)
        self.look()

    def look(self) -> None:
        """The protocol has marked the page: is the number revoked?"""
        lock = self.process_lock
        while lock.at == "entering":
            if lock.looked(self.page.revoked[self.slot]):
                self.clock = lock.used - 1  # the grant takes it
                self.enter()

    def leave(self, out: AnyOut) -> None:
        self.others_ask = False
        lock = self.process_lock
        lock.used = self.clock
        if self.is_signalled() and not lock.chain:
            lock.recalled = True  # the word of it is under way
        lock.release()
        self.idle()

    def end(self, now: float) -> None:
        self.at, self.left_at = "ending", now
        self.leave(self)
        self.now_free()

    def is_signalled(self) -> bool:
        """The host node has something to say about the number that this process has."""
        return self.page.signals[self.slot] >= self.process_lock.number

    def now_free(self) -> None:
        lock = self.process_lock
        self.free = self.at == "idle" and lock.number != 0 and lock.keep and lock.used < lock.end
        if self.free:
            self.mode, self.number, self.last_fence = "write", lock.number, lock.end
            self.mark_word = marked(lock.number, "write")

    def catch_up(self) -> None:
        """The protocol hears of what was done in line."""
        if self.free:
            self.free = False
            lock = self.process_lock
            lock.used = self.clock
            if self.has:
                lock.mode, lock.at, self.at = self.mode, "inside", "inside"

    # -- callers ---------------------------------------------------------------------------------------

    def acquire(self, ticket: Ticket, now: float) -> None:
        self.catch_up()
        super().acquire(ticket, now)

    def release(self, ticket: Ticket, now: float) -> None:
        self.catch_up()
        super().release(ticket, now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        super().cancel(ticket, now)
        if self.want is None and self.at == "asked":
            self.process_lock.cancel()
            self.at = "idle"

    def may_grant_again(self) -> bool:
        return self.clock < self.process_lock.end and super().may_grant_again()

    def settled(self, now: float) -> None:
        super().settled(now)
        if self.want is None:
            self.now_free()

    # -- what comes ------------------------------------------------------------------------------------

    def on_message(self, generation: int, message: FromHost | Hand | Refused | Lost, now: float) -> None:
        self.catch_up()
        lock = self.process_lock
        if isinstance(message, Refused | Lost):
            if generation == lock.generation:
                self.on_end(message)
        else:
            lock.hear(generation, message)
            self.look()
            if lock.chain or isinstance(message, Recall):
                self.others_ask = True
        if self.has:
            return
        if self.at == "idle" and self.want is None:
            self.now_free()
        else:
            self.settled(now)

    def on_hint(self) -> None:
        """This process comes after the next one."""
        if self.at == "asked" and self.queue:
            self.attached.effects.append(MaySpin(self, soon=True))

    def on_end(self, message: Refused | Lost) -> None:
        lock = self.process_lock
        if isinstance(message, Lost):
            self.lose(message.sentence)
        lock.out.mark(0)
        lock.forget()
        lock.at, self.at = "idle", "idle"
        if isinstance(message, Refused):
            self.attached.refused(self, message.algorithm)

    def begin(self, generation: int) -> ToHost:
        """A new generation. What the host node must know of this lock."""
        self.catch_up()
        report = self.process_lock.begin(generation)
        if self.want is None:
            self.now_free()
        return report

    def is_idle(self) -> bool:
        """Nobody here would miss it."""
        return self.want is None and self.at == "idle"

    def give_back(self) -> None:
        """It will not be used for a while."""
        self.catch_up()
        if self.process_lock.number:
            self.process_lock.give_back()


class Output:
    """What the protocol asks for, of one lock."""

    __slots__ = ("local_lock",)

    def __init__(self, local_lock: AttachedLock) -> None:
        self.local_lock = local_lock

    def send(self, message: ToHost, *, late: bool = False) -> None:
        self.local_lock.attached.say(self.local_lock.name, message, late)

    def hand(self, process: ProcessId, hand: Hand) -> bool:
        lock = self.local_lock
        attached, name = lock.attached, lock.name
        if not attached.hand(process, Handed(attached.generation, name, hand)):
            return False
        if hand.chain and lock.waited > ASLEEP_S:
            attached.hand(first(hand.chain).process, Handed(attached.generation, name, None))
        return True

    def mark(self, number: Number) -> None:
        lock = self.local_lock
        lock.page.inside[lock.slot] = marked(number, lock.process_lock.given)

    def accepted(self, number: Number) -> None:
        lock = self.local_lock
        lock.page.accepted[lock.slot] = number


__all__ = ["AttachedLock"]
