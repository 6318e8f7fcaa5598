"""Faults between system calls, on one host: `peerlock verify --registry host --faults syscalls`.

The processes of a group (`syscall_worker`) join, take the lock, leave and join again. strace attaches to one of them for a
while. It makes a system call late, lets the call fail, or stops or kills the process at that call. With some attacks every
other call of the registry is late as well, which opens the windows between them.

The seed decides the calls, the faults and their order for each process; each call meets each fault once before any comes
again. The seed does not decide the schedule: two runs with one seed have the same faults in another order of events.

A run has rounds. Each round has a group of its own, so the founding of a group meets faults as well, and spares one
process. After the faults of a round everything that was stopped goes on. Then each process must be granted the lock within
`PATIENCE_S`, and so must one process that is new.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peerlock.errors import PeerlockError, UsageError
from peerlock.verify.history import Belief, Verdict, judge
from peerlock.verify.plan import Plan
from peerlock.verify.syscall_worker import COUNTER, ENDED, ROUND, Board, Log, Spec

PATIENCE_S = 20.0
ROUND_S = 15.0  # of faults
READY_S = 30.0  # to start a process
DETACH_S = 5.0  # for strace to attach, or to detach
APART = "a group each"  # the bug that can be planted
HIT_S = 0.3  # after a call was hit that is hit once, the attack is over

# Each kind of call by the names that it has on one architecture or another, and how many of them a process makes from
# its joining to its leaving, roughly: so the n-th call that is hit is somewhere in there.
CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "open": (("?open", "openat"), 35),
    "fcntl": (("fcntl",), 6),
    "flock": (("flock",), 2),
    "link": (("?link", "linkat"), 2),
    "rename": (("?rename", "?renameat", "renameat2"), 2),
    "unlink": (("?unlink", "unlinkat"), 9),
    "fsync": (("fsync", "fdatasync"), 4),
    "read": (("read",), 12),
    "pread": (("pread64",), 2),
    "write": (("write",), 3),
    "pwrite": (("pwrite64",), 2),
    "ftruncate": (("ftruncate",), 2),
    "chmod": (("?chmod", "fchmodat", "fchmod"), 4),
    "mkdir": (("?mkdir", "mkdirat"), 5),
    "getdents": (("getdents64",), 36),
    "stat": (("?newfstatat", "?fstatat64", "?fstat", "?stat", "?lstat", "statx"), 43),
    "socket": (("socket",), 3),
    "bind": (("bind",), 1),
    "connect": (("connect",), 2),
    "accept": (("?accept", "accept4"), 3),
    "send": (("sendto",), 33),
    "receive": (("recvfrom",), 32),
}
REGISTRY = ("open", "fcntl", "flock", "link", "rename", "unlink", "fsync", "write", "chmod", "mkdir", "bind", "stat")
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EINTR", "ENOMEM", "EACCES")
KINDS = ("late before", "late after", "fails", "fails", "killed", "stopped")


class Attack(Struct, frozen=True):
    """What is done to one process for a while."""

    number: int
    call: str
    kind: str
    inject: str  # as strace wants it
    slow_us: int  # each other call of the registry's is late by this; 0: none
    seconds: float
    stopped_s: float  # after so long it goes on, if it was stopped
    gap_s: float  # and so long there is no attack before it

    @property
    def rules(self) -> list[str]:
        others = ",".join(name for call in REGISTRY if call != self.call for name in CALLS[call][0])
        slow = [f"inject={others}:delay_enter={self.slow_us}"] if self.slow_us else []
        return [*slow, f"inject={self.inject}"]

    @property
    def once(self) -> bool:
        return "+" not in self.inject

    @property
    def label(self) -> str:
        fault = self.kind
        if self.kind == "fails":
            fault += " " + self.inject.partition("error=")[2].partition(":")[0]
        return f"{self.call} {fault}"


def attacks(seed: int, slot: int) -> Iterator[Attack]:
    """On one of the processes: without end, and the same ones for the same seed."""
    chance = random.Random(seed * 1000 + slot)
    deck: list[tuple[str, str]] = []
    for number in itertools.count(1):
        if not deck:
            deck = [(call, kind) for call in CALLS for kind in KINDS]
            chance.shuffle(deck)
        call, kind = deck.pop()
        yield Attack(
            number, call, kind, rule(chance, call, kind),
            slow_us=chance.choice((0, 0, 500, 2000, 10_000)), seconds=chance.uniform(0.5, 3.0),
            stopped_s=chance.choice((0.05, 0.5, 4.0)), gap_s=chance.expovariate(1 / 0.3),
        )  # fmt: skip


def rule(chance: random.Random, call: str, kind: str) -> str:
    names, often = CALLS[call]
    first = chance.randint(1, 3 * often)
    again = chance.choice(("", "", "+", f"+{chance.randint(2, 2 * often + 1)}"))  # once, from then on, every so often
    if kind in ("killed", "stopped"):
        fault, again = f"signal={'SIGKILL' if kind == 'killed' else 'SIGSTOP'}", ""
    elif kind == "fails":
        fault = f"error={chance.choice(ERRORS)}"
        if fault.endswith("EINTR") and again == "+":
            again = "+2"  # Python asks again until there is another answer
    else:
        longest = 0.1 if again else 3.0
        fault = (
            f"delay_{'enter' if kind == 'late before' else 'exit'}={int(1e6 * chance.uniform(longest / 10, longest))}"
        )
    return f"{','.join(names)}:{fault}:when={first}{again}"


class Process:
    """A worker."""

    def __init__(self, slot: int, number: int, directory: Path, seed: int, apart: bool = False) -> None:
        self.slot, self.name = slot, f"w{slot}.{number}"
        self.style = ("asyncio", "threads")[slot % 2]
        self.log = Log(directory / f"{self.name}.log", create=True)
        self.events: list[dict[str, Any]] = []
        spec = Spec(
            self.name, self.style, str(directory / "groups"), str(directory / "board"), str(directory / f"{self.name}.log"),
            seed * 100_000 + slot * 1000 + number, apart,
        )  # fmt: skip
        words = [sys.executable, "-P", "-m", "peerlock.verify.syscall_worker", msgspec.json.encode(spec).decode()]
        with (directory / f"{self.name}.err").open("wb") as errors:
            self.popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )

    def look(self) -> list[dict[str, Any]]:
        self.events += self.log.news()
        return self.events

    def ready(self) -> bool:
        return bool(self.look())  # that is its first word

    def granted(self, since: float) -> bool:
        recent = itertools.takewhile(lambda event: event["t"] > since, reversed(self.look()))
        return any(event["what"] == "granted" for event in recent)

    def phase(self, when: float) -> str:
        """What the process was about at that time."""
        names = {"joins": "joining", "joined": "member", "leaves": "leaving"}
        before = itertools.takewhile(lambda event: event["t"] <= when, self.events)
        steps = [names[event["what"]] for event in before if event["what"] in names]
        return steps[-1] if steps else "joining"

    def alive(self) -> bool:
        return self.popen.poll() is None

    def go_on(self) -> None:
        if self.alive():
            self.popen.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        self.look()


class Struck:
    """A process that strace has attached to."""

    def __init__(self, attack: Attack, process: Process, directory: Path) -> None:
        self.attack, self.process = attack, process
        self.path = directory / f"{process.name}-{attack.number:04}.strace"
        self.ends = time.monotonic() + attack.seconds
        self.goes_on = time.monotonic() + attack.stopped_s
        self.hit_at: float | None = None
        shown = ",".join(name for names, _ in CALLS.values() for name in names)
        self.popen = subprocess.Popen(
            ["strace", "-f", "-q", "-ttt", "-s", "120", "-o", str(self.path), "-e", f"trace={shown}",
             *(word for rule in attack.rules for word in ("-e", rule)), "-p", str(process.popen.pid)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def attached(self) -> None:
        """Wait until strace has attached, or has given up."""
        status, end = Path(f"/proc/{self.process.popen.pid}/status"), time.monotonic() + DETACH_S
        with contextlib.suppress(OSError):  # the process has ended
            while "\nTracerPid:\t0\n" in status.read_text() and self.popen.poll() is None and time.monotonic() < end:
                time.sleep(0.005)

    def look(self) -> bool:
        """Is it over?"""
        now = time.monotonic()
        if self.attack.kind == "stopped" and now > self.goes_on:
            self.process.go_on()
            self.goes_on = now + self.attack.stopped_s
        if self.attack.once and self.hit_at is None and self.hits():
            self.hit_at = now
        hit = self.hit_at is not None and now > self.hit_at + HIT_S + self.attack.stopped_s
        return hit or now > self.ends or self.popen.poll() is not None

    def let_go(self) -> None:
        self.attached()  # a strace that is told to end while it starts may never do so
        self.popen.terminate()  # it detaches
        self.process.go_on()
        try:
            _, said = self.popen.communicate(timeout=DETACH_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()  # then the kernel does
            _, said = self.popen.communicate()
        self.process.go_on()
        if b"Operation not permitted" in said:
            raise UsageError("strace may not trace here: as root, or where kernel.yama.ptrace_scope is 0 or 1, it may.")

    def hits(self) -> list[str]:
        """The lines of strace's that tell of the fault."""
        mark = {"killed": "killed by SIGKILL", "stopped": "stopped by SIGSTOP", "fails": "(INJECTED)"}
        sign = mark.get(self.attack.kind, "(DELAYED)")
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        names = [name.strip("?") for name in CALLS[self.attack.call][0]] if sign == "(DELAYED)" else [""]
        lines = [line for line in text.splitlines() if sign in line and any(name in line for name in names)]
        return lines[:1] if self.attack.kind in ("killed", "stopped") else lines


class Chaos:
    """One run: processes, attacks, rounds, and what came of them."""

    def __init__(self, plan: Plan, directory: Path, progress: Callable[[float, str], None] | None) -> None:
        self.plan, self.directory, self.progress = plan, directory, progress
        (directory / "groups").mkdir(mode=0o700)
        self.board = Board(directory / "board", create=True)
        self.round = 0
        self.numbers = itertools.count(1)
        self.slots: list[Process] = []
        self.everybody: list[Process] = []
        self.struck: dict[int, Struck] = {}
        self.past: list[Struck] = []
        self.attacks = [attacks(plan.seed, slot) for slot in range(plan.nodes)]
        self.happened: list[tuple[float, str, str]] = []
        self.problems: list[str] = []
        self.recoveries: list[float] = []
        self.began = time.monotonic()
        self.offset = time.time() - time.monotonic()  # strace knows the time of day only

    def start(self, slot: int) -> Process:
        apart = self.plan.planted == APART
        process = Process(slot, next(self.numbers), self.directory, self.plan.seed, apart)
        self.everybody.append(process)
        return process

    def until(self, true: Callable[[], object], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                return False
            time.sleep(0.03)
        return True

    def ready(self, processes: list[Process]) -> None:
        if not self.until(lambda: all(p.ready() or not p.alive() for p in processes), READY_S):
            raise PeerlockError(f"The processes did not start within {READY_S:g} s.")
        for process in processes:
            if not process.alive():
                said = (self.directory / f"{process.name}.err").read_text().strip()
                raise PeerlockError(f"A process did not start: {said[-500:]}")

    # -- a round -------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.slots = [self.start(slot) for slot in range(self.plan.nodes)]
        self.ready(self.slots)
        self.began = time.monotonic()
        end = self.began + self.plan.seconds
        while time.monotonic() < end - 1.0:
            self.one_round(min(ROUND_S, end - time.monotonic()))
        self.finish()

    def one_round(self, seconds: float) -> None:
        self.round += 1
        spared = self.round % self.plan.nodes  # in each round another one
        coming = {slot: next(self.attacks[slot]) for slot in range(self.plan.nodes) if slot != spared}
        for slot in list(coming)[::2]:  # these meet faults when they found the group
            self.strike(slot, coming[slot]).attached()
            coming[slot] = next(self.attacks[slot])
        self.board[ROUND] = self.round
        now = time.monotonic()
        end, when = now + seconds, {slot: now + attack.gap_s for slot, attack in coming.items()}
        while time.monotonic() < end:
            self.look_after()
            for slot, attack in coming.items():
                if slot in self.struck:
                    when[slot] = time.monotonic() + attack.gap_s
                elif time.monotonic() > when[slot] and self.slots[slot].ready():
                    self.strike(slot, attack)
                    coming[slot] = next(self.attacks[slot])
            time.sleep(0.02)
            if self.progress is not None:
                self.progress(time.monotonic() - self.began, f"{len(self.happened)} attacks")
        self.heal()

    def strike(self, slot: int, attack: Attack) -> Struck:
        found = self.struck[slot] = Struck(attack, self.slots[slot], self.directory)
        self.happened.append((time.monotonic(), attack.label, found.process.name))
        return found

    def look_after(self) -> None:
        for slot, struck in list(self.struck.items()):
            if struck.look():
                self.let_go(slot)
        for slot, process in enumerate(self.slots):
            if not process.alive():
                if slot in self.struck:
                    self.let_go(slot)
                self.on_loop_closed(process)
                self.slots[slot] = self.start(slot)

    def on_loop_closed(self, process: Process) -> None:
        """strace may have killed it. Nothing else ends a process before the end of the run."""
        if process.popen.returncode != -signal.SIGKILL:
            said = (self.directory / f"{process.name}.err").read_text().strip()
            self.problems.append(
                f"round {self.round}: {process.name} ended by itself, with {process.popen.returncode}: {said[-500:]}"
            )

    def let_go(self, slot: int) -> None:
        struck = self.struck.pop(slot)
        struck.let_go()
        self.past.append(struck)

    def heal(self) -> None:
        for slot in list(self.struck):
            self.let_go(slot)
        self.look_after()
        self.ready(self.slots)
        well = self.all_granted(self.slots, "after the faults")
        if well:
            new = self.start(self.plan.nodes + self.round % 2)
            self.ready([new])
            well = self.all_granted([new], "after its start, which met no faults")
            new.end()
        if not well:
            self.start_over()

    def all_granted(self, processes: list[Process], when: str) -> bool:
        """Each of these processes gets the lock from now on."""
        since = time.monotonic()

        def missing() -> list[Process]:
            return [process for process in processes if not process.granted(since)]

        if self.until(lambda: not missing(), PATIENCE_S):
            self.recoveries.append(time.monotonic() - since)
            return True
        for process in missing():
            did: dict[str, Any] = next((e for e in reversed(process.events) if e["what"] not in ("says", "raised")), {})
            faults = "with" if any(past.process is process for past in self.past) else "without"
            self.problems.append(
                f"round {self.round}: {process.name} ({process.style}, {faults} faults of its own) was not granted "
                f"the lock within {PATIENCE_S:g} s {when}; its last word, {time.monotonic() - did.get('t', since):.1f} s ago: "
                f"{did.get('what')}"
            )
        self.snapshot()
        return False

    def snapshot(self) -> None:
        """The files and locks of a group that does not go on, for its diagnosis (`--keep`)."""
        group = self.directory / "groups" / f"r{self.round}"
        place = self.directory / f"stuck-r{self.round}"
        listed = subprocess.run(["ls", "-liR", str(group)], capture_output=True, text=True, check=False).stdout
        place.mkdir()
        (place / "ls").write_text(listed)
        (place / "locks").write_text(Path("/proc/locks").read_text())
        for kind in ("views", "members"):
            with contextlib.suppress(OSError):
                shutil.copytree(group / kind, place / kind)

    def start_over(self) -> None:
        """The group is lost: new processes, for the next round."""
        self.board[ROUND] = 0
        for process in self.slots:
            process.end()
        self.slots = [self.start(slot) for slot in range(self.plan.nodes)]
        self.ready(self.slots)

    def finish(self) -> None:
        self.board[ENDED] = 1
        if not self.until(lambda: not any(process.alive() for process in self.slots), PATIENCE_S):
            late = ", ".join(process.name for process in self.slots if process.alive())
            self.problems.append(f"round {self.round}: these did not leave within {PATIENCE_S:g} s: {late}")

    def close(self) -> None:
        for struck in self.struck.values():
            struck.popen.kill()
            struck.popen.communicate()
        for process in self.everybody:
            process.end()

    # -- what came of it -------------------------------------------------------------------------------------

    def judged(self) -> tuple[Verdict, list[Belief]]:
        verdict, held = Verdict(), list[Belief]()
        for number in range(1, self.round + 1):
            one, beliefs = judge_round(self.everybody, number, self.board[COUNTER + number])
            held += beliefs
            for field in ("overlaps", "stale_writes_accepted", "lost_updates", "owner_changes", "grants", "losses",
                          "fences_out_of_order"):  # fmt: skip
                setattr(verdict, field, getattr(verdict, field) + getattr(one, field))
            verdict.problems += [f"round {number}: {problem}" for problem in one.problems]
        verdict.stuck = len(self.problems)
        verdict.problems += self.problems
        raised = Counter(
            f"{event['why']} from {' > '.join(event['where'])}"
            for process in self.everybody
            for event in process.events
            if event["what"] == "raised"
        )
        verdict.raised = sum(raised.values())
        verdict.problems += [f"no PeerlockError, {n} times: {why}" for why, n in raised.most_common(20)]
        hits, phases = Counter[str](), Counter[str]()
        for struck in self.past:
            lines = struck.hits()
            hits[struck.attack.label] += len(lines)
            phases.update(struck.process.phase(float(line.split()[1]) - self.offset) for line in lines)
        verdict.faults = dict(sorted((label, count) for label, count in hits.items() if count))
        verdict.phases = dict(sorted(phases.items()))
        return verdict, held


def judge_round(processes: list[Process], number: int, counter: int) -> tuple[Verdict, list[Belief]]:
    """A process that was killed, or told that it lost the lock, believed in it up to its last look."""
    logs, deaths = dict[str, list[dict[str, Any]]](), dict[str, list[tuple[float, int]]]()
    for process in processes:
        events = [dict(event) for event in process.events if event["round"] == number and event["what"] != "says"]
        assured = 0.0
        for event in events:
            if event["what"] in ("granted", "checked"):
                assured = event.get("since", event["t"])
            elif event["what"] == "lost":
                event["t"] = assured
        logs[process.name] = events
        if process.events:
            deaths[process.name] = [(process.events[-1]["t"], process.popen.pid)]
    return judge(logs, deaths, counter)


def chaos(
    plan: Plan, progress: Callable[[float, str], None] | None, directory: Path
) -> tuple[Verdict, list[Belief], list[tuple[float, str, str]]]:
    """Run it. What was found, who believed what when, and what was done to whom."""
    if shutil.which("strace") is None:
        raise UsageError("strace is not installed: apt-get install strace.")
    run = Chaos(plan, directory, progress)
    try:
        run.run()
    finally:
        run.close()
        for process in run.everybody:
            text = b"".join(msgspec.json.encode(event) + b"\n" for event in process.events)
            (directory / f"{process.name}.log").write_bytes(text)  # of the shared memory, what is in it
    verdict, held = run.judged()
    verdict.recovery_s = round(max(run.recoveries), 3) if run.recoveries else None
    verdict.seed, verdict.hosts = plan.seed, "one host, under strace"
    verdict.seconds = round(time.monotonic() - run.began, 1)
    return verdict, held, run.happened


__all__ = ["CALLS", "ERRORS", "KINDS", "Attack", "attacks", "chaos"]
