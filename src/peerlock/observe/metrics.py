"""Figures of a run, folded from its events as they happen or from a trace file.

Every message charges one entry or is overhead; the message itself says which (`Wire.charged`).
Charges plus overhead are all messages, counted until the network is empty. A message that charges a
node without an open entry is overhead, such as a token for a node that does not want it. A request
that others pass on may still be under way when its origin has begun the next entry; `Wire.asked`
leads it to the right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypedDict

from msgspec import Struct

from peerlock.contract import Ask, Grant, Mode, NodeId, Wire, kind_of
from peerlock.trace import Recorder, size_of


class Cost(Struct, gc=False):
    """One entry: when it was wanted and what it cost so far."""

    since: float = 0.0  # when the work arrived
    requested: float = 0.0  # when the algorithm was asked
    messages: int = 0
    size: int = 0
    made: bool = False


class _Kind:
    """One type of message: how many there are, and which node pays for them."""

    __slots__ = ("by", "count", "passed_on")

    def __init__(self, message: type[Wire]) -> None:
        self.count = 0
        self.by: Literal["source", "to", "message"] = (
            "source" if message.charged is Ask.charged else "to" if message.charged is Grant.charged else "message"
        )
        self.passed_on = message.asked is not Wire.asked


class Metrics(Recorder):
    """Folds the events of one run."""

    def __init__(self) -> None:
        self.costs: list[Cost] = []  # of every entry, in the order of requesting
        self.overhead = Cost()
        self.waits: list[float] = []
        self.sync_delays: list[float] = []
        self.violations = 0
        self.first_violation: float | None = None
        self.entries: dict[NodeId, int] = {}  # of every node that asked
        self.inside: dict[NodeId, Mode] = {}
        self.ended = 0.0
        self._kinds: dict[type[Wire], _Kind] = {}
        self._open: dict[NodeId | None, Cost] = {}  # the entry that a node has open
        self._asked: dict[tuple[NodeId, int], Cost] = {}  # (origin, number) -> entry
        self._left: float | None = None
        # Most requests go to all nodes. A message that its sender repeats is counted, and booked
        # later.
        self._same: Wire | None = None
        self._same_from: NodeId = 0
        self._times = 0

    def requested(self, t: float, node: NodeId, mode: Mode, since: float) -> None:
        if self._times:
            self._book()
        cost = self._open[node] = Cost(since, t)
        self.costs.append(cost)
        self.entries.setdefault(node, 0)

    def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None:
        if message is self._same and node == self._same_from:
            self._times += 1
            return
        if self._times:
            self._book()
        kind = self._kinds.get(type(message)) or self._new_kind(type(message))
        if kind.by == "to":
            kind.count += 1
            cost = self._open.get(to, self.overhead)
            cost.messages += 1
            cost.size += size_of(message)
        else:
            self._same, self._same_from, self._times = message, node, 1

    def broadcast(self, t: float, id: int, node: NodeId, to: tuple[NodeId, ...], message: Wire) -> None:
        self.sent(t, id, node, node, message)

    def _book(self) -> None:
        """Charge the message that was sent several times."""
        times, message, node = self._times, self._same, self._same_from
        if not times or message is None:
            return
        self._same, self._times = None, 0
        kind = self._kinds[type(message)]
        kind.count += times
        payer = node if kind.by == "source" else message.charged(node, node)
        cost = self._open.get(payer, self.overhead)
        number = message.asked() if kind.passed_on else None
        if number is not None and payer is not None:
            if node == payer:
                self._asked[payer, number] = cost
            cost = self._asked.get((payer, number), self.overhead)
        cost.messages += times
        cost.size += times * size_of(message)

    def _new_kind(self, message: type[Wire]) -> _Kind:
        kind = self._kinds[message] = _Kind(message)
        return kind

    def entered(self, t: float, node: NodeId, mode: Mode) -> None:
        inside = self.inside
        if inside and (mode == "write" or "write" in inside.values()):
            self.violations += 1
            if self.first_violation is None:
                self.first_violation = t
        cost = self._open.get(node)
        if cost is not None:
            cost.made = True
            self.waits.append(t - cost.since)
            self.entries[node] += 1
            if self._left is not None and not inside and cost.requested <= self._left:
                self.sync_delays.append(t - self._left)
        self._left = None
        inside[node] = mode

    def left(self, t: float, node: NodeId) -> None:
        self.inside.pop(node, None)
        self._left = t

    def idle(self, t: float, node: NodeId) -> None:
        if self._times:
            self._book()
        self._open.pop(node, None)

    def crashed(self, t: float, node: NodeId) -> None:
        # A node that died inside is inside no more: the others may go on.
        self.inside.pop(node, None)

    def restarted(self, t: float, node: NodeId) -> None:
        self._open.pop(node, None)

    def end(self, t: float) -> None:
        self._book()
        self.ended = t

    @property
    def messages(self) -> int:
        return sum(kind.count for kind in self._kinds.values())

    @property
    def made(self) -> list[Cost]:
        """The entries that were made."""
        return [cost for cost in self.costs if cost.made]

    def by_kind(self) -> dict[str, int]:
        kinds = Counter[str]()
        for message, kind in self._kinds.items():
            kinds[kind_of(message)] += kind.count
        return dict(sorted(kinds.items()))


class PerEntry(TypedDict):
    """None: there is nothing to measure, or the figure means nothing."""

    min: int | None
    mean: float | None
    max: int | None


class Quantiles(TypedDict):
    p50: float | None
    p99: float | None
    max: float | None


class Summary(TypedDict):
    """The figures of one run, or of several together."""

    entries: int
    messages: int
    messages_per_entry: PerEntry
    overhead: int
    by_kind: dict[str, int]
    bytes_per_entry: float | None
    wait: Quantiles
    sync_delay: Quantiles
    throughput: float | None  # entries per unit of time
    fairness: float | None  # fewest over most entries of a node
    violations: int


def quantiles(values: Sequence[float]) -> Quantiles:
    """p50, p99 and max, by nearest rank; nothing to measure gives None."""
    if not values:
        return {"p50": None, "p99": None, "max": None}
    ordered = sorted(values)
    p50, p99 = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 99))
    return {"p50": p50, "p99": p99, "max": ordered[-1]}


def summary(runs: Sequence[Metrics], mean_only: bool = False) -> Summary:
    """The figures of one run or over several."""
    made = [cost for run in runs for cost in run.made]
    costs, entries = [cost.messages for cost in made], len(made)
    messages = sum(run.messages for run in runs)
    overhead = messages - sum(costs)
    asked = {node for run in runs for node in run.entries}
    per_node = [sum(run.entries.get(j, 0) for run in runs) for j in asked]
    kinds = Counter[str]()
    for run in runs:
        kinds.update(run.by_kind())
    mean = sum(costs) / entries if entries else None
    per_entry: PerEntry = {"min": min(costs, default=None), "mean": mean, "max": max(costs, default=None)}
    total_bytes = sum(cost.size for cost in made)
    if mean_only:
        # A message serves all nodes that wait further on, so all are divided by all.
        overhead = 0
        per_entry = {"min": None, "mean": messages / entries if entries else None, "max": None}
        total_bytes = sum(cost.size for run in runs for cost in (*run.costs, run.overhead))
    elapsed = sum(run.ended for run in runs)
    most = max(per_node, default=0)
    return {
        "entries": entries,
        "messages": messages,
        "messages_per_entry": per_entry,
        "overhead": overhead,
        "by_kind": dict(sorted(kinds.items())),
        "bytes_per_entry": total_bytes / entries if entries else None,
        "wait": quantiles([wait for run in runs for wait in run.waits]),
        "sync_delay": quantiles([delay for run in runs for delay in run.sync_delays]),
        "throughput": entries / elapsed if elapsed else None,
        "fairness": min(per_node, default=0) / most if most else None,
        "violations": sum(run.violations for run in runs),
    }
