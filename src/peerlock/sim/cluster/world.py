"""Whole nodes in virtual time: the objects of `peerlock.node`, with every fault that hosts and
networks can have.

What is simulated is the world around the nodes. What runs is the very code that ships. One seed
gives one run.

A world has processes (`process.py`) with users (`users.py`), a network between them (`network.py`),
an authority that decides views (`host.py`, `static.py`, `authority.py`), a nemesis that causes
faults (`nemesis.py`, `lease_nemesis.py`) and an oracle that looks at every grant (`oracle.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from msgspec import Struct

from peerlock.node.peer import Peer
from peerlock.node.wire import framed
from peerlock.sim.cluster.attached import AttachedHost, AttachedNemesis, AttachedProcess
from peerlock.sim.cluster.authority import LeaseAuthority
from peerlock.sim.cluster.host import Host
from peerlock.sim.cluster.lease_nemesis import LeaseNemesis
from peerlock.sim.cluster.nemesis import HostNemesis, Nemesis
from peerlock.sim.cluster.network import Network
from peerlock.sim.cluster.oracle import AttachedOracle, LeaseOracle, Oracle, StaticOracle
from peerlock.sim.cluster.plan import SERIOUS_FAULTS, Broken, Plan, Result
from peerlock.sim.cluster.process import Clock, Process, Registry
from peerlock.sim.cluster.static import FixedList, StaticNemesis
from peerlock.sim.cluster.users import User

STILL_S = 300.0  # without a grant, while there are faults all the time: something must get through
STEPS_PER_GRANT = 6_000


class Authority(Protocol):
    """What decides views, and what the processes share of it."""

    def new_clock(self) -> Clock: ...

    def registry(self, process: Process) -> Registry: ...  # a process's half of it

    def reached_at(self, peer: Peer) -> Process | None: ...  # the process that answers where that peer listens


class Kind(Struct, frozen=True):
    """The parts of a world that differ from one kind of group to another."""

    authority: Callable[[World], Authority]
    oracle: Callable[[World], Oracle]
    nemesis: type[Nemesis]


_LEASES = Kind(LeaseAuthority, LeaseOracle, LeaseNemesis)
KINDS = {
    "host": Kind(Host, Oracle, HostNemesis),
    "attached": Kind(AttachedHost, AttachedOracle, AttachedNemesis),
    "static": Kind(FixedList, StaticOracle, StaticNemesis),
    "voters": _LEASES,
    "store": _LEASES,
}


class World:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], object]]] = []
        self.number = 0  # of what was put there
        self.ids = 0
        self.by_peer: dict[Peer, Process] = {}
        self.processes: list[Process] = []
        self.others: list[AttachedProcess] = []  # that are attached to a host node
        self.faults: Counter[str] = Counter()
        self.calm, self.calm_since = False, 0.0  # no more faults
        kind = KINDS[plan.registry]
        self.network = Network(self)
        self.authority = kind.authority(self)
        self.oracle = kind.oracle(self)
        self.nemesis = kind.nemesis(self)

    # -- time --------------------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], object]) -> None:
        self.number += 1
        heappush(self.heap, (max(when, self.now), self.number, act))

    def later(self, after: float, act: Callable[[], object]) -> None:
        self.at(self.now + after, act)

    def delay(self) -> float:
        return self.random.expovariate(1 / self.plan.delay_s)

    # -- processes ---------------------------------------------------------------------------------------

    def new_peer(self, name: str) -> Peer:
        self.ids += 1
        # Ids are not in the order of their making, as random ones are not; but those of one name
        # are, as on a fixed list.
        return Peer(name, (self.ids * 7919) % 10007 + 10007 * self.ids)

    def start(self, name: str) -> Process:
        process = Process(self, name)
        self.by_peer[process.peer] = process
        self.processes.append(process)
        process.registry.join()
        for at in range(self.plan.locks):
            process.users.append(User(process, f"lock-{at}"))
            if self.random.random() < 0.3:
                process.users.append(User(process, f"lock-{at}"))
        return process

    def running(self, peer: Peer) -> Process | None:
        """The process that is that incarnation, if it lives."""
        process = self.by_peer[peer]
        return process if process.alive and process.peer == peer else None

    def end(self, process: Process | AttachedProcess) -> None:
        """It is gone, with what it held."""
        process.alive = False
        process.registry.crashed()
        for user in process.users:
            if user.wish is not None:
                self.oracle.left(user, user.wish)
        self.network.cut_all(process)

    def connect(self, process: Process, peer: Peer) -> None:
        registry = process.registry
        if peer in process.links or not registry.wants_link(peer):
            return
        other = self.authority.reached_at(peer)
        if other is None or self.network.separated(process.site, other.site):
            registry.not_reached(peer)
            return
        link = self.network.connect(process, other, peer)
        if peer.id:
            process.links[peer] = link
            self.network.transmit(link, process, process.core.links.dialled(peer, process.now))
        else:
            self.network.transmit(link, process, framed(process.core.links.hello(peer)))

    # -- a run -------------------------------------------------------------------------------------------

    def run(self) -> Result:
        plan, oracle = self.plan, self.oracle
        for at in range(plan.nodes):
            self.start(f"node-{at + 1}")
        self.later(plan.fault_every_s, self.nemesis.fault)
        steps, granted, since = 0, 0, 0.0
        while self.heap:
            self.now, _, act = heappop(self.heap)
            act()
            steps += 1
            if not self.calm:
                if oracle.grants >= plan.grants and self.nemesis.serious() >= SERIOUS_FAULTS:
                    self.calm, self.calm_since = True, self.now
                    self.nemesis.heal()
            elif steps % 64 == 0 and oracle.has_seen_enough():
                break
            if oracle.grants != granted:
                granted, since = oracle.grants, self.now
            if steps > STEPS_PER_GRANT * plan.grants or self.now - since > STILL_S:
                raise Broken(
                    f"{oracle.grants} grants, the last at {since:.3f}, and no end after {steps} events: "
                    f"{oracle.describe_waiting()}"
                )
        if not self.calm:
            raise Broken(f"everything stands still after {oracle.grants} grants: {oracle.describe_waiting()}")
        oracle.at_the_end()
        messages = sum(process.core.table.messages for process in self.processes)
        return Result(self.seed, oracle.grants, self.faults, oracle.epochs(), messages, self.now)


def run(seed: int, plan: Plan) -> Result:
    return World(plan, seed).run()
