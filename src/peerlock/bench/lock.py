"""How fast is the lock? Ratios, against something else in the same run on the same machine.

- `uncontended_over_asyncio_lock`: an entry that nobody competes for, against `asyncio.Lock`, which shares nothing with
  anybody. Both are timed in turns in one process, which is a member of a group of three; the metrics count, and no
  message is sent.
- `handover_over_wire`: from the release in one process to the grant in another, against a message that one process sends
  to the other over a bare socket of the same event loop. In both cases the one that gives has been busy for 100 us and the
  one that gets has slept as long. `cold_handover_over_wire` is the same after both have slept for 2 ms: their code has left
  the caches, and Python pays more for that than a bare socket.
- `first_touch_over_wire`: a lock that nobody has used before, with five members.
- `bytes_a_lock`: 100,000 locks used once each, and what is left of them after the idle ones were collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from peerlock.errors import Unfinished

ROUNDS, ENTRIES = 15, 20_000
HANDOVERS, BUSY_S, COLD, PAUSE_S = 3_000, 0.0001, 600, 0.002
FRESH, LOCKS = 300, 100_000


class Figures(Struct, frozen=True):
    loop: str
    uncontended_us: float
    asyncio_lock_us: float
    uncontended_over_asyncio_lock: float
    uncontended_messages: int
    wire_us: float
    handover_us: float
    handover_over_wire: float
    cold_wire_us: float
    cold_handover_us: float
    cold_handover_over_wire: float
    first_touch_us: float
    first_touch_over_wire: float
    bytes_a_lock: float
    bytes_a_lock_after_collection: float


def measure(step: Callable[[str], None] = lambda words: None) -> Figures:
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
        directory = Path(place)
        step("entries that nobody competes for")
        with idle_members(directory, 2):
            alone = ask(directory, "alone")
        step("a message over a bare socket")
        wire = pair(directory, "wire")
        step("hand-over between two processes")
        handover = pair(directory, "handover")
        step("the same, after both have slept")
        cold_wire, cold_handover = pair(directory, "cold-wire"), pair(directory, "cold-handover")
        step("locks that nobody has used before")
        with idle_members(directory, 4):
            fresh = ask(directory, "fresh")
        step("100,000 locks")
        memory = ask(directory, "memory")
    return Figures(
        alone["loop"],
        alone["peerlock"],
        alone["asyncio"],
        alone["peerlock"] / alone["asyncio"],
        alone["messages"],
        wire,
        handover,
        handover / wire,
        cold_wire,
        cold_handover,
        cold_handover / cold_wire,
        fresh["us"],
        fresh["us"] / wire,
        memory["used"],
        memory["left"],
    )


# -- processes ---------------------------------------------------------------------------------------------


def start(directory: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "peerlock.bench.lock", str(directory), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(directory: Path, role: str) -> dict[str, Any]:
    process = start(directory, role)
    out, _ = process.communicate(timeout=300)
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@contextlib.contextmanager
def idle_members(directory: Path, count: int) -> Iterator[None]:
    members = [start(directory, "idle") for _ in range(count)]
    try:
        for member in members:
            assert member.stdout is not None
            member.stdout.readline()
        yield
    finally:
        for member in members:
            member.communicate(b"\n", timeout=30)


def pair(directory: Path, role: str) -> float:
    """Two processes that write down when they gave and when they got; the median of what lies in between.

    Only what went from one to the other, which waited, counts: a process that enters twice in a row has handed nothing
    over.
    """
    processes = [start(directory, role, side) for side in ("one", "two")]
    given: dict[int, tuple[int, float]] = {}
    got: dict[int, tuple[int, float]] = {}
    asked: dict[int, float] = {}
    for side, process in enumerate(processes):
        out, _ = process.communicate(timeout=300)
        told = json.loads(out.splitlines()[-1])
        given |= {int(number): (side, when) for number, when in told["given"].items()}
        got |= {int(number): (side, when) for number, when in told["got"].items()}
        asked |= {int(number): when for number, when in told.get("asked", {}).items()}
    between = [
        when - given[number][1]
        for number, (side, when) in got.items()
        if number in given and given[number][0] != side and asked.get(number, 0.0) < given[number][1]
    ]
    if len(between) < COLD // 4:
        raise Unfinished(f"Only {len(between)} hand-overs between two processes were seen: run it again.")
    return statistics.median(between) * 1e6


# -- in them -----------------------------------------------------------------------------------------------


async def be_idle(directory: Path) -> None:
    import peerlock

    async with peerlock.join("bench", dir=directory):
        print("in", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def be_alone(directory: Path) -> dict[str, Any]:
    import peerlock

    async with peerlock.join("bench", dir=directory) as node:
        lock, other = node.lock("mine"), asyncio.Lock()
        async with lock:
            pass
        before = node._shell.core.table.messages
        times: dict[str, list[float]] = {"peerlock": [], "asyncio": []}
        for _ in range(ROUNDS):
            times["asyncio"].append(await timed(other))
            times["peerlock"].append(await timed(lock))
        best = {name: statistics.median(values) for name, values in times.items()}
        return {**best, "messages": node._shell.core.table.messages - before, "loop": type(node._shell.loop).__module__}


async def timed(lock: Any) -> float:
    began = time.perf_counter()
    for _ in range(ENTRIES):
        async with lock:
            pass
    return (time.perf_counter() - began) / ENTRIES * 1e6


async def hand_over(directory: Path, cold: bool) -> dict[str, Any]:
    """Each releases when the other has waited for a while: the fence tells which release goes with which grant."""
    import peerlock

    given: dict[int, float] = {}
    got: dict[int, float] = {}
    waited: dict[int, float] = {}
    async with peerlock.join("bench-pair", dir=directory) as node:
        while len(node.members) < 2:
            await asyncio.sleep(0.01)
        lock = node.lock("ball")
        for _ in range(COLD if cold else HANDOVERS):
            asked = time.monotonic()
            hold = await lock.acquire()
            got[hold.fence] = time.monotonic()
            waited[hold.fence] = asked
            if cold:
                await asyncio.sleep(PAUSE_S)
            while time.monotonic() < got[hold.fence] + BUSY_S:
                await asyncio.sleep(0)
            given[hold.fence + 1] = time.monotonic()
            hold.release()
            await asyncio.sleep(
                0
            )  # uvloop writes at the end of a turn of the loop, and the bare message has its turn for itself
        await asyncio.sleep(0.2)
    return {"given": given, "got": got, "asked": waited}


async def bare_wire(directory: Path, side: str, cold: bool) -> dict[str, Any]:
    """A ball over a Unix socket, held as long as the lock is, with the protocol that the lock's links use."""
    path, done, most = str(directory / f"wire-{cold}"), asyncio.Event(), COLD if cold else HANDOVERS
    given: dict[int, float] = {}
    got: dict[int, float] = {}
    loop = asyncio.get_running_loop()

    class Ball(asyncio.BufferedProtocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.buffer = transport, bytearray(4096)
            if side == "two":
                self.throw(1)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            number = int.from_bytes(self.buffer[:8], "big")
            got[number] = time.monotonic()
            if number >= 2 * most:
                self.throw(number + 1)
                done.set()
                return
            if cold:
                loop.call_later(PAUSE_S, self.throw, number + 1)
            else:
                self.busy(number + 1)

        def busy(self, number: int) -> None:
            """As long as the lock is held, turn after turn."""
            if time.monotonic() < got[number - 1] + BUSY_S:
                loop.call_soon(self.busy, number)
            else:
                self.throw(number)

        def throw(self, number: int) -> None:
            given[number] = time.monotonic()
            self.transport.write(number.to_bytes(8, "big"))

        def connection_lost(self, exc: Exception | None) -> None:
            done.set()

    if side == "one":
        server = await loop.create_unix_server(Ball, path)
        await done.wait()
        server.close()
    else:
        for _ in range(500):
            if os.path.exists(path):
                break
            await asyncio.sleep(0.01)
        await loop.create_unix_connection(Ball, path)
        await done.wait()
    return {"given": given, "got": got}


async def fresh_locks(directory: Path) -> dict[str, Any]:
    import peerlock

    times = []
    async with peerlock.join("bench", dir=directory) as node:
        while len(node.members) < 5:
            await asyncio.sleep(0.01)
        for number in range(FRESH):
            lock = node.lock(f"fresh-{number}")
            began = time.perf_counter()
            hold = await lock.acquire()
            times.append(time.perf_counter() - began)
            hold.release()
            await asyncio.sleep(PAUSE_S)
    return {"us": statistics.median(times) * 1e6}


async def many_locks(directory: Path) -> dict[str, Any]:
    import peerlock

    async with peerlock.join("bench-memory", dir=directory, idle_locks=2 * LOCKS) as node:
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(LOCKS):
            async with node.lock(f"lock-{number:06}"):
                pass
        gc.collect()
        full, _ = tracemalloc.get_traced_memory()
        node.collect()
        await asyncio.sleep(0.1)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return {"used": (full - before) / LOCKS, "left": (after - before) / LOCKS}


def main() -> None:
    directory, role, *more = sys.argv[1:]
    roles: dict[str, Callable[[], Any]] = {
        "idle": lambda: be_idle(Path(directory)),
        "alone": lambda: be_alone(Path(directory)),
        "handover": lambda: hand_over(Path(directory), cold=False),
        "cold-handover": lambda: hand_over(Path(directory), cold=True),
        "wire": lambda: bare_wire(Path(directory), more[0], cold=False),
        "cold-wire": lambda: bare_wire(Path(directory), more[0], cold=True),
        "fresh": lambda: fresh_locks(Path(directory)),
        "memory": lambda: many_locks(Path(directory)),
    }
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(roles[role]())), flush=True)
            return
    print(json.dumps(asyncio.run(roles[role]())), flush=True)


if __name__ == "__main__":
    main()
