"""Which node wants to enter, when, in which mode and for how long.

Every node draws its work from a stream of its own, so two algorithms given the same seed get the
same work, however differently they order it. In a *closed* load a node asks again some time after
it is done; in an *open* one work arrives by the clock and waits at the node if that is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from random import Random
from typing import NamedTuple

from msgspec import Struct

from peerlock.contract import Mode, NodeId
from peerlock.errors import UsageError
from peerlock.sim.delays import LONGEST, Delay, Draw, constant

SYNTAX = (
    "closed (ask again at once), closed:THINK (after THINK on average), poisson:RATE (a node), burst:EVERY (all nodes "
    "together), hot:NODES,SHARE (the first NODES make that SHARE of all entries), nodes:1,3 (only these)"
)


class Work(NamedTuple):
    after: float  # the end of the last (closed) or its arrival (open)
    hold: float
    mode: Mode


class Workload(Struct, frozen=True):
    text: str
    closed: bool
    entries: Callable[[NodeId, int, int], int]  # of a node, given K and N
    gap: Callable[[Random, bool], float]  # drawn once an entry; the flag says whether it is the first

    def of(self, node: NodeId, n: int, k: int, seed: int, hold: Delay, readers: float) -> Iterator[Work]:
        """The work of one node."""
        random = Random(f"{seed}/work/{node}")
        hold_for, entries = hold.make(random), self.entries(node, k, n)
        if self.gap is _at_once and hold.is_constant and not readers:
            return repeat(Work(0.0, hold_for(node, node), "write"), entries)
        return self._drawn(random, hold_for, entries, node, readers)

    def _drawn(self, random: Random, hold_for: Draw, entries: int, node: NodeId, readers: float) -> Iterator[Work]:
        for at in range(entries):
            after = self.gap(random, at == 0)
            mode: Mode = "read" if readers and random.random() < readers else "write"
            yield Work(after, hold_for(node, node), mode)


def _at_once(random: Random, first: bool) -> float:
    return 0.0


def _each(node: NodeId, k: int, n: int) -> int:
    return k


def parse(text: str) -> Workload:
    name, colon, rest = text.partition(":")
    try:
        numbers = [float(part) for part in rest.split(",")] if colon else []
    except ValueError:
        raise UsageError(f"{text!r} is not a load. Use one of: {SYNTAX}.") from None
    if not all(0 <= number <= LONGEST for number in numbers):
        raise UsageError(f"{text!r}: the numbers of a load are from 0 to {LONGEST:g}.")
    match name, numbers:
        case "closed", []:
            return Workload("closed", True, _each, _at_once)
        case "closed", [think]:
            return Workload(
                text, True, _each, lambda random, first: 0.0 if first or not think else random.expovariate(1 / think)
            )
        case "poisson", [rate] if rate > 0:
            return Workload(text, False, _each, lambda random, first: random.expovariate(rate))
        case "burst", [every]:
            return Workload(text, False, _each, lambda random, first: 0.0 if first else every)
        case "hot", [nodes, share] if nodes >= 1 and nodes == int(nodes) and share <= 1:
            return Workload(text, True, _hot(int(nodes), share), _at_once)
        case "nodes", [_, *_] if all(number == int(number) for number in numbers):
            return only([int(number) for number in numbers], text)
    raise UsageError(f"{text!r} is not a load. Use one of: {SYNTAX}.")


def only(nodes: Sequence[NodeId], text: str | None = None) -> Workload:
    """A closed load of some nodes; the others never ask."""
    asking = frozenset(nodes)
    text = text or "nodes:" + ",".join(map(str, nodes))
    return Workload(text, True, lambda node, k, n: k if node in asking else 0, _at_once)


def _hot(nodes: int, share: float) -> Callable[[NodeId, int, int], int]:
    def entries(node: NodeId, k: int, n: int) -> int:
        if nodes >= n:
            return k
        hot = round(n * k * share)
        total, count, at = (hot, nodes, node - 1) if node <= nodes else (n * k - hot, n - nodes, node - nodes - 1)
        return total // count + (at < total % count)

    return entries


HOLD = constant(0.1)
