"""The locks of one node, by name.

Any number of them; a lock that nobody has used costs nothing, and idle ones are forgotten with the epoch. Each has a desk
(`local_lock.py`). What all of them share is here: the epoch and its members, whether the node may believe what its algorithms
say and until when, what is to be written after an event, and the counters.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from math import inf
from typing import Any
from zlib import crc32

from msgspec import Struct

from peerlock.contract import Mode, Node, Out, State
from peerlock.errors import Disagreement
from peerlock.node.locks.fence import CLOCK_BITS, fence
from peerlock.node.locks.local_lock import MANY, Desk
from peerlock.node.locks.ticket import Limits, Ticket, Told
from peerlock.node.session import Session
from peerlock.node.wire import LockReport, LockStatus
from peerlock.node.wire_algorithms import DEFAULT, Spoken, is_spoken, spoken

OFTEN = 1 << 18  # grants
LATER_S = 0.0002  # for each member, at least: then a request that was told to the heir alone is told to the others
LATEST_S = 0.005  # however many there are: most of them may want nothing
NEAR_THE_END = (1 << CLOCK_BITS) - (1 << 24)  # a clock that needs a new epoch


class Table:
    """All locks of one node."""

    def __init__(
        self,
        limits: Limits,
        alarm: Callable[[], None],
        knock: Callable[[], None],
        full: Callable[[], None],
        lapse: Callable[[float], None],
        remind: Callable[[float], None],
        stay_awake: Callable[[Desk], None],
    ) -> None:
        self.limits = limits
        # How the node is told that somebody waits, that the gate is needed, that there are too many locks, that the
        # lease is over, when requests are to be sent that were held back, and that what somebody waits for may come at once.
        self.alarm, self.knock, self.full, self.lapse = alarm, knock, full, lapse
        self.remind, self.stay_awake = remind, stay_awake
        self.desks: dict[str, Desk] = {}
        self.opening: dict[str, Opening] = {}  # of each lock that was reported
        self.disputes: frozenset[str] = frozenset()  # locks that no member can enter in this epoch
        self.me: Node = 0
        self.sessions: list[Session | None] = []  # by number, from 1
        self.epoch = 0
        self.first_fence = 0  # of the epoch; a clock is added to it
        self.running = False  # an epoch runs, unwedged
        self.gate = False  # the node may believe
        self.until = inf  # and until then: looked at wherever a lock is granted
        self.open = False  # both, and no peer is far behind
        self.choked = False  # one is
        self.dirty: dict[Session, None] = {}  # who gets a write after this event, in order
        self.late: dict[Desk, None] = {}  # who may have held something back
        self.reminded = False  # a reminder is under way
        self.later_s = LATER_S
        self.bound = limits.idle_locks
        self.looked = 0  # grants when the clocks were last looked at
        # for the metrics
        self.grants = self.waits = self.losses = self.messages = 0
        self.wait_s = self.hold_s = 0.0
        self.waited: dict[float, int] = dict.fromkeys((0.001, 0.01, 0.1, 1.0, 10.0, float("inf")), 0)
        self.told: dict[str, Told] = {}

    # -- locks ---------------------------------------------------------------------------------------

    def desk(self, name: str, wanted: Spoken) -> Desk:
        """The desk of a lock; the algorithm is the one the group uses for it, else the one that is wanted."""
        desk = self.desks.get(name)
        if desk is None:
            opening = self.opening.get(name)
            number = wanted.number if opening is None else opening.algorithm
            desk = self.desks[name] = Desk(name, spoken(number), self)
            if self.running:
                self.start(desk)
            if len(self.desks) > self.bound:
                self.full()
        return desk

    def start(self, desk: Desk) -> None:
        opening = self.opening.get(desk.name, NOTHING)
        desk.start(desk.spoken.chosen, self.me, len(self.sessions) - 1, self.home(desk.name), opening.inside)
        if opening.disputed:
            desk.algorithm = Disputed(self.me in opening.inside)
        elif older := opening.older(self.me):
            desk.algorithm.after(older)

    def home(self, name: str) -> Node:
        """Where a token starts when nobody is inside: the same for all members, another one for each lock."""
        return crc32(name.encode()) % (len(self.sessions) - 1) + 1

    def set_open(self) -> None:
        self.open = self.running and self.gate and not self.choked

    def extend(self, until: float, now: float) -> None:
        """A lease that runs runs on. May be called by another thread, while this one is busy with something else."""
        if self.gate and now < self.until < until:
            self.until = until

    def busy(self) -> Iterable[Desk]:
        return [desk for desk in self.desks.values() if desk.want is not None]

    def waiting(self) -> bool:
        return any(desk.queue for desk in self.desks.values() if desk.want is not None)

    # -- epochs --------------------------------------------------------------------------------------

    def report(self, now: float) -> tuple[LockReport, ...]:
        return tuple(
            LockReport(desk.name, desk.spoken.number, desk.held(), desk.waited_for(now)) for desk in self.busy()
        )

    def begin(
        self,
        epoch: int,
        me: Node,
        sessions: list[Session | None],
        reports: Iterable[tuple[Node, tuple[LockReport, ...]]],
        now: float,
    ) -> None:
        """A new epoch starts: idle locks are forgotten, the others start from what was reported."""
        self.epoch, self.first_fence, self.me, self.sessions, self.choked = epoch, fence(epoch, 0), me, sessions, False
        self.opening = opened(reports)
        self.disputes = frozenset(name for name, opening in self.opening.items() if opening.disputed)
        old, self.desks = self.desks, {}
        self.running = True
        self.set_open()
        for name, desk in old.items():
            if desk.want is not None or me in self.opening.get(name, NOTHING).inside:
                self.desks[name] = desk
            else:
                desk.at, desk.free = "ending", False  # whoever still has this desk looks for the new one
        self.late, self.later_s = {}, min(LATEST_S, LATER_S * (len(sessions) - 1))
        self.bound = max(self.limits.idle_locks, 2 * len(self.desks))
        self.looked = self.grants
        for desk in list(self.desks.values()):
            opening = self.opening.get(desk.name)
            number = desk.spoken.number if opening is None else opening.algorithm
            if number != desk.spoken.number and desk.want is not None:
                desk.fail(disagreement(desk, spoken(number), "the group"))
            if number != desk.spoken.number:
                desk.spoken = spoken(number)
            desk.asked, desk.streak = False, 0
            desk.free, desk.quiet, desk.before = False, False, None
            desk.heir, desk.late = None, []
            self.start(desk)
        for desk in list(self.desks.values()):
            desk.settled(now)

    def clocks_run_out(self) -> bool:
        """Is a clock so near its end that a new epoch is needed? Looked at before it could have got there unseen."""
        if self.grants - self.looked < OFTEN:
            return False
        self.looked = self.grants
        return any(desk.clock > NEAR_THE_END for desk in self.desks.values())

    def unchoke(self, now: float) -> None:
        """Go on asking, if whoever was far behind has caught up."""
        if self.choked and not any(session is not None and len(session.kept) > MANY // 2 for session in self.sessions):
            self.choked = False
            self.set_open()
            for desk in list(self.busy()):
                desk.settled(now)

    def hold_back(self, desk: Desk) -> None:
        self.late[desk] = None
        if not self.reminded:
            self.remind(desk.late_at())
            self.reminded = True

    def send_late(self, now: float) -> None:
        """What was held back and is still waited for, but for what is not that old yet."""
        late, self.late, self.reminded = self.late, {}, False
        for desk in late:
            if not self.running or not desk.late:
                continue
            if now < desk.late_at() - self.later_s / 2:
                self.late[desk] = None
            else:
                desk.send_late()
        if self.late:
            self.remind(now + self.later_s)
            self.reminded = True

    def wedge(self) -> None:
        self.running = self.open = False

    def drop(self, why: str) -> None:
        """The group goes on without this node: nothing is held any more; who waits, waits for the next group."""
        self.wedge()
        lost = self.lose(why)
        for desk in self.desks.values():
            desk.drop()
        for ticket in lost:
            ticket.woken()

    def lose(self, why: str) -> list[Ticket]:
        """Others may hold from now on what was held here. Whoever held it is woken by the caller, when all of them are
        marked: one may take its time, and another thread may look at the clock, or at its own hold, meanwhile.
        """
        ending = "It was held until now; others may hold it from now on."
        lost = [t for desk in self.busy() for t in desk.lose(f"The lock {desk.name} is lost: {why}. {ending}")]
        self.gate, self.until = False, inf
        self.set_open()
        return lost

    def status(self, now: float) -> tuple[LockStatus, ...]:
        return tuple(desk.status(now) for desk in self.busy())


class Opening(Struct):
    """What a lock starts an epoch from, as all members have reported."""

    algorithm: int
    inside: dict[Node, Mode]
    waits: list[tuple[float, Node]]  # the oldest first: minus the seconds, and whose
    disputed: bool = False  # two members say that they have it, and cannot both
    unknown: bool = False  # a member uses it with an algorithm that is not known here

    def older(self, me: Node) -> int:
        """How many nodes have waited for longer than this one."""
        for place, (_, node) in enumerate(self.waits):
            if node == me:
                return place
        return len(self.waits)


NOTHING = Opening(0, {}, [])


def opened(reports: Iterable[tuple[Node, tuple[LockReport, ...]]]) -> dict[str, Opening]:
    """From what each lock starts: the algorithm of a member that is inside, else of the first that waits."""
    found: dict[str, Opening] = {}
    for number, locks in reports:
        for report in locks:
            opening = found.get(report.lock)
            if opening is None:
                opening = found[report.lock] = Opening(report.algorithm, {}, [])
            if not is_spoken(report.algorithm):
                # An algorithm that this node does not know: the lock cannot be used here, and the others can.
                opening.unknown = True
                continue
            if not is_spoken(opening.algorithm):
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
            opening.algorithm = opening.algorithm if is_spoken(opening.algorithm) else spoken(DEFAULT).number
    return found


class Disputed(State):
    """In the place of an algorithm that cannot start: two members report to be inside, and one of them lies.

    Nobody can know which. So nobody enters in this epoch; a member that is inside stays until it leaves. The other locks
    go on, and the next epoch starts from what is reported then.
    """

    inside: bool

    def request(self, mode: Mode, out: Out[Any]) -> None:
        pass

    def release(self, out: Out[Any]) -> None:
        self.inside = False
        out.idle()

    def receive(self, source: Node, message: Any, out: Out[Any]) -> None:
        pass


def disagreement(desk: Desk, other: Spoken, who: str) -> Disagreement:
    return Disagreement(
        f"The lock {desk.name} is used with {desk.spoken.chosen.name} here and with {other.chosen.name} by {who}: "
        "use the same algorithm everywhere."
    )
