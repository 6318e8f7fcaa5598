"""What the comparison finds: figures of a row, of a bare message, of a duel, and how they compare with what was aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from benchmarks.peers.scenes import APART, FORKED, percentile, rare_us

CROWDS = (3, 5)
WAYS = {"contended": "", "apart": " started one by one"}
STARTED = {"contended": FORKED, "apart": APART}
OURS, OURS_PLAIN, OURS_RING, OURS_TCP = "peerlock", "peerlock, asyncio", "peerlock, dijkstra-ring", "peerlock, TCP"


class Contended(Struct, frozen=True):
    grants_a_second: float
    owner_changes_a_second: float
    wait_us: float
    wait_99_us: float | None
    fairness: float  # fewest entries of a process over the most
    lost_updates: float  # or two that were inside at once; of all runs the most
    messages_an_entry: float
    cpu_us_an_entry: float  # of the clients; what a server takes comes on top


class Figures(Struct):
    """One row. What does not apply to it is not there."""

    uncontended_us: float | None = None
    uncontended_99_us: float | None = None
    over_asyncio_lock: float | None = None
    contended: dict[int, Contended] = field(default_factory=dict)  # processes that were forked from one
    apart: dict[int, Contended] = field(default_factory=dict)  # and that were started one by one
    alternations_a_second: float | None = None
    parked_us: float | None = None
    parked_99_us: float | None = None
    parked_two_cores_us: float | None = None  # each process on a core of its own, as the floor of that name
    parked_over_bare: float | None = None  # that, over a bare message after idling, just before and after it
    first_touch_us: float | None = None


class Floor(Struct, frozen=True):
    """A bare message, one way."""

    loop: str
    cores: str
    hot_us: float
    idle_us: float


class Duel(Struct, frozen=True):
    """In one run, one of this lock's rows in turns with what it is compared with: round by round, how they compare."""

    row: str
    peer: str
    way: str  # of the crowd: "contended" (forked) or "apart"; or "parked"
    of: int
    ratios: tuple[float, ...]
    mine: tuple[float, ...] = ()  # owner changes a second; parked: microseconds
    theirs: tuple[float, ...] = ()  # of before and after, in the middle
    fairness: tuple[float, ...] = ()
    lost_updates: float = 0.0
    aimed: bool = True  # a target speaks of it


class Target(Struct, frozen=True):
    words: str
    value: float
    bound: float
    met: bool
    of_runs: tuple[float, ...] = ()  # the same of each run; the median of these is the value


class Comparison(Struct):
    runs: int
    seconds: float
    rows: dict[str, Figures]
    floor: list[Floor]
    skipped: dict[str, str]  # and the command that installs it
    failed: dict[str, str]
    targets: list[Target]
    duels: list[Duel] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)  # the machine, and what ran on it


def contended(told: Sequence[dict[str, Any]]) -> Contended:
    seconds, entries = max(each["seconds"] for each in told), [each["entries"] for each in told]
    waits = [wait for each in told for wait in each["waits"]]
    total = max(1, sum(entries))
    return Contended(
        grants_a_second=sum(entries) / seconds,
        owner_changes_a_second=sum(each["changes"] for each in told) / seconds,
        wait_us=percentile(waits, 0.5) * 1e6,
        wait_99_us=rare_us(waits),
        fairness=min(entries) / max(1, *entries),
        lost_updates=sum(entries) - max(each["counter"] for each in told) + sum(each["overlaps"] for each in told),
        messages_an_entry=sum(each["messages"] for each in told) / total,
        cpu_us_an_entry=sum(each["cpu_s"] for each in told) / total * 1e6,
    )


def median_of(many: Sequence[Any]) -> Any:
    """Field by field, and key by key. What must never be is not made better by other runs."""
    first = many[0]
    if isinstance(first, Struct):
        return type(first)(
            **{
                name: (max if name == "lost_updates" else median_of)([getattr(each, name) for each in many])
                for name in first.__struct_fields__
            }
        )
    if isinstance(first, dict):
        return {key: median_of([each[key] for each in many if key in each]) for key in first}
    there = [each for each in many if each is not None]
    if not there or isinstance(first, str):
        return first
    return statistics.median(there)
