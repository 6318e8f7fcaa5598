"""An observer watches a run and remembers something that no node knows.

An observer is one more column of the state: it has no inbox and does nothing, but every step of a
node that it wants to know of moves it from one of its states to the next. What it sees on the way
(`seen`) it may write down outside of the state: each of its steps is computed when it is first
reached, so what is written down is what some run can show, and all of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from peerlock.contract import Mode, NodeId, Wire

# ("requested", node, mode), ("entered", node, mode), ("idle", node), ("crashed", node), ("changes",
# node), ("changed", node), ("sent", source, to, message), ("broadcast", source, to, message),
# ("received", node, source, message)
Event: TypeAlias = tuple[Any, ...]
Copy: TypeAlias = tuple[NodeId, Wire]  # of a request, under way to a node
Entry: TypeAlias = tuple[NodeId, int | None, int, int, bool]  # an `OpenEntry`

FORBIDDEN = object()  # what `step` returns to say that this must not happen


class Observer:
    """Remembers; never acts, but may forbid."""

    start: Hashable = None

    def wants(self, event: Event) -> bool:
        """Does this event matter? The fewer, the fewer states."""
        raise NotImplementedError  # a subclass says which

    def step(self, state: Any, events: tuple[Event, ...]) -> Hashable:
        """The state after a step of some node, or FORBIDDEN."""
        raise NotImplementedError  # a subclass says which


class Budget(Observer):
    """So many events of a kind may happen and no more."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.start = what, most

    def wants(self, event: Event) -> bool:
        return bool(event[0] == self.what)

    def step(self, state: int, events: tuple[Event, ...]) -> Hashable:
        return state - 1 if state else FORBIDDEN


class OneChangeAtATime(Observer):
    """Only one node comes or goes at a time."""

    start = 0  # the node that does

    def wants(self, event: Event) -> bool:
        return event[0] in ("changes", "changed")

    def step(self, state: NodeId, events: tuple[Event, ...]) -> Hashable:
        for event in events:
            if event[0] == "changes" and state:
                return FORBIDDEN
            state = event[1] if event[0] == "changes" else 0
        return state


class Waiting(NamedTuple):
    """A node waits, and its request is on its way."""

    mode: Mode
    copies: tuple[Copy, ...] = ()  # under way
    overtaken: int = 0
    asked: int | None = None  # the number of the request


class Overtaking(Observer):
    """How often others enter while `node` waits and all nodes that it asked have got its request.

    Entries that do not exclude its own (reader and reader) do not count. A figure that grows with
    the number of entries is starvation.
    """

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.most = 0

    def wants(self, event: Event) -> bool:
        what = event[0]
        if what == "requested":
            return bool(event[1] == self.node)
        if what == "entered":
            return True
        return what in ("sent", "broadcast", "received") and _asks_for(event[-1], event) == self.node

    def step(self, state: Waiting | None, events: tuple[Event, ...]) -> Hashable:
        for event in events:
            match event[0]:
                case "requested":
                    state = Waiting(event[2])
                case "sent" | "broadcast" if state is not None:
                    state = self._sent(state, event)
                case "received" if state is not None:
                    state = state._replace(copies=_without(state.copies, (event[1], event[3])))
                case "entered" if event[1] == self.node:
                    state = None
                case "entered" if state is not None and not state.copies and "write" in (state.mode, event[2]):
                    state = state._replace(overtaken=state.overtaken + 1)
                    self.most = max(self.most, state.overtaken)
        return state

    def _sent(self, state: Waiting, event: Event) -> Waiting:
        """One more copy of the request, unless it belongs to an earlier one."""
        _, source, to, message = event
        number = message.asked()
        if source == self.node:
            state = state._replace(asked=number)
        if number != state.asked:
            return state
        nodes = to if event[0] == "broadcast" else (to,)
        copies = sorted((*state.copies, *((j, message) for j in nodes)), key=repr)
        return state._replace(copies=tuple(copies))


def _without(pending: tuple[Copy, ...], copy: Copy) -> tuple[Copy, ...]:
    at = pending.index(copy) if copy in pending else len(pending)
    return pending[:at] + pending[at + 1 :]


def _asks_for(message: Wire, event: Event) -> NodeId | None:
    """The origin of a request; None: the message is none. Requests charge their origin."""
    source, to = (event[2], event[1]) if event[0] == "received" else (event[1], event[2] if event[0] == "sent" else -2)
    # A reply charges its addressee; a request never does.
    payer = message.charged(source, to)
    return payer if payer is not None and payer == message.charged(source, -1) and payer != to else None


class OpenEntry(Struct):
    node: NodeId
    asked: int | None = None  # the number of its request
    copies: int = 0  # of the request, under way
    cost: int = 0
    over: bool = False


class Costs(Observer):
    """How many messages an entry costs: the least and the most over all interleavings.

    Per node at most one entry is open. Relays of a request may still be sent when its entry is long
    over, so a cost is final when the entry is over and no copy of its request is under way.
    """

    start = ()  # the open entries as tuples, sorted

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.overhead = 0

    def wants(self, event: Event) -> bool:
        if event[0] == "received":
            return event[3].asked() is not None
        return event[0] in ("requested", "idle", "sent", "broadcast")

    def step(self, state: tuple[Entry, ...], events: tuple[Event, ...]) -> Hashable:
        entries = [OpenEntry(*entry) for entry in state]
        for event in events:
            match event:
                case "requested", node, _:
                    entries.append(OpenEntry(node))
                case "idle", node:
                    for entry in entries:
                        entry.over = entry.over or entry.node == node
                case "sent", source, to, message:
                    self._sent(entries, source, to, message)
                case "broadcast", source, _, message:
                    self._sent(entries, source, source, message)
                case "received", node, source, message:
                    for entry in entries:
                        if entry.asked == message.asked() and entry.node == message.charged(source, node):
                            entry.copies -= 1
        final = [entry for entry in entries if entry.over and not entry.copies]
        self.seen |= {entry.cost for entry in final}
        return tuple(sorted((astuple(entry) for entry in entries if entry not in final), key=repr))

    def _sent(self, entries: list[OpenEntry], source: NodeId, to: NodeId, message: Wire) -> None:
        payer, asked = message.charged(source, to), message.asked()
        for entry in entries:
            if entry.node != payer or (entry.asked != asked if asked is not None and source != payer else entry.over):
                continue
            entry.cost += 1
            if asked is not None:
                entry.asked, entry.copies = asked, entry.copies + 1
            return
        self.overhead += 1
