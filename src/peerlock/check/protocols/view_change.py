"""The view change, explored: `ViewChange` and `Participant` as they ship, in every interleaving.

A `Member` is a node with one lock (`view_member`). The network may deliver in any order, so what a
session adds (order, no loss) is not relied on, except that nothing is lost. The registry is one
more node, numbered after all members. It decides views one after the other, and hears

- of a crash, at any time after it (`last_words`): detection is late but never wrong, as with the
  kernel's record locks;
- of joiners and leavers, which ask it;
- and may, `stops` times, exclude a member that is alive but does not believe to hold anything: a
  stopped process. That is what `may_hold` is for: a member believes only after the registry has
  noted it, and a noted member is not excluded.
- With leases (`lapsers`) all members are noted at first. A lease ends at any time; what is held
  then is lost. The registry's promise ends at any time after that (`Lapsed` is under way):
  `peerlock.check.protocols.quorum` shows that voters keep this order.
- It may also, `renewals` times, decide a view with the same members.

An incarnation that is restarted is a joiner with another number. A member that was excluded while
alive joins again: the number stays, everything else is dropped.

`peerlock.check.protocols.view_mutants` takes each rule of `peerlock.node.membership.view_change`
away in turn.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from msgspec import Struct
from msgspec.structs import replace

from peerlock.algorithms import AlgorithmSpec, choose
from peerlock.check.model import Detail, Done, Inbox, Local, Model
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import Deadlock, EachNodeEnters, MutualExclusion, OneWaitsWhileAnotherIsInside
from peerlock.check.protocols.protocol_model import Explored, apart, explored
from peerlock.check.protocols.view_member import (
    HOME,
    Died,
    Join,
    Lapsed,
    Leave,
    Member,
    NewView,
    Open,
    RequestHold,
    Shut,
)
from peerlock.check.search import Progress
from peerlock.contract import NOBODY, Inside, Members, Needs, NodeId, Out, Shape, State, Wire


class Registry(State):
    """Decides one view after the other; a node that it takes for dead is dead."""

    me: NodeId
    epoch: int
    members: tuple[NodeId, ...]
    dead: frozenset[NodeId] = frozenset()
    believers: frozenset[tuple[NodeId, int]] = frozenset()  # and the number of the promise
    stops: int = 0
    renewals: int = 0

    def receive(self, source: NodeId, message: Wire, out: Out[Wire]) -> None:
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

    def on_timeout(self, name: str, out: Out[Wire]) -> None:
        if name == "renew":
            self.renewals -= 1
            self.decide(self.members, (), out)
        else:
            stopped = int(name.removeprefix("stopped "))
            self.stops -= 1
            self.decide(tuple(j for j in self.members if j != stopped), (stopped,), out)

    def decide(self, members: tuple[NodeId, ...], too: tuple[NodeId, ...], out: Out[Wire]) -> None:
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
    """What is explored: the nodes at the start, and what may change."""

    algorithm: AlgorithmSpec
    members: int = 3
    joiners: int = 0
    leavers: tuple[NodeId, ...] = ()
    crashes: int = 0
    stops: int = 0
    renewals: int = 0
    lapsers: tuple[NodeId, ...] = ()  # members whose lease may end, once; with leases all have one at first
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
    @property
    def form(self) -> str:
        return "views"

    @property
    def needs(self) -> Needs:
        return Needs(modes=self.algorithm.needs.modes)

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(range(1, self.members + self.joiners + 1))

    @property
    def registry(self) -> NodeId:
        return len(self.nodes) + 1

    def start(self, me: NodeId, shape: Shape, inside: Inside = NOBODY) -> Member | Registry:
        first = tuple(range(1, self.members + 1))
        if me == self.registry:
            believers = frozenset((j, 0) for j in first) if self.lapsers else frozenset()
            return self.decider(me, 1, first, frozenset(), believers, self.stops, self.renewals)
        participant, view_change = self.member.participants(), self.member.views(me)
        if me in first:
            view_change = self.member.views(me, 1, first, 1, first)
            participant.start(self.algorithm, me, len(first), HOME, NOBODY)
        may_hold = not self.stops or (bool(self.lapsers) and me in first)
        lapses = int(me in self.lapsers) if self.lapsers else -1
        return self.member(me, self.registry, self.algorithm, view_change, participant, may_hold, lapses)

    def blamed(self, what: str) -> AbstractContextManager[None]:
        return self.algorithm.blamed(what)


class Views(Model):
    """A group whose views change, as a model to search."""

    def __init__(self, group: Group) -> None:
        self.group = group
        first = tuple(range(1, group.members + 1))
        shapes = {j: Members(first, 1) for j in group.nodes} | apart([group.registry])
        entries = group.entries or (1,) * len(group.nodes)
        super().__init__(
            group, shapes, (*entries, 0), crashes=group.crashes, leavers=group.leavers, fifo=group.fifo, at_once=True
        )

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        steps = super().own_steps(at, local)
        if local.where not in ("outside", "gone"):
            steps += [("timeout", event) for event in local.algorithm.events()]
        return steps

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        if detail != "lapse" or local.where != "inside":
            return super().run(at, local, what, detail)
        # What is lost was not released: the node goes from inside to idle at once.
        after, sends, entered = super().run(at, local._replace(where="ending"), what, detail)
        column = self.columns[at]
        if column.locals[after].where == "ending":
            after = column.local(column.locals[after]._replace(where="inside"))
        return after, sends, entered

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


def explore(group: Group, max_states: int | None = None, progress: Progress | None = None) -> Explored:
    model = Views(group)
    properties = [
        MutualExclusion(model), Deadlock(model), NoAssertionFails(model),
        OneWaitsWhileAnotherIsInside(model), EachNodeEnters(model),
    ]  # fmt: skip
    return explored(model, properties, max_states, progress)


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
