"""The agreement of a fixed list in every interleaving: the very `StaticMember` that ships.

Two or three nodes start, dial each other, tell what they know and decide views. Links break, and
what is under way on them is lost or arrives late; nodes crash, are started again, and leave; the
operator says, of a node that is dead, that it is. A record may fail to be written. Looked at in
every state:

- *one view per epoch*;
- *a live member is in every view*: a view never excludes an incarnation that is alive, has not
  left, and was a member;
- *no incarnation comes back* that an earlier view had excluded;
- *the group goes on*: from every state there is a way, without another fault, to where all live
  nodes are in one view, unless one of them waits for a node that is dead, and of which the operator
  has not said so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from peerlock.check.protocols.breadth_first import BreadthFirst
from peerlock.check.protocols.host import comes_back
from peerlock.check.search import Outcome, Progress
from peerlock.node.membership.static import NodeRecord, StaticMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import StaticState

NEW, OPEN, CLOSED = "new", "open", "closed"  # an end of a link: nothing came on it yet; its peer is known; it is over
Message: TypeAlias = "Peer | StaticState | View"  # a peer: hello


class CannotWrite(Exception):
    """The disk is full."""


class Link(Struct, frozen=True, cache_hash=True):
    peers: tuple[Peer, Peer]  # the first one has dialled
    ends: tuple[str, str] = (NEW, NEW)
    to: tuple[tuple[Message, ...], tuple[Message, ...]] = ((), ())  # what is under way to each end, in order
    up: bool = True

    def put(self, end: int, message: Message) -> Link:
        to = (*self.to[end], message)
        return replace(self, to=(to, self.to[1]) if end == 0 else (self.to[0], to))

    def take(self, end: int) -> Link:
        to = self.to[end][1:]
        return replace(self, to=(to, self.to[1]) if end == 0 else (self.to[0], to))

    def at(self, end: int, what: str) -> Link:
        """A closed end hears nothing more."""
        link = replace(self, ends=(what, self.ends[1]) if end == 0 else (self.ends[0], what))
        if what == CLOSED:
            to = link.to
            link = replace(link, up=False, to=((), to[1]) if end == 0 else (to[0], ()))
        return link


class Budget(Struct, frozen=True):
    """How often each fault may still happen."""

    starts: int = 0
    crashes: int = 0
    leaves: int = 0
    kicks: int = 0
    cuts: int = 0
    errors: int = 0  # views that cannot be written down
    renewals: int = 0  # views with the same members that are asked for


class StaticGroup(Struct, frozen=True):
    """What is explored."""

    names: tuple[str, ...] = ("a", "b")
    budget: Budget = Budget()
    running: bool = True  # the nodes are in a view at first; else nothing was started yet
    kind: type[StaticMember] = StaticMember


Disk: TypeAlias = tuple[NodeRecord, ...]
Links: TypeAlias = tuple[Link, ...]


class State(Struct):
    members: tuple[StaticMember | None, ...]  # of each name; None: it does not run
    keys: tuple[int, ...]  # of what each member and its record are
    disk: Disk
    budget: Budget
    links: Links = ()
    late: tuple[tuple[Peer, View], ...] = ()  # views that could not be written down, and are tried again
    views: frozenset[View] = frozenset()
    left: frozenset[Peer] = frozenset()
    kicked: frozenset[Peer] = frozenset()


def key_of_record(record: NodeRecord) -> Hashable:
    return record.epoch, record.starts, tuple(sorted(record.absent.items())), tuple(sorted(record.seen.items()))


def key_of(member: StaticMember | None, record: NodeRecord) -> int:
    if member is None:
        return hash(key_of_record(record))
    return hash((
        key_of_record(record), key_of_record(member.record), frozenset(member.present.items()),
        frozenset(member.told.items()), frozenset(member.excused), member.view, member.wants_epoch, member.me,
    ))  # fmt: skip


def copy_of_record(record: NodeRecord) -> NodeRecord:
    return replace(record, absent=dict(record.absent), seen=dict(record.seen))


class Turn:
    """One event at one node: what it changes, and what the node asks for meanwhile
    (`StaticOutput`).
    """

    def __init__(self, explorer: StaticExplorer, state: State, at: int, fails: bool = False) -> None:
        self.explorer, self.before, self.at, self.fails = explorer, state, at, fails
        found = state.members[at]
        if found is None:
            names = explorer.group.names
            found = explorer.group.kind(names[at], names, copy_of_record(state.disk[at]), self)
        self.member = member = copy(found)
        member.out = self
        member.record = copy_of_record(found.record)
        member.present, member.told, member.excused = dict(found.present), dict(found.told), set(found.excused)
        self.links, self.record = list(state.links), state.disk[at]
        self.views, self.late = set(state.views), list(state.late)

    def done(self, budget: Budget | None = None) -> State:
        state, at = self.before, self.at
        return State(
            (*state.members[:at], self.member, *state.members[at + 1 :]),
            (*state.keys[:at], key_of(self.member, self.record), *state.keys[at + 1 :]),
            (*state.disk[:at], self.record, *state.disk[at + 1 :]),
            budget or state.budget,
            tuple(link for link in self.links if link.ends != (CLOSED, CLOSED)),
            tuple(self.late),
            frozenset(self.views),
            state.left,
            state.kicked,
        )

    # -- what the node asks for --------------------------------------------------------------------------

    def write(self, record: NodeRecord) -> None:
        self.record = copy_of_record(record)

    def tell(self, peer: Peer, state: StaticState) -> None:
        self.send(peer, state)

    def dial(self, name: str) -> None:
        """Nodes dial all the time."""

    def hang_up(self, peer: Peer, why: str) -> None:
        for number, end in self.open_to(peer):
            self.links[number] = self.links[number].at(end, CLOSED)

    def decided(self, view: View) -> None:
        if self.fails:
            self.late.append((self.me, view))
            return
        self.views.add(view)
        self.learn(view)

    def complain(self, sentence: str) -> None:
        pass

    # -- links -------------------------------------------------------------------------------------------

    @property
    def me(self) -> Peer:
        assert self.member.me is not None
        return self.member.me

    def open_to(self, peer: Peer) -> list[tuple[int, int]]:
        return [
            (number, link.peers.index(self.me))
            for number, link in enumerate(self.links)
            if set(link.peers) == {self.me, peer} and link.ends[link.peers.index(self.me)] == OPEN
        ]

    def send(self, peer: Peer, message: Message) -> None:
        for number, end in self.open_to(peer):
            if self.links[number].up:
                self.links[number] = self.links[number].put(1 - end, message)

    def learn(self, view: View) -> None:
        if view.epoch <= (self.member.view.epoch if self.member.view is not None else 0):
            return
        self.member.learned(view)
        for peer in view.members:
            if peer != self.me:
                self.send(peer, view)

    def hear(self, number: int, end: int) -> None:
        """The next message of a link."""
        link = self.links[number]
        message, peer = link.to[end][0], link.peers[1 - end]
        self.links[number] = link = link.take(end)
        if isinstance(message, Peer):
            if self.member.unwelcome(peer, lambda other: self.explorer.answers(self.before, self.me, other)):
                self.links[number] = link.at(end, CLOSED)
                return
            self.hang_up(peer, "another link has taken its place")
            self.links[number] = link = link.at(end, OPEN)
            if end == 1 and link.up:
                self.links[number] = link.put(0, self.me)
            self.member.linked(peer)
            if self.member.view is not None and peer in self.member.view.members:
                self.send(peer, self.member.view)
        elif isinstance(message, StaticState):
            self.member.on_state(peer, message)
        else:
            self.learn(message)

    def end(self, number: int, end: int) -> None:
        """The link is down, and this node notices."""
        link = self.links[number]
        self.links[number] = link.at(end, CLOSED)
        if link.ends[end] == OPEN:
            self.member.unlinked(link.peers[1 - end])


class StaticExplorer(BreadthFirst[State]):
    def __init__(self, group: StaticGroup) -> None:
        self.group = group

    def first(self) -> State:
        names, budget = self.group.names, self.group.budget
        records = tuple(NodeRecord("g", name) for name in names)
        keys = tuple(key_of(None, record) for record in records)
        state = State(
            (None,) * len(names), keys, records, replace(budget, starts=len(names) if self.group.running else 0)
        )
        if not self.group.running:
            return replace(state, budget=replace(budget, starts=budget.starts + len(names)))
        for at in range(len(names)):
            state = self.start(state, at)
        # The view comes to be without a fault, in the order in which things happen to be found.
        seen = set[Hashable]()
        while self.key(state) not in seen and not self.settled(state):
            seen.add(self.key(state))
            state = next((after for after, fault in self.steps(state) if not fault), state)
        while following := [after for after, fault in self.steps(state) if not fault]:
            state = following[0]
        assert self.settled(state)
        return replace(state, budget=budget)

    def key(self, state: State) -> Hashable:
        links = tuple(sorted(map(hash, state.links)))
        return state.keys, links, state.budget, state.late, state.views, state.left, state.kicked

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[State, bool]]:
        for number, link in enumerate(state.links):
            for end in (0, 1):
                at = self.running(state, link.peers[end])
                if at is None or link.ends[end] == CLOSED:
                    continue
                if link.to[end]:
                    turn = Turn(self, state, at)
                    turn.hear(number, end)
                    yield turn.done(), False
                    if state.budget.errors:
                        turn = Turn(self, state, at, fails=True)
                        turn.hear(number, end)
                        if len(turn.late) > len(state.late):
                            yield turn.done(replace(state.budget, errors=state.budget.errors - 1)), True
                if not link.up:
                    turn = Turn(self, state, at)
                    turn.end(number, end)
                    yield turn.done(), False
        for member in state.members:
            if member is None:
                continue
            for peer in self.dials(state, member):
                link = Link((self.me(member), peer))
                yield replace(state, links=(*state.links, link.put(1, self.me(member)))), False
        for peer, view in state.late:
            yield self.try_again(state, peer, view), False
        yield from ((after, True) for after in self.faults(state))

    def dials(self, state: State, member: StaticMember) -> Iterator[Peer]:
        me = self.me(member)
        for other in state.members:
            if other is None or other is member or other.name in member.present:
                continue
            peer = self.me(other)
            if not any(
                set(link.peers) == {me, peer} and link.ends[link.peers.index(me)] != CLOSED for link in state.links
            ):
                yield peer

    def try_again(self, state: State, peer: Peer, view: View) -> State:
        late = tuple(each for each in state.late if each != (peer, view))
        at = self.running(state, peer)
        if at is None:
            return replace(state, late=late)
        turn = Turn(self, replace(state, late=late), at)
        if view.epoch > (turn.member.view.epoch if turn.member.view is not None else 0):
            turn.views.add(view)
        turn.learn(view)
        return turn.done()

    def faults(self, state: State) -> Iterator[State]:
        budget = state.budget
        for at, member in enumerate(state.members):
            if member is None:
                if budget.starts:
                    yield self.start(state, at)
                continue
            if budget.crashes:
                yield self.stop(state, at, replace(budget, crashes=budget.crashes - 1))
            if budget.leaves:
                turn = Turn(self, state, at)
                turn.member.leave()
                left = replace(turn.done(), left=state.left | {self.me(member)})
                yield self.stop(left, at, replace(budget, leaves=budget.leaves - 1))
            if budget.kicks:
                yield from self.kicks(state, at, member)
            if budget.renewals and member.view is not None:
                turn = Turn(self, state, at)
                turn.member.request_epoch()
                yield turn.done(replace(budget, renewals=budget.renewals - 1))
        if budget.cuts:
            for number, link in enumerate(state.links):
                if link.up:
                    links = list(state.links)
                    links[number] = replace(link, up=False)
                    yield replace(state, links=tuple(links), budget=replace(budget, cuts=budget.cuts - 1))

    def start(self, state: State, at: int) -> State:
        turn = Turn(self, state, at)
        turn.member.start(Peer(self.group.names[at], turn.member.count_start()))
        turn.member.decide()
        return turn.done(replace(state.budget, starts=state.budget.starts - 1))

    def stop(self, state: State, at: int, budget: Budget) -> State:
        """The process is gone; what it has written to others may arrive, or not."""
        found = state.members[at]
        assert found is not None
        me = self.me(found)
        links = (link.at(link.peers.index(me), CLOSED) if me in link.peers else link for link in state.links)
        members = (*state.members[:at], None, *state.members[at + 1 :])
        keys = (*state.keys[:at], key_of(None, state.disk[at]), *state.keys[at + 1 :])
        kept = tuple(link for link in links if link.ends != (CLOSED, CLOSED))
        return replace(state, members=members, keys=keys, links=kept, budget=budget)

    def kicks(self, state: State, at: int, member: StaticMember) -> Iterator[State]:
        """The operator is right: only what is dead is said to be dead."""
        for other, found in enumerate(state.members):
            name = self.group.names[other]
            if found is not None or name in member.present or not state.disk[other].starts:
                continue
            turn = Turn(self, state, at)
            turn.member.assume_dead(name)
            turn.member.request_epoch()
            known = Peer(name, turn.member.record.absent[name])
            after = turn.done(replace(state.budget, kicks=state.budget.kicks - 1))
            yield replace(after, kicked=state.kicked | {known})

    # -- what must be ------------------------------------------------------------------------------------

    def me(self, member: StaticMember) -> Peer:
        assert member.me is not None
        return member.me

    def running(self, state: State, peer: Peer) -> int | None:
        """Where that incarnation runs."""
        at = self.group.names.index(peer.name)
        member = state.members[at]
        return at if member is not None and member.me == peer else None

    def answers(self, state: State, me: Peer, other: Peer) -> bool:
        """Does the other end of the link with that peer answer?"""
        return self.running(state, other) is not None and any(
            link.up and set(link.peers) == {me, other} and CLOSED not in link.ends for link in state.links
        )

    def violated(self, state: State) -> str | None:
        epochs = {view.epoch for view in state.views}
        if len(epochs) < len(state.views):
            return "one view per epoch"
        views = sorted(state.views, key=lambda view: view.epoch)
        for member in state.members:
            if member is None or member.me is None:
                continue
            was_in = [view.epoch for view in views if member.me in view.members]
            if was_in and views[-1].epoch > was_in[0] and member.me not in views[-1].members:
                return "a live member is in every view"
        if comes_back(views):
            return "no incarnation comes back"
        return None

    def goal(self, state: State) -> bool:
        return self.waits(state) or self.settled(state)

    def settled(self, state: State) -> bool:
        members = [member for member in state.members if member is not None]
        newest = max(state.views, key=lambda view: view.epoch, default=None)
        here = tuple(sorted(self.me(member) for member in members))
        return not members or (
            newest is not None and newest.members == here and all(member.view == newest for member in members)
        )

    def waits(self, state: State) -> bool:
        """A node is dead, and no node that runs knows it."""
        excused = set[str]().union(*(member.excused for member in state.members if member is not None))
        return any(
            member is None and name not in excused for name, member in zip(self.group.names, state.members, strict=True)
        )


def explore(
    group: StaticGroup, max_states: int | None = None, progress: Progress | None = None
) -> tuple[StaticExplorer, Outcome, dict[str, str]]:
    explorer = StaticExplorer(group)
    return explorer, explorer.run(max_states, progress), {}


__all__: list[Any] = ["Budget", "StaticExplorer", "StaticGroup", "explore"]
