"""Views in a store, explored: the very `StoreMember` that ships, in every interleaving, with a store of twenty lines.

`m` has a lease and renews it; others leave it out, mark it, join, or want a view with the same members; `m` may
leave. Requests and answers are late, overtake each other, or never arrive.

As with the voters, time is nothing but the order of events. A lease ends whenever it may. Somebody's patience with a
heartbeat of `m` that it has seen ends after the lease that rests on it: that is what D on two clocks gives. `Truth`
keeps that order.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import astuple

from peerlock.check.model import Detail, Done, Inbox, Local, Model
from peerlock.check.observers import FORBIDDEN, Event, Observer
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import Bad, Checks, Property, Sums
from peerlock.check.protocols.quorum import NothingIsWrong
from peerlock.check.search import Outcome, Progress, Search
from peerlock.contract import Members, Needs, NodeId, State
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.member import StoreMember
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Snapshot, StoredHeartbeat

D = 1.0  # and it is always 0 o'clock
LONG_AGO = -9.0
M, OTHER, THIRD = Peer("m", 1), Peer("a", 2), Peer("m", 3)  # the third has the name of the first, and is somebody else
PEERS = {1: M, 2: OTHER, 3: THIRD}
STORE: NodeId = 4


class StoreGroup(Struct, frozen=True):
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

    name: ClassVar[str] = "a store"
    form: ClassVar[str] = "views"
    needs: ClassVar[Needs] = Needs()

    @property
    def view(self) -> View:
        return View(1, tuple(sorted((OTHER, M) if self.joins else (OTHER, THIRD, M))))

    def start(self, me: NodeId, shape: Any, inside: Any = None) -> Any:
        view = self.view
        members = view.members
        heartbeats = tuple(
            StoredHeartbeat(peer.id, 1, (M.id,) if self.apart and peer == OTHER else ()) for peer in sorted(members)
        )
        first = Snapshot(2, 2, view, tuple(sorted(heartbeats, key=lambda heartbeat: heartbeat.id)))
        if me == STORE:
            return StoreNode(first, self.memory)
        peer = PEERS[me]
        lease = self.lease(D, 1, D, 1) if peer == M and self.leased else self.lease(D)
        wish = "join" if peer == THIRD and self.joins else ""
        seen = tuple((other.id, 1, 0.0) for other in view.members if other != peer)
        apart = (M.id,) if self.apart and peer == OTHER else ()
        member = self.member(
            peer, lease, first, 1, seen, wish, 1 if self.renews and peer == THIRD else -1, apart, True, 1
        )
        return MemberNode(
            member,
            self.heartbeats if peer == M else 0,
            0 if peer == M else self.view_changes[me - 2],
            self.leaves and peer == M,
        )

    def blamed(self, what: str) -> Any:
        return nullcontext()


class Pen:
    def __init__(self, out: Any) -> None:
        self.out = out

    def ask(self, request: Any) -> None:
        self.out.send(STORE, request)

    def learned(self, view: View) -> None:
        pass

    def leased(self, until: float) -> None:
        pass

    def complain(self, sentence: str) -> None:
        raise AssertionError(sentence)

    def refuse(self, sentence: str) -> None:
        raise AssertionError(sentence)


class StoreNode(State):
    snapshot: Snapshot
    memory: type[MemoryStore]

    def receive(self, source: NodeId, message: Any, out: Any) -> None:
        memory = self.memory(self.snapshot)
        done, self.snapshot = memory.ask(message)
        out.send(source, (message.number, done, self.snapshot))

    def events(self) -> list[str]:
        return []

    def ignores(self, source: NodeId, message: Any) -> bool:
        return False


class MemberNode(State):
    member: StoreMember
    heartbeats: int
    view_changes: int
    leaves: bool

    def __copy__(self) -> Self:
        made = super().__copy__()  # type: ignore[misc]
        made.member = self.member.__copy__()
        return made  # type: ignore[no-any-return]

    def key(self) -> tuple[Any, ...]:
        member = self.member
        return (*astuple(member.lease), *astuple(member)[2:], self.heartbeats, self.view_changes, self.leaves)

    def receive(self, source: NodeId, message: Any, out: Any) -> None:
        number, done, snapshot = message
        self.member.answered(number, done, snapshot, 0.0, 0.0, Pen(out))

    def on_timeout(self, name: str, out: Any) -> None:
        member, pen = self.member, Pen(out)
        match name:
            case "heartbeat":
                self.heartbeats -= 1
                member.heartbeat(0.0, pen)
            case "maintain_view":
                self.view_changes -= 1
                member.maintain_view(0.0, pen)
            case "look":
                self.view_changes -= 1
                member.look(pen)
            case "lapse":
                member.lease.end()
            case "leave":
                self.leaves = False
                member.leave(0.0, pen)
            case _:
                member.seen = tuple(
                    (who, revision, LONG_AGO if who == M.id else since) for who, revision, since in member.seen
                )

    def events(self) -> list[str]:
        member = self.member
        found = ["heartbeat"] if self.heartbeats and member.is_member else []
        found += ["maintain_view", "look"] if self.view_changes else []
        found += ["lapse"] if member.lease.runs(0.0) else []
        found += ["leave"] if self.leaves and member.is_member else []
        return found + ["no patience" for who, _, since in member.seen if who == M.id and since == 0.0]

    def ignores(self, source: NodeId, message: Any) -> bool:
        return False


class Truth(Observer):
    """Which views there were, whether m believes, and the order of leases and patience."""

    def __init__(self, group: StoreGroup) -> None:
        # The request that m's lease rests on (0: none); the heartbeats of m that somebody has no patience with any
        # more, up to which;
        # the heartbeat that each request of m has written; was a view without m; the newest view; what went wrong.
        self.start = (int(group.leased), 0, ((1, 1),), False, group.view, "")

    def wants(self, event: Event) -> bool:
        return event[0] in ("wrote", "no patience", "leased", "lapsed", "view")

    def step(self, state: Any, events: tuple[Event, ...]) -> Any:
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


class Stored(Model):
    def __init__(self, group: StoreGroup) -> None:
        chosen: Any = group
        nodes = (1, 2, 3, STORE)
        super().__init__(chosen, {node: Members((node,), 1) for node in nodes}, (0,) * 4, observers=(Truth(group),))

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        return [("timeout", event) for event in local.algorithm.events()]

    def of_interest(self, at: int, number: int, inbox: Inbox) -> Inbox:
        return inbox

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        before = local.algorithm
        after, sends, entered = super().run(at, local, what, detail)
        return (
            after,
            sends + self._told(self.noticed(before, self.columns[at].locals[after].algorithm, detail)),
            entered,
        )

    def noticed(self, before: Any, after: Any, detail: Any) -> list[Event]:
        if isinstance(before, StoreNode):
            mine = [
                {heartbeat.id: heartbeat.revision for heartbeat in node.snapshot.heartbeats}.get(M.id, 0)
                for node in (before, after)
            ]
            events: list[Event] = []
            if mine[1] and mine[0] != mine[1]:
                events.append(("wrote", STORE, (detail.message.number, mine[1])))
            if after.snapshot.view != before.snapshot.view:
                events.append(("view", STORE, after.snapshot.view))
            return events
        if detail == "no patience":
            return [("no patience", before.member.me.id, before.member.revision_of(M.id))]
        if before.member.me == M:
            old, new = before.member.lease.rests_on, after.member.lease.rests_on
            if new and new != old:
                return [("leased", 1, new)]
            if old and not new:
                return [("lapsed", 1, 0)]
        return []


class LeftOut(Property):
    """Some run excludes m."""

    name = "a view without m is decided"
    sometimes = True

    def feature(self, at: int, local: Local, letters: Any) -> int:
        node = local.algorithm
        return int(isinstance(node, StoreNode) and M not in node.snapshot.view.members)  # type: ignore[union-attr]

    def bad(self, sums: Sums, enabled: Any) -> Bad:
        return sums > 0


def explore(
    group: StoreGroup, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Search, Outcome, dict[str, str]]:
    model = Stored(group)
    wrong = NothingIsWrong(model, Truth)
    wrong.name = "one view an epoch; who is excluded does not believe"
    checks = Checks([wrong, NoAssertionFails(model), LeftOut(model)])
    search = Search(model, checks)
    outcome = search.run(max_states, progress=progress)
    return search, outcome, checks.verdicts(outcome.violated, outcome.finished)
