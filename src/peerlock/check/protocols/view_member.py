"""A member of the group that `view_change` explores: a node with one lock, and its messages.

It does what the real node does for each of its locks, without sockets, queues and sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import ClassVar, Self

from msgspec.structs import astuple, replace

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import Key, Mode, NodeId, Out, State, Wire
from peerlock.node.locks.participant import Participant
from peerlock.node.membership.view_change import ViewChange

HOME = 1  # the member where a token starts when none is inside; the real node takes a hash of the lock's name


class Inner(Wire, frozen=True):
    """A message of the algorithm, in its epoch."""

    epoch: int
    clock: int
    message: Wire


class Report(Wire, frozen=True):
    epoch: int
    members: tuple[NodeId, ...]
    held: Mode | None


class NewView(Wire, frozen=True):
    epoch: int
    members: tuple[NodeId, ...]


class Died(Wire, frozen=True):
    """A process is gone."""


class Join(Wire, frozen=True):
    """A request to be admitted: `epoch` is the newest view that the sender knows it is not in."""

    epoch: int


class Leave(Wire, frozen=True):
    pass


class RequestHold(Wire, frozen=True):
    """A request to be told that the sender may hold."""

    number: int = 0


class Open(Wire, frozen=True):
    """The addressee may hold, and is not excluded any more."""

    number: int = 0


class Lapsed(Wire, frozen=True):
    """Sent by no node: the time of a promise is over, after that of the lease."""

    number: int


class Shut(Wire, frozen=True):
    """The addressee may not hold: the view of this epoch is one without it."""

    epoch: int
    members: tuple[NodeId, ...]


class AlgorithmOut:
    """Between a participant and its algorithm: what is sent gets the epoch and the clock."""

    def __init__(self, member: Member, out: Out[Wire]) -> None:
        self.member, self.out = member, out

    def send(self, to: NodeId, message: Wire) -> None:
        view_change = self.member.view_change
        self.out.send(view_change.member(to), Inner(view_change.epoch, self.member.participant.clock, message))

    def broadcast(self, to: Iterable[NodeId], message: Wire) -> None:
        for j in to:
            self.send(j, message)

    def enter(self) -> None:
        self.member.participant.at = "inside"

    def idle(self) -> None:
        self.member.participant.at = "idle"

    def timer(self, name: str, after: float) -> None:
        raise AssertionError(f"no algorithm on the wire sets a timer: {name}")


class Member(State):
    """A node with one lock in a group that changes."""

    views: ClassVar[type[ViewChange]] = ViewChange
    participants: ClassVar[type[Participant]] = Participant

    me: NodeId
    registry: NodeId
    algorithm: AlgorithmSpec  # not part of the state
    view_change: ViewChange
    participant: Participant
    may_hold: bool
    lapses: int = -1  # how often its lease may still end; -1: there are no leases
    lease: int = 0  # the number of the promise that it rests on
    joining: bool = False
    leaving: bool = False
    waiting: tuple[tuple[NodeId, Inner], ...] = ()  # of the epoch that has not started here

    def __copy__(self) -> Self:
        return replace(self, view_change=copy(self.view_change), participant=copy(self.participant))

    def key(self) -> Key:
        # The first five fields are two constants, the algorithm's, and what is spelled out here.
        return *astuple(self.view_change), *self.participant.key(), *astuple(self)[5:]

    # -- what users do -----------------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Wire]) -> None:
        self.participant.want = mode
        self.settle(out)

    def release(self, out: Out[Wire]) -> None:
        self.participant.want, self.participant.has = None, False
        out.idle()
        self.settle(out)

    def join(self, out: Out[Wire]) -> None:
        self.joining = True
        out.send(self.registry, Join(self.view_change.known))

    def leave(self, out: Out[Wire]) -> None:
        self.leaving = True
        out.send(self.registry, Leave())

    def settle(self, out: Out[Wire]) -> None:
        if self.view_change.wedged:
            return
        match self.participant.settle(self.may_hold, AlgorithmOut(self, out)):
            case "granted":
                out.enter()
            case "request_hold":
                out.send(self.registry, RequestHold(self.lease + 1 if self.lapses >= 0 else 0))

    def on_timeout(self, name: str, out: Out[Wire]) -> None:
        """The lease has run out."""
        self.lapses -= 1
        self.may_hold = False
        out.send(self.registry, Lapsed(self.lease))
        if self.participant.has:
            self.lose(out)
        self.settle(out)

    def lose(self, out: Out[Wire]) -> None:
        self.participant.want, self.participant.has = None, False
        out.idle()

    def events(self) -> list[str]:
        return ["lapse"] if self.lapses > 0 and self.may_hold and not self.leaving and not self.joining else []

    # -- what comes ----------------------------------------------------------------------------------

    def receive(self, source: NodeId, message: Wire, out: Out[Wire]) -> None:
        match message:
            case Inner():
                self.on_inner(source, message, out)
            case Report():
                self.on_decided(message.epoch, message.members, out)
                self.on_report(source, message, out)
            case NewView():
                self.on_decided(message.epoch, message.members, out)
            case Shut():
                self.on_decided(message.epoch, message.members, out)
            case Open(number):
                if self.lapses < 0 or (number > self.lease and not self.view_change.excluded):
                    self.may_hold, self.lease = True, number
                    self.settle(out)
            case _:
                raise AssertionError(f"{message} for a member")

    def on_inner(self, source: NodeId, message: Inner, out: Out[Wire]) -> None:
        match self.view_change.fate(message.epoch):
            case "deliver":
                self.participant.receive(
                    self.view_change.number(source), message.clock, message.message, AlgorithmOut(self, out)
                )
                self.settle(out)
            case "wait":
                self.waiting = tuple(sorted((*self.waiting, (source, message)), key=repr))

    def on_decided(self, epoch: int, members: tuple[NodeId, ...], out: Out[Wire]) -> None:
        if not self.view_change.learn(epoch, members):
            return
        self.waiting = ()
        if self.view_change.excluded:
            self.on_exclusion(out)
            return
        self.report(out)

    def report(self, out: Out[Wire]) -> None:
        """Made once; all members get the same."""
        view_change = self.view_change
        mine = Report(view_change.known, view_change.coming, self.participant.held())
        for j in view_change.coming:
            if j != self.me:
                out.send(j, mine)
        self.on_report(self.me, mine, out)

    def on_report(self, source: NodeId, report: Report, out: Out[Wire]) -> None:
        if self.view_change.on_report(source, report.epoch, report.held):
            self.begin(out)

    def begin(self, out: Out[Wire]) -> None:
        view_change = self.view_change
        reports = view_change.begin()
        inside = self.inside({view_change.number(j): held for j, held in reports if held is not None})
        writers = sum(held == "write" for held in inside.values())
        assert not writers or len(inside) == 1, f"epoch {view_change.epoch} would start with {inside} inside"
        self.participant.start(self.algorithm, view_change.number(self.me), len(view_change.members), HOME, inside)
        if self.joining:
            self.joining = False
            out.idle()
        waiting, self.waiting = self.waiting, ()
        self.settle(out)
        for source, message in waiting:
            self.on_inner(source, message, out)

    def inside(self, reported: dict[NodeId, Mode]) -> dict[NodeId, Mode]:
        """The members that are inside when the epoch starts here: those that were reported."""
        return reported

    def on_exclusion(self, out: Out[Wire]) -> None:
        """Excluded while alive, or on its own wish."""
        self.participant.drop()
        self.may_hold = self.may_hold and self.lapses < 0  # what it was promised it was promised as a member
        if self.leaving:
            out.idle()
        else:
            out.send(self.registry, Join(self.view_change.known))

    def ignores(self, message: Wire) -> bool:
        """Whatever happens: this message changes nothing here any more."""
        match message:
            case Inner(epoch):
                return self.view_change.fate(epoch) == "drop"
            case NewView(epoch) | Shut(epoch):
                return epoch <= self.view_change.known
            case Report(epoch):
                return epoch < self.view_change.known or epoch == self.view_change.epoch
        return False
