"""All rows through all scenes, run after run, and what came out: medians, and how they compare."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from peerlock.bench.peers.drivers import ROWS, Row, Wire
from peerlock.bench.peers.scenes import APART, FORKED, percentile, play, rare_us
from peerlock.bench.peers.servers import PACKAGES, STARTERS, is_installed
from peerlock.errors import Unfinished, UsageError

CROWDS = (3, 5)
WAYS = {"contended": "", "apart": " started one by one"}
OURS, OURS_PLAIN = "peerlock", "peerlock, asyncio"
AT_MOST = ("at most", "lost updates")  # how the words of such targets end


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
    about: dict[str, str] = field(default_factory=dict)  # the machine, and what ran on it


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


def steps(rows: Iterable[Row], runs: int) -> int:
    return runs * (sum(not row.missing() for row in rows) + 1)


def compare(
    rows: Sequence[Row], runs: int, seconds: float, step: Callable[[str], None] = lambda words: None
) -> Comparison:
    skipped = {row.name: row.missing() for row in rows if row.missing()}
    there = [row for row in rows if row.name not in skipped]
    seen: list[dict[str, Figures]] = []
    failed: dict[str, str] = {}
    floors: list[list[Floor]] = []
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
    middle = {
        row.name: median_of(many) for row in there if (many := [one[row.name] for one in seen if row.name in one])
    }
    grounds = [median_of(list(same)) for same in zip(*floors, strict=True)]
    return Comparison(runs, seconds, middle, grounds, skipped, failed, over_runs(seen), about())


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


def over_runs(seen: Sequence[dict[str, Figures]]) -> list[Target]:
    """Each target is a ratio of things of one run; what counts is the median of these ratios."""
    of_runs: dict[str, list[Target]] = {}
    for rows in seen:
        for target in targets(rows):
            of_runs.setdefault(target.words, []).append(target)
    found = []
    for words, many in of_runs.items():
        values = [target.value for target in many]
        value = max(values) if words.endswith("lost updates") else statistics.median(values)
        bound = many[0].bound
        met = value <= bound if words.endswith(AT_MOST) else value >= bound
        found.append(Target(words, value, bound, met, tuple(values)))
    return found


def targets(rows: dict[str, Figures]) -> list[Target]:
    """What this lock is meant to reach, as far as the rows for it are there."""
    found: list[Target] = []
    peers = {row.name for row in ROWS if row.networked and not row.ours}
    others = {name: figures for name, figures in rows.items() if name in peers}

    def add(words: str, value: float, bound: float, least: bool) -> None:
        found.append(Target(words, value, bound, value >= bound if least else value <= bound))

    for name, most in ((OURS, 2.0), (OURS_PLAIN, None)):
        mine = rows.get(name)
        if mine is None:
            continue
        if most is not None and mine.over_asyncio_lock is not None:
            add(f"{name}: uncontended, over asyncio.Lock, at most", mine.over_asyncio_lock, most, False)
        quickest = min((other.uncontended_us for other in others.values() if other.uncontended_us), default=None)
        if quickest is not None and mine.uncontended_us:
            words = f"{name}: uncontended, times as fast as the best networked peer, at least"
            add(words, quickest / mine.uncontended_us, 50.0 if name == OURS else 1.0, True)
        for way, how in WAYS.items():
            our = getattr(mine, way)
            for of in CROWDS:
                theirs = [getattr(other, way) for other in others.values()]
                best = max((each[of].owner_changes_a_second for each in theirs if of in each), default=None)
                if best and of in our:
                    words = f"{name}: {of} processes{how}, owner changes over the best networked peer's, at least"
                    add(words, our[of].owner_changes_a_second / best, 2.0 if name == OURS else 1.0, True)
            if 3 in our and name == OURS:
                add(f"{name}: 3 processes{how}, fairness, at least", our[3].fairness, 0.9, True)
        if mine.contended:
            lost = max(each.lost_updates for each in (*mine.contended.values(), *mine.apart.values()))
            add(f"{name}: lost updates", lost, 0.0, False)
        # Whether two processes are on one core or on two makes more difference than anything else, and the kernel does as it
        # likes: so like is compared with like.
        if mine.parked_over_bare is not None:
            words = f"{name}: hand-over to a parked waiter, over a bare message after idling (two cores), at most"
            add(words, mine.parked_over_bare, 1.6, False)
    return found
