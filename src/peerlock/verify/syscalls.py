"""Faults between system calls, on one host: `peerlock verify --registry host --faults syscalls`.

The processes of a group (`syscall_worker`) join, take the lock, leave and join again. strace
attaches to one of them for a while (`attacks`). It makes a system call late, lets the call fail, or
stops or kills the process at that call. With some attacks every other call of the registry is late
as well, which opens the windows between them.

The seed decides the attacks. It does not decide the schedule: two runs with one seed have the same
faults in another order of events.

A run has rounds. Each round has a group of its own, so the founding of a group meets faults as
well. One process meets none. After the faults of a round all stopped processes go on. Then each
process must be granted the lock within `PATIENCE_S`, and so must one new process.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from peerlock.errors import PeerlockError, UsageError
from peerlock.verify.attacks import CALLS, Attack, attacks
from peerlock.verify.history import Belief, Deaths, Outcome, Verdict, judge
from peerlock.verify.log import Line
from peerlock.verify.plan import Fault, Plan
from peerlock.verify.syscall_worker import COUNTER, ENDED, ROUND, Board, Log, Spec

PATIENCE_S = 20.0
ROUND_S = 15.0  # of faults
READY_S = 30.0  # to start a process
DETACH_S = 5.0  # for strace to attach, or to detach
APART = "a group each"  # the bug that can be planted
HIT_S = 0.3  # an attack that hits one call is over so long after the hit


class Process:
    """A worker."""

    def __init__(self, slot: int, number: int, directory: Path, seed: int, apart: bool = False) -> None:
        self.slot, self.name = slot, f"w{slot}.{number}"
        self.style = ("asyncio", "threads")[slot % 2]
        self.log = Log(directory / f"{self.name}.log", create=True)
        self.lines: list[Line] = []
        spec = Spec(
            self.name, self.style, str(directory / "groups"), str(directory / "board"), str(directory / f"{self.name}.log"),
            seed * 100_000 + slot * 1000 + number, apart,
        )  # fmt: skip
        words = [sys.executable, "-P", "-m", "peerlock.verify.syscall_worker", msgspec.json.encode(spec).decode()]
        with (directory / f"{self.name}.err").open("wb") as errors:
            self.popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )

    def look(self) -> list[Line]:
        self.lines += self.log.news()
        return self.lines

    def ready(self) -> bool:
        return bool(self.look())  # `ready` is its first line

    def granted(self, since: float) -> bool:
        recent = itertools.takewhile(lambda line: line.t > since, reversed(self.look()))
        return any(line.what == "granted" for line in recent)

    def phase(self, when: float) -> str:
        """What the process was doing at that time."""
        names = {"joins": "joining", "joined": "member", "leaves": "leaving"}
        before = itertools.takewhile(lambda line: line.t <= when, self.lines)
        steps = [names[line.what] for line in before if line.what in names]
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
        """Is the attack over?"""
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
        """The lines of strace that report the fault."""
        mark = {"killed": "killed by SIGKILL", "stopped": "stopped by SIGSTOP", "fails": "(INJECTED)"}
        sign = mark.get(self.attack.kind, "(DELAYED)")
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        names = [name.strip("?") for name in CALLS[self.attack.call][0]] if sign == "(DELAYED)" else [""]
        lines = [line for line in text.splitlines() if sign in line and any(name in line for name in names)]
        return lines[:1] if self.attack.kind in ("killed", "stopped") else lines


class Chaos:
    """One run: processes, attacks, rounds, and the verdict."""

    def __init__(self, plan: Plan, directory: Path, progress: Callable[[float], None]) -> None:
        self.plan, self.directory, self.progress = plan, directory, progress
        (directory / "groups").mkdir(mode=0o700)
        self.board = Board(directory / "board", create=True)
        self.round = 0
        self.numbers = itertools.count(1)
        self.slots: list[Process] = []
        self.processes: list[Process] = []  # all that were ever started
        self.struck: dict[int, Struck] = {}
        self.past: list[Struck] = []
        self.attacks = [attacks(plan.seed, slot) for slot in range(plan.nodes)]
        self.happened: list[Fault] = []
        self.problems: list[str] = []
        self.recoveries: list[float] = []
        self.began = time.monotonic()
        self.offset = time.time() - time.monotonic()  # strace knows the time of day only

    def start(self, slot: int) -> Process:
        apart = self.plan.planted == APART
        process = Process(slot, next(self.numbers), self.directory, self.plan.seed, apart)
        self.processes.append(process)
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
        spared = self.round % self.plan.nodes
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
            self.progress(time.monotonic() - self.began)
        self.heal()

    def strike(self, slot: int, attack: Attack) -> Struck:
        found = self.struck[slot] = Struck(attack, self.slots[slot], self.directory)
        self.happened.append(Fault(time.monotonic(), attack.label, found.process.name))
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
            did = next((line for line in reversed(process.lines) if line.what not in ("says", "raised")), None)
            last = f"{did.what}, {time.monotonic() - did.t:.1f} s ago" if did else "none"
            faults = "with" if any(past.process is process for past in self.past) else "without"
            self.problems.append(
                f"round {self.round}: {process.name} ({process.style}, {faults} faults of its own) was not granted "
                f"the lock within {PATIENCE_S:g} s {when}; its last line: {last}"
            )
        self.snapshot()
        return False

    def snapshot(self) -> None:
        """Keep the files and locks of a group that does not go on, for its diagnosis (`--keep`)."""
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
        for process in self.processes:
            process.end()

    # -- the verdict -----------------------------------------------------------------------------------------

    def judged(self) -> tuple[Verdict, list[Belief]]:
        verdict, held = Verdict(), list[Belief]()
        for number in range(1, self.round + 1):
            one, beliefs = judge_round(self.processes, number, self.board[COUNTER + number])
            held += beliefs
            for field in ("overlaps", "stale_writes_accepted", "lost_updates", "owner_changes", "grants", "losses",
                          "fences_out_of_order"):  # fmt: skip
                setattr(verdict, field, getattr(verdict, field) + getattr(one, field))
            verdict.problems += [f"round {number}: {problem}" for problem in one.problems]
        verdict.stuck = len(self.problems)
        verdict.problems += self.problems
        lines = (line for process in self.processes for line in process.lines if line.what == "raised")
        raised = Counter(f"{line.why} from {' > '.join(line.where)}" for line in lines)
        verdict.raised = sum(raised.values())
        verdict.problems += [f"no PeerlockError, {n} times: {why}" for why, n in raised.most_common(20)]
        hits, phases = Counter[str](), Counter[str]()
        for struck in self.past:
            found = struck.hits()
            hits[struck.attack.label] += len(found)
            phases.update(struck.process.phase(float(line.split()[1]) - self.offset) for line in found)
        verdict.faults = dict(sorted((label, count) for label, count in hits.items() if count))
        verdict.phases = dict(sorted(phases.items()))
        return verdict, held


def judge_round(processes: list[Process], number: int, counter: int) -> tuple[Verdict, list[Belief]]:
    """A process that was killed, or told that it lost the lock, believed that it held it up to its
    last check.
    """
    logs, deaths = dict[str, list[Line]](), dict[str, Deaths]()
    for process in processes:
        lines = logs[process.name] = []
        assured = 0.0
        for line in process.lines:
            if line.round == number and line.what != "says":
                if line.what in ("granted", "checked"):
                    assured = line.since or line.t
                lines.append(msgspec.structs.replace(line, t=assured) if line.what == "lost" else line)
        if process.lines:
            deaths[process.name] = [(process.lines[-1].t, process.popen.pid)]
    return judge(logs, deaths, counter)


def chaos(plan: Plan, progress: Callable[[float], None], directory: Path) -> Outcome:
    """Carry out the plan, and judge what the processes did."""
    if shutil.which("strace") is None:
        raise UsageError("strace is not installed: apt-get install strace.")
    run = Chaos(plan, directory, progress)
    try:
        run.run()
    finally:
        run.close()
        for process in run.processes:  # a log in shared memory is one huge file: keep what is in it
            (directory / f"{process.name}.log").write_bytes(process.log.text())
    verdict, held = run.judged()
    verdict.recovery_s = round(max(run.recoveries), 3) if run.recoveries else None
    verdict.seed, verdict.hosts = plan.seed, "one host, under strace"
    verdict.seconds = round(time.monotonic() - run.began, 1)
    return Outcome(verdict, held, run.happened)
