"""One process of `peerlock verify --faults syscalls`: it joins, takes the lock, leaves, and joins
again.

Its log and the counter are shared memory, and it has imported every module before it logs `ready`.
So each later system call is one of the lock's, and no injected fault hits the test itself.

The log has the words of `worker`, and these: joins, asks, leaves, timeout, refused (a
`PeerlockError`), raised (any other exception), says (a line of the lock's own log), ready, ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

import peerlock
import peerlock.sync
from peerlock.errors import LockError, LockLost, LockTimeout, PeerlockError
from peerlock.net.hold import BaseHold
from peerlock.verify.log import Line, decoded, line

LOG_BYTES = 2**26  # a hole in a file costs nothing
LOCK = "counter"
ROUND, ENDED, COUNTER = range(3)  # on the board: a counter for each round, from COUNTER on
BOARD = 2048  # numbers
PARENT_DIES = 1  # PR_SET_PDEATHSIG
ANY_TRACER = 0x59616D61  # PR_SET_PTRACER, where only a parent may trace


class Spec(Struct):
    name: str
    style: str  # asyncio or threads
    directory: str
    board: str
    log: str
    seed: int
    apart: bool = False  # planted: each process has a group of its own


class Board:
    """A few numbers that all processes of a run share."""

    def __init__(self, path: Path | str, create: bool = False) -> None:
        if create:
            Path(path).write_bytes(bytes(8 * BOARD))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 8 * BOARD)

    def __getitem__(self, at: int) -> int:
        found: int = struct.unpack_from("<q", self.map, 8 * at)[0]
        return found

    def __setitem__(self, at: int, value: int) -> None:
        struct.pack_into("<q", self.map, 8 * at, value)


class Log:
    """Lines in shared memory: they survive a kill, and writing one takes no system call."""

    def __init__(self, path: Path | str, create: bool = False) -> None:
        if create:
            with open(path, "wb") as made:
                made.truncate(LOG_BYTES)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), LOG_BYTES)
        self.seen = 0

    def append(self, text: bytes) -> None:
        (length,) = struct.unpack_from("<q", self.map, 0)
        start = 8 + length
        assert start + len(text) < LOG_BYTES, "the log is full: a run of fewer seconds writes less"
        self.map[start : start + len(text)] = text
        struct.pack_into("<q", self.map, 0, length + len(text))  # last: half a line is never read

    def text(self) -> bytes:
        (length,) = struct.unpack_from("<q", self.map, 0)
        return self.map[8 : 8 + length]

    def news(self) -> list[Line]:
        """The lines since the last call."""
        (length,) = struct.unpack_from("<q", self.map, 0)
        seen, self.seen = self.seen, length
        return list(decoded(self.map[8 + seen : 8 + length]))


def text(problem: BaseException) -> str:
    """The message without names of files, which differ from run to run."""
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)


def frames(problem: BaseException) -> list[str]:
    """The innermost frames, without their source lines: reading a file may fail just now."""
    found = []
    for frame, number in traceback.walk_tb(problem.__traceback__):
        path = Path(frame.f_code.co_filename)
        found.append(f"{path.parent.name}/{path.name}:{number} {frame.f_code.co_name}")
    return found[-6:]


def is_ours(problem: BaseException) -> bool:
    """Was it raised in the lock? asyncio logs errors of `accept` itself, and accepts again."""
    root = str(Path(peerlock.__file__).parent)
    return any(frame.f_code.co_filename.startswith(root) for frame, _ in traceback.walk_tb(problem.__traceback__))


class Says(logging.Handler):
    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None and is_ours(problem):  # of a task or a thread that has no caller
            self.worker.raised(problem)
        self.worker.note("says", line=record.getMessage())


class Worker:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.board, self.log = Board(spec.board), Log(spec.log)
        self.random = random.Random(spec.seed)
        self.round = 0

    def note(self, what: str, **more: float | str | list[str] | None) -> None:
        self.log.append(line(time.monotonic(), os.getpid(), what, {"round": self.round, **more}))

    def group(self) -> str:
        return f"r{self.round}-{self.spec.name}" if self.spec.apart else f"r{self.round}"

    def failed(self, problem: BaseException) -> None:
        """The process goes on, as a program that tries again."""
        if isinstance(problem, PeerlockError):
            self.note("refused", why=f"{type(problem).__name__}: {problem}")
        else:
            self.raised(problem)

    def raised(self, problem: BaseException) -> None:
        self.note("raised", why=f"{type(problem).__name__}: {text(problem)}", where=frames(problem))

    def entries(self) -> Iterator[float | None]:
        """The entries of one membership: the time limit of each."""
        for _ in range(self.random.randint(1, 25)):
            if self.board[ROUND] != self.round or self.board[ENDED]:
                return
            limit = self.random.choice((None, None, 0.02, 0.5, 3.0))
            self.note("asks", limit=limit)
            yield limit

    def inside(self, hold: BaseHold) -> Iterator[float]:
        """The steps of a holder; it sleeps in between for as long as each yields."""
        self.note("granted", fence=hold.fence)
        before = self.board[COUNTER + self.round]
        yield self.random.expovariate(1 / 0.004)
        self.check(hold)
        self.note("writes", fence=hold.fence, value=before + 1)
        self.board[COUNTER + self.round] = before + 1
        self.note("wrote", fence=hold.fence, value=before + 1)
        yield self.random.expovariate(1 / 0.002)
        self.check(hold)
        self.note("released", fence=hold.fence)

    def check(self, hold: BaseHold) -> None:
        since = time.monotonic()
        hold.check()
        self.note("checked", fence=hold.fence, since=since)

    def lost(self, problem: BaseException) -> None:
        self.note("timeout" if isinstance(problem, LockTimeout) else "lost", why=str(problem))
        if not isinstance(problem, LockTimeout | LockLost):
            raise problem

    # -- asyncio -------------------------------------------------------------------------------------------

    async def life_of_a_task(self, group: str) -> None:
        self.note("joins")
        node = await peerlock.join(group, name=self.spec.name, dir=self.spec.directory, share="never")
        self.note("joined", epoch=node.epoch)
        try:
            for limit in self.entries():
                lock = node.lock(LOCK)
                try:
                    # Both ways in: the one that is written for speed, and the one with a limit.
                    async with lock if limit is None else await lock.acquire(timeout=limit) as hold:
                        for seconds in self.inside(hold):
                            await asyncio.sleep(seconds)
                except LockError as problem:
                    self.lost(problem)
                await asyncio.sleep(self.random.expovariate(1 / 0.02))
        finally:
            self.note("leaves")
            await node.leave()
            self.note("left")

    async def tasks(self) -> None:
        while not self.board[ENDED]:
            self.round = self.board[ROUND]
            if self.round:
                try:
                    await self.life_of_a_task(self.group())
                except (Exception, asyncio.CancelledError) as problem:
                    self.failed(problem)
            await asyncio.sleep(self.random.uniform(0.01, 0.2))

    # -- threads -------------------------------------------------------------------------------------------

    def life_of_a_thread(self, group: str) -> None:
        self.note("joins")
        node = peerlock.sync.join(group, name=self.spec.name, dir=self.spec.directory, share="never")
        self.note("joined", epoch=node.epoch)
        try:
            for limit in self.entries():
                lock = node.lock(LOCK)
                try:
                    with lock if limit is None else lock.acquire(timeout=limit) as hold:
                        for seconds in self.inside(hold):
                            time.sleep(seconds)
                except LockError as problem:
                    self.lost(problem)
                time.sleep(self.random.expovariate(1 / 0.02))
        finally:
            self.note("leaves")
            node.leave()
            self.note("left")

    def threads(self) -> None:
        while not self.board[ENDED]:
            self.round = self.board[ROUND]
            if self.round:
                try:
                    self.life_of_a_thread(self.group())
                except Exception as problem:
                    self.failed(problem)
            time.sleep(self.random.uniform(0.01, 0.2))

    # -- both ----------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Import what is imported late, in a group of its own, which no other process ever joins."""
        group = f"warm-{self.spec.name}-{os.getpid()}"
        if self.spec.style == "threads":
            name, place = self.spec.name, self.spec.directory
            with (
                peerlock.sync.join(group, name=name, dir=place, share="never") as node,
                node.lock(LOCK).acquire(timeout=9.0),
            ):
                pass
        else:
            asyncio.run(self.warm_task(group))
        traceback.format_exception(LockTimeout("to have been here once"))

    async def warm_task(self, group: str) -> None:
        name, place = self.spec.name, self.spec.directory
        async with (
            peerlock.join(group, name=name, dir=place, share="never") as node,
            await node.lock(LOCK).acquire(timeout=9.0),
        ):
            pass

    def run(self) -> None:
        prctl = ctypes.CDLL(None).prctl
        prctl(ANY_TRACER, ctypes.c_long(-1), 0, 0, 0)
        prctl(PARENT_DIES, signal.SIGKILL, 0, 0, 0)  # a run that is killed leaves no worker behind
        self.warm_up()
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[Says(self)])
        self.note("ready")
        if self.spec.style == "threads":
            self.threads()
        else:
            asyncio.run(self.tasks())
        self.note("ends")


if __name__ == "__main__":
    Worker(msgspec.json.decode(sys.argv[1], type=Spec)).run()
