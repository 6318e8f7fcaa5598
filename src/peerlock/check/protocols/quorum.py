"""The voters, explored: the very `Voter` and `QuorumMember` that ship, in every interleaving.

Three voters decide who the members are. One member, `m`, beats and has a lease; the other, `a`, is always supported
for, and stands for the rest of the group. What is sent may arrive at any time, any number of times, or never: letters
stay where they are when they are delivered. Voters are restarted (what is not in their record is forgotten), or die
for good.

Time is nothing but the order of events. Promises and leases end whenever they may, and one thing is certain: a
promise ends after the leases that rest on it (`peerlock.node.membership.lease` has the clocks). The observer `Truth` keeps that
order. It also knows what no node knows: which views were decided, and whether `m` believes. Two views of one epoch,
or `m` believing while some view without it is decided, are violations.

That the voters never block each other for ever is a question of its own (`Progress`): from every state, as long as
another ballot may be started and a majority is up, some way leads to a decision. There `m` is as obstinate as it can
be: a promise to it ends only where it is not renewed, or where `m` is cut off.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from peerlock.check.liveness import Graph
from peerlock.check.model import Detail, Done, Inbox, Local, Model
from peerlock.check.observers import FORBIDDEN, Event, Observer
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import Bad, Checks, Property, Sums
from peerlock.check.search import Outcome, Progress, Search
from peerlock.contract import Members, Needs, NodeId, State
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.messages import (
    Accept,
    Accepted,
    Heartbeat,
    HeartbeatAck,
    NotYet,
    Prepare,
    Promise,
    Refused,
    ViewDecided,
)
from peerlock.node.quorum.voter import EVERYBODY, Voter

M: Any = "m"  # members and voters have short names here
Z: Any = "a"
JOINER: Any = "m'"  # somebody else, with the name of m
D = 1.0  # and it is always 0 o'clock: what ends does so by an event


class Group(Struct, frozen=True):
    """What is explored."""

    ballots: int = 3
    leased: bool = True  # m has a lease at first, which rests on its first beat
    heartbeats: int = 0  # of m, after that
    restarts: int = 0
    crashes: int = 0
    apart: bool = False  # m and a cannot reach each other: voter 1 knows
    leaves: bool = False  # m may leave
    joins: bool = False  # somebody wants in: voters 2 and 3 know
    renews: bool = True  # somebody wants a view with the same members: every voter knows
    changes: int = 1  # epochs that may be decided
    replaces: bool = False  # voter 4 is to take the place of voter 3: voter 1 is told so
    returns: bool = False  # and later voter 3 in the place of voter 4 again
    gives_up: bool = False  # a voter may give up its ballot at any time, and start another
    old_wish: bool = False  # what m said when it wanted in is still under way, and may come again
    cut: tuple[NodeId, ...] = ()  # voters that m cannot reach: their promises to it have run out
    obstinate: bool = False
    only_if_it_must: bool = False  # voters propose when they `wants()`, not at any time
    voter: type[Voter] = Voter
    member: type[QuorumMember] = QuorumMember
    lease: type[Lease] = Lease

    name: ClassVar[str] = "voters"
    form: ClassVar[str] = "views"
    needs: ClassVar[Needs] = Needs()

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return (1, 2, 3, 4) if self.replaces else (1, 2, 3)

    @property
    def m(self) -> NodeId:
        return len(self.voters) + 1

    @property
    def first(self) -> View:
        names: Any = ((1, ""), (2, ""), (3, ""))
        members: Any = (M, Z)
        return View(1, members, names, 1)

    def start(self, me: NodeId, shape: Any, inside: Any = None) -> Any:
        first, z, m = self.first, (Z, D), (M, D)
        if me == self.m:
            member: Any = M
            lease = self.lease(D, 1, D, 1) if self.leased else self.lease(D)
            return MemberNode(self, self.member(member, lease, first, ""), self.heartbeats, self.leaves, self.old_wish)
        name: Any = me
        if me == 4:
            nobody = View(0, (), (), 0)
            return VoterNode(me, self, self.voter(name, D, nobody, supported=()))
        supported: Any = (m, z) if self.leased and me not in self.cut else (z,)
        made = self.voter(name, D, first, supported=supported, renew=self.renews)
        if self.apart and me == 1:
            pair: Any = ((Z, M),)
            made.apart = pair
        if self.joins and me in (2, 3):
            joiner: Any = JOINER
            made.joiners, made.supported = (joiner,), ((JOINER, D), *supported)
        if self.replaces and me == 1:
            others: Any = ((1, ""), (2, ""), (4, ""))
            made.wanted = others
        return VoterNode(me, self, made)

    def blamed(self, what: str) -> Any:
        import contextlib

        return contextlib.nullcontext()


class Mouth:
    """What a voter or a member says, as letters."""

    def __init__(self, group: Group, out: Any) -> None:
        self.group, self.out = group, out
        self.views: list[View] = []

    def send(self, to: Any, message: Any) -> None:
        self.out.send(to, message)

    def answer(self, peer: Any, ack: HeartbeatAck) -> None:
        if peer == M:
            self.out.send(self.group.m, ack)

    def decided(self, view: View) -> None:
        """m is not told: a member that does not know that it is excluded is the more dangerous."""

    def learned(self, view: View) -> None:
        pass

    def leased(self, until: float) -> None:
        pass

    def comes_back(self) -> None:
        pass


class VoterNode(State):
    me: NodeId
    group: Any  # not part of the state
    voter: Voter
    waits: bool = False  # it was restarted, and supports every member
    restarted: int = 0

    def __copy__(self) -> Self:
        made = super().__copy__()  # type: ignore[misc]
        made.voter = self.voter.__copy__()  # type: ignore[attr-defined]
        return made  # type: ignore[no-any-return]

    def key(self) -> tuple[Any, ...]:
        return (*astuple(self.voter), self.restarted)

    def receive(self, source: NodeId, message: Any, out: Any) -> None:
        mouth = Mouth(self.group, out)
        if isinstance(message, Heartbeat):
            self.voter.on_heartbeat(message, 0.0, mouth)
        else:
            name: Any = source
            self.voter.receive(name, message, 0.0, mouth)

    def on_timeout(self, name: str, out: Any) -> None:
        mouth = Mouth(self.group, out)
        if name == "propose":
            self.voter.propose(0.0, mouth)
        elif name == "give up":
            self.voter.give_up()
        elif name == "order":
            others: Any = ((1, ""), (2, ""), (3, ""))
            self.voter.wanted = others
        elif name == "restart":
            self.voter = self.restart()
            self.restarted += 1
        else:
            who: Any = EVERYBODY if name == "waited" else name.removeprefix("promise to ")
            self.voter.ran_out(who)
            self.voter.again(0.0, mouth)

    def restart(self) -> Voter:
        return type(self.voter).restarted(self.voter.me, D, self.voter.record, 0.0)

    def events(self) -> list[str]:
        voter, group = self.voter, self.group
        if voter.decided.epoch > group.changes or not voter.votes_here:
            return []
        found = []
        if voter.ballot and not voter.value and group.gives_up:
            found.append("give up")
        if not voter.ballot and (voter.wants(_unvouched(voter)) if group.only_if_it_must else True):
            found.append("propose")
        for peer, _ in voter.supported:
            if peer is EVERYBODY:
                found.append("waited")
            elif peer == M and peer is not None:
                may_renew = self.me not in group.cut and not voter.refuses(Heartbeat(0, peer, voter.decided.epoch))
                if not (group.obstinate and may_renew):
                    found.append(f"promise to {peer}")
        if group.returns and self.me == 1 and voter.decided.epoch == 2 and not voter.wanted:
            found.append("order")
        if self.restarted < group.restarts:
            found.append("restart")
        return found

    def ignores(self, source: Any, message: Any) -> bool:
        """Whatever happens: this changes nothing here any more, and nobody needs the answer."""
        voter = self.voter
        epoch = voter.decided.epoch
        match message:
            case ViewDecided(view):
                return view.epoch <= epoch
            case Prepare(decided, ballot) | Accept(decided, ballot):
                refused = decided.epoch == epoch and ballot < voter.promised
                return decided.epoch < epoch or (refused and not self.group.only_if_it_must)
            case Promise(of, ballot):
                return not voter.is_ours(of, ballot) or voter.value is not None or source in dict(voter.answers)
            case Accepted(of, ballot):
                return not voter.is_ours(of, ballot) or source in voter.votes
            case Refused(of, ballot):
                return not voter.is_ours(of, ballot)
            case NotYet():
                return True
        return False


def _unvouched(voter: Voter) -> tuple[Any, ...]:
    return tuple(peer for peer in voter.decided.members if not voter.supports(peer))


class MemberNode(State):
    group: Any  # not part of the state
    member: QuorumMember
    heartbeats: int
    leaves: bool
    old_wish: bool

    def __copy__(self) -> Self:
        made = super().__copy__()  # type: ignore[misc]
        made.member = self.member.__copy__()
        return made  # type: ignore[no-any-return]

    def key(self) -> tuple[Any, ...]:
        member = self.member
        return (*astuple(member.lease), member.view, member.wish, self.heartbeats, self.leaves, self.old_wish)

    def receive(self, source: NodeId, message: Any, out: Any) -> None:
        self.member.on_heartbeat_ack(source, message, 0.0, Mouth(self.group, out))

    def on_timeout(self, name: str, out: Any) -> None:
        mouth = Mouth(self.group, out)
        if name == "old wish":
            self.old_wish = False
            for voter in (1, 2, 3):
                mouth.send(voter, Heartbeat(0, self.member.me, 0, "join"))
        elif name == "heartbeat":
            self.heartbeats -= 1
            self.member.heartbeat(0.0, mouth)
        elif name == "lapse":
            self.member.lease.end()
        else:
            self.leaves = False
            self.member.leave(0.0, mouth)

    def events(self) -> list[str]:
        member = self.member
        found = ["heartbeat"] if self.heartbeats and member.is_member else []
        found += ["lapse"] if member.lease.runs(0.0) else []
        found += ["old wish"] if self.old_wish else []
        return found + (["leave"] if self.leaves and member.is_member else [])

    def ignores(self, source: NodeId, message: Any) -> bool:
        member = self.member
        old = message.view is None or message.view.epoch <= member.view.epoch
        by = dict(member.lease.confirmed).get(message.number)
        return old and (not message.ok or by is None or source in by)


class Truth(Observer):
    """What no node knows: which views were decided, and whether m believes. And the one thing that is certain about time."""

    def __init__(self, group: Group) -> None:
        self.group = group
        # The beat that m's lease rests on (0: none), the newest that cannot be confirmed in time any more; for each
        # voter the newest
        # beat of m that its promise is for; the views decided; what went wrong.
        first = int(group.leased)
        self.start = (first, 0, tuple(0 if v in group.cut or v == 4 else first for v in group.voters), (), "")

    def wants(self, event: Event) -> bool:
        return event[0] in ("supported", "everybody", "ran out", "leased", "lapsed", "decided")

    def step(self, state: Any, events: tuple[Event, ...]) -> Any:
        rests, over, promises, decided, wrong = state
        for what, who, detail in events:
            match what:
                case "supported":
                    promises = _at(promises, who, max(promises[who - 1], detail))
                case "everybody":
                    # D from now: then all leases are over that rest on what anybody has promised until now.
                    promises = _at(promises, who, max(*promises, rests))
                case "ran out":
                    if rests and rests <= promises[who - 1]:
                        return FORBIDDEN
                    over, promises = max(over, promises[who - 1]), _at(promises, who, 0)
                case "leased":
                    if detail <= over:
                        return FORBIDDEN  # m's own clock says that it came too late
                    rests = detail
                case "lapsed":
                    rests = 0
                case "decided":
                    known = dict(decided)
                    if known.get(detail.epoch, detail) != detail:
                        wrong = "two views of one epoch"
                    decided = tuple(sorted({**known, detail.epoch: detail}.items()))
                    views = [M in view.members for _, view in decided]
                    if True in views[views.index(False) :] if False in views else False:
                        wrong = wrong or "one that was excluded is a member again"
        if rests and any(M not in view.members for _, view in decided):
            wrong = wrong or "it believes and is excluded"
        return rests, over, promises, decided, wrong


def _at(row: tuple[int, ...], who: NodeId, value: int) -> tuple[int, ...]:
    return (*row[: who - 1], value, *row[who:])


class Budget(Observer):
    """So many ballots, restarts and crashes in all."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.start = what, most

    def wants(self, event: Event) -> bool:
        return bool(event[0] == self.what)

    def step(self, state: Any, events: tuple[Event, ...]) -> Any:
        return state - 1 if state else FORBIDDEN


class Ballots(Model):
    """Voters and a member as a model to search. A letter that is delivered stays: it may come again."""

    def __init__(self, group: Group) -> None:
        self.group = group
        chosen: Any = group
        nodes = (*group.voters, group.m)
        shapes = {node: Members((node,), 1) for node in nodes}
        super().__init__(
            chosen, shapes, (0,) * len(nodes), crashes=group.crashes,
            observers=(Truth(group), Budget("proposed", group.ballots), Budget("restarted", group.restarts)),
        )  # fmt: skip

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        return [("timeout", event) for event in local.algorithm.events()]

    def _deliverable(self, inbox: Inbox) -> list[tuple[int, Inbox]]:
        return [(letter, inbox) for letter in inbox]

    def of_interest(self, at: int, number: int, inbox: Inbox) -> Inbox:
        column = self.columns[at]
        node, letters = column.locals[number].algorithm, column.letters
        return tuple(
            letter for letter in sorted(set(inbox)) if not node.ignores(letters[letter].source, letters[letter].message)
        )

    def may_crash(self, at: int, local: Local) -> bool:
        return self.nodes[at] != self.group.m

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        before = local.algorithm
        after, sends, entered = super().run(at, local, what, detail)
        return (
            after,
            sends + self._told(self.seen(at, before, self.columns[at].locals[after].algorithm, what, detail)),
            entered,
        )

    def seen(self, at: int, before: Any, after: Any, what: str, detail: Any) -> list[Event]:
        """What the observers are told of a step: how a node was before it and after it."""
        node = self.nodes[at]
        events: list[Event] = []
        if isinstance(before, MemberNode):
            old, new = before.member.lease, after.member.lease
            if new.rests_on and new.rests_on != old.rests_on:
                events.append(("leased", node, new.rests_on))
            elif old.rests_on and not new.rests_on:
                events.append(("lapsed", node, 0))
            return events
        if what == "timeout":
            if detail in ("waited", f"promise to {M}"):
                events.append(("ran out", node, 0))
            elif detail == "propose":
                events.append(("proposed", node, 0))
            elif detail == "restart":
                events.append(("restarted", node, 0))
        elif supported(before, detail):
            events.append(("supported", node, detail.message.number))
        if EVERYBODY in dict(after.voter.supported) and EVERYBODY not in dict(before.voter.supported):
            events.append(("everybody", node, 0))
        if after.voter.decided != before.voter.decided:
            events.append(("decided", node, after.voter.decided))
        return events


def supported(before: VoterNode, detail: Any) -> bool:
    """Does the voter promise m anything with this letter?"""
    heartbeat = detail.message
    if not isinstance(heartbeat, Heartbeat) or before.voter.refuses(heartbeat) or heartbeat.wish == "leave":
        return False
    return M in before.voter.decided.members


class NothingIsWrong(Property):
    """One view an epoch, and nobody believes that some view excludes."""

    name = "one view an epoch; who is excluded does not believe"

    def __init__(self, model: Model, observer: type[Observer]) -> None:
        super().__init__(model)
        self.observer = observer

    def look(self, columns: list[Any], enabled: Any) -> Bad:
        at = next(i for i, o in enumerate(self.model.observers, len(self.model.nodes)) if isinstance(o, self.observer))
        column: Any = self.model.columns[at]
        wrong = np.array([bool(column.locals[local][-1]) for local, _ in column.cells])
        return np.asarray(wrong[columns[at]], bool)


class Sometimes(Property):
    """Some run decides, and some run decides without m."""

    sometimes = True

    def __init__(self, model: Model, name: str, without: bool) -> None:
        super().__init__(model)
        self.name, self.without = name, without

    def feature(self, at: int, local: Local, letters: Any) -> int:
        if not isinstance(local.algorithm, VoterNode) or local.algorithm.voter.decided.epoch < 2:
            return 0
        return int(not self.without or M not in local.algorithm.voter.decided.members)

    def bad(self, sums: Sums, enabled: Any) -> Bad:
        return sums > 0


def properties(model: Model) -> list[Property]:
    return [
        NothingIsWrong(model, Truth), NoAssertionFails(model),
        Sometimes(model, "a view is decided", False), Sometimes(model, "a view without m is decided", True),
    ]  # fmt: skip


def explore(
    group: Group, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Search, Outcome, dict[str, str]]:
    model = Ballots(group)
    checks = Checks(properties(model))
    search = Search(model, checks)
    outcome = search.run(max_states, progress=progress)
    return search, outcome, checks.verdicts(outcome.violated, outcome.finished)


def stuck(search: Search) -> int:
    """States in which a voter holds something back until an epoch is decided, a ballot is left, and no way leads to
    a decision.
    """
    graph, model = Graph(search), search.model
    rows = [np.concatenate([search.rows(level, slice(None))[at] for level in search.levels])[graph.order]
            for at in range(len(model.columns))]  # fmt: skip
    voters = [at for at, node in enumerate(model.nodes) if node in model.group.voters]  # type: ignore[attr-defined]

    def of(at: int, test: Any) -> Any:
        values = np.array([test(model.local(at, cell)) for cell in range(len(model.columns[at].cells))])
        return values[rows[at]]

    alive = [of(at, lambda local: local.where != "crashed") for at in voters]
    holds_back = lambda local: local.algorithm.voter.accepted is not None or bool(local.algorithm.voter.suspected)  # noqa: E731
    pending = [of(at, holds_back) for at in voters]
    epochs = [of(at, lambda local: local.algorithm.voter.decided.epoch) for at in voters]
    ballots_at = next(
        i for i, o in enumerate(model.observers, len(model.nodes)) if isinstance(o, Budget) and o.what == "proposed"
    )
    column = model.columns[ballots_at]
    left = np.array([column.locals[local] for local, _ in column.cells])[rows[ballots_at]]
    total = 0
    for at in range(len(voters)):
        held = alive[at] & pending[at] & (left > 0)
        good = epochs[at] >= 2
        reaches = _backwards(good, graph.source, graph.target)
        total += int((held & ~reaches).sum())
    return total


def _backwards(good: Any, source: Any, target: Any) -> Any:
    """From which states a good one can be reached."""
    reaches = good.copy()
    while True:
        new = source[reaches[target] & ~reaches[source]]
        if not len(new):
            return reaches
        reaches[new] = True
