"""Six meanings of "first come, first served", strongest first, and an observer for each.

Let i wait and let j ask later. In each order i has to enter before j, if

- *real time*: i asked before j did, by a clock that no node has;
- *happened before*: i's REQUESTs happened before j's request, in Lamport's sense: a chain of
  messages of any kind leads from i's asking to j's;
- *request chain*: the same, but a chain of REQUESTs only;
- *received*: j itself had received i's REQUEST when it asked;
- *known to all*: every node had received i's REQUEST when j asked;
- *queued*: and after that a node has left the critical section, before j asked.

An observer follows one pair (i, j) through every interleaving and remembers whether j has entered
too early. Of the past it knows which nodes have heard of i's asking, and which messages under way
carry that news.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import permutations
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from msgspec.structs import replace

from peerlock.check.engine import Cells
from peerlock.check.observers import Event, Observer
from peerlock.check.properties import Bad, Property
from peerlock.claims.evidence import Evidence, Lab, Setup, explored
from peerlock.contract import Ask, NodeId, Wire

Meaning: TypeAlias = Literal["real time", "happened before", "request chain", "received", "known to all", "queued"]
ORDERS: tuple[Meaning, ...] = get_args(Meaning)
MEANING: dict[Meaning | None, str] = {
    "real time": "whose asking came first, by a clock that no process has",
    "happened before": "whose asking happened before the other's, in Lamport's sense",
    "request chain": "whose asking led to the other's by a chain of REQUESTs",
    "received": "whose REQUEST the other had received when it asked",
    "known to all": "whose REQUEST every node had received when the other asked",
    "queued": "whose REQUEST every node had received, and some node had left after that, when the other asked",
    None: "no node in particular",
}


class Waiting(NamedTuple):
    """What is remembered while i waits."""

    heard: frozenset[NodeId]  # the nodes that know of its asking
    news: tuple[tuple[NodeId, NodeId, Wire], ...] = ()  # under way: source, to, message
    left: bool = False  # has a node left since all know?
    late: bool | None = False  # was j too late? None: it has not asked yet


Followed: TypeAlias = Waiting | Literal["broken"] | None  # None: i does not wait


class Order(Observer):
    """Follows i, which must come first, and j."""

    def __init__(self, order: Meaning, first: NodeId, second: NodeId, everybody: int, by_request: bool = False) -> None:
        """`by_request`: j asks when it sends its first REQUEST; it never asks if it needs none."""
        self.order, self.first, self.second = order, first, second
        self.everybody, self.by_request = everybody, by_request

    def wants(self, event: Event) -> bool:
        match event[0]:
            case "requested" | "entered":
                return event[1] in (self.first, self.second)
            case "idle":
                return self.order == "queued"
            case "sent" | "broadcast" | "received":
                matters = self.order == "happened before" or isinstance(event[-1], Ask)
                return matters and (self.order != "real time" or self.by_request)
        return False

    def step(self, state: Followed, events: tuple[Event, ...]) -> Followed:
        for event in events:
            state = self._after(state, event)
        return state

    def _after(self, state: Followed, event: Event) -> Followed:
        what, node = event[0], event[1]
        if state == "broken":
            return state
        if what == "requested" and node == self.first:
            return Waiting(frozenset({node}))
        if state is None or (what == "entered" and node == self.first):
            return None
        match what:
            case "requested":
                return state._replace(late=None if self.by_request else self._too_late(state))
            case "entered":
                return "broken" if state.late else state._replace(late=False)
            case "sent" | "broadcast" if node == self.second and state.late is None and isinstance(event[3], Ask):
                return self._after(state._replace(late=self._too_late(state)), event)
            case "idle":
                done = len(state.heard) == self.everybody and node != self.first
                return state._replace(left=state.left or done)
            case "sent" | "broadcast" if node in self._sources(state.heard):
                whom = (event[2],) if what == "sent" else event[2]
                fresh = tuple((node, to, event[3]) for to in whom)
                return state._replace(news=tuple(sorted((*state.news, *fresh), key=repr)))
            case "received" if (event[2], node, event[3]) in state.news:
                at = state.news.index((event[2], node, event[3]))
                return state._replace(heard=state.heard | {node}, news=state.news[:at] + state.news[at + 1 :])
        return state

    def _sources(self, heard: frozenset[NodeId]) -> frozenset[NodeId]:
        """The nodes whose messages carry the news."""
        return heard if self.order in ("happened before", "request chain") else frozenset({self.first})

    def _too_late(self, state: Waiting) -> bool:
        match self.order:
            case "real time":
                return True
            case "known to all":
                return len(state.heard) == self.everybody
            case "queued":
                return state.left
        return self.second in state.heard


class InOrder(Property):
    """j has not entered before i."""

    name = "in order"

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        at = len(self.model.nodes)
        column = self.model.columns[at]
        states: list[Hashable] = list(column.locals)
        broken = np.array([states[number] == "broken" for number, _ in column.cells], bool)
        return np.asarray(broken[columns[at]], bool)


def kept(lab: Lab, name: str, order: Meaning, by_request: bool = False) -> Evidence:
    """Is this order kept, for every pair of three nodes?"""
    found, script, drawing = [], None, None
    setup = Setup(name, (3, 3, 3) if lab.full else (2, 2, 2))
    for first, second in permutations((1, 2, 3), 2):
        observer = Order(order, first, second, 3, by_request)
        found.append(lab.look(setup, [observer], lambda model: [InOrder(model)]))
        if not found[-1].holds():
            against = f"{second} enters before {first}, against {order!r}"
            script, drawing = (found[-1].script or "").replace("in order is violated", against), found[-1].drawing
            break
    evidence = explored(f"{order!r} is kept by every pair of 3 nodes", found, script is None)
    return replace(evidence, counterexample=script, drawing=drawing)


def strongest(
    lab: Lab, name: str, orders: Sequence[Meaning] = ORDERS, by_request: bool = False
) -> tuple[Meaning | None, list[Evidence]]:
    """The strongest order that is kept, and the evidence: against each stronger one, and for it."""
    found = []
    for order in orders:
        found.append(kept(lab, name, order, by_request))
        if found[-1].speaks_for:
            return order, found
    return None, found
