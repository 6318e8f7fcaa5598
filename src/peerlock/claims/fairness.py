"""Who comes first? Six meanings of "first come, first served", from the strongest to the weakest, and an observer for each.

Let i wait and let j ask later. In each order i has to enter before j, if

- *real time*: i asked before j did, by a clock that nobody has;
- *happened before*: i's REQUESTs happened before j's request, in Lamport's sense: some chain of messages, of whatever kind,
  leads from i's asking to j's;
- *request chain*: the same, but a chain of REQUESTs only;
- *received*: j itself had received i's REQUEST when it asked;
- *known to all*: everybody had received i's REQUEST when j asked;
- *queued*: and after that somebody has left the critical section, before j asked.

An observer follows one pair (i, j) through every interleaving and remembers whether j has entered too early. What it knows of
the past is who has heard of i's asking, and which messages under way carry that news.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from peerlock.check.engine import Cells
from peerlock.check.model import Model
from peerlock.check.observers import Event, Observer
from peerlock.check.properties import Bad, Property
from peerlock.claims.evidence import Evidence, Lab, Setup
from peerlock.contract import Ask, NodeId

ORDERS = ("real time", "happened before", "request chain", "received", "known to all", "queued")
MEANING = {
    "real time": "who asks first, by a clock that nobody has",
    "happened before": "whose asking happened before the other's, in Lamport's sense",
    "request chain": "whose asking led to the other's by a chain of REQUESTs",
    "received": "whose REQUEST the other had received when it asked",
    "known to all": "whose REQUEST everybody had received when the other asked",
    "queued": "whose REQUEST everybody had received, and somebody had left after that, when the other asked",
    "none": "nobody in particular",
}
BROKEN = "entered too early"


class Order(Observer):
    """Follows i, which must come first, and j."""

    def __init__(self, order: str, first: NodeId, second: NodeId, everybody: int, by_request: bool = False) -> None:
        """`by_request`: j counts as asking when it sends its first REQUEST, and not at all if it needs none."""
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

    # A state is None (i does not wait), BROKEN, or
    # (who has heard, news under way, has somebody left since all know, was j too late; None: it has not asked yet).

    def step(self, state: Any, events: tuple[Event, ...]) -> Hashable:
        for event in events:
            state = self._after(state, event)
        result: Hashable = state
        return result

    def _after(self, state: Any, event: Event) -> Any:
        what, node = event[0], event[1]
        if state == BROKEN:
            return BROKEN
        if what == "requested" and node == self.first:
            return (frozenset({node}), (), False, False)
        if state is None or (what == "entered" and node == self.first):
            return None
        heard, news, left, late = state
        match what:
            case "requested":
                return (heard, news, left, None if self.by_request else self._too_late(heard, left))
            case "entered":
                return BROKEN if late else (heard, news, left, False)
            case "sent" | "broadcast" if node == self.second and late is None and isinstance(event[3], Ask):
                state = (heard, news, left, self._too_late(heard, left))
                return self._after(state, event)
            case "idle":
                return (heard, news, left or (len(heard) == self.everybody and node != self.first), late)
            case "sent" | "broadcast" if node in self._sources(heard):
                whom = (event[2],) if what == "sent" else event[2]
                fresh = tuple((node, to, event[3]) for to in whom)
                return (heard, tuple(sorted((*news, *fresh), key=repr)), left, late)
            case "received" if (event[2], node, event[3]) in news:
                at = news.index((event[2], node, event[3]))
                return (heard | {node}, news[:at] + news[at + 1 :], left, late)
        return state

    def _sources(self, heard: frozenset[NodeId]) -> frozenset[NodeId]:
        """Whose messages carry the news."""
        return heard if self.order in ("happened before", "request chain") else frozenset({self.first})

    def _too_late(self, heard: frozenset[NodeId], left: bool) -> bool:
        match self.order:
            case "real time":
                return True
            case "known to all":
                return len(heard) == self.everybody
            case "queued":
                return left
        return self.second in heard


class InOrder(Property):
    """j has not entered before i."""

    name = "in order"

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        at = len(self.model.nodes)
        column = self.model.columns[at]
        states: list[Any] = list(column.locals)
        broken = np.array([int(states[number] == BROKEN) for number, _ in column.cells], np.int8)
        return np.asarray(broken[columns[at]], bool)


def kept(lab: Lab, name: str, order: str, by_request: bool = False, **settings: Any) -> Evidence:
    """Is this order kept, for every pair of three nodes?"""
    states, count, script, drawing = 0, 0, None, None
    for first, second in permutations((1, 2, 3), 2):
        setup = Setup(name, (3, 3, 3) if lab.full else (2, 2, 2), **settings)
        seen = lab.look(setup, [Order(order, first, second, 3, by_request)], _in_order)
        states, count = states + seen.states, count + 1
        if seen.verdicts["in order"] != "holds":
            script = (seen.script or "").replace(
                "in order is violated", f"{second} enters before {first}, against {order!r}"
            )
            drawing = seen.drawing
            break
    return Evidence(
        "exhaustive",
        f"{order!r} is kept by every pair of 3 nodes",
        script is None,
        configurations=count,
        states=states,
        counterexample=script,
        drawing=drawing,
    )


def _in_order(model: Model) -> list[Property]:
    return [InOrder(model)]


def strongest(
    lab: Lab, name: str, orders: Sequence[str] = ORDERS, by_request: bool = False, **settings: Any
) -> tuple[str | None, list[Evidence]]:
    """The strongest order that is kept, and the evidence: against each stronger one, and for it."""
    found = []
    for order in orders:
        found.append(kept(lab, name, order, by_request, **settings))
        if found[-1].speaks_for:
            return order, found
    return None, found
