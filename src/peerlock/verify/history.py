"""Reading what the processes wrote down, and judging it.

A hold is *believed* from when it was granted until the first of: it was released; its loss was told; its process was
dead; the last lease that its process had heard of was over, by that process's own clock. But if its process was told
later than that, by `hold.check()`, that it holds the lock, then it believed until then, lease or not. Two believed
holds at one time are an overlap.

A write is *stale* if one with a larger fence was accepted before it: accepted, it is the disaster that fences are
for; refused, it shows that the guard was needed. Updates are lost if the counter is lower than the number of writes
that were accepted.
"""

from __future__ import annotations

import itertools
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Belief(Struct, frozen=True):
    """A time during which a process believed to hold the lock."""

    node: str
    start: float
    end: float
    fence: int
    why: str  # it ended


class Verdict(Struct):
    overlaps: int = 0
    stale_writes_accepted: int = 0
    stale_writes_refused: int = 0
    lost_updates: int = 0
    owner_changes: int = 0
    grants: int = 0
    losses: int = 0
    fences_out_of_order: int = 0
    faults: dict[str, int] = {}
    recovery_s: float | None = None  # the longest that anybody waited after a healing
    stuck: int = 0  # times that somebody was not in within the patience after a healing
    raised: int = 0  # exceptions that are no PeerlockError
    phases: dict[str, int] = {}  # faults in system calls, by what the process was about
    seconds: float = 0.0
    seed: int = 0
    hosts: str = ""
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        return not (
            self.overlaps
            or self.stale_writes_accepted
            or self.lost_updates
            or self.fences_out_of_order
            or self.stuck
            or self.raised
        )


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last one that was cut off is left out."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            continue
    return found


def beliefs(node: str, events: list[dict[str, Any]], deaths: list[tuple[float, int]]) -> list[Belief]:
    """Of one node: its log holds those of all its processes, one after the other."""
    died = {pid: when for when, pid in deaths}
    leases: dict[int, list[tuple[float, float]]] = {}  # pid -> (when it heard, until)
    for event in events:
        if event["what"] == "lease":
            leases.setdefault(event["pid"], []).append((event["t"], event["until"]))
    found: list[Belief] = []
    open_at: dict[int, dict[str, Any]] = {}
    assured: dict[int, float] = {}  # pid -> when it was last told that it holds the lock, at the earliest
    for event in events:
        pid, what = event["pid"], event["what"]
        if what == "granted":
            open_at[pid] = event
            assured[pid] = event["t"]
        elif what == "checked":
            assured[pid] = event["since"]
        elif what in ("released", "lost", "left", "lapsed") and pid in open_at:
            found.append(_belief(node, open_at.pop(pid), event["t"], what, leases.get(pid, []), assured[pid]))
    alive = {event["pid"]: event["t"] for event in events}  # the last time of each
    for pid, event in open_at.items():
        end = max(died.get(pid, inf), alive[pid])
        found.append(_belief(node, event, end, "died", leases.get(pid, []), assured[pid]))
    return found


def _belief(
    node: str, granted: dict[str, Any], end: float, why: str, leases: list[tuple[float, float]], assured: float
) -> Belief:
    """Cut off where the lease ended: leases that follow each other without a gap are one."""
    start = granted["t"]
    until = inf
    for heard, ends in leases:
        if heard <= start:
            until = ends
        elif heard < until:
            until = max(until, ends)
        else:
            break  # it was heard of too late: there was a time without one
    if until < end:
        end, why = max(until, assured), "lease"
    return Belief(node, start, max(start, end), granted["fence"], why)


def overlaps(held: list[Belief]) -> list[tuple[Belief, Belief]]:
    found, last = [], None
    for belief in sorted(held, key=lambda belief: belief.start):
        if last is not None and belief.start < last.end:
            found.append((last, belief))
        if last is None or belief.end > last.end:
            last = belief
    return found


def _pairs(logs: dict[str, list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What each process wrote down, and the next thing that it did."""
    found = []
    for events in logs.values():
        last: dict[int, dict[str, Any]] = {}
        for event in events:
            if event["what"] not in ("lease", "lapsed"):
                if event["pid"] in last:
                    found.append((last[event["pid"]], event))
                last[event["pid"]] = event
    return found


def judge(
    logs: dict[str, list[dict[str, Any]]], deaths: dict[str, list[tuple[float, int]]], counter: int
) -> tuple[Verdict, list[Belief]]:
    verdict = Verdict()
    held = [belief for node, events in logs.items() for belief in beliefs(node, events, deaths.get(node, []))]
    held.sort(key=lambda belief: belief.start)
    for a, b in overlaps(held):
        verdict.overlaps += 1
        if len(verdict.problems) < 20:
            verdict.problems.append(
                f"{a.node} held it with fence {a.fence} until {a.end:.6f} ({a.why}), and {b.node} with fence "
                f"{b.fence} from {b.start:.6f}"
            )
    verdict.grants = len(held)
    verdict.owner_changes = sum(a.node != b.node for a, b in itertools.pairwise(held))
    verdict.fences_out_of_order = sum(b.fence <= a.fence for a, b in itertools.pairwise(held))
    everything = sorted((event for events in logs.values() for event in events), key=lambda event: event["t"])
    largest, accepted = 0, 0
    for event in everything:
        if event["what"] == "wrote":
            accepted += 1
            if event["fence"] < largest:
                verdict.stale_writes_accepted += 1
            largest = max(largest, event["fence"])
        elif event["what"] == "refused":
            verdict.stale_writes_refused += 1
        elif event["what"] == "lost":
            verdict.losses += 1
    # A process that was killed between the writing and the noting of it has written, and not said so.
    began = sum(event["what"] == "writes" for event in everything)
    refused = sum(a["what"] == "writes" and b["what"] == "refused" for a, b in _pairs(logs))
    unknown = began - accepted - refused
    verdict.lost_updates = max(0, accepted - counter) if counter < accepted else max(0, counter - accepted - unknown)
    return verdict, held
