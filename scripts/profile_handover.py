"""Where the CPU time of an owner change goes: the evidence for the limits in docs/guide/performance.md.

python scripts/profile_handover.py [--json FILE]

Three and five processes on uvloop compete for one lock; the kernel says how much of its own and of the program's time
each has used, and how often it was put to sleep. Beside it two processes that throw a bare message to and fro, on the same
loop and the same kind of socket: what is left when there is no lock. Then one of the five runs under a profiler that
counts CPU time, so that what a function's system calls cost is in its row.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import multiprocessing
import pstats
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

import peerlock

SECONDS = 3.0
CORES = 2


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


def process(scene: str, directory: str, number: int, of: int, profiled: bool, answers: Any) -> None:
    work = {"lock": compete, "bare": throw}[scene]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers.put(runner.run(work(directory, number, of, profiled)))


def play(scene: str, of: int, profiled: bool = False) -> list[dict[str, Any]]:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o700)
        made = [
            spawn.Process(target=process, args=(scene, directory, number, of, profiled and number == 0, answers))
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


def main() -> None:
    rows = [row("a bare message", play("bare", 2))]
    rows += [row(f"the lock, {of} processes", play("lock", of)) for of in (3, 5)]
    profiles = [each["profile"] for each in play("lock", 5, profiled=True) if "profile" in each]
    for each in rows:
        print(
            f"{each['name']:24} {each['messages_a_second']:10,.0f} messages/s, CPU a message, both ends: "
            f"{each['user_us']:5.1f} us of the program, {each['system_us']:5.1f} us of the kernel; "
            f"{each['busy_cores']:.2f} cores busy, {each['sleeps_a_message']:.2f} sleeps a message"
        )
    for name, share, calls in profiles[0]:
        print(f"{100 * share:5.1f} %  {calls:5.1f} calls an entry  {name}")
    if sys.argv[1:2] == ["--json"]:
        Path(sys.argv[2]).write_text(json.dumps({"rows": rows, "profile": profiles[0]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
