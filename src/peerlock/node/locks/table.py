"""The lock table: all locks of one node, by name.

A lock that was never used costs nothing, and idle locks are forgotten with the epoch. Each lock is
a `LocalLock` (`local_lock.py`). Here is what all of them share: the epoch and its members, whether
this node may hold locks and until when, the peers that get a write after the current event, and the
counters.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from math import inf
from typing import Any
from zlib import crc32

from msgspec import Struct

from peerlock.contract import Mode, NodeId, State
from peerlock.errors import Disagreement
from peerlock.node.effects import BeginHolding, Effect, LeaseLapsed, RequestEpoch, Wake, WakeAt, WithheldDueAt
from peerlock.node.locks.deadline import Deadline
from peerlock.node.locks.fence import CLOCK_BITS, fence
from peerlock.node.locks.local_lock import MAX_UNACKED, LocalLock
from peerlock.node.locks.participant import AnyOut
from peerlock.node.locks.successor import ToldToTheSuccessor
from peerlock.node.locks.ticket import Limits, LockObserver, Ticket
from peerlock.node.session import Session
from peerlock.node.wire import LockReport, LockStatus
from peerlock.node.wire_algorithms import DEFAULT, WireAlgorithm, is_known_algorithm, wire_algorithm

TICK_S = 0.5
CLOCK_CHECK_GRANTS = 1 << 18  # after so many grants the clocks are looked at
WITHHOLD_S_PER_MEMBER = 0.0002  # then a request that was sent to the successor alone is sent to the others
MAX_WITHHOLD_S = 0.005  # however many there are: most of them may want nothing
NEAR_THE_END = (1 << CLOCK_BITS) - (1 << 24)  # a clock that needs a new epoch


class LockTable:
    """All locks of one node."""

    def __init__(self, limits: Limits, deadline: Deadline, leases: bool = False) -> None:
        self.limits = limits
        self.effects: list[Effect] = []  # what the shell is to do after this event; always this very list
        self.deadline = deadline  # until when this node may hold: looked at wherever a lock is granted
        self.now = 0.0  # of the event that is being handled
        self.tick_at = inf  # when the next tick is due, if one is
        self.closed = False  # the node has left
        self.leases = leases  # `may_hold` is a lease: the registry gives it, and is not asked
        self.asked_to_hold = False  # and has not answered
        self.renewing = False  # an epoch was requested
        self.locks: dict[str, LocalLock] = {}
        self.opening: dict[str, LockStart] = {}  # of each lock that was reported
        self.disputes: frozenset[str] = frozenset()  # locks that no member can enter in this epoch
        self.me: NodeId = 0
        self.sessions: list[Session | None] = []  # by number, from 1
        self.epoch = 0
        self.first_fence = 0  # of the epoch; a clock is added to it
        self.running = False  # an epoch runs, unwedged
        self.may_hold = False  # the registry allows this node to hold locks
        self.open = False  # both, and no peer is far behind
        self.choked = False  # one is
        self.dirty: dict[Session, None] = {}  # peers that get a write after this event, in order
        self.withheld: dict[ToldToTheSuccessor, None] = {}  # locks that may have withheld a request
        self.withheld_timer_set = False  # a reminder is under way
        self.withhold_s = WITHHOLD_S_PER_MEMBER
        self.bound = limits.idle_locks
        self.looked = 0  # grants when the clocks were last looked at
        # for the metrics
        self.grants = self.waits = self.losses = self.messages = 0
        self.wait_s = self.hold_s = 0.0
        self.waited: dict[float, int] = dict.fromkeys((0.001, 0.01, 0.1, 1.0, 10.0, float("inf")), 0)
        self.status_of_attached: Callable[[float], Iterable[LockStatus]] = lambda now: ()
        self.observers: dict[str, LockObserver] = {}

    # -- locks ---------------------------------------------------------------------------------------

    def local_lock(self, name: str, wanted: WireAlgorithm) -> LocalLock:
        """The local lock of that name; the algorithm is the one the group uses for it, else the one
        that is wanted.
        """
        local_lock = self.locks.get(name)
        if local_lock is None:
            opening = self.opening.get(name)
            number = wanted.number if opening is None else opening.algorithm
            local_lock = self.locks[name] = LocalLock(name, wire_algorithm(number), self)
            if self.running:
                self.start(local_lock)
            if len(self.locks) > self.bound:
                self.request_epoch()
        return local_lock

    def start(self, local_lock: LocalLock) -> None:
        opening = self.opening.get(local_lock.name, NOTHING)
        local_lock.start(
            local_lock.wire_algorithm.spec,
            self.me,
            len(self.sessions) - 1,
            self.home(local_lock.name),
            opening.inside,
        )
        if opening.disputed:
            local_lock.algorithm = Disputed(self.me in opening.inside)
        elif older := opening.older(self.me):
            local_lock.algorithm.after(older)

    def home(self, name: str) -> NodeId:
        """Where a token starts when no node is inside: the same for all members, another one for
        each lock.
        """
        return crc32(name.encode()) % (len(self.sessions) - 1) + 1

    def set_open(self) -> None:
        self.open = self.running and self.may_hold and not self.choked

    # -- what the core is asked for ------------------------------------------------------------------

    def alarm(self) -> None:
        """A caller waits, or something else must be looked at: a tick is needed."""
        if self.tick_at == inf and not self.closed:
            self.tick_at = self.now + TICK_S
            self.effects.append(WakeAt(self.tick_at))

    def request_hold(self) -> None:
        if not self.may_hold and not self.leases and not self.asked_to_hold:
            self.asked_to_hold = True
            self.effects.append(BeginHolding())

    def allow(self) -> None:
        """This node may hold locks."""
        self.asked_to_hold, self.may_hold = False, True
        self.set_open()
        self.alarm()
        for local_lock in self.busy():
            local_lock.settled(self.now)

    def request_epoch(self) -> None:
        if not self.renewing:
            self.renewing = True
            self.effects.append(RequestEpoch())

    def lapse(self, now: float) -> None:
        """The lease is over: from now on others may hold what was held here."""
        self.now = now
        busy = self.busy()
        lost = self.lose("the lease of this node has run out, because the registry was not reached in time")
        for local_lock in busy:
            local_lock.settled(now)
        self.effects.append(LeaseLapsed(lost))

    def busy(self) -> list[LocalLock]:
        return [local_lock for local_lock in self.locks.values() if local_lock.want is not None]

    def waiting(self) -> bool:
        return any(local_lock.queue for local_lock in self.locks.values() if local_lock.want is not None)

    # -- epochs --------------------------------------------------------------------------------------

    def report(self, now: float) -> tuple[LockReport, ...]:
        return tuple(
            LockReport(local_lock.name, local_lock.wire_algorithm.number, local_lock.held(), local_lock.waited_for(now))
            for local_lock in self.busy()
        )

    def begin(
        self,
        epoch: int,
        me: NodeId,
        sessions: list[Session | None],
        reports: Iterable[tuple[NodeId, tuple[LockReport, ...]]],
        now: float,
    ) -> None:
        """A new epoch starts: idle locks are forgotten, the others start from what was reported."""
        self.epoch, self.first_fence, self.me, self.sessions, self.choked = epoch, fence(epoch, 0), me, sessions, False
        self.opening = opened(reports)
        self.disputes = frozenset(name for name, opening in self.opening.items() if opening.disputed)
        old, self.locks = self.locks, {}
        self.running = True
        self.set_open()
        for name, local_lock in old.items():
            if local_lock.want is not None or me in self.opening.get(name, NOTHING).inside:
                self.locks[name] = local_lock
            else:
                local_lock.at, local_lock.free = (
                    "ending",
                    False,
                )  # code that still has this object looks for the new one
        self.withheld, self.withhold_s = {}, min(MAX_WITHHOLD_S, WITHHOLD_S_PER_MEMBER * (len(sessions) - 1))
        self.bound = max(self.limits.idle_locks, 2 * len(self.locks))
        self.looked = self.grants
        for local_lock in list(self.locks.values()):
            opening = self.opening.get(local_lock.name)
            number = local_lock.wire_algorithm.number if opening is None else opening.algorithm
            if number != local_lock.wire_algorithm.number and local_lock.want is not None:
                local_lock.fail(disagreement(local_lock, wire_algorithm(number), "the group"))
            if number != local_lock.wire_algorithm.number:
                local_lock.wire_algorithm = wire_algorithm(number)
            local_lock.others_ask = opening is not None and any(node != me for _, node in opening.waits)
            local_lock.local_streak = 0
            local_lock.free, local_lock.quiet, local_lock.before = False, False, None
            local_lock.successor, local_lock.withheld = None, []
            self.start(local_lock)
        for local_lock in list(self.locks.values()):
            local_lock.settled(now)

    def clocks_run_out(self) -> bool:
        """Is a clock so near its end that a new epoch is needed? Looked at before it could have got
        there unseen.
        """
        if self.grants - self.looked < CLOCK_CHECK_GRANTS:
            return False
        self.looked = self.grants
        return any(local_lock.clock > NEAR_THE_END for local_lock in self.locks.values())

    def unchoke(self, now: float) -> None:
        """Go on asking, if the peer that was far behind has caught up."""
        if self.choked and not any(
            session is not None and len(session.kept) > MAX_UNACKED // 2 for session in self.sessions
        ):
            self.choked = False
            self.set_open()
            for local_lock in self.busy():
                local_lock.settled(now)

    def withhold(self, local_lock: ToldToTheSuccessor) -> None:
        self.withheld[local_lock] = None
        if not self.withheld_timer_set:
            self.effects.append(WithheldDueAt(local_lock.withheld_until()))
            self.withheld_timer_set = True

    def send_withheld(self, now: float) -> None:
        """What was held back and is still waited for, but for what is not that old yet."""
        withheld, self.withheld, self.withheld_timer_set = self.withheld, {}, False
        for local_lock in withheld:
            if not self.running or not local_lock.withheld:
                continue
            if now < local_lock.withheld_until() - self.withhold_s / 2:
                self.withheld[local_lock] = None
            else:
                local_lock.send_withheld()
        if self.withheld:
            self.effects.append(WithheldDueAt(now + self.withhold_s))
            self.withheld_timer_set = True

    def wedge(self) -> None:
        self.running = self.open = False

    def drop(self, why: str) -> None:
        """The group goes on without this node: nothing is held any more; callers that wait, wait
        for the next group.
        """
        self.wedge()
        self.lose(why)
        for local_lock in self.locks.values():
            local_lock.drop()

    def lose(self, why: str) -> int:
        """Others may hold from now on what was held here. All holds are marked before the first
        holder is woken. How many there were.
        """
        ending = "It was held until now; others may hold it from now on."
        losses = self.losses
        for local_lock in self.busy():
            local_lock.lose(f"The lock {local_lock.name} is lost: {why}. {ending}")
        self.may_hold, self.deadline.until = False, inf
        self.set_open()
        return self.losses - losses

    def abandon(self, why: str) -> None:
        """Nothing that is known here can be relied upon: the holders lose their locks, and
        everything else is forgotten.
        """
        self.effects[:] = [effect for effect in self.effects if type(effect) is Wake]
        self.wedge()
        self.lose(why)
        ending = "It was held until now; others may hold it from now on."
        for local_lock in self.locks.values():
            local_lock.lose(f"The lock {local_lock.name} is lost: {why}. {ending}")  # whatever it says of itself
            local_lock.queue = local_lock.want = None
            local_lock.drop()  # code that still has this object can do nothing with it
        self.locks, self.dirty, self.withheld = {}, {}, {}
        self.tick_at = inf
        self.renewing = self.asked_to_hold = self.withheld_timer_set = False

    def wake(self, ticket: Ticket) -> None:
        self.effects.append(Wake(ticket))

    def status(self, now: float) -> tuple[LockStatus, ...]:
        own = (local_lock.status(now) for local_lock in self.busy() if not local_lock.is_lent())
        return (*own, *self.status_of_attached(now))


class LockStart(Struct):
    """What a lock starts an epoch from, as all members have reported."""

    algorithm: int
    inside: dict[NodeId, Mode]
    waits: list[tuple[float, NodeId]]  # the oldest first: minus the seconds, and whose
    disputed: bool = False  # two members say that they have it, and cannot both
    unknown: bool = False  # a member uses it with an algorithm that is not known here

    def older(self, me: NodeId) -> int:
        """How many nodes have waited for longer than this one."""
        for place, (_, node) in enumerate(self.waits):
            if node == me:
                return place
        return len(self.waits)


NOTHING = LockStart(0, {}, [])


def opened(reports: Iterable[tuple[NodeId, tuple[LockReport, ...]]]) -> dict[str, LockStart]:
    """From what each lock starts: the algorithm of a member that is inside, else of the first that
    waits.
    """
    found: dict[str, LockStart] = {}
    for number, locks in reports:
        for report in locks:
            opening = found.get(report.lock)
            if opening is None:
                opening = found[report.lock] = LockStart(report.algorithm, {}, [])
            if not is_known_algorithm(report.algorithm):
                # An algorithm that this node does not know: the lock cannot be used here, and the
                # others can.
                opening.unknown = True
                continue
            if not is_known_algorithm(opening.algorithm):
                opening.algorithm = report.algorithm
            if report.held is not None:
                if not opening.inside:
                    opening.algorithm = report.algorithm
                opening.inside[number] = report.held
                writers = sum(mode == "write" for mode in opening.inside.values())
                opening.disputed = writers > 0 and len(opening.inside) > 1
            elif report.waited_s >= 0.0:
                insort(opening.waits, (-report.waited_s, number))
    for opening in found.values():
        if opening.unknown:
            opening.disputed = True
            opening.algorithm = (
                opening.algorithm if is_known_algorithm(opening.algorithm) else wire_algorithm(DEFAULT).number
            )
    return found


class Disputed(State):
    """In the place of an algorithm that cannot start: two members report to be inside, and one of
    them lies.

    No node can know which. So none enters in this epoch; a member that is inside stays until it
    leaves. The other locks go on, and the next epoch starts from what is reported then.
    """

    inside: bool

    def request(self, mode: Mode, out: AnyOut) -> None:
        pass

    def release(self, out: AnyOut) -> None:
        self.inside = False
        out.idle()

    def receive(self, source: NodeId, message: Any, out: AnyOut) -> None:
        pass


def disagreement(local_lock: LocalLock, other: WireAlgorithm, who: str) -> Disagreement:
    return Disagreement(
        f"The lock {local_lock.name} is used with {local_lock.wire_algorithm.name} here and with {other.name} by {who}: "
        "use the same algorithm everywhere."
    )
