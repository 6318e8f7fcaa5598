"""Where the CPU time of an owner change goes, and what the two things give that were made for it: docs/guide/performance.md.

python scripts/profile_handover.py [--json FILE]

Three and five processes on uvloop compete for one lock; the kernel says how much of its own and of the program's time
each has used, and how often it was put to sleep. Beside it two processes that throw a bare message to and fro, on the same
loop and the same kind of socket: what is left when there is no lock. Then one of the five runs under a profiler that
counts CPU time, so that what a function's system calls cost is in its row. Then two processes, each on a core of its
own, hand a lock over, and look at the clock on the way: at the release, at the write, when the bytes are there, when the
lock is granted, and when the task runs that waited for it; without a pause, the same where waiters sleep at once, and
with both asleep for 2 ms before; and how long a few additions take after such a sleep, the first time and later. And three
processes, two of them on one core, count their turns: as they are, and when the kernel was asked not to let a woken
process displace the running one (SCHED_BATCH).

At last crowds, in turns: as they are; with every request sent to all members at once; with waiters that sleep at once; and
without either.
"""

from __future__ import annotations

import asyncio
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
from itertools import pairwise
from pathlib import Path
from typing import Any

import uvloop

import peerlock
from peerlock.net.aio.hold import Hold
from peerlock.net.aio.shell import AioLink
from peerlock.net.aio.spin import SpinPolicy
from peerlock.node.locks import local_lock as local_lock

SECONDS = 3.0
CORES = len(os.sched_getaffinity(0))
FORKED, APART = "forkserver", "spawn"
PAUSE_S = 0.002
CROWDS, ROUNDS = (3, 5, 10, 20), 3
SUCCESSOR, SPIN = "successor first", "spinning"
WITHOUT: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "all members are told at once": (SUCCESSOR,),
    "waiters sleep at once": (SPIN,),
    "both of these": (SUCCESSOR, SPIN),
}
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
        lock, entries, changes, profile = node.lock("job"), 0, 0, cProfile.Profile(time.process_time)
        before = 0
        sent = node._shell.core.table.messages
        since, until = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() + SECONDS
        if profiled:
            profile.enable()
        while time.monotonic() < until:
            async with lock as hold:
                entries += 1
                changes += hold.fence != before + 1  # somebody else had it in between
                before = hold.fence
        profile.disable()
        found = {
            "entries": entries,
            "changes": changes,
            "messages": node._shell.core.table.messages - sent,
            **used(since),
        }
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
                        await asyncio.sleep(1.5 * PAUSE_S)  # the other asks after a third of that
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


def leave_out(parts: tuple[str, ...]) -> None:
    """In this process."""
    if SUCCESSOR in parts:
        local_lock.FEW = 1_000_000
    if SPIN in parts:
        SpinPolicy.__call__ = lambda awake, local_lock: None  # type: ignore[method-assign]  # as with `spin=False`


def process(
    scene: str, directory: str, number: int, of: int, profiled: bool, without: tuple[str, ...], answers: Any
) -> None:
    leave_out(without)
    work = {"lock": compete, "bare": throw, "parts": hand_over, "turns": take_turns}[scene]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers.put(runner.run(work(directory, number, of, profiled)))


def play(
    scene: str, of: int, profiled: bool | None = False, start: str = FORKED, without: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """`profiled`: the first of them; None: all."""
    context: Any = multiprocessing.get_context(start)
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        made = [
            context.Process(
                target=process,
                args=(scene, directory, number, of, profiled is None or (profiled and number == 0), without, answers),
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


def parts(paused: bool, without: tuple[str, ...] = ()) -> list[float]:
    """The median of each part; only the getter can put a hand-over together, and what the giver wrote down late is left out."""
    told = play("parts", 2, None if paused else False, without=without)
    found = [part for each in told for part in each["parts"]]
    return [statistics.median(column) / 1000 for column in zip(*found, strict=True)]


def turns(patient: bool) -> list[dict[str, Any]]:
    return sorted(play("turns", 3, None if patient else False), key=lambda each: each["number"])


def after_sleep() -> list[float]:
    """Microseconds for the same few additions, one time after the other, right after 2 ms of sleep."""
    found = list[list[int]]()
    for _ in range(300):
        time.sleep(PAUSE_S)
        marks = [time.monotonic_ns()]
        for _ in range(10):
            total = 0
            for number in range(20):
                total += number
            marks.append(time.monotonic_ns())
        found.append([after - before for before, after in pairwise(marks)])
    return [statistics.median(column) / 1000 for column in zip(*found, strict=True)]


def gains() -> list[dict[str, Any]]:
    """Crowds in turns, with and without what was made for them."""
    found: dict[tuple[int, str], list[tuple[float, float, float]]] = {(of, way): [] for of in CROWDS for way in WITHOUT}
    for number in range(ROUNDS):
        for of in CROWDS:
            print(f"round {number + 1} of {ROUNDS}: {of} processes", file=sys.stderr, flush=True)
            for way in list(WITHOUT)[:: -1 if number % 2 else 1]:
                told = play("lock", of, without=WITHOUT[way])
                changes, messages = sum(each["changes"] for each in told), sum(each["messages"] for each in told)
                cpu_s = sum(each["user"] + each["system"] for each in told)
                found[of, way].append((changes / SECONDS, messages / changes, 1e6 * cpu_s / changes))
    return [
        {"of": of, "way": way, "figures": [statistics.median(column) for column in zip(*each, strict=True)]}
        for (of, way), each in found.items()
    ]


def main() -> None:
    print("Four minutes: messages, parts and turns first, then crowds in turns.", file=sys.stderr, flush=True)
    rows = [row("a bare message", play("bare", 2))]
    rows += [row(f"the lock, {of} processes", play("lock", of)) for of in (3, 5)]
    rows += [row(f"the lock, {of} processes started one by one", play("lock", of, start=APART)) for of in (3, 5)]
    ways = [parts(paused=False), parts(paused=False, without=(SPIN,)), parts(paused=True)]
    added = after_sleep()
    placed = {"as usual": turns(patient=False), "SCHED_BATCH": turns(patient=True)}
    gained = gains()
    profiles = [each["profile"] for each in play("lock", 5, profiled=True) if "profile" in each]
    for each in rows:
        print(
            f"{each['name']:43} {each['messages_a_second']:10,.0f} messages/s, CPU per message, both ends: "
            f"{each['user_us']:5.1f} us of the program, {each['system_us']:5.1f} us of the kernel; "
            f"{each['busy_cores']:.2f} cores busy, {each['sleeps_a_message']:.2f} sleeps per message"
        )
    for name, share, calls in profiles[0]:
        print(f"{100 * share:5.1f} %  {calls:5.1f} calls per entry  {name}")
    for name, hot, asleep, cold in zip(PARTS, *ways, strict=True):
        print(
            f"{name:40} {hot:6.1f} us hot, {asleep:6.1f} us if waiters sleep at once, {cold:6.1f} us after 2 ms of sleep"
        )
    print(
        "twenty additions after 2 ms of sleep, one time after the other, us:", " ".join(f"{each:.2f}" for each in added)
    )
    for name, found in placed.items():
        for each in found:
            print(
                f"{name:22} process {each['number'] + 1}, core {1 if each['number'] < 2 else 2}: {each['entries']:7,} entries, "
                f"displaced {each['displaced']:.2f} times per entry; another one was inside before it "
                f"asked again: {100 * each['overtaken']:.0f} %"
            )
    for each in gained:
        changes, messages, cpu_us = each["figures"]
        print(
            f"{each['of']:2} processes, {each['way']:26} {changes:8,.0f} owner changes/s, {messages:5.2f} messages and "
            f"{cpu_us:5.1f} us of CPU per change"
        )
    if sys.argv[1:2] == ["--json"]:
        told = {
            "rows": rows,
            "profile": profiles[0],
            "after_sleep": added,
            "turns": placed,
            "gains": gained,
            "parts": [list(part) for part in zip(PARTS, *ways, strict=True)],
        }
        Path(sys.argv[2]).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
