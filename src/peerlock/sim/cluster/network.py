"""A world of several hosts: who is where, what goes between them, and what is cut off.

Links between members break, and what was under way with them; what members say to voters and to a store is lost, late, doubled.
The faults are in `sim/cluster/nemesis.py`, the oracle in `sim/cluster/leased_process.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from peerlock.node.membership.lease import RHO
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.requests import Request
from peerlock.sim.cluster.process import Link, Process, User, World
from peerlock.sim.cluster.voter_process import ELIGIBLE, Clock, LeasedPlan, LeasedProcess, VoterProcess


class ClusterNetwork(World):
    plan: LeasedPlan

    def __init__(self, plan: LeasedPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self.blocked: Counter[tuple[str, str]] = Counter()  # (from, to): by how many faults
        together = self.random.random() < 0.5
        self.home_of = {f"v{at}": f"node-{at}" for at in (1, 2, 3)} if together else {}
        self.first_voters = ELIGIBLE[: 5 if self.random.random() < 0.2 else 3]
        self.voters: dict[str, VoterProcess] = {}
        if plan.registry == "voters":
            self.voters = {name: VoterProcess(self, name) for name, _ in ELIGIBLE[: len(self.first_voters) + 2]}
        self.store = plan.memory()
        self.store_away = 0.0  # until then
        self.calm_since = 0.0
        self.pair: tuple[str, ...] = ()  # one of these may wait after that
        self.lonely, self.far = "", list[str]()  # this one, if these are a majority of the voters
        self.views: dict[int, View] = {}
        self.gone: set[Peer] = set()  # that some view has left out
        self.judged = 0  # epochs

    def new_clock(self) -> Clock:
        return Clock(1 + self.random.uniform(-RHO, RHO) * 0.99, self.random.uniform(0, 1000))

    def decided(self, view: View) -> None:
        """A view was decided."""
        raise NotImplementedError

    # -- processes and links -------------------------------------------------------------------------------

    def start(self, name: str) -> Process:
        process = LeasedProcess(self, name)
        self.by_peer[process.peer] = process
        self.processes.append(process)
        peer = process.peer
        self.later(self.delay(), lambda: process.beside(lambda: process.arrive(peer)))
        for at in range(self.plan.locks):
            process.users.append(User(process, f"lock-{at}"))
            if self.random.random() < 0.3:
                process.users.append(User(process, f"lock-{at}"))
        return process

    def cut_off(self, a: str, b: str) -> bool:
        return a != b and self.blocked[a, b] > 0

    def connect(self, process: Process, peer: Peer) -> None:
        assert isinstance(process, LeasedProcess)
        process.dialling.discard(peer)
        dials_early = (
            peer in process.dialled_early
            and not process.leaving
            and process.peer not in process.core.view_change.coming
        )
        if peer in process.links or not (dials_early or peer in process.core.view_change.coming):
            return
        other = self.by_peer.get(peer)
        if other is None or not other.alive or other.peer != peer:
            if peer in process.core.view_change.coming:
                process.dial_after(0.3, peer)
            return
        assert isinstance(other, LeasedProcess)
        if self.cut_off(process.site, other.site) or self.cut_off(other.site, process.site):
            process.dial_after(0.3, peer)
            return
        link = Link(process, other)
        process.links[peer] = link
        self.transmit(link, process, process.core.dialled(peer, process.now))

    def transmit(self, link: Link, source: Process, data: bytes) -> None:
        a, b = link.ends
        other = b if source is a else a
        if self.cut_off(source.name, other.name):
            link.deaf[link.ends.index(other)] = True  # what was lost in the middle makes the rest useless, that way
            self.later(1.0, lambda: self.cut(link))
            return
        super().transmit(link, source, data)

    def datagram(self, source: Any, to: Any, act: Callable[[], Any], beside: bool = False) -> None:
        """What members and voters say to each other: late, lost or doubled."""
        if self.cut_off(source.site, to.site) or (not self.calm and self.random.random() < 0.02):
            return
        times = 2 if not self.calm and self.random.random() < 0.03 else 1
        for _ in range(times):
            delay = self.delay() * (1000 if not self.calm and self.random.random() < 0.01 else 1)
            self.later(delay, lambda: (to.beside if beside else to.do)(act))

    def ask_store(self, process: LeasedProcess, request: Request) -> None:
        peer = process.peer

        def arrives() -> None:
            if self.now < self.store_away or self.cut_off(process.site, "store"):
                return
            before = self.store.snapshot.revision
            done, snapshot = self.store.ask(request)
            if snapshot.view is not None:
                self.decided(snapshot.view)
            if self.store.snapshot.revision != before:
                for other in self.processes:
                    if other.alive and isinstance(other, LeasedProcess) and other is not process:
                        self.watch(other)
            answer(lambda: process.answered(request.number, done, snapshot))

        def answer(act: Callable[[], Any]) -> None:
            if self.cut_off("store", process.site) or (not self.calm and self.random.random() < 0.02):
                return
            mine = lambda: act() if process.peer == peer else None  # noqa: E731
            self.later(self.delay(), lambda: process.beside(mine))

        if not self.cut_off(process.site, "store") and (self.calm or self.random.random() > 0.02):
            self.later(self.delay() * (1000 if not self.calm and self.random.random() < 0.01 else 1), arrives)

    def watch(self, process: LeasedProcess) -> None:
        """The store tells of its own accord."""
        snapshot = self.store.snapshot
        if not self.cut_off("store", process.site) and self.random.random() < 0.9:
            self.later(self.delay(), lambda: process.beside(lambda: process.answered(0, False, snapshot)))
