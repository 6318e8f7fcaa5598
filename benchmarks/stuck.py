"""How long a lock stands still when something happens to one process, and how long another lock does.

Four processes take the lock A in turn, and four the lock B. A ninth one is the victim. Under each lock its users write
down the longest time between two entries. Then something happens to the victim, or to the host node, or a process joins
or leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from msgspec import Struct

from peerlock import Hold
from peerlock.errors import Unfinished
from peerlock.net.attached.directory import AttachedDirectory

STOP, READY = 0, 8  # and for each process one word more
LAST, LONGEST = {"A": 2, "B": 3}, {"A": 4, "B": 5}
WORDS = 32
USERS = 4  # of each lock
LASTS_S = 3.0  # what happens
SHARES = {"attached": "always", "member": "never"}


class Standstill(Struct, frozen=True):
    share: str
    event: str
    a_s: float  # the longest time without an entry of A
    b_s: float


async def take_part(words: memoryview, directory: str, share: str, lock_name: str, number: str) -> None:
    import peerlock

    how = "always" if share == "attached" else "never"
    async with peerlock.join("stuck", dir=directory, share=how) as node:  # type: ignore[arg-type]
        words[READY + int(number)] = 1
        if lock_name in LAST:
            await use(words, node.lock(lock_name), lock_name)
            return
        holds = {}
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).split():
            match line:
                case ["hold", name]:
                    holds[name] = await node.lock(name).acquire()
                case ["release", name]:
                    holds.pop(name).release()
                case ["stop-waiting", name]:  # stops itself while it waits
                    wish = asyncio.ensure_future(node.lock(name).acquire())
                    wish.add_done_callback(give_back)
                    loop.call_later(0.001, os.kill, os.getpid(), signal.SIGSTOP)
                case ["block", seconds]:
                    loop.call_later(0.1, time.sleep, float(seconds))
            print("done", flush=True)


def give_back(wish: asyncio.Future[Hold]) -> None:
    if not wish.cancelled():
        wish.result().release()


async def use(words: memoryview, lock: object, name: str) -> None:
    while not words[STOP]:
        async with lock:  # type: ignore[attr-defined]
            now = time.monotonic_ns()
            if words[LAST[name]]:
                words[LONGEST[name]] = max(words[LONGEST[name]], now - words[LAST[name]])
            words[LAST[name]] = now
            await asyncio.sleep(0.0005)


class Scene:
    def __init__(self, share: str, stack: contextlib.ExitStack) -> None:
        self.share = share
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peerlock-stuck-")))
        (self.directory / "board").write_bytes(bytes(8 * WORDS))
        self.words = board(self.directory)
        self.processes: list[subprocess.Popen[str]] = []
        stack.callback(self.end)
        for name in "AB" * USERS:
            self.start(name)
        self.victim = self.start("-")
        self.until_ready(2 * USERS + 1)

    def start(self, lock: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-P", "-c", WORKER, str(self.directory), self.share, lock, str(len(self.processes))]
        process = subprocess.Popen(
            words, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def until_ready(self, count: int) -> None:
        began = time.monotonic()
        while sum(self.words[READY:]) < count:
            if time.monotonic() - began > 30:
                raise Unfinished(f"{count} processes ({self.share}) are not in after 30 s.")
            time.sleep(0.01)
        time.sleep(1.0)

    def say(self, words: str, process: subprocess.Popen[str] | None = None) -> None:
        to = process or self.victim
        assert to.stdin is not None
        assert to.stdout is not None
        to.stdin.write(words + "\n")
        to.stdin.flush()
        assert to.stdout.readline() == "done\n"

    def host_node(self) -> int | None:
        found = AttachedDirectory("stuck", self.directory).newest() if self.share == "attached" else None
        return found.pid if found is not None else None

    def end(self) -> None:
        self.words[STOP] = 1
        for process in self.processes:
            process.kill()
            process.wait()
        if (host := self.host_node()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(host, signal.SIGKILL)


def board(directory: Path) -> memoryview:
    with (directory / "board").open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8 * WORDS)).cast("q")


def to_victim(number: signal.Signals) -> Callable[[Scene], None]:
    return lambda scene: scene.victim.send_signal(number)


def to_host(number: signal.Signals) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        if (host := scene.host_node()) is not None:
            os.kill(host, number)

    return act


def blocks(scene: Scene) -> None:
    scene.say(f"block {LASTS_S:g}")


def stops_waiting(scene: Scene) -> None:
    assert scene.victim.stdin is not None
    scene.victim.stdin.write("stop-waiting A\n")
    scene.victim.stdin.flush()


def joins(scene: Scene) -> None:
    scene.start("-")


def leaves(scene: Scene) -> None:
    assert scene.victim.stdin is not None
    scene.victim.stdin.close()


# What the victim does before, and what happens then.
EVENTS: dict[str, tuple[str, Callable[[Scene], None]]] = {
    "nothing": ("", lambda scene: None),
    "a process that holds A is stopped": ("hold A", to_victim(signal.SIGSTOP)),
    "a process that holds A blocks its loop": ("hold A", blocks),
    "a process that holds A is killed": ("hold A", to_victim(signal.SIGKILL)),
    "a process that waits for A is stopped": ("", stops_waiting),
    "a process that holds nothing is stopped": ("", to_victim(signal.SIGSTOP)),
    "a process joins": ("", joins),
    "a process leaves": ("", leaves),
    "the host node is killed": ("", to_host(signal.SIGKILL)),
    "the host node is stopped": ("", to_host(signal.SIGSTOP)),
}


def stand_still(share: str, event: str) -> Standstill:
    with contextlib.ExitStack() as stack:
        scene = Scene(share, stack)
        before, act = EVENTS[event]
        if before:
            scene.say(before)
        time.sleep(0.2)
        now = time.monotonic_ns()
        for name in "AB":
            scene.words[LONGEST[name]] = 0
            scene.words[LAST[name]] = now
        act(scene)
        time.sleep(LASTS_S)
        now = time.monotonic_ns()
        still = [max(scene.words[LONGEST[name]], now - scene.words[LAST[name]]) / 1e9 for name in "AB"]
        with contextlib.suppress(ProcessLookupError):
            scene.victim.send_signal(signal.SIGCONT)
        return Standstill(share, event, *still)


def all_of_them(runs: int, step: Callable[[str], object]) -> list[Standstill]:
    found = []
    for event in EVENTS:
        for share in SHARES:
            if share == "member" and "host node" in event:
                continue
            rows = []
            for _ in range(runs):
                rows.append(stand_still(share, event))
                step(f"{event}, {share}")
            found.append(Standstill(share, event, median(row.a_s for row in rows), median(row.b_s for row in rows)))
    return found


def steps(runs: int) -> int:
    return runs * (2 * len(EVENTS) - 2)


WORKER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, ".")
from benchmarks.stuck import board, take_part
asyncio.run(take_part(board(Path(sys.argv[1])), *sys.argv[1:5]))
"""
