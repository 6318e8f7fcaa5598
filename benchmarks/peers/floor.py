"""The floor: a bare message, one way, with no lock in it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from benchmarks.peers.drivers import Row, Wire
from benchmarks.peers.figures import Floor
from benchmarks.peers.scenes import percentile, play


def two_cores() -> tuple[tuple[int, ...], ...]:
    """One for each of two processes; nothing, if there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    return ((cores[0],), (cores[1],)) if len(cores) > 1 else ()


def floor(seconds: float) -> Iterable[Floor]:
    first = min(os.sched_getaffinity(0))
    ways: dict[str, tuple[tuple[int, ...], ...]] = {"any": (), "one": ((first,), (first,))}
    if two_cores():
        ways["two"] = two_cores()
    for loop in ("asyncio", "uvloop"):
        row = bare_message(loop)
        for words, pinned in ways.items() if not row.missing() else ():
            hot = play(row, "hot wire", 2, seconds, cores=pinned)[0]["us"]
            yield Floor(loop, words, hot, idle_us(loop, seconds, pinned))


def bare_message(loop: str) -> Row:
    return Row("a bare message", Wire, loop=loop, modules=("uvloop",) if loop == "uvloop" else ())


def idle_us(loop: str, seconds: float, cores: tuple[tuple[int, ...], ...]) -> float:
    """A bare message after both ends have slept."""
    told = play(bare_message(loop), "idle wire", 2, seconds, cores=cores)
    return percentile([time for each in told for time in each["times"]], 0.5) * 1e6
