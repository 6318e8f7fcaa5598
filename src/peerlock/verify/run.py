"""Starting a group, tormenting it, and judging what it did.

Rounds: faults for a while, one after the other and some at the same time; then everything is healed, and everybody
must get the lock within `PATIENCE_S`. Which faults, to whom and when is drawn from the seed. What the kernel makes of
it is not: two runs with one seed are not the same run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peerlock.errors import PeerlockError, UsageError
from peerlock.verify.history import Belief, Verdict, judge, read
from peerlock.verify.hosts import Hosts, Loopback, Namespaces, may_make_namespaces
from peerlock.verify.worker import Spec

PATIENCE_S = 10.0
MEMBER_PORT, VOTER_PORT, ETCD_PORT, ETCD_PEER_PORT = 7101, 7102, 7379, 7380
ROUND_S = 30.0
START_S = 30.0

FAULTS = {
    "kill": "a process is killed, and started again under its name",
    "restart": "a process leaves, and is started again",
    "pause": "a process is stopped for less than a lease",
    "pause_long": "a process is stopped for longer than a lease",
    "between": "a holder is stopped for longer than a lease, between its last look at the lock and its write",
    "partition": "some hosts are cut off from the others, both ways",
    "one_way": "some hosts are cut off from the others, one way",
    "flapping": "some hosts are cut off and connected again, several times",
    "pair": "two hosts are cut off from each other, and from nobody else",
    "slow": "what a host says is late, by up to a third of a second",
    "reset": "all connections of a host are reset",
    "clock_rate": "the clock of a process is too fast or too slow, within what is allowed",
    "clock_jump": "the clock of a process jumps ahead, as after a suspension",
    "authority": "a voter's process is killed; or etcd's leader is killed or stopped, or another one of them, or all",
}


class Plan(Struct, frozen=True):
    registry: str = "embedded"
    nodes: int = 5
    voters: int = 3  # of them, with embedded voters
    seconds: float = 60.0
    faults: tuple[str, ...] = tuple(FAULTS)
    seed: int = 1
    lease_s: float = 2.0
    etcd_nodes: int = 3
    guard: bool = True
    planted: str = ""
    namespaces: bool | None = None  # None: where it may
    keep: str | None = None  # the logs
    fault_every_s: float = 1.2


# Does the etcd at this address lead the others?
WHO_LEADS = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/v3/maintenance/status", b"{}")
said = json.load(urllib.request.urlopen(request, timeout=0.5))
sys.exit(said["leader"] != said["header"]["member_id"])
"""


class Etcds:
    """A cluster of etcd on hosts of its own."""

    def __init__(self, hosts: Hosts, first: int, count: int, directory: Path) -> None:
        if shutil.which("etcd") is None:
            raise UsageError("etcd is not installed: apt-get install etcd-server. Or use --registry embedded.")
        self.hosts, self.places, self.directory = hosts, list(range(first, first + count)), directory
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for place in self.places:
            hosts.open_port(place, ETCD_PORT)
            hosts.open_port(place, ETCD_PEER_PORT)
            self.start(place)

    @property
    def endpoints(self) -> list[str]:
        return [f"http://{self.hosts.address(place)}:{ETCD_PORT}" for place in self.places]

    def start(self, place: int) -> None:
        here, bind = self.hosts.address(place), self.hosts.bind(place)
        cluster = ",".join(f"e{other}=http://{self.hosts.address(other)}:{ETCD_PEER_PORT}" for other in self.places)
        words = [
            "etcd", "--name", f"e{place}", "--data-dir", str(self.directory / f"etcd-{place}"),
            "--listen-client-urls", f"http://{bind}:{ETCD_PORT}",
            "--advertise-client-urls", f"http://{here}:{ETCD_PORT}",
            "--listen-peer-urls", f"http://{bind}:{ETCD_PEER_PORT}", "--initial-advertise-peer-urls", f"http://{here}:{ETCD_PEER_PORT}",
            "--initial-cluster", cluster, "--initial-cluster-state", "new",
            "--heartbeat-interval", "50", "--election-timeout", "500",
        ]  # fmt: skip
        with (self.directory / f"etcd-{place}.log").open("ab") as log:
            self.processes[place] = subprocess.Popen(
                self.hosts.command(place, words), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.hosts.runs(place, self.processes[place].pid)

    def leader(self) -> int | None:
        """By what each of them says of itself, on its own host."""
        for place in self.places:
            words = [sys.executable, "-c", WHO_LEADS, f"http://{self.hosts.bind(place)}:{ETCD_PORT}"]
            said = subprocess.run(self.hosts.command(place, words), capture_output=True, check=False)
            if said.returncode == 0:
                return place
        return None

    def kill(self, place: int) -> None:
        self.processes[place].kill()
        self.processes[place].wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Crew:
    """The processes of a group."""

    def __init__(self, plan: Plan, hosts: Hosts, directory: Path, etcds: Etcds | None) -> None:
        self.plan, self.hosts, self.directory, self.etcds = plan, hosts, directory, etcds
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.deaths: dict[str, list[tuple[float, int]]] = {}
        self.started: set[int] = set()
        for host in self.hosts_of_nodes:
            if plan.registry != "host":
                hosts.open_port(host, MEMBER_PORT)
        for host in self.voters:
            hosts.open_port(host, VOTER_PORT)

    @property
    def hosts_of_nodes(self) -> range:
        return range(1, self.plan.nodes + 1)

    @property
    def voters(self) -> range:
        return range(1, self.plan.voters + 1) if self.plan.registry == "embedded" else range(0)

    def name(self, host: int) -> str:
        return f"n{host}"

    def log(self, host: int) -> Path:
        return self.directory / f"{self.name(host)}.log"

    def settings(self, host: int) -> dict[str, Any]:
        plan, hosts = self.plan, self.hosts
        if plan.registry == "host":
            return {"name": self.name(host), "dir": str(self.directory)}
        settings: dict[str, Any] = {
            "name": self.name(host), "lease_s": plan.lease_s, "insecure": True, "state": str(self.directory / f"state-{host}"),
            "address": f"{hosts.address(host)}:{MEMBER_PORT}",
        }  # fmt: skip
        if hosts.bind(host) != hosts.address(host):
            settings["bind"] = hosts.bind(host)
        if self.etcds is not None:
            settings["etcd"] = {"endpoints": self.etcds.endpoints}
        else:
            settings["voters"] = {self.name(at): f"{hosts.address(at)}:{VOTER_PORT}" for at in self.voters}
            settings["first_start"] = host not in self.started
        return settings

    def start(self, host: int) -> None:
        spec = Spec(
            "verify", self.settings(host), str(self.log(host)), str(self.directory / "counter"),
            self.plan.seed * 1000 + host, self.plan.guard, self.plan.planted,
        )  # fmt: skip
        words = [sys.executable, "-m", "peerlock.verify.worker", msgspec.json.encode(spec).decode()]
        with (self.directory / f"{self.name(host)}.err").open("ab") as errors:
            self.processes[host] = subprocess.Popen(
                self.hosts.command(host, words),
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        self.started.add(host)

    def say(self, host: int, words: str) -> None:
        process = self.processes[host]
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(words.encode() + b"\n")
            process.stdin.flush()

    def kill(self, host: int) -> None:
        process = self.processes[host]
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.deaths.setdefault(self.name(host), []).append((time.monotonic(), process.pid))

    def stop(self, host: int) -> None:
        if self.processes[host].poll() is None:
            self.processes[host].send_signal(signal.SIGSTOP)

    def go_on(self, host: int) -> None:
        if self.processes[host].poll() is None:
            self.processes[host].send_signal(signal.SIGCONT)

    def last_grants(self) -> dict[int, float]:
        found = {}
        for host in self.hosts_of_nodes:
            grants = [event["t"] for event in _tail(self.log(host)) if event["what"] == "granted"]
            found[host] = grants[-1] if grants else 0.0
        return found

    def close(self) -> None:
        for host in self.processes:
            self.go_on(host)
            self.say(host, "leave")
        end = time.monotonic() + 5.0
        for host, process in self.processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(host)
            if process.stdin is not None:
                process.stdin.close()


def _tail(path: Path) -> list[dict[str, Any]]:
    """The last lines of a log, while it is being written."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 32768))
            lines = stream.read().split(b"\n")[1:-1]
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line))
    return found


class Torment:
    """The faults, drawn from a seed."""

    def __init__(self, plan: Plan, crew: Crew, hosts: Hosts) -> None:
        self.plan, self.crew, self.hosts = plan, crew, hosts
        self.random = random.Random(plan.seed)
        self.counts: Counter[str] = Counter()
        self.happened: list[tuple[float, str, str]] = []  # when, what, to whom
        self.later: list[tuple[float, Callable[[], None]]] = []  # what puts things right again
        self.deck: list[str] = []
        self.busy: set[int] = set()  # hosts whose process is being stopped or started
        self.late: set[int] = set()  # and whose network is slow

    def next_kind(self) -> str:
        if not self.deck:
            self.deck = list(self.plan.faults)
            self.random.shuffle(self.deck)
        return self.deck.pop()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.later.append((time.monotonic() + seconds, act))

    def look(self, heal: bool = False) -> None:
        """Do what is due; or everything, now."""
        while True:
            due = [entry for entry in self.later if heal or entry[0] <= time.monotonic()]
            if not due:
                return
            for entry in sorted(due, key=lambda entry: entry[0]):
                self.later.remove(entry)
                entry[1]()

    def strike(self) -> None:
        kind = self.next_kind()
        whom = getattr(self, kind)()
        if whom is None:
            self.deck.insert(0, kind)  # not now
            return
        self.counts[kind] += 1
        self.happened.append((time.monotonic(), kind, str(whom)))

    def idle(self) -> list[int]:
        return [
            host
            for host in self.crew.hosts_of_nodes
            if host not in self.busy and self.crew.processes[host].poll() is None
        ]

    def somebody(self) -> int | None:
        """A process to which nothing is being done; never so many that no majority of voters is left."""
        idle = self.idle()
        voters = self.crew.voters
        if sum(host in self.busy for host in voters) >= (len(voters) - 1) // 2:
            idle = [host for host in idle if host not in voters]
        return self.random.choice(idle) if idle and len(self.busy) < self.plan.nodes - 1 else None

    # -- processes -----------------------------------------------------------------------------------------

    def kill(self) -> int | None:
        host = self.somebody()
        if host is not None:
            self.busy.add(host)
            self.crew.kill(host)
            self.after(self.random.choice((0.0, 0.3, 2.0)), lambda: self.back(host))
        return host

    def back(self, host: int) -> None:
        before = self.crew.processes[host].stdin
        if before is not None:
            before.close()
        self.crew.start(host)
        self.busy.discard(host)

    def restart(self) -> int | None:
        host = self.somebody()
        if host is not None:
            self.busy.add(host)
            self.crew.say(host, "leave")
            self.after(1.0, lambda: self.again(host))
        return host

    def again(self, host: int) -> None:
        if self.crew.processes[host].poll() is None:
            try:
                self.crew.processes[host].wait(3.0)
            except subprocess.TimeoutExpired:
                self.crew.kill(host)
        self.back(host)

    def _pause(self, seconds: float) -> int | None:
        host = self.somebody()
        if host is not None:
            self.busy.add(host)
            self.crew.stop(host)
            self.after(seconds, lambda: self.resume(host))
        return host

    def resume(self, host: int) -> None:
        self.crew.go_on(host)
        self.busy.discard(host)

    def pause(self) -> int | None:
        return self._pause(self.plan.lease_s * self.random.uniform(0.1, 0.7))

    def pause_long(self) -> int | None:
        return self._pause(self.plan.lease_s * self.random.uniform(1.3, 2.5))

    def between(self) -> int | None:
        host = self.somebody()
        if host is not None:
            self.busy.add(host)
            self.crew.say(host, "between")
            # It stops when it has the lock; that may take a while.
            self.after(self.plan.lease_s * self.random.uniform(2.0, 3.0), lambda: self.enough(host))
        return host

    def enough(self, host: int) -> None:
        self.crew.say(host, "never mind")
        self.resume(host)

    # -- wires ---------------------------------------------------------------------------------------------

    def _cut(self, pairs: list[tuple[int, int]], seconds: float) -> None:
        for pair in pairs:
            self.hosts.cut(*pair)

        def mend() -> None:
            for pair in pairs:
                self.hosts.mend(*pair)

        self.after(seconds, mend)

    def _sides(self) -> tuple[list[int], list[int]]:
        everybody = list(self.crew.hosts_of_nodes) + (self.crew.etcds.places if self.crew.etcds else [])
        few = self.random.sample(everybody, self.random.randrange(1, len(everybody) // 2 + 1))
        return few, [host for host in everybody if host not in few]

    def partition(self, both: bool = True, seconds: float | None = None) -> str:
        few, others = self._sides()
        ways = [(a, b) for a in few for b in others]
        if both:
            ways += [(b, a) for a, b in ways]
        elif self.random.random() < 0.5:
            ways = [(b, a) for a, b in ways]
        self._cut(ways, seconds or self.plan.lease_s * self.random.uniform(0.2, 2.0))
        return f"{few} | {others}"

    def one_way(self) -> str:
        return self.partition(both=False)

    def flapping(self) -> str:
        few, others = self._sides()
        ways = [(a, b) for a in few for b in others] + [(b, a) for a in few for b in others]
        for at in range(4):
            self.after(at * 0.6, lambda: self._cut(ways, 0.3))
        return f"{few} | {others}"

    def pair(self) -> str:
        a, b = self.random.sample(list(self.crew.hosts_of_nodes), 2)
        self._cut([(a, b), (b, a)], self.plan.lease_s * self.random.uniform(0.5, 4.0))
        return f"{a} | {b}"

    def slow(self) -> int | None:
        hosts = [host for host in self.crew.hosts_of_nodes if host not in self.late]
        if not hosts:
            return None
        host = self.random.choice(hosts)
        self.late.add(host)
        self.hosts.slow(host, True)

        def mend() -> None:
            self.hosts.slow(host, False)
            self.late.discard(host)

        self.after(self.plan.lease_s * self.random.uniform(0.5, 2.0), mend)
        return host

    def reset(self) -> int | None:
        host = self.random.choice(list(self.crew.hosts_of_nodes))
        return host if self.hosts.reset(host) else None

    # -- clocks --------------------------------------------------------------------------------------------

    def clock_rate(self) -> int | None:
        host = self.somebody()
        if host is not None:
            self.crew.say(host, f"rate {self.random.uniform(0.9905, 1.0095)}")
        return host

    def clock_jump(self) -> int | None:
        host = self.somebody()
        if host is not None:
            self.crew.say(host, f"jump {self.random.choice((0.3, 1.0, 5.0))}")
        return host

    # -- those who decide ----------------------------------------------------------------------------------

    def mended(self, place: int, mend: Callable[[], None]) -> None:
        mend()
        self.busy.discard(place)

    def authority(self) -> str | None:
        etcds = self.crew.etcds
        if etcds is None:
            voters = [host for host in self.idle() if host in self.crew.voters]
            if not voters or any(host in self.busy for host in self.crew.voters):
                return None
            host = self.random.choice(voters)
            self.busy.add(host)
            self.crew.kill(host)
            self.after(self.random.choice((0.5, 2.0, 5.0)), lambda: self.back(host))
            return f"voter {host}"
        if any(place in self.busy for place in etcds.places):
            return None
        kind = self.random.choice(("kill the leader", "stop the leader", "kill one", "stop one", "stop all"))
        chosen = etcds.places
        if kind != "stop all":
            leader = etcds.leader() if kind.endswith("leader") else None
            chosen = [leader or self.random.choice(etcds.places)]
        seconds = self.random.choice((0.5, 2.0, 4.0))
        for place in chosen:
            self.busy.add(place)
            process = etcds.processes[place]
            if kind.startswith("kill"):
                etcds.kill(place)
                mend: Callable[[], None] = partial(etcds.start, place)
            else:
                process.send_signal(signal.SIGSTOP)
                mend = partial(process.send_signal, signal.SIGCONT)
            self.after(seconds, partial(self.mended, place, mend))
        return f"etcd {kind} {chosen}"


def verify(
    plan: Plan, progress: Callable[[float, str], None] | None = None
) -> tuple[Verdict, list[Belief], list[tuple[float, str, str]]]:
    """Run it. What was found, who believed what when, and what was done to whom."""
    unknown = set(plan.faults) - set(FAULTS)
    if unknown:
        raise UsageError(f"No fault is called {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}.")
    if plan.registry not in ("embedded", "etcd", "host"):
        raise UsageError(f"--registry is embedded, etcd or host; got {plan.registry!r}.")
    if plan.registry == "host":
        plan = msgspec.structs.replace(
            plan,
            faults=tuple(f for f in plan.faults if f in ("kill", "restart", "pause", "pause_long")),
            namespaces=False,
        )
    if plan.registry == "embedded" and (plan.voters not in (3, 5) or plan.voters > plan.nodes):
        raise UsageError(f"Three or five of the {plan.nodes} processes are voters; got {plan.voters}.")
    with staged(plan) as crew:
        torment = Torment(plan, crew, crew.hosts)
        recoveries, stuck, began = _rounds(plan, crew, torment, progress)
        crew.close()
        verdict, held, logs = judged(crew)
    if torment.counts["between"]:  # what was asked for may not have come to pass
        torment.counts["between"] = sum(event["what"] == "stops" for log in logs for event in log)
    verdict.faults = dict(sorted(torment.counts.items()))
    verdict.recovery_s = round(max(recoveries), 3) if recoveries else None
    verdict.problems += stuck
    verdict.stuck, verdict.seed, verdict.hosts = len(stuck), plan.seed, crew.hosts.kind
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict, held, torment.happened


@contextlib.contextmanager
def staged(plan: Plan) -> Iterator[Crew]:
    """Hosts, and whoever decides; the processes are not started yet. Everything is gone at the end."""
    count = plan.nodes + (plan.etcd_nodes if plan.registry == "etcd" else 0)
    directory = Path(tempfile.mkdtemp(prefix="peerlock-verify-"))
    if plan.registry == "host":
        directory.chmod(0o700)
    use = plan.namespaces if plan.namespaces is not None else may_make_namespaces()
    hosts: Hosts = Namespaces(count) if use else Loopback(count)
    etcds: Etcds | None = None
    crew: Crew | None = None
    try:
        if plan.registry == "etcd":
            etcds = Etcds(hosts, plan.nodes + 1, plan.etcd_nodes, directory)
        crew = Crew(plan, hosts, directory, etcds)
        yield crew
    finally:
        if crew is not None:
            for process in crew.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if etcds is not None:
            etcds.close()
        hosts.close()
        if plan.keep is not None:
            shutil.copytree(directory, plan.keep, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def judged(crew: Crew) -> tuple[Verdict, list[Belief], list[list[dict[str, Any]]]]:
    from peerlock.guards import GuardedFile

    logs = {crew.name(host): read(crew.log(host)) for host in crew.hosts_of_nodes}
    _, counter = GuardedFile(crew.directory / "counter").read()
    verdict, held = judge(logs, crew.deaths, int(counter or b"0"))
    return verdict, held, list(logs.values())


def _rounds(
    plan: Plan, crew: Crew, torment: Torment, progress: Callable[[float, str], None] | None
) -> tuple[list[float], list[str], float]:
    start_all(crew)
    began = time.monotonic()
    recoveries: list[float] = []
    stuck: list[str] = []
    while (left := began + plan.seconds - time.monotonic()) > 0:
        end = time.monotonic() + min(ROUND_S, left)
        while (now := time.monotonic()) < end:
            torment.strike()
            until = min(end, now + torment.random.expovariate(1 / plan.fault_every_s))
            while time.monotonic() < until:
                torment.look()
                time.sleep(0.02)
            if progress is not None:
                progress(time.monotonic() - began, f"{sum(torment.counts.values())} faults")
        torment.look(heal=True)
        for host in crew.hosts_of_nodes:
            crew.go_on(host)
        healed = time.monotonic()
        longest, missing = everybody_in(crew, healed, PATIENCE_S)
        recoveries.append(longest)
        if missing:
            names = ", ".join(crew.name(host) for host in missing)
            stuck.append(f"{PATIENCE_S:g} s after the healing at {healed:.3f} these were not in: {names}")
    return recoveries, stuck, began


def start_all(crew: Crew) -> None:
    for host in crew.hosts_of_nodes:
        crew.start(host)
    _, missing = everybody_in(crew, time.monotonic(), START_S)
    if missing:
        raise PeerlockError(f"The group did not start within {START_S:g} s: {_complaints(crew)}")


def everybody_in(crew: Crew, since: float, patience_s: float) -> tuple[float, list[int]]:
    while True:
        grants = crew.last_grants()
        missing = [host for host, when in grants.items() if when < since]
        now = time.monotonic()
        if not missing:
            return now - since, []
        if now - since > patience_s:
            return now - since, missing
        for host in missing:
            crew.go_on(host)  # it may have stopped itself just after it was let go on
        time.sleep(0.05)


def _complaints(crew: Crew) -> str:
    for host in crew.hosts_of_nodes:
        path = crew.directory / f"{crew.name(host)}.err"
        if path.exists() and path.stat().st_size:
            return f"{crew.name(host)}: {path.read_text()[-500:].strip()}"
    return "nobody said why"
