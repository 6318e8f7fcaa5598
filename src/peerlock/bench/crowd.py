"""A crowd of real processes that share one lock and one counter, and what became of the counter.

Each process takes the lock, reads the counter in a shared file, adds one and writes it back: two at a time lose an
update. While it is inside its number stands in the file, so whoever enters sees an overlap; the fence must be larger
than every one before. The processes may be killed, stopped, continued and started again while that goes on: this is
the demo, and the test that the demo is no luck.

The shared file is an array of 64-bit numbers: counter, last fence, who is inside, overlaps, fences out of order; then
a row a process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

COUNTER, FENCE, INSIDE, OVERLAPS, DISORDER, STOP, LEFT_NS, LEFT_BY = range(8)
HEAD, ROW, ROWS = 16, 8, 256
PID, ENTRIES, MESSAGES, STATE, LAST_S, WAIT_US, PENDING, EPOCH = range(ROW)
NOWHERE, WAITS, HOLDS = range(3)
PF_EXITING = 0x4  # of the kernel


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


class Person(Struct):
    """One process of the crowd, and those that took its place."""

    number: int
    process: subprocess.Popen[bytes]
    stopped_until: float = 0.0


class Account(Struct, frozen=True):
    """What the counter says in the end."""

    entries: int
    counter: int
    lost_updates: int
    overlaps: int
    fences_out_of_order: int
    killed_inside: int  # a process that was killed between its two writes: the counter may have one more
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
        people: int,
        *,
        hold_us: int = 0,
        idle: int = 0,
        think_us: int = 0,
    ) -> None:
        """The first `idle` of them enter once and then only look on. The others think, about so long, between entries."""
        self.directory, self.group, self.algorithm, self.hold_us = directory, group, algorithm, hold_us
        self.idle, self.think_us = idle, think_us
        self.board = Board(directory / "board", create=True)
        self.people: list[Person] = []
        self.faults = {"kill": 0, "stop": 0, "restart": 0}
        self.killed_inside = 0
        self.next = 0
        for _ in range(people):
            self.people.append(self.start())

    def start(self) -> Person:
        number = self.next
        self.next += 1
        assert number < ROWS, "the board is full"
        command = [sys.executable, "-P", "-m", "peerlock.bench.crowd", str(self.directory), self.group, self.algorithm]
        log = (self.directory / f"log-{number}").open("wb")
        try:
            hold_us = -1 if number < self.idle else self.hold_us
            words = [*command, str(number), str(hold_us), str(self.think_us)]
            process = subprocess.Popen(words, stderr=log, stdout=log)
        finally:
            log.close()
        return Person(number, process)

    def kill(self, person: Person) -> None:
        self.faults["kill"] += 1
        person.process.send_signal(signal.SIGKILL)
        person.process.wait()
        if self.board.row(person.number, PENDING):
            self.killed_inside += 1
            self.board.put(person.number, PENDING, 0)
        if self.board[INSIDE] == person.process.pid:
            self.board[INSIDE] = 0
        self.board.put(person.number, STATE, NOWHERE)

    def restart(self, person: Person) -> None:
        self.faults["restart"] += 1
        self.people[self.people.index(person)] = self.start()

    def stop(self, person: Person, seconds: float) -> None:
        self.faults["stop"] += 1
        person.process.send_signal(signal.SIGSTOP)
        person.stopped_until = time.monotonic() + seconds

    def look_after(self) -> None:
        """A process that was stopped for long enough goes on."""
        for person in self.people:
            if person.stopped_until and time.monotonic() > person.stopped_until:
                person.stopped_until = 0.0
                person.process.send_signal(signal.SIGCONT)

    def end(self, patience_s: float = 20.0) -> Account:
        for person in self.people:
            if person.stopped_until:
                person.process.send_signal(signal.SIGCONT)
        self.board[STOP] = 1
        deadline = time.monotonic() + patience_s
        stuck = []
        for person in self.people:
            try:
                person.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                stuck.append(person.number)
                person.process.kill()
                person.process.wait()
        board = self.board
        entries = sum(board.row(number, ENTRIES) for number in range(self.next))
        waits = [board.row(number, WAIT_US) for number in range(self.next)]
        times = sorted(
            time
            for path in self.directory.glob("times-*")
            for time in msgspec.json.decode(path.read_bytes(), type=list[float])
        )
        waited = sorted(
            time
            for path in self.directory.glob("waits-*")
            for time in msgspec.json.decode(path.read_bytes(), type=list[float])
        )
        middle, late = (times[len(times) // 2], times[len(times) * 99 // 100]) if times else (0.0, 0.0)
        return Account(
            entries,
            board[COUNTER],
            max(0, entries - board[COUNTER]),
            board[OVERLAPS],
            board[DISORDER],
            self.killed_inside,
            dict(self.faults),
            len(stuck) + sum(not board.row(person.number, ENTRIES) for person in self.people),
            (middle, late),
            max(waits, default=0) / 1e6,
            waited[len(waited) // 2] if waited else 0.0,
            sum(board.row(number, MESSAGES) for number in range(self.next)),
        )

    def trouble(self, seed: int, seconds: float, progress: Callable[[float], None] = lambda left: None) -> None:
        """Random kills, stops and restarts for a while."""
        chance, until = random.Random(seed), time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.05, 0.3))
            progress(until - time.monotonic())
            self.look_after()
            able = [person for person in self.people if not person.stopped_until]
            if len(able) < 3:
                continue
            person, what = chance.choice(able), chance.random()
            if what < 0.35 and self.next < ROWS:
                self.kill(person)
                self.restart(person)
            elif what < 0.5:
                self.stop(person, chance.choice((0.05, 0.5, 4.0)))


async def take_part(directory: Path, group: str, algorithm: str, number: int, hold_us: int, think_us: int) -> None:
    import peerlock

    board, me, times, waits = Board(directory / "board"), os.getpid(), list[float](), list[float]()
    chance = random.Random(number)
    board.put(number, PID, me)
    async with peerlock.join(group, dir=directory, algorithm=algorithm) as node:
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
    # One that is killed gives up its files, and so its locks, a moment before it is a zombie; it runs nothing any more then.
    return fields[0] != "Z" and not int(fields[6]) & PF_EXITING


def main() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(message)s", datefmt="%H:%M:%S")
    directory, group, algorithm, number, hold_us, think_us = sys.argv[1:]
    asyncio.run(take_part(Path(directory), group, algorithm, int(number), int(hold_us), int(think_us)))


if __name__ == "__main__":
    main()
