"""The voters, explored: the very `Voter` and `QuorumMember` that ship, in every interleaving.

Three voters decide which peers are members. One member, `m`, sends heartbeats and has a lease; the
other, `a`, is always supported, and stands for the rest of the group. A message may arrive at any
time, any number of times, or never: letters stay where they are when they are delivered. Voters are
restarted (what is not in their record is forgotten), or die for good.

Time is nothing but the order of events. Promises and leases end whenever they may, and one thing is
certain: a promise ends after the leases that rest on it (`peerlock.node.membership.lease` has the
clocks). The observer `Truth` keeps that order. It also knows what no node knows: which views were
decided, and whether `m` believes that it may hold. Two views of one epoch, or `m` believing while
some view without it is decided, are violations.

That the voters never block each other for ever is a question of its own (`stuck`): from every
state, as long as another ballot may be started and a majority is up, some way leads to a decision.
There `m` is as obstinate as it can be: a promise to it ends only where it is not renewed, or where
`m` is cut off.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import Self, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace

from peerlock.check.liveness import Graph, Indices
from peerlock.check.model import Detail, Inbox, Letter, Local
from peerlock.check.observers import FORBIDDEN, Budget, Event, Observer
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import Bad, Property
from peerlock.check.protocols.protocol_model import (
    Explored,
    NothingIsWrong,
    Post,
    ProtocolGroup,
    ProtocolModel,
    Sometimes,
    apart,
    explored,
)
from peerlock.check.search import Progress, Search
from peerlock.contract import NOBODY, Inside, Key, NodeId, Shape
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.messages import (
    Accept,
    Accepted,
    Ballot,
    Heartbeat,
    HeartbeatAck,
    NotYet,
    Prepare,
    Promise,
    Refused,
    ViewDecided,
)
from peerlock.node.quorum.voter import EVERYBODY, Voter

# The joiner has the name of m, and is another peer.
M, Z, JOINER = Peer("m", 1, pid=1), Peer("a", 2), Peer("m", 3, pid=3)
D = 1.0  # and it is always 0 o'clock: what ends does so by an event
Voters: TypeAlias = tuple[tuple[str, str], ...]
Truths: TypeAlias = tuple[int, int, tuple[int, ...], tuple[tuple[int, View], ...], str]


def voters(*names: NodeId) -> Voters:
    return tuple((str(name), "") for name in names)


class Group(ProtocolGroup, frozen=True):
    """What is explored."""

    ballots: int = 3
    leased: bool = True  # m has a lease at first, which rests on its first beat
    heartbeats: int = 0  # of m, after that
    restarts: int = 0
    crashes: int = 0
    apart: bool = False  # m and a cannot reach each other: voter 1 knows
    leaves: bool = False  # m may leave
    joins: bool = False  # the joiner wants in: voters 2 and 3 know
    renews: bool = True  # a member wants a view with the same members: every voter knows
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

    @property
    def name(self) -> str:
        return "voters"

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return (1, 2, 3, 4) if self.replaces else (1, 2, 3)

    @property
    def m(self) -> NodeId:
        return len(self.voters) + 1

    def start(self, me: NodeId, shape: Shape, inside: Inside = NOBODY) -> VoterNode | MemberNode:
        first = View(1, (M, Z), voters(1, 2, 3), 1)
        if me == self.m:
            lease = self.lease(D, 1, D, 1) if self.leased else self.lease(D)
            return MemberNode(self, self.member(M, lease, first, ""), self.heartbeats, self.leaves, self.old_wish)
        if me == 4:
            return VoterNode(me, self, self.voter(str(me), D, View(0, (), (), 0), supported=()))
        supported = ((M, D), (Z, D)) if self.leased and me not in self.cut else ((Z, D),)
        made = self.voter(str(me), D, first, supported=supported, renew=self.renews)
        if self.apart and me == 1:
            made.apart = ((Z, M),)
        if self.joins and me in (2, 3):
            made.joiners, made.supported = (JOINER,), ((JOINER, D), *supported)
        if self.replaces and me == 1:
            made.wanted = voters(1, 2, 4)
        return VoterNode(me, self, made)


class Output:
    """What a voter or a member says, as letters."""

    def __init__(self, group: Group, out: Post) -> None:
        self.group, self.out = group, out

    def send(self, to: str, message: Ballot | Heartbeat) -> None:
        self.out.send(int(to), message)

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None:
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


class VoterNode(Struct):
    me: NodeId
    group: Group  # not part of the state
    voter: Voter
    waits: bool = False  # it was restarted, and supports every member
    restarted: int = 0

    def __copy__(self) -> Self:
        return replace(self, voter=copy(self.voter))

    def key(self) -> Key:
        return (*astuple(self.voter), self.restarted)

    def receive(self, source: NodeId, message: Ballot | Heartbeat, out: Post) -> None:
        output = Output(self.group, out)
        if isinstance(message, Heartbeat):
            self.voter.on_heartbeat(message, 0.0, output)
        else:
            self.voter.receive(str(source), message, 0.0, output)

    def on_timeout(self, name: str, out: Post) -> None:
        output = Output(self.group, out)
        if name == "propose":
            self.voter.propose(0.0, output)
        elif name == "give up":
            self.voter.give_up()
        elif name == "order":
            self.voter.wanted = voters(1, 2, 3)
        elif name == "restart":
            self.voter = self.restart()
            self.restarted += 1
        else:
            self.voter.ran_out(EVERYBODY if name == "waited" else M)
            self.voter.again(0.0, output)

    def restart(self) -> Voter:
        return type(self.voter).restarted(self.voter.me, D, self.voter.record, 0.0)

    def events(self) -> list[str]:
        voter, group = self.voter, self.group
        if voter.decided.epoch > group.changes or not voter.votes_here:
            return []
        found = []
        if voter.ballot and not voter.value and group.gives_up:
            found.append("give up")
        if not voter.ballot and (voter.wants(_unsupported(voter)) if group.only_if_it_must else True):
            found.append("propose")
        for peer, _ in voter.supported:
            if peer is EVERYBODY:
                found.append("waited")
            elif peer == M:
                may_renew = self.me not in group.cut and not voter.refuses(Heartbeat(0, M, voter.decided.epoch))
                if not (group.obstinate and may_renew):
                    found.append("promise to m")
        if group.returns and self.me == 1 and voter.decided.epoch == 2 and not voter.wanted:
            found.append("order")
        if self.restarted < group.restarts:
            found.append("restart")
        return found

    def ignores(self, source: NodeId, message: Ballot | Heartbeat) -> bool:
        """Whatever happens: this changes nothing here any more, and no node needs the answer."""
        voter = self.voter
        epoch = voter.decided.epoch
        match message:
            case ViewDecided(view):
                return view.epoch <= epoch
            case Prepare(decided, ballot) | Accept(decided, ballot):
                refused = decided.epoch == epoch and ballot < voter.promised
                return decided.epoch < epoch or (refused and not self.group.only_if_it_must)
            case Promise(of, ballot):
                return not voter.is_ours(of, ballot) or voter.value is not None or str(source) in dict(voter.answers)
            case Accepted(of, ballot):
                return not voter.is_ours(of, ballot) or str(source) in voter.votes
            case Refused(of, ballot):
                return not voter.is_ours(of, ballot)
            case NotYet():
                return True
        return False


def _unsupported(voter: Voter) -> tuple[Peer, ...]:
    return tuple(peer for peer in voter.decided.members if not voter.supports(peer))


class MemberNode(Struct):
    group: Group  # not part of the state
    member: QuorumMember
    heartbeats: int
    leaves: bool
    old_wish: bool

    def __copy__(self) -> Self:
        return replace(self, member=copy(self.member))

    def key(self) -> Key:
        member = self.member
        return (*astuple(member.lease), member.view, member.wish, self.heartbeats, self.leaves, self.old_wish)

    def receive(self, source: NodeId, message: HeartbeatAck, out: Post) -> None:
        self.member.on_heartbeat_ack(str(source), message, 0.0, Output(self.group, out))

    def on_timeout(self, name: str, out: Post) -> None:
        output = Output(self.group, out)
        if name == "old wish":
            self.old_wish = False
            for voter, _ in voters(1, 2, 3):
                output.send(voter, Heartbeat(0, self.member.me, 0, "join"))
        elif name == "heartbeat":
            self.heartbeats -= 1
            self.member.heartbeat(0.0, output)
        elif name == "lapse":
            self.member.lease.end()
        else:
            self.leaves = False
            self.member.leave(0.0, output)

    def events(self) -> list[str]:
        member = self.member
        found = ["heartbeat"] if self.heartbeats and member.is_member else []
        found += ["lapse"] if member.lease.runs(0.0) else []
        found += ["old wish"] if self.old_wish else []
        return found + (["leave"] if self.leaves and member.is_member else [])

    def ignores(self, source: NodeId, message: HeartbeatAck) -> bool:
        member = self.member
        old = message.view is None or message.view.epoch <= member.view.epoch
        by = dict(member.lease.confirmed).get(message.number)
        return old and (not message.ok or by is None or str(source) in by)


class Truth(Observer):
    """What no node knows: which views were decided, and whether m believes that it may hold.

    It also keeps the one thing that is certain about time.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        # The heartbeat that m's lease rests on (0: none), and the newest that cannot be confirmed
        # in time any more; per voter the newest heartbeat of m that its promise is for; the views
        # decided; what went wrong.
        first = int(group.leased)
        promises = tuple(0 if voter in group.cut or voter == 4 else first for voter in group.voters)
        self.start = (first, 0, promises, (), "")

    def wants(self, event: Event) -> bool:
        return event[0] in ("supported", "everybody", "ran out", "leased", "lapsed", "decided")

    def step(self, state: Truths, events: tuple[Event, ...]) -> Hashable:
        rests, over, promises, decided, wrong = state
        for what, voter, detail in events:
            match what:
                case "supported":
                    promises = _at(promises, voter, max(promises[voter - 1], detail))
                case "everybody":
                    # D from now: then all leases are over that rest on what was promised until now.
                    promises = _at(promises, voter, max(*promises, rests))
                case "ran out":
                    if rests and rests <= promises[voter - 1]:
                        return FORBIDDEN
                    over, promises = max(over, promises[voter - 1]), _at(promises, voter, 0)
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


def _at(promises: tuple[int, ...], voter: NodeId, value: int) -> tuple[int, ...]:
    return (*promises[: voter - 1], value, *promises[voter:])


class Ballots(ProtocolModel):
    """Voters and a member. A letter that is delivered stays: it may come again."""

    def __init__(self, group: Group) -> None:
        self.group = group
        nodes = (*group.voters, group.m)
        super().__init__(
            group, apart(nodes), (0,) * len(nodes), crashes=group.crashes,
            observers=(Truth(group), Budget("proposed", group.ballots), Budget("restarted", group.restarts)),
        )  # fmt: skip

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

    def noticed(self, at: int, before: Struct, after: Struct, detail: Detail) -> list[Event]:
        node = self.nodes[at]
        if isinstance(before, MemberNode) and isinstance(after, MemberNode):
            old, new = before.member.lease.rests_on, after.member.lease.rests_on
            if new and new != old:
                return [("leased", node, new)]
            return [("lapsed", node, 0)] if old and not new else []
        assert isinstance(before, VoterNode) and isinstance(after, VoterNode)
        events: list[Event] = []
        match detail:
            case Letter(_, Heartbeat() as heartbeat) if supports(before.voter, heartbeat):
                events.append(("supported", node, heartbeat.number))
            case "waited" | "promise to m":
                events.append(("ran out", node, 0))
            case "propose":
                events.append(("proposed", node, 0))
            case "restart":
                events.append(("restarted", node, 0))
        if EVERYBODY in dict(after.voter.supported) and EVERYBODY not in dict(before.voter.supported):
            events.append(("everybody", node, 0))
        if after.voter.decided != before.voter.decided:
            events.append(("decided", node, after.voter.decided))
        return events


def supports(voter: Voter, heartbeat: Heartbeat) -> bool:
    """Does the voter promise m anything with this heartbeat?"""
    return not voter.refuses(heartbeat) and heartbeat.wish != "leave" and M in voter.decided.members


def decides(node: Struct) -> bool:
    return isinstance(node, VoterNode) and node.voter.decided.epoch >= 2


def excludes(node: Struct) -> bool:
    return isinstance(node, VoterNode) and node.voter.decided.epoch >= 2 and M not in node.voter.decided.members


def explore(group: Group, max_states: int | None = None, progress: Progress | None = None) -> Explored:
    model = Ballots(group)
    properties: list[Property] = [
        NothingIsWrong(model, Truth), NoAssertionFails(model),
        Sometimes(model, "a view is decided", decides), Sometimes(model, "a view without m is decided", excludes),
    ]  # fmt: skip
    return explored(model, properties, max_states, progress)


def stuck(search: Search) -> int:
    """States in which a voter holds something back until an epoch is decided, a ballot is left, and
    no way leads to a decision.
    """
    graph, model = Graph(search), search.model
    ballots = next(
        at for at, o in enumerate(model.observers, len(model.nodes)) if isinstance(o, Budget) and o.what == "proposed"
    )
    column = model.columns[ballots]
    left = np.array([column.locals[local] for local, _ in column.cells])[graph.cells(ballots)]
    total = 0
    for at in range(len(model.nodes) - 1):
        held = graph.where(at, holds_back) & (left > 0)
        decided = graph.where(at, lambda local: local.algorithm.voter.decided.epoch >= 2)
        total += int((held & ~_backwards(decided, graph.source, graph.target)).sum())
    return total


def holds_back(local: Local) -> bool:
    voter = local.algorithm.voter
    return local.where != "crashed" and (voter.accepted is not None or bool(voter.suspected))


def _backwards(good: Bad, source: Indices, target: Indices) -> Bad:
    """From which states a good one can be reached."""
    reaches = good.copy()
    while True:
        new = source[reaches[target] & ~reaches[source]]
        if not len(new):
            return reaches
        reaches[new] = True
