"""Many processes of one host and one lock that all of them want: how soon they are in, how often the lock changes its
owner, whether all have the same share, and what it costs.

Each process takes the lock again and again. Under it, it changes a word of a shared file, which shows overlaps, lost
updates and fences out of order. Beside this lock: a token that is passed on with Redis BLPOP, and PostgreSQL's advisory
locks, each with processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from benchmarks.peers.servers import STARTERS, is_installed
from peerlock.errors import Unfinished

STOP, GO, COUNTER, OWNER, CHANGES, FENCE, DISORDER, OVERLAPS, INSIDE = range(9)
ENTRIES, READY = 16, 1024  # rows: one word for each process
WORDS = 2048
KINDS = {"attached": "", "member": "", "Redis BLPOP": "redis", "PostgreSQL advisory": "postgres"}
MOST = {"member": 50, "PostgreSQL advisory": 90}  # processes: more do not join in time, or the server refuses them
JOIN_S = 120.0
TICKS = os.sysconf("SC_CLK_TCK")


class Point(Struct, frozen=True):
    kind: str
    processes: int
    join_s: float  # from the start of the first process until all can take the lock
    changes: float  # of the owner, per second
    fairness: float  # entries of the process with the fewest over those of the one with the most
    cpu_us: float  # of all processes and of what they share, per change
    idle_percent: float  # of one processor, while nobody wants the lock
    memory_mb: float  # of one process, alone
    overlaps: int
    lost_updates: int
    fences_out_of_order: int


class Board:
    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), 8 * WORDS)).cast("q")

    def enter(self, me: int, fence: int) -> None:
        words = self.words
        words[OVERLAPS] += bool(words[INSIDE])
        words[INSIDE] = 1
        if fence:
            words[DISORDER] += fence <= words[FENCE]
            words[FENCE] = fence
        count = words[COUNTER]
        if words[OWNER] != me:
            words[OWNER] = me
            words[CHANGES] += 1
        words[COUNTER] = count + 1
        words[ENTRIES + me] += 1
        words[INSIDE] = 0


# -- one process -----------------------------------------------------------------------------------------------------------


async def with_peerlock(board: Board, me: int, directory: str, attached: bool) -> None:
    import peerlock

    words = board.words
    async with peerlock.join("scale", dir=directory, share="always" if attached else "never") as node:
        lock = node.lock("x")
        words[READY + me] = 1
        while not words[GO]:
            await asyncio.sleep(1.0)
        while not words[STOP]:
            async with lock as hold:
                board.enter(me, hold.fence)


def with_redis(board: Board, me: int, address: str) -> None:
    import redis

    words, client = board.words, redis.Redis(port=int(address.split()[0]))
    client.ping()
    words[READY + me] = 1
    while not words[GO]:
        time.sleep(0.05)
    while not words[STOP]:
        if client.blpop(["token"], timeout=2) is not None:
            board.enter(me, 0)
            client.rpush("token", b"")


def with_postgres(board: Board, me: int, address: str) -> None:
    import psycopg

    words = board.words
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.cursor()
        words[READY + me] = 1
        while not words[GO]:
            time.sleep(1.0)
        while not words[STOP]:
            cursor.execute("select pg_advisory_lock(7)")
            board.enter(me, 0)
            cursor.execute("select pg_advisory_unlock(7)")


def work(kind: str, path: str, me: int, where: str) -> None:
    board = Board(path)
    if kind == "Redis BLPOP":
        with_redis(board, me, where)
    elif kind == "PostgreSQL advisory":
        with_postgres(board, me, where)
    else:
        import uvloop

        uvloop.run(with_peerlock(board, me, where, kind == "attached"))


# -- all of them -----------------------------------------------------------------------------------------------------------


def measure(kind: str, count: int, seconds: float) -> Point:
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peerlock-scale-")))
        address = stack.enter_context(STARTERS[KINDS[kind]](directory))
        if kind == "Redis BLPOP":
            import redis

            redis.Redis(port=int(address.split()[0])).rpush("token", b"")
        path = directory / "board"
        path.write_bytes(bytes(8 * WORDS))
        board = Board(str(path))
        board.words[OWNER] = -1
        began = time.monotonic()
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end, processes, board, directory)
        for me in range(count):
            words = [sys.executable, "-P", "-c", WORKER, kind, str(path), str(me), address or str(directory)]
            processes.append(subprocess.Popen(words, cwd=Path(__file__).parents[1]))
        while sum(board.words[READY + me] for me in range(count)) < count:
            if time.monotonic() - began > JOIN_S:
                raise Unfinished(f"{count} processes ({kind}) are not in after {JOIN_S:g} s.")
            time.sleep(0.01)
        joined = time.monotonic() - began
        return _measured(kind, board, processes, directory, joined, seconds)


def _measured(
    kind: str, board: Board, processes: list[subprocess.Popen[bytes]], directory: Path, joined: float, seconds: float
) -> Point:
    words, count = board.words, len(processes)
    rests = max(2.0, seconds / 2)
    time.sleep(1.5)  # those that have just joined look once a second whether it begins
    before = cpu_s(processes, directory)
    time.sleep(rests)
    idle = cpu_s(processes, directory) - before
    memory = sum(map(memory_mb, processes)) / count
    words[GO] = 1
    time.sleep(1.5)
    before, changes, entries = cpu_s(processes, directory), words[CHANGES], [words[ENTRIES + me] for me in range(count)]
    time.sleep(seconds)
    changes, entries = words[CHANGES] - changes, [words[ENTRIES + me] - entries[me] for me in range(count)]
    used = cpu_s(processes, directory) - before
    words[STOP] = 1
    for process in processes:
        process.wait(30)
    lost = sum(words[ENTRIES + me] for me in range(count)) - words[COUNTER]
    return Point(
        kind, count, joined, changes / seconds, min(entries) / max(1, *entries), 1e6 * used / max(1, changes),
        100 * idle / rests, memory, words[OVERLAPS], lost, words[DISORDER],
    )  # fmt: skip


def _end(processes: list[subprocess.Popen[bytes]], board: Board, directory: Path) -> None:
    board.words[STOP] = board.words[GO] = 1
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    for pid in shared_by(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def shared_by(directory: Path) -> list[int]:
    """The host node, or the processes of the server, that were started for this directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes()
            if str(directory).encode() in words and b"benchmarks.scale" not in words:
                found.append(int(place.name))
    return found


def cpu_s(processes: list[subprocess.Popen[bytes]], directory: Path) -> float:
    total = 0
    for pid in (*(process.pid for process in processes), *shared_by(directory)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_mb(process: subprocess.Popen[bytes]) -> float:
    """What the kernel would get back if this process ended: its private pages, and its share of others."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def kinds_for(count: int) -> list[str]:
    return [kind for kind, server in KINDS.items() if is_installed(server) and count <= MOST.get(kind, 1000)]


def scale(counts: list[int], seconds: float, runs: int, step: Callable[[str], object]) -> list[Point]:
    """All kinds in turn, then all of them again: what disturbs one run disturbs no kind alone."""
    found = []
    for count in counts:
        for _ in range(runs):
            for kind in kinds_for(count):
                found.append(measure(kind, count, seconds))
                step(f"{count} processes, {kind}")
    return found


def steps(counts: list[int], runs: int) -> int:
    return sum(runs * len(kinds_for(count)) for count in counts)


WORKER = """
import sys
sys.path.insert(0, ".")
from benchmarks.scale import work
work(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
"""
