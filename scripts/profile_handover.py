"""Where the CPU time of an owner change goes: the evidence for the limits in docs/guide/performance.md.

python scripts/profile_handover.py [--json FILE]

Three and five processes on uvloop compete for one lock; the kernel says how much of its own and of the program's time
each has used, and how often it was put to sleep. Beside it two processes that throw a bare message to and fro, on the same
loop and the same kind of socket: what is left when there is no lock. Then one of the five runs under a profiler that
counts CPU time, so that what a function's system calls cost is in its row. At last two processes, each on a core of its
own, hand a lock over, and look at the clock on the way: at the release, at the write, when the bytes are there, when the
lock is granted, and when the task runs that waited for it; without a pause, and with 2 ms of sleep in between. And three
processes, two of them on one core, count their turns: as they are, and when the kernel was asked not to let who is woken
displace who runs (SCHED_BATCH).

And the bare message, the hand-over and three processes once more, in turns: as usual, and while on every core something
runs that gives way to everything else (SCHED_IDLE), so that no core ever goes to sleep and has to be woken up.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import json
import mmap
import multiprocessing
import os
import pstats
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop

import peerlock
from peerlock.bench.peers import duels
from peerlock.bench.peers.drivers import ROWS
from peerlock.net.aio import Hold
from peerlock.net.loop import AioLink

SECONDS = 3.0
CORES = len(os.sched_getaffinity(0))
FORKED, APART = "forkserver", "spawn"
PAUSE_S = 0.002
ROUNDS, BURN_S = 2, 240.0
MARGIN_S = 0.2  # before and after what counts
PARTS = (
    "giver: from the release to the write",
    "kernel: from the write to the read",
    "getter: from the read to the grant",
    "getter: from the grant to the task",
)


def used(since: Any) -> dict[str, float]:
    now = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user": now.ru_utime - since.ru_utime,
        "system": now.ru_stime - since.ru_stime,
        "sleeps": now.ru_nvcsw - since.ru_nvcsw,
    }


async def compete(directory: str, number: int, of: int, profiled: bool) -> dict[str, Any]:
    async with peerlock.join("profile", dir=directory, name=f"n{number}") as node:
        while len(node.members) < of:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        lock, entries, profile = node.lock("job"), 0, cProfile.Profile(time.process_time)
        sent = node.core.table.messages
        since, until = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() + SECONDS
        if profiled:
            profile.enable()
        while time.monotonic() < until:
            async with lock:
                entries += 1
        profile.disable()
        found = {"entries": entries, "messages": node.core.table.messages - sent, **used(since)}
        if profiled:
            rows = pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
            whole = sum(row[2] for _, row in rows)
            top = sorted(rows, key=lambda entry: -entry[1][2])[:12]
            found["profile"] = [[_name(where), row[2] / whole, row[0] / entries] for where, row in top]
        await asyncio.sleep(0.5)  # who is not done yet can go on
        return found


def _name(where: tuple[str, int, str]) -> str:
    path, _, name = where
    return name if path == "~" else f"{'/'.join(Path(path).parts[-2:])}: {name}"


class Ball(asyncio.Protocol):
    count = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.count += 1
        self.transport.write(data)


async def throw(directory: str, number: int, of: int, profiled: bool) -> dict[str, Any]:
    loop, ball, path = asyncio.get_running_loop(), Ball(), f"{directory}/bare"
    if number == 0:
        await loop.create_unix_server(lambda: ball, path)
        while not hasattr(ball, "transport"):
            await asyncio.sleep(0.01)
    else:
        while not Path(path).exists():
            await asyncio.sleep(0.01)
        await loop.create_unix_connection(lambda: ball, path)
    since = resource.getrusage(resource.RUSAGE_SELF)
    if number:
        ball.transport.write(b"x" * 32)
    await asyncio.sleep(SECONDS)
    return {"entries": 0, "messages": ball.count, **used(since)}


async def hand_over(directory: str, number: int, of: int, profiled: bool) -> dict[str, Any]:
    """The parts of a hand-over, in microseconds, by the clock that all processes share. `profiled`: with pauses."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[number]})
    seen: dict[str, int] = {}
    write, arrived, woken = AioLink.write, AioLink.buffer_updated, Hold.woken

    def writes(link: AioLink, data: bytes) -> None:
        seen["write"] = time.monotonic_ns()
        write(link, data)

    def arrives(link: AioLink, count: int) -> None:
        seen["read"] = time.monotonic_ns()
        arrived(link, count)

    def wakes(hold: Hold) -> None:
        woken(hold)
        seen["grant"] = time.monotonic_ns()

    AioLink.write, AioLink.buffer_updated, Hold.woken = writes, arrives, wakes  # type: ignore[method-assign]
    path = Path(directory) / "board"
    with open(path, "a+b") as file:
        file.truncate(32)
        with mmap.mmap(file.fileno(), 32) as shared, memoryview(shared).cast("q") as board:
            async with peerlock.join("profile", dir=directory, name=f"n{number}") as node:
                while len(node.members) < of:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.5)
                lock, found, until = node.lock("job"), list[list[int]](), time.monotonic() + SECONDS
                while time.monotonic() < until:
                    asked = time.monotonic_ns()
                    hold = await lock.acquire()
                    now, (giver, released, wrote, _) = time.monotonic_ns(), board
                    if giver == 2 - number and asked < released:  # it came from the other one, while we waited
                        marks = [released, wrote, seen["read"], seen["grant"], now]
                        found.append([after - before for before, after in pairwise(marks)])
                    if profiled:
                        await asyncio.sleep(PAUSE_S)
                    board[0], board[1] = number + 1, time.monotonic_ns()
                    hold.release()
                    board[2] = seen["write"]
                    if profiled:
                        await asyncio.sleep(PAUSE_S / 2)
                await asyncio.sleep(0.5)
    return {"parts": [part for part in found if min(part) >= 0]}


async def take_turns(directory: str, number: int, of: int, patient: bool) -> dict[str, Any]:
    """The first two of them on one core. How often was another one inside between a release and the request after it?

    What counts is what happens while all of them are at it.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0 if number < 2 else 1]})
    if patient:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with open(Path(directory) / "board", "a+b") as file:
        file.truncate(32)
        with mmap.mmap(file.fileno(), 32) as shared, memoryview(shared).cast("q") as board:
            async with peerlock.join("profile", dir=directory, name=f"n{number}") as node:
                while len(node.members) < of:
                    await asyncio.sleep(0.01)
                if number == 0:
                    board[1] = time.monotonic_ns() + int(2 * MARGIN_S * 1e9)
                while not board[1]:
                    await asyncio.sleep(0.01)
                begin = board[1] / 1e9
                end = begin + SECONDS
                lock, entries, overtaken, mine = node.lock("job"), 0, 0, 0
                await asyncio.sleep(max(0.0, begin - MARGIN_S - time.monotonic()))
                since = resource.getrusage(resource.RUSAGE_SELF)
                while (now := time.monotonic()) < end + MARGIN_S:
                    counts = begin <= now < end
                    overtaken += counts and board[0] != mine
                    async with lock:
                        entries += counts
                        board[0] = mine = board[0] + 1
                used = resource.getrusage(resource.RUSAGE_SELF)
                await asyncio.sleep(0.5)
    displaced = (used.ru_nivcsw - since.ru_nivcsw) * SECONDS / (SECONDS + 2 * MARGIN_S)
    return {"number": number, "entries": entries, "overtaken": overtaken / entries, "displaced": displaced / entries}


def process(scene: str, directory: str, number: int, of: int, profiled: bool, answers: Any) -> None:
    work = {"lock": compete, "bare": throw, "parts": hand_over, "turns": take_turns}[scene]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers.put(runner.run(work(directory, number, of, profiled)))


def play(scene: str, of: int, profiled: bool | None = False, start: str = FORKED) -> list[dict[str, Any]]:
    """`profiled`: the first of them; None: all."""
    context: Any = multiprocessing.get_context(start)
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        made = [
            context.Process(
                target=process,
                args=(scene, directory, number, of, profiled is None or (profiled and number == 0), answers),
            )
            for number in range(of)
        ]
        for each in made:
            each.start()
        found = [answers.get(timeout=60) for _ in made]
        for each in made:
            each.join(10)
    return found


def row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    total = {key: sum(each[key] for each in found) for key in ("entries", "messages", "user", "system", "sleeps")}
    messages = total["messages"]
    return {
        "name": name,
        "messages_a_second": messages / SECONDS,
        "user_us": 1e6 * total["user"] / messages,
        "system_us": 1e6 * total["system"] / messages,
        "sleeps_a_message": total["sleeps"] / messages,
        "most_messages_a_second": CORES * messages / (total["user"] + total["system"]),
        "busy_cores": (total["user"] + total["system"]) / SECONDS,
    }


def parts(paused: bool) -> list[float]:
    """The median of each part; only the getter can put a hand-over together, and what the giver wrote down late is left out."""
    found = [part for each in play("parts", 2, None if paused else False) for part in each["parts"]]
    return [statistics.median(column) / 1000 for column in zip(*found, strict=True)]


def turns(patient: bool) -> list[dict[str, Any]]:
    return sorted(play("turns", 3, None if patient else False), key=lambda each: each["number"])


@contextlib.contextmanager
def no_core_sleeps() -> Iterator[None]:
    """On each core something that runs whenever nothing else does."""
    context: Any = multiprocessing.get_context(APART)
    made = [context.Process(target=burn, args=(core,), daemon=True) for core in os.sched_getaffinity(0)]
    for each in made:
        each.start()
    try:
        time.sleep(1.0)  # until they burn
        yield
    finally:
        for each in made:
            each.kill()
            each.join()


def burn(core: int) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    end = time.monotonic() + BURN_S
    while time.monotonic() < end:
        pass


def once_more() -> dict[str, float]:
    hot, cold = parts(paused=False), parts(paused=True)
    lock = play("lock", 3)
    return {
        "a bare message, one way, us": 1e6 * SECONDS / sum(each["messages"] for each in play("bare", 2)),
        "a hand-over from core to core, hot, us": sum(hot),
        "of that the kernel, from the write to the read, hot, us": hot[1],
        "a hand-over from core to core after 2 ms of sleep, us": sum(cold),
        "of that the kernel, from the write to the read, after sleep, us": cold[1],
        "3 processes, messages a second": sum(each["messages"] for each in lock) / SECONDS,
    }


def beside_redis() -> dict[str, float]:
    """In turns with a token in Redis; nothing, if that is not installed."""
    rows = {row.name: row for row in ROWS}
    peer, ours = rows["Redis BLPOP"], [rows["peerlock"], rows["peerlock, dijkstra-ring"]]
    found = {}
    for of in (3, 5) if not peer.missing() else ():
        for duel in duels.crowd(ours, peer, "contended", of, 0.75):
            found[f"{of} processes, `{duel.row}`: owner changes over {duel.peer}'s"] = statistics.median(duel.ratios)
    return found


def awake_and_asleep() -> dict[str, dict[str, float]]:
    found: dict[str, list[dict[str, float]]] = {"as usual": [], "never": []}
    for number in range(ROUNDS):
        for way in sorted(found, reverse=bool(number % 2)):
            with no_core_sleeps() if way == "never" else contextlib.nullcontext():
                print(f"round {number + 1} of {ROUNDS}, cores sleep: {way}", file=sys.stderr, flush=True)
                found[way].append(once_more() | beside_redis())
    return {way: {key: statistics.median(each[key] for each in many) for key in many[0]} for way, many in found.items()}


def main() -> None:
    print(
        "Six minutes: messages, parts and turns first, then two rounds of sleeping cores.", file=sys.stderr, flush=True
    )
    rows = [row("a bare message", play("bare", 2))]
    rows += [row(f"the lock, {of} processes", play("lock", of)) for of in (3, 5)]
    rows += [row(f"the lock, {of} processes started one by one", play("lock", of, start=APART)) for of in (3, 5)]
    ways = [parts(paused=False), parts(paused=True)]
    placed = {"as usual": turns(patient=False), "SCHED_BATCH": turns(patient=True)}
    rest = awake_and_asleep()
    profiles = [each["profile"] for each in play("lock", 5, profiled=True) if "profile" in each]
    for each in rows:
        print(
            f"{each['name']:43} {each['messages_a_second']:10,.0f} messages/s, CPU a message, both ends: "
            f"{each['user_us']:5.1f} us of the program, {each['system_us']:5.1f} us of the kernel; "
            f"{each['busy_cores']:.2f} cores busy, {each['sleeps_a_message']:.2f} sleeps a message"
        )
    for name, share, calls in profiles[0]:
        print(f"{100 * share:5.1f} %  {calls:5.1f} calls an entry  {name}")
    for name, hot, cold in zip(PARTS, *ways, strict=True):
        print(f"{name:40} {hot:6.1f} us hot, {cold:6.1f} us after {1000 * PAUSE_S:g} ms of sleep")
    for name, found in placed.items():
        for each in found:
            print(
                f"{name:22} process {each['number'] + 1}, core {1 if each['number'] < 2 else 2}: {each['entries']:7,} entries, "
                f"displaced {each['displaced']:.2f} times an entry; another one was inside before it "
                f"asked again: {100 * each['overtaken']:.0f} %"
            )
    for name, usual in rest["as usual"].items():
        print(f"{name:75} {usual:10,.2f} as usual, {rest['never'][name]:10,.2f} where no core ever sleeps")
    if sys.argv[1:2] == ["--json"]:
        told = {
            "rows": rows,
            "profile": profiles[0],
            "turns": placed,
            "rest": rest,
            "parts": [list(part) for part in zip(PARTS, *ways, strict=True)],
        }
        Path(sys.argv[2]).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
