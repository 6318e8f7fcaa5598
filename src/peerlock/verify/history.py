"""What the processes wrote, read and judged.

A process *believes* that it holds the lock from the grant until the first of these: it releases the
lock; it is told that the lock is lost; it is dead; the last lease that it has heard of is over, by
its own clock. If `hold.check()` tells it later than that that it holds the lock, then it believed
until then, lease or not. Two beliefs at one time are an overlap.

A write is *stale* if one with a larger fence was accepted before it. A stale write that is accepted
is the disaster that fences prevent. One that is refused shows that the guard was needed. Updates
are lost if the counter is lower than the number of accepted writes.
"""

from __future__ import annotations

import itertools
from math import inf
from typing import NamedTuple

from msgspec import Struct

from peerlock.verify.log import Line
from peerlock.verify.plan import Fault

Deaths = list[tuple[float, int]]  # when, and which process


class Belief(Struct, frozen=True):
    """A time during which a process believed that it held the lock."""

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
    recovery_s: float | None = None  # the longest wait for the lock after a healing
    stuck: int = 0  # processes that were not granted the lock in time after a healing
    raised: int = 0  # exceptions that are no PeerlockError
    phases: dict[str, int] = {}  # faults in system calls, by what the process was doing
    seconds: float = 0.0
    seed: int = 0
    hosts: str = ""
    problems: list[str] = []

    @property
    def ok(self) -> bool:
        wrong = (self.overlaps, self.stale_writes_accepted, self.lost_updates, self.fences_out_of_order, self.stuck)
        return not any(wrong) and not self.raised


class Outcome(NamedTuple):
    """What a run found, the beliefs of its processes, and the faults that they met."""

    verdict: Verdict
    held: list[Belief]
    faults: list[Fault]


def beliefs(node: str, lines: list[Line], deaths: Deaths) -> list[Belief]:
    """The beliefs of one node. Its log holds those of all its processes, one process after the
    other.
    """
    died = {pid: when for when, pid in deaths}
    leases: dict[int, list[tuple[float, float]]] = {}  # pid -> (when it heard of a lease, until when)
    for line in lines:
        if line.what == "lease":
            leases.setdefault(line.pid, []).append((line.t, line.until))
    found: list[Belief] = []
    granted: dict[int, Line] = {}
    assured: dict[int, float] = {}  # pid -> when it was last told that it holds the lock, at the earliest

    def ended(pid: int, end: float, why: str) -> None:
        found.append(_belief(node, granted.pop(pid), end, why, leases.get(pid, []), assured[pid]))

    for line in lines:
        if line.what == "granted":
            granted[line.pid] = line
            assured[line.pid] = line.t
        elif line.what == "checked":
            assured[line.pid] = line.since
        elif line.what in ("released", "lost", "left", "lapsed") and line.pid in granted:
            ended(line.pid, line.t, line.what)
    last = {line.pid: line.t for line in lines}
    for pid in list(granted):
        ended(pid, max(died.get(pid, inf), last[pid]), "died")
    return found


def _belief(
    node: str, granted: Line, end: float, why: str, leases: list[tuple[float, float]], assured: float
) -> Belief:
    """Cut off where the lease ended: leases that follow each other without a gap are one."""
    start, until = granted.t, inf
    for heard, ends in leases:
        if heard <= start:
            until = ends
        elif heard < until:
            until = max(until, ends)
        else:
            break  # the process heard of it too late: for a time it had no lease
    if until < end:
        end, why = max(until, assured), "lease"
    return Belief(node, start, max(start, end), granted.fence, why)


def overlaps(held: list[Belief]) -> list[tuple[Belief, Belief]]:
    found, last = [], None
    for belief in sorted(held, key=lambda belief: belief.start):
        if last is not None and belief.start < last.end:
            found.append((last, belief))
        if last is None or belief.end > last.end:
            last = belief
    return found


def refused_writes(lines: list[Line]) -> int:
    """Writes whose process was refused next."""
    count, last = 0, dict[int, str]()
    for line in lines:
        if line.what not in ("lease", "lapsed"):
            count += (last.get(line.pid), line.what) == ("writes", "refused")
            last[line.pid] = line.what
    return count


def judge(logs: dict[str, list[Line]], deaths: dict[str, Deaths], counter: int) -> tuple[Verdict, list[Belief]]:
    verdict = Verdict()
    held = [belief for node, lines in logs.items() for belief in beliefs(node, lines, deaths.get(node, []))]
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
    everything = sorted((line for lines in logs.values() for line in lines), key=lambda line: line.t)
    largest, accepted = 0, 0
    for line in everything:
        if line.what == "wrote":
            accepted += 1
            verdict.stale_writes_accepted += line.fence < largest
            largest = max(largest, line.fence)
    verdict.stale_writes_refused = sum(line.what == "refused" for line in everything)
    verdict.losses = sum(line.what == "lost" for line in everything)
    # A process that was killed between the write and its line about it has written without saying
    # so.
    began = sum(line.what == "writes" for line in everything)
    unknown = began - accepted - sum(map(refused_writes, logs.values()))
    verdict.lost_updates = accepted - counter if counter < accepted else max(0, counter - accepted - unknown)
    return verdict, held
