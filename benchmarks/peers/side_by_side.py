"""All rows through all scenes, run after run, and what came out: medians, and how they compare."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.peers import duels
from benchmarks.peers.drivers import ROWS, Row
from benchmarks.peers.figures import CROWDS, Comparison, Contended, Duel, Figures, Floor, contended, median_of
from benchmarks.peers.floor import floor, idle_us, two_cores
from benchmarks.peers.scenes import APART, FORKED, percentile, play, rare_us
from benchmarks.peers.servers import PACKAGES, STARTERS, is_installed
from benchmarks.peers.targets import over_runs
from peerlock.errors import Unfinished, UsageError


def chosen(only: Sequence[str]) -> list[Row]:
    """The rows that are meant: by name, or by how a name begins."""
    if not only:
        return list(ROWS)
    for word in only:
        if not any(_meant(row, word) for row in ROWS):
            raise UsageError(f"Nothing here is called {word!r}. There are: {'; '.join(row.name for row in ROWS)}.")
    return [row for row in ROWS if any(_meant(row, word) for word in only)]


def _meant(row: Row, word: str) -> bool:
    return row.name.lower().startswith(word.lower())


def steps(rows: Sequence[Row], runs: int) -> int:
    there = [row for row in rows if not row.missing()]
    return runs * (len(there) + 1 + duels.how_many(there))


def compare(
    rows: Sequence[Row], runs: int, seconds: float, step: Callable[[str], None] = lambda words: None
) -> Comparison:
    skipped = {row.name: row.missing() for row in rows if row.missing()}
    there = [row for row in rows if row.name not in skipped]
    seen: list[dict[str, Figures]] = []
    failed: dict[str, str] = {}
    floors: list[list[Floor]] = []
    fought: list[list[Duel]] = []
    for run in range(runs):
        step(f"run {run + 1} of {runs}: a bare message")
        floors.append(list(floor(seconds / 2)))
        seen.append({})
        first = run * len(there) // runs  # another row begins each time: a machine is not the same all the time
        for row in (*there[first:], *there[:first]):
            step(f"run {run + 1} of {runs}: {row.name}")
            try:
                seen[-1][row.name] = one(row, seconds, run)
            except Unfinished as problem:
                failed[row.name] = str(problem)
        fought.append([])
        for words, fight in duels.planned(there, seen[-1], seconds / 2):
            step(f"run {run + 1} of {runs}: {words}")
            try:
                fought[-1] += fight()
            except Unfinished as problem:
                failed[words] = str(problem)
    middle = {
        row.name: median_of(many) for row in there if (many := [one[row.name] for one in seen if row.name in one])
    }
    grounds = [median_of(list(same)) for same in zip(*floors, strict=True)]
    found = over_runs(list(zip(seen, fought, strict=True)))
    every = [duel for run_ in fought for duel in run_]
    return Comparison(runs, seconds, middle, grounds, skipped, failed, found, every, about())


def about() -> dict[str, str]:
    """The machine, and what ran on it."""
    model = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    found = {
        "Python": platform.python_version(), "system": f"{platform.system()} {platform.release()}",
        "cores": str(len(os.sched_getaffinity(0))), "processor": model[0] if model else platform.machine(),
    }  # fmt: skip
    for package in ("uvloop", "redis", "hiredis", "psycopg", "kazoo", "aiohttp", "pysyncobj", "nats-py"):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    for server, (package, _) in PACKAGES.items():
        if is_installed(server) and shutil.which("dpkg-query"):
            words = ["dpkg-query", "--show", "--showformat=${Version}", package]
            told = subprocess.run(words, capture_output=True, text=True, check=False)
            if told.returncode == 0:
                found[package] = told.stdout
    return found


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


def one(row: Row, seconds: float, run: int = 0) -> Figures:
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place, STARTERS[row.server](Path(place)) as address:
        if row.warm_up_s:
            play(row, "contended", 3, row.warm_up_s, address)
        alone = play(row, "uncontended", 3, seconds / 2, address)[0]
        figures.uncontended_us, figures.uncontended_99_us = alone["us"], alone["us_99"]
        figures.over_asyncio_lock = alone["us"] / alone["asyncio_lock_us"]
        if row.within:
            return figures
        for start in ((FORKED, APART), (APART, FORKED))[run % 2]:
            if start == FORKED:
                figures.contended = _crowds(row, seconds, address, start)
            elif row.networked:
                figures.apart = _crowds(row, seconds, address, start)
        turns = play(row, "alternation", 2, seconds, address)
        figures.alternations_a_second = sum(told["turns"] for told in turns) / max(told["seconds"] for told in turns)
        times = [time for told in play(row, "parked", 2, seconds, address) for time in told["times"]]
        if len(times) >= 10:  # a lock that never goes to who waits has no such time
            figures.parked_us, figures.parked_99_us = percentile(times, 0.5) * 1e6, rare_us(times)
        if row.ours and len(two := two_cores()) == 2:
            bare = [idle_us(row.loop, seconds / 2, two)]
            times = [time for told in play(row, "parked", 2, seconds, address, two) for time in told["times"]]
            bare.append(idle_us(row.loop, seconds / 2, two))
            if len(times) >= 10:
                figures.parked_two_cores_us = percentile(times, 0.5) * 1e6
                figures.parked_over_bare = figures.parked_two_cores_us / statistics.mean(bare)
        if row.networked:
            fresh = play(row, "first touch", 5, seconds / 2, address)[0]["times"]
            figures.first_touch_us = percentile(fresh, 0.5) * 1e6
    return figures


def _crowds(row: Row, seconds: float, address: str, start: str) -> dict[int, Contended]:
    return {of: contended(play(row, "contended", of, seconds, address, start=start)) for of in CROWDS}
