"""Views in a store, explored: the very `Lodger` that ships, in every interleaving, with a store of twenty lines.

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

from peerlock.check.model import Inbox, Local, Model
from peerlock.check.observers import FORBIDDEN, Event, Observer
from peerlock.check.properties import Assertions as NoAssertionFails
from peerlock.check.properties import Bad, Checks, Property, Sums
from peerlock.check.protocols.quorum import NothingIsWrong
from peerlock.check.search import Outcome, Progress, Search
from peerlock.contract import Members, Needs, Node, State
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import Decision
from peerlock.node.peer import Peer
from peerlock.node.store.member import Lodger
from peerlock.node.store.memory import Shelf
from peerlock.node.store.requests import Heartbeat, Snapshot

D = 1.0  # and it is always 0 o'clock
LONG_AGO = -9.0
M, OTHER, THIRD = Peer("m", 1), Peer("a", 2), Peer("m", 3)  # the third has the name of the first, and is somebody else
PEERS = {1: M, 2: OTHER, 3: THIRD}
STORE: Node = 4


class StoreGroup(Struct, frozen=True):
    leased: bool = True  # m has a lease at first
    beats: int = 1  # of m
    tends: tuple[int, int] = (1, 1)  # how often the others look after the view
    joins: bool = False  # the third is not a member yet
    leaves: bool = False  # m may leave
    apart: bool = False  # the second cannot reach m
    renews: bool = False  # the third wants a view with the same members
    lodger: type[Lodger] = Lodger
    lease: type[Lease] = Lease
    shelf: type[Shelf] = Shelf

    name: ClassVar[str] = "a store"
    form: ClassVar[str] = "views"
    needs: ClassVar[Needs] = Needs()

    @property
    def view(self) -> Decision:
        return Decision(1, tuple(sorted((OTHER, M) if self.joins else (OTHER, THIRD, M))))

    def start(self, me: Node, shape: Any, inside: Any = None) -> Any:
        view = self.view
        members = view.members
        beats = tuple(
            Heartbeat(peer.id, 1, (M.id,) if self.apart and peer == OTHER else ()) for peer in sorted(members)
        )
        first = Snapshot(2, 2, view, tuple(sorted(beats, key=lambda beat: beat.id)))
        if me == STORE:
            return StoreNode(first, self.shelf)
        peer = PEERS[me]
        lease = self.lease(D, 1, D, 1) if peer == M and self.leased else self.lease(D)
        wish = "join" if peer == THIRD and self.joins else ""
        seen = tuple((other.id, 1, 0.0) for other in view.members if other != peer)
        apart = (M.id,) if self.apart and peer == OTHER else ()
        lodger = self.lodger(
            peer, lease, first, 1, seen, wish, 1 if self.renews and peer == THIRD else -1, apart, True, 1
        )
        return LodgerNode(
            lodger, self.beats if peer == M else 0, 0 if peer == M else self.tends[me - 2], self.leaves and peer == M
        )

    def blamed(self, what: str) -> Any:
        return nullcontext()


class Pen:
    def __init__(self, out: Any) -> None:
        self.out = out

    def ask(self, request: Any) -> None:
        self.out.send(STORE, request)

    def learned(self, decision: Decision) -> None:
        pass

    def leased(self, until: float) -> None:
        pass

    def complain(self, sentence: str) -> None:
        raise AssertionError(sentence)

    def refuse(self, sentence: str) -> None:
        raise AssertionError(sentence)


class StoreNode(State):
    snapshot: Snapshot
    shelf: type[Shelf]

    def receive(self, source: Node, message: Any, out: Any) -> None:
        shelf = self.shelf(self.snapshot)
        done, self.snapshot = shelf.ask(message)
        out.send(source, (message.number, done, self.snapshot))

    def events(self) -> list[str]:
        return []

    def ignores(self, source: Node, message: Any) -> bool:
        return False


class LodgerNode(State):
    lodger: Lodger
    beats: int
    tends: int
    leaves: bool

    def __copy__(self) -> Self:
        made = super().__copy__()  # type: ignore[misc]
        made.lodger = self.lodger.__copy__()
        return made  # type: ignore[no-any-return]

    def key(self) -> tuple[Any, ...]:
        lodger = self.lodger
        return (*astuple(lodger.lease), *astuple(lodger)[2:], self.beats, self.tends, self.leaves)

    def receive(self, source: Node, message: Any, out: Any) -> None:
        number, done, snapshot = message
        self.lodger.answered(number, done, snapshot, 0.0, 0.0, Pen(out))

    def on_timeout(self, name: str, out: Any) -> None:
        lodger, pen = self.lodger, Pen(out)
        match name:
            case "beat":
                self.beats -= 1
                lodger.beat(0.0, pen)
            case "tend":
                self.tends -= 1
                lodger.tend(0.0, pen)
            case "look":
                self.tends -= 1
                lodger.look(pen)
            case "lapse":
                lodger.lease.end()
            case "leave":
                self.leaves = False
                lodger.leave(0.0, pen)
            case _:
                lodger.seen = tuple(
                    (who, revision, LONG_AGO if who == M.id else since) for who, revision, since in lodger.seen
                )

    def events(self) -> list[str]:
        lodger = self.lodger
        found = ["beat"] if self.beats and lodger.is_member else []
        found += ["tend", "look"] if self.tends else []
        found += ["lapse"] if lodger.lease.runs(0.0) else []
        found += ["leave"] if self.leaves and lodger.is_member else []
        return found + ["no patience" for who, _, since in lodger.seen if who == M.id and since == 0.0]

    def ignores(self, source: Node, message: Any) -> bool:
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
                        wrong = wrong or "one that was left out is a member again"
                    out, view = out or M not in detail.members, detail
        if rests and out:
            wrong = "it believes and is left out"
        return rests, over, written, out, view, wrong


class Stored(Model):
    def __init__(self, group: StoreGroup) -> None:
        chosen: Any = group
        nodes = (1, 2, 3, STORE)
        super().__init__(chosen, {node: Members((node,), 1) for node in nodes}, (0,) * 4, observers=(Truth(group),))

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Any]]:
        return [("timeout", event) for event in local.algorithm.events()]

    def of_interest(self, at: int, number: int, inbox: Inbox) -> Inbox:
        return inbox

    def _step(self, at: int, local: Local, what: str, detail: Any) -> Any:
        before = local.algorithm
        after, sends, entered = super()._step(at, local, what, detail)
        return (
            after,
            sends + self._told(self.noticed(before, self.columns[at].locals[after].algorithm, detail)),
            entered,
        )

    def noticed(self, before: Any, after: Any, detail: Any) -> list[Event]:
        if isinstance(before, StoreNode):
            mine = [{beat.id: beat.revision for beat in node.snapshot.beats}.get(M.id, 0) for node in (before, after)]
            events: list[Event] = []
            if mine[1] and mine[0] != mine[1]:
                events.append(("wrote", STORE, (detail.message.number, mine[1])))
            if after.snapshot.decision != before.snapshot.decision:
                events.append(("view", STORE, after.snapshot.decision))
            return events
        if detail == "no patience":
            return [("no patience", before.lodger.me.id, before.lodger.revision_of(M.id))]
        if before.lodger.me == M:
            old, new = before.lodger.lease.rests_on, after.lodger.lease.rests_on
            if new and new != old:
                return [("leased", 1, new)]
            if old and not new:
                return [("lapsed", 1, 0)]
        return []


class LeftOut(Property):
    """Some run leaves m out."""

    name = "a view without m is decided"
    sometimes = True

    def feature(self, at: int, local: Local, letters: Any) -> int:
        node = local.algorithm
        return int(isinstance(node, StoreNode) and M not in node.snapshot.decision.members)  # type: ignore[union-attr]

    def bad(self, sums: Sums, enabled: Any) -> Bad:
        return sums > 0


def explore(
    group: StoreGroup, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Search, Outcome, dict[str, str]]:
    model = Stored(group)
    wrong = NothingIsWrong(model, Truth)
    wrong.name = "one view an epoch; who is left out does not believe"
    checks = Checks([wrong, NoAssertionFails(model), LeftOut(model)])
    search = Search(model, checks)
    outcome = search.run(max_states, progress=progress)
    return search, outcome, checks.verdicts(outcome.violated, outcome.finished)
