"""What the processes of the comparison do, and how they are started.

They share an array of 64-bit numbers in a file: when to begin and to stop, a counter that is added to under the lock, who
had it last, and when it was last released. Each process says what it has seen when it ends.

Processes are forked from one, as the workers of a web server are, or started one by one, as from a shell. That makes a
difference to all rows: those that were forked from one have their code at the same addresses, and a processor that goes
from one of them to the next finds its predictions of branches still good.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import mmap
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.peers.drivers import AsyncioLock, Driver, Place, Row, Wire
from peerlock.errors import Unfinished
from peerlock.parallel import importing_nothing_from_here

GO, STOP, COUNTER, OWNER, TURN, GIVER, GIVEN = range(7)
FORKED, APART = "forkserver", "spawn"  # how processes are started: forked from one, or each by itself
READY, DONE, CELLS = 8, 136, 264  # one a process
WARM_UP, PARKED_S, REST_S = 20, 0.002, 0.001
MANY = 200  # times, for the rare ones to be spoken of
OPEN_S = 60.0
SOON_S = 0.02  # from the last one's being there to the start
BATCH_S, TIMED_S = 0.005, 0.3


@contextlib.contextmanager
def board(path: str) -> Iterator[memoryview]:
    with (
        open(path, "r+b") as file,
        mmap.mmap(file.fileno(), 8 * CELLS) as shared,
        memoryview(shared).cast("q") as cells,
    ):
        yield cells


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def rare_us(values: Sequence[float]) -> float | None:
    """What one of a hundred exceeds; nothing, if there are too few to say that of."""
    return percentile(values, 0.99) * 1e6 if len(values) >= MANY else None


# -- the scenes --------------------------------------------------------------------------------------------


async def uncontended(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    """The first process works, the others are there. Batches for the typical time, single entries for the rare one."""
    if number:
        await idle(driver, cells)
        return {}
    beside = AsyncioLock(driver.place)
    beside.use("beside")
    count, beside_count = await enough(driver), await enough(beside)
    batches: list[float] = []
    beside_batches: list[float] = []
    while not cells[STOP]:
        beside_batches.append(await batch(beside, beside_count))
        batches.append(await batch(driver, count))
    singles = list[float]()
    end = time.perf_counter() + TIMED_S
    while time.perf_counter() < end or len(singles) < 20:
        began = time.perf_counter()
        await driver.entries(1)
        singles.append(time.perf_counter() - began)
    return {
        "us": statistics.median(batches) * 1e6,
        "us_99": rare_us(singles),
        "asyncio_lock_us": statistics.median(beside_batches) * 1e6,
    }


async def enough(driver: Driver) -> int:
    """How many entries make a batch that a clock can measure."""
    count = 1
    while await batch(driver, count) * count < BATCH_S:
        count *= 2
    return count


async def batch(driver: Driver, count: int) -> float:
    began = time.perf_counter()
    await driver.entries(count)
    return (time.perf_counter() - began) / count


async def idle(driver: Driver, cells: memoryview) -> None:
    """Be there, and want nothing."""
    while not cells[STOP]:
        await driver.pause(0.05)


async def contended(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    me, entries, changes, overlaps, waits = number + 1, 0, 0, 0, list[float]()
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    before = driver.messages()
    while not cells[STOP]:
        asked = time.perf_counter()
        await driver.acquire()
        waits.append(time.perf_counter() - asked)
        value = cells[COUNTER]
        if cells[OWNER] != me:
            cells[OWNER] = me
            changes += 1
        cells[COUNTER] = value + 1
        overlaps += cells[OWNER] != me
        await driver.release()
        entries += 1
    now = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "entries": entries,
        "changes": changes,
        "overlaps": overlaps,
        "seconds": time.perf_counter() - began,
        "waits": waits,
        "messages": driver.messages() - before,
        "cpu_s": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
    }


async def alternation(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    turns, missed, began = 0, 0, time.perf_counter()
    while not cells[STOP]:
        await driver.acquire()
        if cells[TURN] % of == number:
            cells[TURN] += 1
            turns += 1
        else:
            missed += 1
        await driver.release()
    return {"turns": turns, "missed": missed, "seconds": time.perf_counter() - began}


async def parked(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    """Only what went to a process that had asked before the release counts. Who has released rests a while, as a bare
    socket does, instead of competing with the other for the processor. Then it asks, which wakes up the holder; from that on
    both sleep, for as long as the ends of the bare message do.
    """
    me, times = number + 1, list[float]()
    while not cells[STOP]:
        asked = time.monotonic_ns()
        await driver.acquire()
        now = time.monotonic_ns()
        if cells[GIVER] not in (0, me) and asked < cells[GIVEN]:
            times.append((now - cells[GIVEN]) / 1e9)
        await driver.pause(PARKED_S + REST_S)
        cells[GIVER], cells[GIVEN] = me, time.monotonic_ns()
        await driver.release()
        await driver.pause(REST_S)
    return {"times": times}


async def first_touch(driver: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    if number:
        await idle(driver, cells)
        return {}
    times = list[float]()
    while not cells[STOP]:
        began = time.perf_counter()
        driver.use(f"fresh-{len(times)}")
        await driver.acquire()
        times.append(time.perf_counter() - began)
        await driver.release()
        await driver.pause(PARKED_S)
    return {"times": times}


async def both_ready(cells: memoryview, number: int, of: int) -> None:
    cells[READY + number] = 2
    while any(cells[READY + each] < 2 for each in range(of)):
        await asyncio.sleep(0.001)


async def hot_wire(wire: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    """To and fro, as fast as it goes: half of that is one way."""
    assert isinstance(wire, Wire)
    count, began = 0, time.perf_counter()
    last = began

    def back() -> None:
        nonlocal count, last
        count += 1
        last = time.perf_counter()
        if not cells[STOP]:
            wire.throw()

    wire.on_message = back
    await both_ready(cells, number, of)
    if number == 0:
        began = time.perf_counter()
        wire.throw()
    while not cells[STOP]:
        await asyncio.sleep(0.05)
    return {"us": (last - began) / max(1, count) / 2 * 1e6} if number == 0 else {}


async def idle_wire(wire: Driver, cells: memoryview, number: int, of: int) -> dict[str, Any]:
    """One way, after both have slept."""
    assert isinstance(wire, Wire)
    times, loop = list[float](), asyncio.get_running_loop()

    def throw() -> None:
        cells[GIVEN] = time.monotonic_ns()
        wire.throw()

    def arrived() -> None:
        times.append((time.monotonic_ns() - cells[GIVEN]) / 1e9)
        if not cells[STOP]:
            loop.call_later(PARKED_S, throw)

    wire.on_message = arrived
    await both_ready(cells, number, of)
    if number == 0:
        throw()
    while not cells[STOP]:
        await asyncio.sleep(0.05)
    return {"times": times}


SCENES: dict[str, Callable[[Driver, memoryview, int, int], Awaitable[dict[str, Any]]]] = {
    "uncontended": uncontended, "contended": contended, "alternation": alternation, "parked": parked,
    "first touch": first_touch, "hot wire": hot_wire, "idle wire": idle_wire,
}  # fmt: skip


# -- processes ---------------------------------------------------------------------------------------------


class Cast(Struct, frozen=True):
    """Who plays which scene, for how long."""

    row: str
    scene: str
    of: int
    seconds: float
    directory: str
    address: str
    options: dict[str, Any]
    loop: str
    cores: tuple[tuple[int, ...], ...] = ()  # of each process; none: any
    start: str = FORKED


def play(
    row: Row,
    scene: str,
    of: int,
    seconds: float,
    address: str = "",
    cores: tuple[tuple[int, ...], ...] = (),
    start: str = FORKED,
) -> list[dict[str, Any]]:
    """What each of the processes has seen."""
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as directory:
        cast = Cast(row.name, scene, of, seconds, directory, address, dict(row.options), row.loop, cores, start)
        return perform(row.driver, cast)


def perform(driver: type[Driver], cast: Cast) -> list[dict[str, Any]]:
    path = Path(cast.directory) / "board"
    path.write_bytes(bytes(8 * CELLS))
    context: Any = multiprocessing.get_context(cast.start)
    together = issubclass(driver, AsyncioLock)
    processes, ends = [], []
    with importing_nothing_from_here():
        shared = context.Lock()
        for number in [0] if together else range(cast.of):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=take_part, args=(driver, cast, number, shared, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            ends.append(mine)
    try:
        with board(str(path)) as cells:
            wait_for(lambda: all(cells[READY + number] for number in range(cast.of)), processes, cast)
            cells[GO] = time.monotonic_ns() + int(SOON_S * 1e9)
            time.sleep(SOON_S + cast.seconds)
            cells[STOP] = 1
        return [result for end in ends for result in told(end, cast)]
    finally:
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def wait_for(ready: Callable[[], bool], processes: Sequence[Any], cast: Cast) -> None:
    end = time.monotonic() + OPEN_S
    while not ready():
        if time.monotonic() > end or not all(process.is_alive() for process in processes):
            raise Unfinished(f"{cast.row}, {cast.scene}: the {cast.of} processes did not all begin.")
        time.sleep(0.01)


def told(end: Connection, cast: Cast) -> list[dict[str, Any]]:
    try:
        if end.poll(30.0 + cast.seconds):
            found: list[dict[str, Any]] = end.recv()
            return found
    except EOFError:
        pass
    raise Unfinished(f"{cast.row}, {cast.scene}: a process ended without a word.")


def take_part(driver: type[Driver], cast: Cast, number: int, shared: Any, end: Connection) -> None:
    """The whole life of a process; of `asyncio.Lock`, of all of them."""
    if cast.cores:
        os.sched_setaffinity(0, cast.cores[number])
    numbers = range(cast.of) if issubclass(driver, AsyncioLock) else (number,)

    async def together() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(one(driver, cast, each, shared) for each in numbers)))

    logging.disable(logging.CRITICAL)  # a client that complains would be timed complaining
    with runner(cast.loop) as running:
        end.send(running.run(together()))
    end.close()


def runner(loop: str) -> asyncio.Runner:
    if loop == "uvloop":
        import uvloop

        return asyncio.Runner(loop_factory=uvloop.new_event_loop)
    return asyncio.Runner()


async def the_start(cells: memoryview) -> None:
    """Everybody at the same time: who is first by a millisecond would have the lock a thousand times before the others."""
    while not cells[GO]:
        await asyncio.sleep(0.002)
    await asyncio.sleep(max(0.0, (cells[GO] - time.monotonic_ns()) / 1e9 - 0.002))
    while time.monotonic_ns() < cells[GO]:
        await asyncio.sleep(0)


async def one(driver_of: type[Driver], cast: Cast, number: int, shared: Any) -> dict[str, Any]:
    driver = driver_of(Place(cast.directory, cast.address, number, cast.of, cast.options, shared))
    with board(str(Path(cast.directory) / "board")) as cells:
        await driver.open()
        try:
            driver.use("bench")
            for _ in range(WARM_UP if cast.scene != "first touch" else 1):
                await driver.acquire()
                await driver.release()
            cells[READY + number] = 1
            await the_start(cells)
            found = await SCENES[cast.scene](driver, cells, number, cast.of)
            cells[DONE + number] = 1
            while not all(cells[DONE : DONE + cast.of]):  # some need a majority to the end
                await driver.pause(0.01)
            return {**found, "counter": cells[COUNTER]}
        finally:
            await driver.close()
