"""One lock at one node: its waiters here, its holder, and its part in the group.

For each lock a node makes one request at a time, however many callers wait here. Local waiters
queue behind it, first come first served, and local readers share it. When a hold ends and another
local waiter wants the lock in the same mode, it is granted without a message. If another node has
asked since this one last left, that happens at most `local_grants` times in a row: then the node
leaves the critical section and asks again like every other node.

A `Ticket` is one request and what became of it. The caller that made the ticket owns the lock while
its state is HELD; no thread and no task does. A ticket that is cancelled while it waits leaves the
queue, and its request is adopted by the next local waiter. The papers have no way to take a request
back, so if no other caller waits, the lock is left as soon as it is entered (`Participant.settle`).

A local lock is a participant with its waiters. It is also the `Out` of its algorithm: what the
algorithm sends goes out with the lock's name, the epoch and the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from msgspec import Raw

from peerlock.contract import Ask, Grant, Key, Mode, NodeId, Wire
from peerlock.errors import LockLost, PeerlockError
from peerlock.node.effects import MaySpin, OthersAsk, Wake
from peerlock.node.locks.participant import AnyOut
from peerlock.node.locks.successor import ToldToTheSuccessor
from peerlock.node.locks.ticket import DONE, FAILED, HELD, LOST, WAITING, LockObserver, Ticket
from peerlock.node.wire import LENGTH, LockMessage, LockStatus, WaiterStatus, packed
from peerlock.node.wire_algorithms import WireAlgorithm

if TYPE_CHECKING:
    from peerlock.node.locks.table import LockTable

MAX_UNACKED = 50_000  # messages that a peer has not acknowledged: nothing more is asked until it has


class LocalLock(ToldToTheSuccessor):
    """One lock at this node, with its waiters.

    **A round trip that changes nothing is not made twice.** An algorithm is a pure state machine.
    If a request was granted at once, the release ended at once, nothing was sent and the state is
    what it was before, then the same request will do the same again, until the algorithm is told
    something. Such a lock is `free`: it grants and takes back without asking the algorithm, and
    makes up for the request (`catch_up`) when something comes. States are compared only after a
    round trip that sent nothing (`quiet`): where others compete, that would be in vain.
    """

    __slots__ = (
        "asked_at",
        "before",
        "free",
        "holder",
        "local_streak",
        "others_ask",
        "priority",
        "queue",
        "quiet",
        "sharers",
        "wire_algorithm",
    )  # fmt: skip

    def __init__(self, name: str, wire_algorithm: WireAlgorithm, table: LockTable) -> None:
        super().__init__()
        self.name, self.wire_algorithm, self.table = name, wire_algorithm, table
        self.holder: Ticket | None = None
        self.sharers: list[Ticket] | None = None  # further readers of this node
        self.queue: deque[Ticket] | None = None  # waiters, first come first served
        self.priority = 0
        self.others_ask = False  # another node has asked since this one last left
        self.local_streak = 0  # grants in a row at this node since
        self.free = False
        self.quiet = False  # the last round trip sent nothing, and nothing has come since
        self.before: Key | None = None  # the algorithm's state before a request that was granted at once
        self.asked_at = inf  # when the group was asked for what a caller waits for here

    # -- the algorithm's `Out` -------------------------------------------------------------------------

    def send(self, to: NodeId, message: Wire, body: Raw | None = None) -> None:
        """`body` is what the message is packed to, if that is known: then it is not done again for
        each addressee.
        """
        table = self.table
        if self.successor is not None and to != self.successor and self.withholds(to, message):
            return
        session, epoch = table.sessions[to], table.epoch
        assert session is not None, f"{self.name}: sent {message} to itself"
        frame = packed(
            LockMessage(
                session.seq + 1,
                session.received,
                epoch,
                self.name,
                self.wire_algorithm.number,
                self.clock,
                body or message,  # type: ignore[arg-type]
            )
        )
        about = self.name if isinstance(message, Ask) and message.supersedes else ""
        session.post(epoch, LENGTH.pack(len(frame)) + frame, about)
        table.dirty[session] = None
        table.messages += 1
        if not session.linked:
            table.alarm()
        if len(session.kept) > MAX_UNACKED:
            table.choked, table.open = True, False
        if table.observers and self.name in table.observers:
            table.observers[self.name].sent(self, to, message, session.seq)
        if isinstance(message, Grant):
            self.successor = message.successor()

    def broadcast(self, to: Iterable[NodeId], message: Wire) -> None:
        body = Raw(packed(message))
        for j in to:
            self.send(j, message, body)

    def enter(self) -> None:
        self.at = "inside"
        if self.withheld:
            self.withheld = []
        if self.table.observers and (observer := self.observer()):
            observer.entered(self)

    def idle(self) -> None:
        self.at = "idle"
        if self.table.observers and (observer := self.observer()):
            observer.idled(self)

    def ask(self, out: AnyOut) -> None:
        if self.table.observers and (observer := self.observer()):
            observer.asked(self)
        self.algorithm.request(self.mode, out)

    def leave(self, out: AnyOut) -> None:
        self.others_ask = False
        if self.table.observers and (observer := self.observer()):
            observer.left(self)
        self.algorithm.release(out)

    def timer(self, name: str, after: float) -> None:
        raise AssertionError(f"no algorithm on the wire sets a timer: {name}")

    # -- what users do ---------------------------------------------------------------------------------

    def acquire(self, ticket: Ticket, now: float) -> None:
        """The ticket is HELD afterwards, or it waits."""
        ticket.local_lock = self
        table = self.table
        table.now = now
        if now >= table.deadline.until:
            table.lapse(now)
        if self.want is None and table.open and self.at == "idle":
            # The way of almost every uncontended entry.
            mode = ticket.mode
            if not self.free or self.mode != mode:
                if self.successor is not None:
                    self.still_the_successor(now)
                self.ask_at_once(mode)
            if self.free or self.is_inside():
                self.want = mode
                self.has = True
                self.clock = clock = self.clock + 1
                self.holder = ticket
                ticket.fence = table.first_fence + clock
                ticket.state = HELD
                ticket.since = now
                table.grants += 1
                return
            self.asked_at = now
        elif self.has and self.may_share(ticket):
            self.catch_up()
            self.grant(ticket, now)
            return
        self.catch_up()
        ticket.since = now
        if self.queue is None:
            self.queue = deque()
        self.queue.append(ticket)
        table.waits += 1
        if self.want is None:
            self.want = ticket.mode
            self.settled(now)
        if ticket.state == WAITING:
            table.alarm()
            if self.holder is not None and self.holder.lends:
                table.effects.append(OthersAsk(self.holder))
            if self.at == "asked":
                table.effects.append(MaySpin(self))

    def due_at(self) -> float:
        """When a waiter of this node is likely to be granted the lock: after as long as the last
        time.
        """
        return self.asked_at + self.waited if self.queue else inf

    def ask_at_once(self, mode: Mode) -> None:
        """Ask the algorithm, and see whether that was a message's work."""
        table = self.table
        self.free = False
        sent, self.before = table.messages, self.algorithm.key() if self.quiet else None
        self.want, self.at, self.mode = mode, "asked", mode
        if self.priority:
            self.prefer()
        self.ask(self)
        self.quiet = self.is_inside() and table.messages == sent
        if not self.quiet:
            self.before = None

    def prefer(self) -> None:
        """The next request has this priority."""
        self.algorithm.increment = self.priority

    def is_inside(self) -> bool:
        return self.at == "inside"

    def catch_up(self) -> None:
        """A free lock asks its algorithm after all: nothing is free once something comes."""
        if self.free:
            self.free = False
            if self.has:
                self.at = "asked"
                self.algorithm.request(self.mode, self)
                assert self.is_inside(), f"{self.name} was not free: {self.key()}"
        self.before, self.quiet = None, False

    def may_share(self, ticket: Ticket) -> bool:
        """A reader beside a reader, unless a waiter would then wait for ever."""
        return ticket.mode == "read" == self.mode and not self.queue and self.table.running and self.may_grant_again()

    def may_grant_again(self) -> bool:
        """To a further caller of this node, although others may ask."""
        return not self.others_ask or self.local_streak < self.table.limits.local_grants

    def release(self, ticket: Ticket, now: float) -> None:
        """The end of a hold. The caller has checked that it is one. If the lease is over, it is
        not: it is lost.
        """
        table = self.table
        table.now = now
        if now >= table.deadline.until:
            table.lapse(now)
            if ticket.state == LOST:
                return
        ticket.state = DONE
        table.hold_s += now - ticket.since
        if self.sharers:
            self.share_ends(ticket)
            return
        self.holder = None
        if self.queue is None and table.running:
            self.has = False
            self.want = None
            if not self.free:
                self.end(now)
            return
        self.catch_up()
        self.next_one(now)

    def end(self, now: float) -> None:
        """Leave the critical section; no user of this node wants it."""
        sent, before, self.before = self.table.messages, self.before, None
        self.at, self.left_at, self.others_ask = "ending", now, False
        if self.table.observers and (observer := self.observer()):
            observer.left(self)
        self.algorithm.release(self)
        if self.table.disputes and self.name in self.table.disputes:
            self.table.request_epoch()  # no node can enter in this epoch
        self.quiet = self.quiet and self.table.messages == sent
        self.free = (
            before is not None
            and self.quiet
            and self.at == "idle"  # type: ignore[comparison-overlap]
            and self.algorithm.key() == before
            and not self.table.observers
        )

    def share_ends(self, ticket: Ticket) -> None:
        assert self.sharers
        if ticket is self.holder:
            self.holder = self.sharers[-1]
            self.sharers.pop()
        else:
            self.sharers.remove(ticket)

    def next_one(self, now: float) -> None:
        """No user here holds it any more: the next local waiter, or the other nodes."""
        head = self.queue[0] if self.queue else None
        if head is None:
            self.queue = None
        if not self.table.running:
            # Reported as held: that stands until the next epoch has started.
            self.has, self.want = False, head.mode if head else None
            return
        if head is not None and head.mode == self.mode and self.may_grant_again():
            self.clock += 1
            self.admit(now)
            return
        self.has, self.want = False, None
        self.end(now)
        if head is not None:
            self.want = head.mode
            self.settled(now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """A waiting ticket is not wanted any more."""
        assert ticket.state == WAITING and self.queue is not None
        self.table.now = now
        ticket.state = DONE
        self.queue.remove(ticket)
        if not self.queue:
            self.queue = None
        if not self.has:
            self.want = self.queue[0].mode if self.queue else None
            self.settled(now)

    # -- what comes of it ------------------------------------------------------------------------------

    def hear(self, source: NodeId, clock: int, message: Wire, seq: int, now: float) -> None:
        """A message of the algorithm."""
        if self.table.observers and self.name in self.table.observers:
            self.table.observers[self.name].received(self, source, message, seq)
        if self.free or self.quiet:
            self.catch_up()
        if self.has or isinstance(message, Ask):
            self.others_ask = True
            if self.holder is not None and self.holder.lends:
                self.table.effects.append(OthersAsk(self.holder))
        self.receive(source, clock, message, self)
        if isinstance(message, Grant) and message.is_token:
            self.others_ask = (
                True  # they may: some algorithms take a token round in another order than that of requests
            )
        if self.at == "asked":
            self.table.effects.append(MaySpin(self))
        elif not self.has:  # else there is nothing to agree upon
            self.settled(now)

    def settled(self, now: float) -> None:
        """Settle, and give the lock to the first waiter here."""
        table = self.table
        if table.deadline.expired(now):
            table.lapse(now)
        if not table.running:
            return
        if self.free or self.quiet:
            self.catch_up()
        if table.choked and self.at == "idle":
            return
        if self.successor is not None:
            self.still_the_successor(now)
        if self.priority:
            self.prefer()
        before = self.at
        match self.settle(table.may_hold, self):
            case "granted":
                self.local_streak = 0
                if self.asked_at < inf:
                    self.waited, self.asked_at = now - self.asked_at, inf
                self.admit(now)
            case "request_hold":
                table.request_hold()
        if self.at == "asked" != before:
            self.asked_at = now

    def admit(self, now: float) -> None:
        """The first in the queue holds it, and with a reader all readers that come next."""
        assert self.queue, f"{self.name} was granted and there is no waiter: {self.want}"
        self.holder = None
        self.grant(self.queue.popleft(), now)
        if self.mode == "read":
            while self.queue and self.queue[0].mode == "read":
                self.grant(self.queue.popleft(), now)
        if not self.queue:
            self.queue = None

    def grant(self, ticket: Ticket, now: float) -> None:
        table = self.table
        if self.holder is None:
            self.holder = ticket
        else:
            self.sharers = [*(self.sharers or ()), ticket]
        waited = now - ticket.since
        if ticket.since:
            table.wait_s += waited
            for bound in table.waited:
                if waited <= bound:
                    table.waited[bound] += 1
                    break
        self.local_streak += 1
        ticket.fence, ticket.state, ticket.since = table.first_fence + self.clock, HELD, now
        table.grants += 1
        table.effects.append(Wake(ticket))

    def fail(self, error: PeerlockError) -> None:
        """No waiter here can be granted the lock any more."""
        queue, self.queue = self.queue, None
        if not self.has:
            self.want = None
        for ticket in queue or ():
            ticket.state, ticket.error = FAILED, error
            self.table.wake(ticket)

    def drop(self) -> None:
        super().drop()
        self.free, self.quiet, self.before = False, False, None
        self.successor, self.withheld = None, []
        self.asked_at = inf

    def lose(self, sentence: str) -> None:
        """The holders here have lost it."""
        for ticket in (self.holder, *(self.sharers or ())):
            if ticket is not None:
                self.table.losses += 1
                ticket.error = LockLost(sentence)
                ticket.state = LOST
                self.table.wake(ticket)
        self.holder, self.sharers, self.has = None, None, False
        self.want = self.queue[0].mode if self.queue else None

    def waited_for(self, now: float) -> float:
        """How long the first waiter has waited; -1: none waits, or it does not wait for the group."""
        return max(0.0, now - self.queue[0].since) if self.queue and not self.has else -1.0

    def observer(self) -> LockObserver | None:
        """Of a trace of this lock."""
        return self.table.observers.get(self.name)

    def is_lent(self) -> bool:
        """No caller of this process has it or waits for it, but processes that are attached."""
        tickets = (self.holder, *(self.sharers or ()), *(self.queue or ()))
        return all(ticket is None or ticket.lends for ticket in tickets) and any(tickets)

    def status(self, now: float) -> LockStatus:
        holder = self.holder
        return LockStatus(
            self.name,
            self.wire_algorithm.name,
            self.held(),
            holder.fence if holder else None,
            now - holder.since if holder else None,
            tuple(WaiterStatus(ticket.mode, now - ticket.since) for ticket in self.queue or ()),
        )
