"""The faults of a run: which, on which host, and when they are mended.

The seed decides the faults, their hosts and their times. It does not decide the schedule of the
kernel, so two runs with one seed differ.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from peerlock.verify.cluster import Cluster
from peerlock.verify.hosts import Hosts
from peerlock.verify.plan import Fault, Plan


class Nemesis:
    def __init__(self, plan: Plan, cluster: Cluster, hosts: Hosts) -> None:
        self.plan, self.cluster, self.hosts = plan, cluster, hosts
        self.random = random.Random(plan.seed)
        self.counts: Counter[str] = Counter()
        self.happened: list[Fault] = []
        self.later: list[tuple[float, Callable[[], None]]] = []  # what mends a fault, and when
        self.deck: list[str] = []
        self.busy: set[int] = set()  # hosts whose process is being stopped or started
        self.late: set[int] = set()  # hosts whose network is slow
        self.attacks: dict[str, Callable[[], int | str | None]] = {
            "kill": self.kill, "restart": self.restart, "pause": self.pause, "pause_long": self.pause_long,
            "between": self.between, "partition": self.partition, "one_way": self.one_way, "flapping": self.flapping,
            "pair": self.pair, "slow": self.slow, "reset": self.reset,
            "block": self.block, "host_kill": self.host_kill, "host_stop": self.host_stop,
            "clock_rate": self.clock_rate,
            "clock_jump": self.clock_jump, "authority": self.authority,
        }  # fmt: skip

    def next_kind(self) -> str:
        if not self.deck:
            self.deck = list(self.plan.faults)
            self.random.shuffle(self.deck)
        return self.deck.pop()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.later.append((time.monotonic() + seconds, act))

    def look(self, heal: bool = False) -> None:
        """Mend what is due; with `heal`, mend everything now."""
        while True:
            due = [entry for entry in self.later if heal or entry[0] <= time.monotonic()]
            if not due:
                return
            for entry in sorted(due, key=lambda entry: entry[0]):
                self.later.remove(entry)
                entry[1]()

    def strike(self) -> None:
        kind = self.next_kind()
        to = self.attacks[kind]()
        if to is None:
            self.deck.insert(0, kind)  # not now
            return
        self.counts[kind] += 1
        self.happened.append(Fault(time.monotonic(), kind, str(to)))

    def idle(self) -> list[int]:
        processes = self.cluster.processes
        return [
            host for host in self.cluster.hosts_of_nodes if host not in self.busy and processes[host].poll() is None
        ]

    def target(self) -> int | None:
        """The host of a process without a fault; never so many that no majority of voters is left."""
        idle = self.idle()
        voters = self.cluster.voters
        if sum(host in self.busy for host in voters) >= (len(voters) - 1) // 2:
            idle = [host for host in idle if host not in voters]
        return self.random.choice(idle) if idle and len(self.busy) < self.plan.nodes - 1 else None

    # -- processes -----------------------------------------------------------------------------------------

    def kill(self) -> int | None:
        host = self.target()
        if host is not None:
            self.busy.add(host)
            self.cluster.kill(host)
            self.after(self.random.choice((0.0, 0.3, 2.0)), lambda: self.back(host))
        return host

    def back(self, host: int) -> None:
        before = self.cluster.processes[host].stdin
        if before is not None:
            before.close()
        self.cluster.start(host)
        self.busy.discard(host)

    def restart(self) -> int | None:
        host = self.target()
        if host is not None:
            self.busy.add(host)
            self.cluster.say(host, "leave")
            self.after(1.0, lambda: self.again(host))
        return host

    def again(self, host: int) -> None:
        if self.cluster.processes[host].poll() is None:
            try:
                self.cluster.processes[host].wait(3.0)
            except subprocess.TimeoutExpired:
                self.cluster.kill(host)
        self.back(host)

    def _pause(self, seconds: float) -> int | None:
        host = self.target()
        if host is not None:
            self.busy.add(host)
            self.cluster.stop(host)
            self.after(seconds, lambda: self.resume(host))
        return host

    def resume(self, host: int) -> None:
        self.cluster.go_on(host)
        self.busy.discard(host)

    def pause(self) -> int | None:
        return self._pause(self.plan.lease_s * self.random.uniform(0.1, 0.7))

    def pause_long(self) -> int | None:
        return self._pause(self.plan.lease_s * self.random.uniform(1.3, 2.5))

    def block(self) -> int | None:
        host = self.target()
        if host is not None:
            self.cluster.say(host, f"block {self.plan.lease_s * self.random.uniform(0.1, 1.0):.3f}")
        return host

    def host_kill(self) -> int | None:
        return self.cluster.signal_host_node(signal.SIGKILL)

    def host_stop(self) -> int | None:
        """The processes end it, if one of them waits."""
        pid = self.cluster.signal_host_node(signal.SIGSTOP)
        if pid is not None:
            self.after(self.plan.lease_s, lambda: self.host_goes_on(pid))
        return pid

    def host_goes_on(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def between(self) -> int | None:
        host = self.target()
        if host is not None:
            self.busy.add(host)
            self.cluster.say(host, "between")
            # It stops when it has the lock; that may take a while.
            self.after(self.plan.lease_s * self.random.uniform(2.0, 3.0), lambda: self.enough(host))
        return host

    def enough(self, host: int) -> None:
        self.cluster.say(host, "never mind")
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
        hosts = list(self.cluster.hosts_of_nodes) + (self.cluster.etcds.places if self.cluster.etcds else [])
        few = self.random.sample(hosts, self.random.randrange(1, len(hosts) // 2 + 1))
        return few, [host for host in hosts if host not in few]

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
        a, b = self.random.sample(list(self.cluster.hosts_of_nodes), 2)
        self._cut([(a, b), (b, a)], self.plan.lease_s * self.random.uniform(0.5, 4.0))
        return f"{a} | {b}"

    def slow(self) -> int | None:
        hosts = [host for host in self.cluster.hosts_of_nodes if host not in self.late and host not in self.busy]
        if not hosts:
            return None
        host = self.random.choice(hosts)
        self.late.add(host)
        self.hosts.slow(host, True)

        def mend() -> None:
            if not self.hosts.slow(host, False):
                self.counts["slow"] -= 1  # it has sent too little to be late: another time
                self.deck.append("slow")
            self.late.discard(host)

        self.after(self.plan.lease_s * self.random.uniform(0.5, 2.0), mend)
        return host

    def reset(self) -> int | None:
        host = self.random.choice(list(self.cluster.hosts_of_nodes))
        return host if self.hosts.reset(host) else None

    # -- clocks --------------------------------------------------------------------------------------------

    def clock_rate(self) -> int | None:
        host = self.target()
        if host is not None:
            self.cluster.say(host, f"rate {self.random.uniform(0.9905, 1.0095)}")
        return host

    def clock_jump(self) -> int | None:
        host = self.target()
        if host is not None:
            self.cluster.say(host, f"jump {self.random.choice((0.3, 1.0, 5.0))}")
        return host

    # -- voters and etcd -----------------------------------------------------------------------------------

    def mended(self, place: int, mend: Callable[[], None]) -> None:
        mend()
        self.busy.discard(place)

    def authority(self) -> str | None:
        etcds = self.cluster.etcds
        if etcds is None:
            voters = [host for host in self.idle() if host in self.cluster.voters]
            if not voters or any(host in self.busy for host in self.cluster.voters):
                return None
            host = self.random.choice(voters)
            self.busy.add(host)
            self.cluster.kill(host)
            self.after(self.random.choice((0.5, 2.0, 5.0)), lambda: self.back(host))
            return f"voter {host}"
        if any(place in self.busy for place in etcds.places):
            return None
        kind = self.random.choice(("kill the leader", "stop the leader", "kill one", "stop one", "stop all"))
        chosen = etcds.places
        if kind != "stop all":
            found = etcds.leader() if kind.endswith("leader") else self.random.choice(etcds.places)
            if found is None:
                return None  # there is no leader just now
            chosen = [found]
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
