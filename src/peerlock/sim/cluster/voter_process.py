"""What a simulated host has: clocks of its own, a process with a node, its agent, a process with a voter.

What runs in them is what ships: `Core`, `MembershipAgent`, `VoterDriver`, `Voter`, `QuorumMember`, `StoreMember`. The world
around them is `sim/cluster/network.py`, its faults are in `sim/cluster/nemesis.py`, its oracle in
`sim/cluster/leased_process.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from peerlock.node.core import Core
from peerlock.node.locks.ticket import Limits
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.agent import QuorumAgent
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.messages import Ballot, Heartbeat, HeartbeatAck, ViewDecided
from peerlock.node.quorum.voter import Voter, VoterRecord
from peerlock.node.quorum.voter_driver import VoterDriver
from peerlock.node.store.agent import StoreAgent
from peerlock.node.store.member import StoreMember
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Request, Snapshot
from peerlock.sim.cluster.process import Broken, Link, Plan, Process, User, Wish

if TYPE_CHECKING:
    from peerlock.sim.cluster.network import ClusterNetwork

ELIGIBLE = tuple((f"v{at}", "") for at in range(1, 8))  # the first three or five of them vote at first


class LeasedPlan(Plan, frozen=True):
    registry: str = "voters"  # or store
    lease_s: float = 3.0
    stall_s: float = 4.0
    fault_every_s: float = 0.35
    pace_s: float = 0.06
    voter: type[Voter] = Voter
    member: type[QuorumMember] = QuorumMember
    lease: type[Lease] = Lease
    store_member: type[StoreMember] = StoreMember
    memory: type[MemoryStore] = MemoryStore


class Clock:
    def __init__(self, rate: float, offset: float) -> None:
        self.rate, self.offset = rate, offset

        self.jumped = 0.0  # a suspension that was none

    def read(self, world_now: float) -> float:
        return world_now * self.rate + self.offset + self.jumped

    def steady(self, world_now: float) -> float:
        return world_now * self.rate + self.offset

    def when(self, local: float) -> float:
        """The world's time at which it will show that."""
        return (local - self.offset - self.jumped) / self.rate


class LeasedProcess(Process):
    def __init__(self, world: ClusterNetwork, name: str) -> None:
        self.hosts = world
        self.clock = world.new_clock()
        self.world = world  # the clock is read before anything else is there
        super().__init__(world, name)
        self.hung = False
        self.hung_since = 0.0
        self.late: list[Callable[[], None]] = []  # for the core, while it hangs
        self.dialled_early: tuple[Peer, ...] = ()
        self.dialling: set[Peer] = set()  # it is being tried, or will be again
        plan = world.plan
        self.agent: QuorumAgent | StoreAgent = (
            QuorumAgent(AgentShell(self), plan.lease_s, world.first_voters, plan.member, plan.lease)
            if plan.registry == "voters"
            else StoreAgent(AgentShell(self), plan.lease_s, "store", plan.store_member, plan.lease)
        )

    def new_core(self, limits: Limits) -> Core:
        plan = self.hosts.plan
        return plan.core(self.peer, "sim", limits, self.now, leases=True, patience_s=plan.lease_s, waits_outside=True)

    @property
    def site(self) -> str:
        return self.name

    @property
    def now(self) -> float:
        return self.clock.read(self.world.now)

    def do(self, act: Callable[[], None]) -> None:
        if self.hung and self.alive and not self.paused:
            self.late.append(act)
            return
        super().do(act)

    def beside(self, act: Callable[[], None]) -> None:
        """In the thread that sends heartbeats: it goes on while the core hangs."""
        hung, self.hung = self.hung, False
        try:
            super().do(act)
        finally:
            self.hung = hung

    # -- what the core asks for --------------------------------------------------------------------------

    def look(self, peer: Peer) -> None:
        pass

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        return True

    def refresh(self) -> None:
        pass

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        self.agent.suspect(peers, self.now)
        return peers

    def renewal(self) -> None:
        self.core.epoch_requested()
        self.agent.wants_renewal(self.core.view_change.known, self.now)

    def rejoin(self) -> None:
        if self.leaving:
            return
        for link in list(self.links.values()):
            self.drop(link)
        self.links.clear()
        self.dialled_early = ()
        self.peer = self.world.new_peer(self.name)
        self.world.by_peer[self.peer] = self
        self.core.rejoined(self.peer)
        peer = self.peer
        self.world.later(self.world.delay(), lambda: self.beside(lambda: self.arrive(peer)))

    def arrive(self, peer: Peer) -> None:
        if peer == self.peer:
            self.agent.reached(self.greeted_peers(), self.now)
            self.agent.arrive(peer, self.now)

    def answered(self, number: int, done: bool, snapshot: Snapshot) -> None:
        """The store has answered."""
        if isinstance(self.agent, StoreAgent):
            self.agent.answered(number, done, snapshot, self.now)

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.hosts.at(self.clock.when(when) + 1e-7, lambda: self.do(act))

    def look_at_lease(self) -> None:
        if self.now >= self.core.deadline.until:
            self.core.lapse(self.now)

    def was_told(self, user: User, wish: Wish) -> None:
        user.later()

    def dial(self, peer: Peer) -> None:
        self.dial_after(self.world.delay(), peer)

    def dial_after(self, seconds: float, peer: Peer) -> None:
        if peer not in self.dialling:
            self.dialling.add(peer)
            self.world.later(seconds, lambda: self.do(lambda: self.world.connect(self, peer)))

    # -- links ---------------------------------------------------------------------------------------------

    def greeted_peers(self) -> frozenset[Peer]:
        return frozenset(peer for link, peer in self.greeted.items() if self.links.get(peer) is link)

    def frame(self, link: Link, body: bytes) -> None:
        before = len(self.greeted)
        super().frame(link, body)
        if len(self.greeted) != before:
            self.reached()

    def ended(self, link: Link) -> None:
        super().ended(link)
        self.reached()

    def reached(self) -> None:
        self.beside(lambda: self.agent.reached(self.greeted_peers(), self.now))


class AgentShell:
    """What an agent asks for, in a simulated process."""

    def __init__(self, process: LeasedProcess) -> None:
        self.process = process
        self.tick_at = 0.0

    def wake_at(self, when: float) -> None:
        process = self.process
        if self.tick_at <= process.now or when < self.tick_at:
            self.tick_at = when
            process.hosts.at(process.clock.when(when) + 1e-7, lambda: process.beside(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if when == self.tick_at:
            self.tick_at = 0.0
            self.process.agent.tick(self.process.now)

    def learned(self, view: View) -> None:
        def take() -> None:
            if self.process.peer in view.members or self.process.core.view_change.known:
                self.process.core.learn(view.epoch, view.members, self.process.now)

        self.process.do(take)

    def leased(self, until: float) -> None:
        self.process.core.deadline.extend(until, self.process.now)
        self.process.do(lambda: self.process.core.leased(until, self.process.now))
        self.process.hosts.at(
            self.process.clock.when(until) + 1e-7, lambda: self.process.do(self.process.look_at_lease)
        )

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        def reach() -> None:
            self.process.dialled_early = peers
            for peer in peers:
                if peer not in self.process.links:
                    self.process.dial(peer)

        self.process.do(reach)

    def left(self) -> None:
        self.process.alive = False

    def new_incarnation(self) -> None:
        self.process.do(self.process.rejoin)

    def refuse(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def steady(self) -> float:
        return self.process.clock.steady(self.process.world.now)

    def may_send_heartbeat(self) -> bool:
        return (
            not self.process.hung or self.process.world.now - self.process.hung_since < self.process.hosts.plan.stall_s
        )

    def complain(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def send(self, to: str, message: Heartbeat) -> None:
        voter = self.process.hosts.voters[to]
        self.process.hosts.datagram(self.process, voter, lambda: voter.on_heartbeat(message))

    def ask(self, request: Request) -> None:
        self.process.hosts.ask_store(self.process, request)


class VoterProcess:
    """A process that votes, or may be asked to. Its record survives it, unless that is lost: then it never votes again."""

    def __init__(self, world: ClusterNetwork, name: str) -> None:
        self.world, self.name = world, name
        self.clock = world.new_clock()
        first = world.first_voters
        self.record = VoterRecord(View(0, (), first if (name, "") in first else ()))
        self.driver: VoterDriver | None = None
        self.alive, self.paused, self.lost = False, False, False
        self.full_until = 0.0  # there is no room for its record
        self.postponed: list[Callable[[], None]] = []
        self.tick_at = 0.0
        self.start()

    @property
    def site(self) -> str:
        return self.world.home_of.get(self.name, self.name)

    @property
    def now(self) -> float:
        return self.clock.read(self.world.now)

    def start(self) -> None:
        self.alive, self.tick_at = True, 0.0
        plan = self.world.plan
        self.driver = VoterDriver(plan.voter.restarted(self.name, plan.lease_s, self.record, self.now), self, self.now)

    def crash(self) -> None:
        self.alive, self.driver, self.postponed, self.paused = False, None, [], False

    def do(self, act: Callable[[], Any]) -> None:
        if not self.alive:
            return
        if self.paused:
            self.postponed.append(act)
            return
        try:
            act()
        except Killed as how:
            self.world.faults[str(how)] += 1
            self.crash()
            self.world.later(self.world.random.expovariate(3.0), self.restart)

    def restart(self) -> None:
        if not self.alive and not self.lost:
            self.start()

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        if self.driver is not None:
            self.driver.on_heartbeat(heartbeat, self.now)

    def receive(self, source: str, message: Ballot) -> None:
        if self.driver is not None:
            self.driver.receive(source, message, self.now)

    # -- what the driver asks for ----------------------------------------------------------------

    def save(self, record: VoterRecord) -> None:
        chance = 0.0 if self.world.calm else self.world.random.random()
        if chance > 0.985:
            raise Killed("voter lost its answer")  # before it is written
        if chance > 0.98:
            self.full_until = self.world.now + self.world.random.choice((0.5, 3.0))
        if chance and self.world.now < self.full_until:
            raise Killed("voter's disk full")  # it starts again from what is there, and tries again
        self.record = record
        if chance > 0.955:
            raise Killed("voter lost its answer")  # after it was written

    def send(self, to: str, message: Ballot) -> None:
        other = self.world.voters[to]
        self.world.datagram(self, other, lambda: other.receive(self.name, message))

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None:
        process = self.world.by_peer.get(peer)
        if isinstance(process, LeasedProcess):
            self.tell(process, ack, peer)

    def tell(self, process: LeasedProcess, word: Any, peer: Peer) -> None:
        def hear() -> None:
            agent = process.agent
            if isinstance(agent, QuorumAgent) and agent.started:
                agent.on_word(self.name, word, process.now)

        self.world.datagram(self, process, lambda: hear(), beside=True)

    def decided(self, view: View) -> None:
        self.world.decided(view)
        for process in self.world.processes:
            if process.alive and isinstance(process, LeasedProcess):
                self.tell(process, ViewDecided(view), process.peer)

    def wake_at(self, when: float) -> None:
        if self.tick_at <= self.now or when < self.tick_at:
            self.tick_at = when
            self.world.at(self.clock.when(when) + 1e-7, lambda: self.do(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if self.driver is not None and when == self.tick_at:
            self.tick_at = 0.0
            self.driver.tick(self.now)


class Killed(Exception):
    """A voter does not come to say what it has to say; how that came."""
