"""What this lock costs, and how that grows: with the members, the names, the waiters; with TLS; with each registry.

The messages are those of the paper: Algorithm A sends N - 1 requests and passes the privilege once, which is N a change of
the owner; Ricart-Agrawala sends 2(N - 1) an entry; on Dijkstra's ring, where everybody wants it, a signal and the token. An
entry that finds the privilege here costs none.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from benchmarks.peers.drivers import Driver, Ours, OursAnywhere, Row
from benchmarks.peers.figures import contended
from benchmarks.peers.scenes import SCENES, STOP, percentile, play, rare_us
from benchmarks.peers.servers import STARTERS, is_installed
from peerlock.errors import Unfinished

NODES, NAMES, WAITERS = (2, 3, 5, 8, 12, 16, 20), (1, 100, 10_000, 100_000), (1, 10, 100, 1000)
FORMULAS: dict[str, Callable[[int], int]] = {
    "suzuki-kasami-a": lambda n: n, "ricart-agrawala": lambda n: 2 * (n - 1), "dijkstra-ring": lambda n: 2
}  # fmt: skip
FAMILIAR = 3  # entries, until a lock that nobody else wants is free (`LocalLock`)
BY_ENTRY = ("ricart-agrawala",)  # every entry has messages, whoever had it last
REGISTRIES = ("host", "fixed list", "fixed list, TLS", "voters", "etcd")


class Members(Struct, frozen=True):
    """So many processes that all want one lock all the time."""

    algorithm: str
    nodes: int
    owner_changes_a_second: float
    messages_a_change: float  # or an entry, as the formula
    formula: int
    cpu_us_a_change: float
    fairness: float
    lost_updates: float


class Names(Struct, frozen=True):
    names: int
    entry_us: float  # one after the other, nobody competes


class Waiters(Struct, frozen=True):
    """So many tasks in each of two processes."""

    waiters: int
    grants_a_second: float
    owner_changes_a_second: float
    wait_us: float
    wait_99_us: float | None


class Kind(Struct, frozen=True):
    """Three processes, by who decides on the members and how they talk."""

    registry: str
    uncontended_us: float
    owner_changes_a_second: float
    parked_us: float


class Curves(Struct):
    members: list[Members]
    names: list[Names]
    waiters: list[Waiters]
    kinds: list[Kind]
    skipped: dict[str, str]


class Counted(OursAnywhere):
    """Its options also say what a scene wants to know: how many names, or waiters. It lives here because whoever gets one in
    another process finds the scenes below with it.
    """

    async def open(self) -> None:
        options = dict(self.place.options)
        self.count: int = options.pop("count", 1)
        self.place = structs.replace(self.place, options=options)
        await super().open()


# -- scenes of this lock alone -----------------------------------------------------------------------------


async def names(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    """One entry for each name, round after round, when each of them has been used a few times."""
    assert isinstance(driver, Counted)
    locks = [driver.node.lock(f"name-{each:06}") for each in range(driver.count)]
    for _ in range(FAMILIAR):
        for lock in locks:
            async with lock:
                pass
    rounds = list[float]()
    while not cells[STOP] or not rounds:
        began = time.perf_counter()
        for lock in locks:
            async with lock:
                pass
        rounds.append((time.perf_counter() - began) / len(locks))
    return {"us": statistics.median(rounds) * 1e6}


async def waiters(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    assert isinstance(driver, Counted)
    lock = driver.node.lock("bench")
    entries, changes, waits, me, began = 0, 0, list[float](), number + 1, time.perf_counter()

    async def wait() -> None:
        nonlocal entries, changes
        while not cells[STOP]:
            asked = time.perf_counter()
            async with lock:
                waits.append(time.perf_counter() - asked)
                if cells[3] != me:
                    cells[3] = me
                    changes += 1
                entries += 1

    await asyncio.gather(*(wait() for _ in range(driver.count)))
    return {"entries": entries, "changes": changes, "waits": waits, "seconds": time.perf_counter() - began}


SCENES |= {"names": names, "waiters": waiters}


# -- all of them -------------------------------------------------------------------------------------------


def row(**options: Any) -> Row:
    return Row("peerlock", Counted, options=options, loop="uvloop" if _has_uvloop() else "asyncio")


def _has_uvloop() -> bool:
    return not Row("", Ours, modules=("uvloop",)).missing()


def steps() -> int:
    return len(NODES) * len(FORMULAS) + len(NAMES) + len(WAITERS) + len(REGISTRIES)


def curves(seconds: float, step: Callable[[str], None] = lambda words: None) -> Curves:
    skipped: dict[str, str] = {}
    return Curves(
        list(members(seconds, step)), list(by_names(seconds, step)), list(by_waiters(seconds, step)),
        list(kinds(seconds, step, skipped)), skipped,
    )  # fmt: skip


def members(seconds: float, step: Callable[[str], None]) -> Iterable[Members]:
    for algorithm, formula in FORMULAS.items():
        for n in NODES:
            step(f"{n} members, {algorithm}")
            told = play(row(algorithm=algorithm), "contended", n, seconds)
            found = contended(told)
            changes, messages = sum(each["changes"] for each in told), sum(each["messages"] for each in told)
            of_these = sum(each["entries"] for each in told) if algorithm in BY_ENTRY else changes
            cpu = sum(each["cpu_s"] for each in told)
            yield Members(
                algorithm, n, found.owner_changes_a_second, messages / max(1, of_these), formula(n),
                cpu / max(1, changes) * 1e6, found.fairness, found.lost_updates,
            )  # fmt: skip


def by_names(seconds: float, step: Callable[[str], None]) -> Iterable[Names]:
    for count in NAMES:
        step(f"{count:,} names")
        told = play(row(count=count, idle_locks=2 * max(NAMES)), "names", 1, seconds)
        yield Names(count, told[0]["us"])


def by_waiters(seconds: float, step: Callable[[str], None]) -> Iterable[Waiters]:
    for count in WAITERS:
        step(f"{count:,} waiters in each of two processes")
        told = play(row(count=count), "waiters", 2, seconds)
        took = max(each["seconds"] for each in told)
        waits = [wait for each in told for wait in each["waits"]]
        yield Waiters(
            count, sum(each["entries"] for each in told) / took, sum(each["changes"] for each in told) / took,
            percentile(waits, 0.5) * 1e6, rare_us(waits),
        )  # fmt: skip


def kinds(seconds: float, step: Callable[[str], None], skipped: dict[str, str]) -> Iterable[Kind]:
    for kind in REGISTRIES:
        step(f"three processes, {kind}")
        server = "etcd" if kind == "etcd" else "" if kind == "host" else "ports"
        if not is_installed(server):
            skipped[kind] = "apt-get install etcd-server"
            continue
        options: dict[str, Any] = {"kind": kind}
        with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
            if kind.endswith("TLS"):
                options["certs"] = make_certs(Path(place) / "certs")
            found = []
            for scene in ("uncontended", "contended", "parked"):
                with tempfile.TemporaryDirectory(dir=place) as fresh, STARTERS[server](Path(fresh)) as address:
                    found.append(play(row(**options), scene, 3, seconds, address))
        times = [each for told in found[2] for each in told["times"]]
        if not times:
            raise Unfinished(f"No hand-over was seen with {kind}: run it again, for longer.")
        yield Kind(kind, found[0][0]["us"], contended(found[1]).owner_changes_a_second, percentile(times, 0.5) * 1e6)


def make_certs(directory: Path) -> str:
    from peerlock.net.transport.certificates import make_certificates

    make_certificates([f"n{number}" for number in range(3)], directory, 2)
    return str(directory)
