"""A crowd of real processes that share one lock and one counter.

Each process takes the lock, reads the counter in a shared file, adds one and writes it back: two
processes at a time would lose an update. A process that is inside writes its pid into the file, so
the next one to enter sees an overlap. Each fence must be larger than all before it. `make demo` and
`make torture` kill the processes meanwhile.

The shared file is an array of 64-bit numbers: counter, last fence, pid inside, overlaps, fences out
of order; then one row per process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

COUNTER, FENCE, INSIDE, OVERLAPS, DISORDER, STOP, LEFT_NS, LEFT_BY = range(8)
HEAD, ROW, ROWS = 16, 8, 256
PID, ENTRIES, MESSAGES, STATE, LAST_S, WAIT_US, PENDING, EPOCH = range(ROW)
NOWHERE, WAITS, HOLDS = range(3)
PF_EXITING = 0x4  # of the kernel


Share: TypeAlias = Literal["always", "never"]


class Board:
    """The shared file."""

    def __init__(self, path: Path, create: bool = False) -> None:
        size = 8 * (HEAD + ROW * ROWS)
        if create:
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), size)

    def __getitem__(self, at: int) -> int:
        found: int = struct.unpack_from("<q", self.map, 8 * at)[0]
        return found

    def __setitem__(self, at: int, value: int) -> None:
        struct.pack_into("<q", self.map, 8 * at, value)

    def row(self, number: int, field: int) -> int:
        return self[HEAD + ROW * number + field]

    def put(self, number: int, field: int, value: int) -> None:
        self[HEAD + ROW * number + field] = value


class CrowdProcess(Struct):
    number: int  # of its row
    process: subprocess.Popen[bytes]


class Account(Struct, frozen=True):
    """What the board says in the end."""

    entries: int
    counter: int
    lost_updates: int
    overlaps: int
    fences_out_of_order: int
    killed_inside: int  # processes that were killed between their two writes: the counter may have one more for each
    faults: dict[str, int]
    starved: int  # processes that lived to the end and never got in
    hand_over_us: tuple[float, float]  # from leaving in one process to entering in another: median, 99th percentile
    longest_wait_s: float
    wait_us: float  # from asking to entering, the median
    messages: int


class Crowd:
    def __init__(
        self,
        directory: Path,
        group: str,
        algorithm: str,
        count: int,
        *,
        hold_us: int = 0,
        idle: int = 0,
        think_us: int = 0,
        share: str = "never",
    ) -> None:
        """The first `idle` processes enter once and want no more. The others think, about so long,
        between entries.
        """
        self.directory, self.group, self.algorithm, self.hold_us = directory, group, algorithm, hold_us
        self.idle, self.think_us, self.share = idle, think_us, share
        self.board = Board(directory / "board", create=True)
        self.faults: Counter[str] = Counter()
        self.killed_inside = 0
        self.next = 0
        self.processes = [self.start() for _ in range(count)]

    def start(self) -> CrowdProcess:
        number = self.next
        self.next += 1
        assert number < ROWS, "the board is full"
        command = [sys.executable, "-P", "-m", "peerlock.bench.crowd", str(self.directory), self.group, self.algorithm]
        hold_us = -1 if number < self.idle else self.hold_us
        with (self.directory / f"log-{number}").open("wb") as log:
            words = [*command, str(number), str(hold_us), str(self.think_us), self.share]
            return CrowdProcess(number, subprocess.Popen(words, stderr=log, stdout=log))

    def kill(self, one: CrowdProcess) -> None:
        self.faults["kill"] += 1
        one.process.kill()
        one.process.wait()
        if self.board.row(one.number, PENDING):
            self.killed_inside += 1
            self.board.put(one.number, PENDING, 0)
        if self.board[INSIDE] == one.process.pid:
            self.board[INSIDE] = 0
        self.board.put(one.number, STATE, NOWHERE)

    def end(self, patience_s: float = 20.0) -> Account:
        self.board[STOP] = 1
        deadline = time.monotonic() + patience_s
        stuck = 0
        for one in self.processes:
            try:
                one.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                stuck += 1
                one.process.kill()
                one.process.wait()
        board, rows = self.board, range(self.next)
        entries = sum(board.row(number, ENTRIES) for number in rows)
        times, waits = self._times("times"), self._times("waits")
        return Account(
            entries=entries,
            counter=board[COUNTER],
            lost_updates=max(0, entries - board[COUNTER]),
            overlaps=board[OVERLAPS],
            fences_out_of_order=board[DISORDER],
            killed_inside=self.killed_inside,
            faults=dict(self.faults),
            starved=stuck + sum(not board.row(one.number, ENTRIES) for one in self.processes),
            hand_over_us=(times[len(times) // 2], times[len(times) * 99 // 100]),
            longest_wait_s=max((board.row(number, WAIT_US) for number in rows), default=0) / 1e6,
            wait_us=waits[len(waits) // 2],
            messages=sum(board.row(number, MESSAGES) for number in rows),
        )

    def _times(self, kind: str) -> list[float]:
        """What all processes have measured, in order; one zero if they have measured nothing."""
        files = (path.read_bytes() for path in self.directory.glob(f"{kind}-*"))
        return sorted(time for data in files for time in msgspec.json.decode(data, type=list[float])) or [0.0]


async def take_part(
    directory: Path, group: str, algorithm: str, number: int, hold_us: int, think_us: int, share: Share
) -> None:
    import peerlock

    board, me, times, waits = Board(directory / "board"), os.getpid(), list[float](), list[float]()
    chance = random.Random(number)
    board.put(number, PID, me)
    async with peerlock.join(group, dir=directory, algorithm=algorithm, share=share) as node:
        lock = node.lock("counter")
        while not board[STOP] or not board.row(number, ENTRIES):
            if think_us:
                await asyncio.sleep(chance.expovariate(1e6 / think_us))
            board.put(number, STATE, WAITS)
            asked = time.monotonic_ns()
            async with lock as hold:
                now = time.monotonic_ns()
                waited = (now - asked) // 1000
                if len(waits) < 100_000:
                    waits.append((now - asked) / 1000)
                if board[LEFT_BY] not in (0, me) and asked < board[LEFT_NS]:
                    times.append((now - board[LEFT_NS]) / 1000)
                enter(board, me, number, hold.fence)
                if hold_us > 0:
                    await asyncio.sleep(hold_us / 1e6)
                leave(board, me, number)
            board.put(number, WAIT_US, max(waited, board.row(number, WAIT_US)))
            board.put(number, MESSAGES, node._shell.core.table.messages)
            board.put(number, EPOCH, node.epoch)
            while hold_us < 0 and not board[STOP]:
                await asyncio.sleep(0.1)
    (directory / f"times-{number}").write_bytes(msgspec.json.encode(times))
    (directory / f"waits-{number}").write_bytes(msgspec.json.encode(waits))


def enter(board: Board, me: int, number: int, fence: int) -> None:
    inside = board[INSIDE]
    if inside and alive(inside):
        board[OVERLAPS] += 1
    board[INSIDE] = me
    if fence <= board[FENCE]:
        board[DISORDER] += 1
    board[FENCE] = fence
    board.put(number, STATE, HOLDS)
    board.put(number, PENDING, 1 + board[COUNTER])


def leave(board: Board, me: int, number: int) -> None:
    board[COUNTER] = board.row(number, PENDING)
    board.put(number, ENTRIES, board.row(number, ENTRIES) + 1)
    board.put(number, PENDING, 0)
    board.put(number, STATE, NOWHERE)
    if board[INSIDE] != me:
        board[OVERLAPS] += 1
    board[INSIDE] = 0
    board[LEFT_BY], board[LEFT_NS] = me, time.monotonic_ns()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return True
    # A killed process gives up its files, and so its locks, a moment before it is a zombie. It runs
    # nothing any more then.
    return fields[0] != "Z" and not int(fields[6]) & PF_EXITING


def main() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    directory, group, algorithm, number, hold_us, think_us, share = sys.argv[1:]
    how: Share = "always" if share == "always" else "never"
    asyncio.run(take_part(Path(directory), group, algorithm, int(number), int(hold_us), int(think_us), how))


if __name__ == "__main__":
    main()
