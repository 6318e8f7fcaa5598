"""Views in a store, explored: the very `StoreMember` that ships, in every interleaving.

`m` has a lease and renews it; others exclude it, mark it, join, or want a view with the same
members; `m` may leave. Requests and answers are late, overtake each other, or never arrive.

As with the voters, time is nothing but the order of events. A lease ends whenever it may. The
patience of another member with a heartbeat of `m` that it has seen ends after the lease that rests
on it: that is what D on two clocks gives. `Truth` keeps that order.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import Self, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

from peerlock.check.model import Detail, Letter
from peerlock.check.observers import FORBIDDEN, Event, Observer
from peerlock.check.properties import Assertions as NoAssertionFails
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
from peerlock.check.search import Progress
from peerlock.contract import NOBODY, Inside, Key, NodeId, Shape
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.member import StoreMember
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Renew, Request, Snapshot, StoredHeartbeat, Swap

D = 1.0  # and it is always 0 o'clock
LONG_AGO = -9.0
M, OTHER, THIRD = Peer("m", 1), Peer("a", 2), Peer("m", 3)  # the third has the name of the first, and is another peer
PEERS = {1: M, 2: OTHER, 3: THIRD}
STORE: NodeId = 4
Answer: TypeAlias = tuple[int, bool, Snapshot]  # the number of the request, was it done, and the store after it
Truths: TypeAlias = tuple[int, int, tuple[tuple[int, int], ...], bool, View, str]


class StoreGroup(ProtocolGroup, frozen=True):
    leased: bool = True  # m has a lease at first
    heartbeats: int = 1  # of m
    view_changes: tuple[int, int] = (1, 1)  # how often the others look after the view
    joins: bool = False  # the third is not a member yet
    leaves: bool = False  # m may leave
    apart: bool = False  # the second cannot reach m
    renews: bool = False  # the third wants a view with the same members
    member: type[StoreMember] = StoreMember
    lease: type[Lease] = Lease
    memory: type[MemoryStore] = MemoryStore

    @property
    def name(self) -> str:
        return "a store"

    @property
    def view(self) -> View:
        return View(1, tuple(sorted((OTHER, M) if self.joins else (OTHER, THIRD, M))))

    def start(self, me: NodeId, shape: Shape, inside: Inside = NOBODY) -> StoreNode | MemberNode:
        view, unreached = self.view, {OTHER: (M.id,)} if self.apart else {}
        members = sorted(view.members, key=lambda peer: peer.id)
        heartbeats = tuple(StoredHeartbeat(peer.id, 1, unreached.get(peer, ())) for peer in members)
        first = Snapshot(2, 2, view, heartbeats)
        if me == STORE:
            return StoreNode(first, self.memory)
        peer = PEERS[me]
        lease = self.lease(D, 1, D, 1) if peer == M and self.leased else self.lease(D)
        seen = tuple((other.id, 1, 0.0) for other in view.members if other != peer)
        member = self.member(peer, lease, first, 1, seen, "", apart=unreached.get(peer, ()), number=1)
        if peer == M:
            return MemberNode(member, self.heartbeats, 0, self.leaves)
        if peer == THIRD:
            member.wish, member.renew = "join" if self.joins else "", 1 if self.renews else -1
        return MemberNode(member, 0, self.view_changes[me - 2], False)


class Output:
    def __init__(self, out: Post) -> None:
        self.out = out

    def ask(self, request: Request) -> None:
        self.out.send(STORE, request)

    def learned(self, view: View) -> None:
        pass

    def leased(self, until: float) -> None:
        pass

    def complain(self, sentence: str) -> None:
        raise AssertionError(sentence)

    def refuse(self, sentence: str) -> None:
        raise AssertionError(sentence)


class StoreNode(Struct):
    snapshot: Snapshot
    memory: type[MemoryStore]

    def key(self) -> Key:
        return astuple(self)

    def receive(self, source: NodeId, message: Request, out: Post) -> None:
        memory = self.memory(self.snapshot)
        done, self.snapshot = memory.ask(message)
        out.send(source, (message.number, done, self.snapshot))

    def events(self) -> list[str]:
        return []


class MemberNode(Struct):
    member: StoreMember
    heartbeats: int
    view_changes: int
    leaves: bool

    def __copy__(self) -> Self:
        return replace(self, member=copy(self.member))

    def key(self) -> Key:
        member = self.member
        return (*astuple(member.lease), *astuple(member)[2:], self.heartbeats, self.view_changes, self.leaves)

    def receive(self, source: NodeId, message: Answer, out: Post) -> None:
        number, done, snapshot = message
        self.member.answered(number, done, snapshot, 0.0, 0.0, Output(out))

    def on_timeout(self, name: str, out: Post) -> None:
        member, output = self.member, Output(out)
        match name:
            case "heartbeat":
                self.heartbeats -= 1
                member.heartbeat(0.0, output)
            case "maintain_view":
                self.view_changes -= 1
                member.maintain_view(0.0, output)
            case "look":
                self.view_changes -= 1
                member.look(output)
            case "lapse":
                member.lease.end()
            case "leave":
                self.leaves = False
                member.leave(0.0, output)
            case _:
                member.seen = tuple(
                    (peer, revision, LONG_AGO if peer == M.id else since) for peer, revision, since in member.seen
                )

    def events(self) -> list[str]:
        member = self.member
        found = ["heartbeat"] if self.heartbeats and member.is_member else []
        found += ["maintain_view", "look"] if self.view_changes else []
        found += ["lapse"] if member.lease.runs(0.0) else []
        found += ["leave"] if self.leaves and member.is_member else []
        return found + ["no patience" for peer, _, since in member.seen if peer == M.id and since == 0.0]


class Truth(Observer):
    """Which views there were, whether m believes, and the order of leases and patience."""

    def __init__(self, group: StoreGroup) -> None:
        # The request that m's lease rests on (0: none); the newest heartbeat of m that another
        # member has no patience with any more; the heartbeat that each request of m has written;
        # was there a view without m; the newest view; what went wrong.
        self.start = (int(group.leased), 0, ((1, 1),), False, group.view, "")

    def wants(self, event: Event) -> bool:
        return event[0] in ("wrote", "no patience", "leased", "lapsed", "view")

    def step(self, state: Truths, events: tuple[Event, ...]) -> Hashable:
        rests, over, written, out, view, wrong = state
        for what, _, detail in events:
            match what:
                case "wrote":
                    written = tuple(sorted({*written, detail}))
                case "no patience":
                    if rests and dict(written).get(rests, 0) <= detail:
                        return FORBIDDEN
                    over = max(over, detail)
                case "leased":
                    if dict(written).get(detail, 0) <= over:
                        return FORBIDDEN
                    rests = detail
                case "lapsed":
                    rests = 0
                case "view":
                    if detail.epoch != view.epoch + (detail.members != view.members or not detail.leaving):
                        wrong = wrong or "epochs are not one after the other"
                    if out and M in detail.members:
                        wrong = wrong or "one that was excluded is a member again"
                    out, view = out or M not in detail.members, detail
        if rests and out:
            wrong = "it believes and is excluded"
        return rests, over, written, out, view, wrong


class Stored(ProtocolModel):
    def __init__(self, group: StoreGroup) -> None:
        super().__init__(group, apart((1, 2, 3, STORE)), (0,) * 4, observers=(Truth(group),))

    def noticed(self, at: int, before: Struct, after: Struct, detail: Detail) -> list[Event]:
        if isinstance(before, StoreNode) and isinstance(after, StoreNode) and isinstance(detail, Letter):
            old, new = heartbeat_of_m(before.snapshot), heartbeat_of_m(after.snapshot)
            events: list[Event] = []
            if new and new != old and isinstance(detail.message, Renew | Swap):
                events.append(("wrote", STORE, (detail.message.number, new)))
            if after.snapshot.view != before.snapshot.view:
                events.append(("view", STORE, after.snapshot.view))
            return events
        assert isinstance(before, MemberNode) and isinstance(after, MemberNode)
        if detail == "no patience":
            return [("no patience", before.member.me.id, before.member.revision_of(M.id))]
        if before.member.me == M:
            old, new = before.member.lease.rests_on, after.member.lease.rests_on
            if new and new != old:
                return [("leased", 1, new)]
            if old and not new:
                return [("lapsed", 1, 0)]
        return []


def heartbeat_of_m(snapshot: Snapshot) -> int:
    return {heartbeat.id: heartbeat.revision for heartbeat in snapshot.heartbeats}.get(M.id, 0)


def excludes(node: Struct) -> bool:
    return isinstance(node, StoreNode) and node.snapshot.view is not None and M not in node.snapshot.view.members


def explore(group: StoreGroup, max_states: int | None = None, progress: Progress | None = None) -> Explored:
    model = Stored(group)
    excluded = Sometimes(model, "a view without m is decided", excludes)
    return explored(model, [NothingIsWrong(model, Truth), NoAssertionFails(model), excluded], max_states, progress)
