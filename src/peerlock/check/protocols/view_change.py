"""The view change, explored: the very `ViewChange` and `Participant` that ship, in every interleaving.

A `Member` is a node with one lock: what the real node does for each of its locks, without sockets, queues and
sessions. The network may deliver in any order, so what a session adds (order, no loss) is not relied on, except that
nothing is lost. The registry is one more node, numbered after all members. It decides views one after the other, and
hears

- of a crash, at any time after it (`last_words`): detection is late but never wrong, as with the kernel's record locks;
- of joiners and leavers, who ask it;
- and may, `stops` times, exclude a member that is alive but does not believe to hold anything: a stopped process. That is
  what `may_hold` is for: a member believes only after the registry has noted it, and a noted member is not excluded.
- With leases (`lapsers`) everybody is noted at first. A lease ends at any time; what is held then is lost. The
  registry's promise
  ends at any time after that (`Lapsed` is under way): `peerlock.check.protocols.quorum` shows that voters keep this order.
- It may also, `renewals` times, decide a view with the same members.

An incarnation that is restarted is a joiner with another number. A member that was excluded while alive joins again:
the number stays, everything else is dropped.

`peerlock.check.protocols.view_mutants` takes each rule of `peerlock.node.membership.view_change` away in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import astuple, replace

from peerlock.algorithms import AlgorithmSpec, choose
from peerlock.check.model import Detail, Done, Inbox, Local, Model
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import (
    Checks,
    Deadlock,
    EverybodyEnters,
    MutualExclusion,
    Property,
    SomebodyWaitsWhileAnotherIsInside,
)
from peerlock.check.search import Outcome, Progress, Search
from peerlock.contract import NOBODY, Inside, Members, Mode, Needs, NodeId, Out, State, Wire
from peerlock.node.locks.participant import Participant
from peerlock.node.membership.view_change import ViewChange

HOME = 1  # the member where a token starts when nobody is inside; the real node takes a hash of the lock's name


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
    """Or join again: `epoch` is the newest view that the sender knows it is not in."""

    epoch: int


class Leave(Wire, frozen=True):
    pass


class RequestHold(Wire, frozen=True):
    """May I believe that I hold something?"""

    number: int = 0


class Open(Wire, frozen=True):
    """You may, and nobody leaves you out any more."""

    number: int = 0


class Lapsed(Wire, frozen=True):
    """Nobody sends this: the time of a promise is over, after that of the lease."""

    number: int


class Shut(Wire, frozen=True):
    """You may not: the view of this epoch is one without you."""

    epoch: int
    members: tuple[NodeId, ...]


class Door:
    """Between a participant and its algorithm: what is sent gets the epoch and the clock."""

    def __init__(self, member: Member, out: Out[Any]) -> None:
        self.member, self.out = member, out

    def send(self, to: NodeId, message: Wire) -> None:
        view_change = self.member.view_change
        self.out.send(view_change.member(to), Inner(view_change.epoch, self.member.participant.clock, message))

    def broadcast(self, to: Any, message: Wire) -> None:
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
    algorithm: Any  # which, as `AlgorithmSpec`; not part of the state
    view_change: ViewChange
    participant: Participant
    may_hold: bool
    lapses: int = -1  # how often its lease may still end; -1: there are no leases
    lease: int = 0  # the number of the promise that it rests on
    joining: bool = False
    leaving: bool = False
    waiting: tuple[tuple[NodeId, Inner], ...] = ()  # of the epoch that has not started here

    def __copy__(self) -> Self:
        made = super().__copy__()  # type: ignore[misc]
        made.view_change, made.participant = self.view_change.__copy__(), self.participant.__copy__()  # type: ignore[attr-defined]
        return made  # type: ignore[no-any-return]

    def key(self) -> tuple[Any, ...]:
        return (
            *astuple(self.view_change),
            *self.participant.key(),
            self.may_hold,
            self.lapses,
            self.lease,
            self.joining,
            self.leaving,
            self.waiting,
        )

    # -- what users do -----------------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Any]) -> None:
        self.participant.want = mode
        self.settle(out)

    def release(self, out: Out[Any]) -> None:
        self.participant.want, self.participant.has = None, False
        out.idle()
        self.settle(out)

    def join(self, out: Out[Any]) -> None:
        self.joining = True
        out.send(self.registry, Join(self.view_change.known))

    def leave(self, out: Out[Any]) -> None:
        self.leaving = True
        out.send(self.registry, Leave())

    def settle(self, out: Out[Any]) -> None:
        if self.view_change.wedged:
            return
        match self.participant.settle(self.may_hold, Door(self, out)):
            case "granted":
                out.enter()
            case "request_hold":
                out.send(self.registry, RequestHold(self.lease + 1 if self.lapses >= 0 else 0))

    def on_timeout(self, name: str, out: Out[Any]) -> None:
        """The lease has run out."""
        self.lapses -= 1
        self.may_hold = False
        out.send(self.registry, Lapsed(self.lease))
        if self.participant.has:
            self.lose(out)
        self.settle(out)

    def lose(self, out: Out[Any]) -> None:
        self.participant.want, self.participant.has = None, False
        out.idle()

    def events(self) -> list[str]:
        return ["lapse"] if self.lapses > 0 and self.may_hold and not self.leaving and not self.joining else []

    # -- what comes ----------------------------------------------------------------------------------

    def receive(self, source: NodeId, message: Any, out: Out[Any]) -> None:
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

    def on_inner(self, source: NodeId, message: Inner, out: Out[Any]) -> None:
        match self.view_change.fate(message.epoch):
            case "deliver":
                self.participant.receive(
                    self.view_change.number(source), message.clock, message.message, Door(self, out)
                )
                self.settle(out)
            case "wait":
                self.waiting = tuple(sorted((*self.waiting, (source, message)), key=repr))

    def on_decided(self, epoch: int, members: tuple[NodeId, ...], out: Out[Any]) -> None:
        if not self.view_change.learn(epoch, members):
            return
        self.waiting = ()
        if self.view_change.excluded:
            self.on_exclusion(out)
            return
        self.report(out)

    def report(self, out: Out[Any]) -> None:
        """Made once; everybody gets the same."""
        view_change = self.view_change
        mine = Report(view_change.known, view_change.coming, self.participant.held())
        for j in view_change.coming:
            if j != self.me:
                out.send(j, mine)
        self.on_report(self.me, mine, out)

    def on_report(self, source: NodeId, report: Report, out: Out[Any]) -> None:
        if self.view_change.on_report(source, report.epoch, report.held):
            self.begin(out)

    def begin(self, out: Out[Any]) -> None:
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
        """With whom inside the epoch starts here: with those that were reported."""
        return reported

    def on_exclusion(self, out: Out[Any]) -> None:
        """Left out while alive, or on our own wish."""
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


class Registry(State):
    """Decides one view after the other; never wrong about who is dead."""

    me: NodeId
    epoch: int
    members: tuple[NodeId, ...]
    dead: frozenset[NodeId] = frozenset()
    believers: frozenset[tuple[NodeId, int]] = frozenset()  # and the number of the promise
    stops: int = 0
    renewals: int = 0

    def receive(self, source: NodeId, message: Any, out: Out[Any]) -> None:
        match message:
            case Died():
                self.dead |= {source}
                self.end_holding(source)
                if source in self.members:
                    self.decide(tuple(j for j in self.members if j != source), (), out)
            case Join(epoch):
                # A joiner that crashed meanwhile, or that a view has taken in since.
                if source not in self.dead and (source not in self.members or epoch >= self.epoch):
                    self.decide(tuple(sorted({*self.members, source})), (), out)
            case Leave():
                if source in self.members:
                    self.decide(tuple(j for j in self.members if j != source), (source,), out)
            case RequestHold(number):
                if self.may_hold(source):
                    self.end_holding(source)
                    self.believers |= {(source, number)}
                    out.send(source, Open(number))
                else:
                    out.send(source, Shut(self.epoch, self.members))
            case Lapsed(number):
                self.believers -= {(source, number)}
            case _:
                raise AssertionError(f"{message} for the registry")

    def may_hold(self, source: NodeId) -> bool:
        return source in self.members

    def end_holding(self, member: NodeId) -> None:
        self.believers = frozenset(entry for entry in self.believers if entry[0] != member)

    def on_timeout(self, name: str, out: Out[Any]) -> None:
        if name == "renew":
            self.renewals -= 1
            self.decide(self.members, (), out)
        else:
            stopped = int(name.removeprefix("stopped "))
            self.stops -= 1
            self.decide(tuple(j for j in self.members if j != stopped), (stopped,), out)

    def decide(self, members: tuple[NodeId, ...], too: tuple[NodeId, ...], out: Out[Any]) -> None:
        self.epoch, self.members = self.epoch + 1, members
        for j in (*members, *too):
            out.send(j, NewView(self.epoch, members))

    def events(self) -> list[str]:
        renew = ["renew"] if self.renewals else []
        believers = self.protected()
        stopped = [j for j in self.members if j not in believers and len(self.members) > 1]
        return renew + ([f"stopped {j}" for j in stopped] if self.stops else [])

    def protected(self) -> frozenset[NodeId]:
        return frozenset(j for j, _ in self.believers)


class Group(Struct, frozen=True):
    """What is explored: who there is at the start, and what may change."""

    algorithm: AlgorithmSpec
    members: int = 3
    joiners: int = 0
    leavers: tuple[NodeId, ...] = ()
    crashes: int = 0
    stops: int = 0
    renewals: int = 0
    lapsers: tuple[NodeId, ...] = ()  # whose lease may end, once; with leases everybody has one at first
    entries: tuple[int, ...] = ()  # of the members and the joiners; the default is one each
    member: type[Member] = Member
    decider: type[Registry] = Registry
    fifo: bool = False

    @property
    def name(self) -> str:
        return f"views of {self.algorithm.name}"

    def with_algorithm(self, spec: AlgorithmSpec) -> Group:
        return replace(self, algorithm=spec)

    # What a `Model` asks of the algorithm that it runs.
    form: ClassVar[str] = "views"
    options: ClassVar[Mapping[str, Any]] = {}

    @property
    def needs(self) -> Needs:
        return Needs(modes=self.algorithm.needs.modes)

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(range(1, self.members + self.joiners + 1))

    @property
    def registry(self) -> NodeId:
        return len(self.nodes) + 1

    def start(self, me: NodeId, shape: Any, inside: Inside = NOBODY) -> Any:
        first = tuple(range(1, self.members + 1))
        if me == self.registry:
            believers = frozenset((j, 0) for j in first) if self.lapsers else frozenset()
            return self.decider(me, 1, first, frozenset(), believers, self.stops, self.renewals)
        participant, view_change = self.member.participants(), self.member.views(me)
        if me in first:
            view_change = self.member.views(me, 1, first, 1, first)
            participant.start(self.algorithm, me, len(first), HOME, NOBODY)
        may_hold = not self.stops or (bool(self.lapsers) and me in first)
        return self.member(
            me,
            self.registry,
            self.algorithm,
            view_change,
            participant,
            may_hold,
            int(me in self.lapsers) if self.lapsers else -1,
        )

    def blamed(self, what: str) -> Any:
        return self.algorithm.blamed(what)


class Views(Model):
    """A group whose views change, as a model to search."""

    def __init__(self, group: Group) -> None:
        self.group = group
        first = tuple(range(1, group.members + 1))
        shapes = {j: Members(first, 1) for j in group.nodes} | {group.registry: Members((group.registry,), 1)}
        entries = group.entries or (1,) * len(group.nodes)
        spec: Any = group
        super().__init__(
            spec, shapes, (*entries, 0), crashes=group.crashes, leavers=group.leavers, fifo=group.fifo, at_once=True
        )

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        steps = super().own_steps(at, local)
        if local.where not in ("outside", "gone"):
            steps += [("timeout", event) for event in local.algorithm.events()]
        return steps

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        if detail == "lapse" and local.where == "inside":
            # What is lost was not released: the node goes from inside to idle at once.
            after, sends, entered = super().run(at, local._replace(where="ending"), what, detail)
            column = self.columns[at]
            if column.locals[after].where == "ending":
                after = column.local(column.locals[after]._replace(where="inside"))
            return after, sends, entered
        return super().run(at, local, what, detail)

    def of_interest(self, at: int, number: int, inbox: Inbox) -> Inbox:
        column = self.columns[at]
        member, letters = column.locals[number].algorithm, column.letters
        if self.fifo or not isinstance(member, Member):
            return inbox
        return tuple(letter for letter in inbox if not member.ignores(letters[letter].message))

    def may_crash(self, at: int, local: Local) -> bool:
        return self.nodes[at] != self.group.registry and local.where not in ("outside", "gone")

    def last_words(self, node: NodeId) -> list[tuple[NodeId, Wire]]:
        return [(self.group.registry, Died())]


def properties(model: Model) -> list[Property]:
    return [
        MutualExclusion(model), Deadlock(model), NoAssertionFails(model),
        SomebodyWaitsWhileAnotherIsInside(model), EverybodyEnters(model),
    ]  # fmt: skip


def explore(
    group: Group, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Search, Outcome, dict[str, str]]:
    model = Views(group)
    checks = Checks(properties(model))
    search = Search(model, checks)
    outcome = search.run(max_states, progress=progress)
    return search, outcome, checks.verdicts(outcome.violated, outcome.finished)


_SK = choose("suzuki-kasami-a")
_RA = choose("ricart-agrawala")
_RW = choose("ricart-agrawala-rw")
CLEAN = (
    ("3 members, 2 crashes", Group(_SK, crashes=2)),
    ("3 members, a crash and a renewal", Group(_SK, crashes=1, renewals=1)),
    ("3 members, 2 renewals", Group(_SK, renewals=2)),
    ("3 members, a crash and a leaver", Group(_RA, crashes=1, leavers=(3,))),
    ("2 members, a joiner, a crash", Group(_SK, members=2, joiners=1, crashes=1)),
    ("3 members, one is excluded and comes back", Group(_SK, stops=1)),
    ("3 readers and writers, a renewal", Group(_RW, renewals=1)),
    ("3 members with leases, one is excluded and comes back", Group(_SK, stops=1, lapsers=(1, 2))),
    ("3 members with leases, one ends, a renewal", Group(_SK, renewals=1, lapsers=(1,))),
    ("3 members with leases, a crash, one is excluded", Group(_SK, crashes=1, stops=1, lapsers=(1,))),
)
DEEP = (
    ("3 members, 2 renewals, permissions", Group(_RA, renewals=2)),
    ("3 members, a crash and a renewal, permissions", Group(_RA, crashes=1, renewals=1)),
    ("3 members, a joiner", Group(_SK, joiners=1)),
    ("3 members, one is excluded and comes back, permissions", Group(_RA, stops=1)),
    ("3 members with leases, one is excluded and comes back, permissions", Group(_RA, stops=1, lapsers=(1, 2))),
    ("3 members with leases, two ends, 2 renewals", Group(_SK, renewals=2, lapsers=(1, 2))),
)
