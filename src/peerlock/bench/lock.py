"""The speed of the lock, as ratios to something comparable in the same run on the same machine.

- `uncontended_over_asyncio_lock`: an uncontended entry, against `asyncio.Lock`, which is shared by
  one process only. Both are timed in turns in one process of a group of three. No message is sent.
- `handover_over_wire`: from the release in one process to the grant in another, against a message
  that one process sends to the other over a bare socket of the same event loop. In both cases the
  giver has been busy for 100 us and the receiver has slept as long. `cold_handover_over_wire` is
  the same after both have slept for 2 ms: their code has left the caches, and Python pays more for
  that than a bare socket.
- `first_touch_over_wire`: the first use of a lock, with five members.
- `bytes_a_lock`: 100,000 locks used once each, and what is left of them after the idle ones were
  collected.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from peerlock.bench.crowd import Share
from peerlock.errors import Unfinished

T = TypeVar("T")

ROUNDS, ENTRIES = 15, 20_000
HANDOVERS, BUSY_S, COLD, PAUSE_S = 3_000, 0.0001, 600, 0.002
FRESH, LOCKS = 300, 100_000


class Figures(Struct, frozen=True):
    loop: str
    uncontended_us: float
    asyncio_lock_us: float
    uncontended_over_asyncio_lock: float
    uncontended_messages: int
    attached_us: float
    attached_over_asyncio_lock: float
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


class Alone(Struct):
    """Uncontended entries."""

    peerlock_us: float
    asyncio_us: float
    messages: int
    loop: str


class HandOvers(Struct):
    """Of one process: hand-over -> when."""

    given: dict[int, float] = {}
    got: dict[int, float] = {}
    asked: dict[int, float] = {}


class Memory(Struct):
    used: float
    left: float


def measure(step: Callable[[str], None] = lambda words: None) -> Figures:
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
        directory = Path(place)
        step("uncontended entries")
        with idle_members(directory, 2):
            alone = ask(Alone, directory, "alone")
        attached = ask(Alone, directory, "attached")
        step("a message over a bare socket")
        wire = pair(directory, "wire")
        step("hand-over between two processes")
        handover = pair(directory, "handover")
        step("the same, after both have slept")
        cold_wire, cold_handover = pair(directory, "cold-wire"), pair(directory, "cold-handover")
        step("locks used for the first time")
        with idle_members(directory, 4):
            fresh_us = ask(float, directory, "fresh")
        step("100,000 locks")
        memory = ask(Memory, directory, "memory")
    return Figures(
        alone.loop, alone.peerlock_us, alone.asyncio_us, alone.peerlock_us / alone.asyncio_us, alone.messages,
        attached.peerlock_us, attached.peerlock_us / attached.asyncio_us,
        wire, handover, handover / wire, cold_wire, cold_handover, cold_handover / cold_wire,
        fresh_us, fresh_us / wire, memory.used, memory.left,
    )  # fmt: skip


# -- processes ---------------------------------------------------------------------------------------------


def start(directory: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "peerlock.bench.lock", str(directory), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ask(kind: type[T], directory: Path, role: str) -> T:
    return answer(kind, start(directory, role))


def answer(kind: type[T], process: subprocess.Popen[bytes]) -> T:
    """The last line that the process prints."""
    out, _ = process.communicate(timeout=300)
    return msgspec.json.decode(out.splitlines()[-1], type=kind)


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
    """The median time between giving in one process and getting in the other.

    Only a hand-over to the other process while it waits counts. A process that enters twice in a
    row has handed nothing over.
    """
    processes = [start(directory, role, side) for side in ("one", "two")]
    given: dict[int, tuple[int, float]] = {}
    got: dict[int, tuple[int, float]] = {}
    asked: dict[int, float] = {}
    for side, process in enumerate(processes):
        told = answer(HandOvers, process)
        given |= {number: (side, when) for number, when in told.given.items()}
        got |= {number: (side, when) for number, when in told.got.items()}
        asked |= told.asked
    between = [
        when - given[number][1]
        for number, (side, when) in got.items()
        if number in given and given[number][0] != side and asked.get(number, 0.0) < given[number][1]
    ]
    if len(between) < COLD // 4:
        raise Unfinished(f"Only {len(between)} hand-overs between two processes were seen: run it again.")
    return statistics.median(between) * 1e6


# -- inside a process -----------------------------------------------------------------------------------------------


async def be_idle(directory: Path) -> None:
    import peerlock

    async with peerlock.join("bench", dir=directory, share="never"):
        print("in", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def be_alone(directory: Path, share: Share = "never") -> Alone:
    import peerlock

    async with peerlock.join("bench", dir=directory, share=share) as node:
        lock, other = node.lock("mine"), asyncio.Lock()
        async with lock:
            pass
        before = node._shell.core.table.messages
        rounds = [(await timed(other), await timed(lock)) for _ in range(ROUNDS)]
        asyncio_us, peerlock_us = (statistics.median(times) for times in zip(*rounds, strict=True))
        messages = node._shell.core.table.messages - before
        return Alone(peerlock_us, asyncio_us, messages, type(node._shell.loop).__module__)


async def timed(lock: AbstractAsyncContextManager[object]) -> float:
    began = time.perf_counter()
    for _ in range(ENTRIES):
        async with lock:
            pass
    return (time.perf_counter() - began) / ENTRIES * 1e6


async def hand_over(directory: Path, cold: bool) -> HandOvers:
    """Each process releases when the other has waited for a while. The fence tells which grant
    follows which release.
    """
    import peerlock

    found = HandOvers()
    async with peerlock.join("bench-pair", dir=directory, share="never") as node:
        while len(node.members) < 2:
            await asyncio.sleep(0.01)
        lock = node.lock("ball")
        for _ in range(COLD if cold else HANDOVERS):
            asked = time.monotonic()
            hold = await lock.acquire()
            got = found.got[hold.fence] = time.monotonic()
            found.asked[hold.fence] = asked
            if cold:
                await asyncio.sleep(PAUSE_S)
            while time.monotonic() < got + BUSY_S:
                await asyncio.sleep(0)
            found.given[hold.fence + 1] = time.monotonic()
            hold.release()
            # uvloop writes at the end of a turn of the loop. The bare message has its turn for
            # itself, too.
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)
    return found


async def bare_wire(directory: Path, side: str, cold: bool) -> HandOvers:
    """A ball over a Unix socket, held as long as the lock is, with the kind of protocol that the
    lock's links use.
    """
    path, done, most = str(directory / f"wire-{cold}"), asyncio.Event(), COLD if cold else HANDOVERS
    found = HandOvers()
    loop = asyncio.get_running_loop()

    class Ball(asyncio.BufferedProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            # uvloop's transports do not inherit from those of asyncio.
            self.transport, self.buffer = cast("asyncio.WriteTransport", transport), bytearray(4096)
            if side == "two":
                self.throw(1)

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            number = int.from_bytes(self.buffer[:8], "big")
            found.got[number] = time.monotonic()
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
            if time.monotonic() < found.got[number - 1] + BUSY_S:
                loop.call_soon(self.busy, number)
            else:
                self.throw(number)

        def throw(self, number: int) -> None:
            found.given[number] = time.monotonic()
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
    return found


async def fresh_locks(directory: Path) -> float:
    import peerlock

    times = []
    async with peerlock.join("bench", dir=directory, share="never") as node:
        while len(node.members) < 5:
            await asyncio.sleep(0.01)
        for number in range(FRESH):
            lock = node.lock(f"fresh-{number}")
            began = time.perf_counter()
            hold = await lock.acquire()
            times.append(time.perf_counter() - began)
            hold.release()
            await asyncio.sleep(PAUSE_S)
    return statistics.median(times) * 1e6


async def many_locks(directory: Path) -> Memory:
    import peerlock

    async with peerlock.join("bench-memory", dir=directory, idle_locks=2 * LOCKS, share="never") as node:
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
        return Memory((full - before) / LOCKS, (after - before) / LOCKS)


def main() -> None:
    place, role, *more = sys.argv[1:]
    directory = Path(place)
    roles: dict[str, Callable[[], Coroutine[None, None, object]]] = {
        "idle": lambda: be_idle(directory),
        "alone": lambda: be_alone(directory),
        "attached": lambda: be_alone(directory, "always"),
        "handover": lambda: hand_over(directory, cold=False),
        "cold-handover": lambda: hand_over(directory, cold=True),
        "wire": lambda: bare_wire(directory, more[0], cold=False),
        "cold-wire": lambda: bare_wire(directory, more[0], cold=True),
        "fresh": lambda: fresh_locks(directory),
        "memory": lambda: many_locks(directory),
    }
    make_loop = asyncio.new_event_loop
    with contextlib.suppress(ModuleNotFoundError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        print(msgspec.json.encode(runner.run(roles[role]())).decode(), flush=True)


if __name__ == "__main__":
    main()
