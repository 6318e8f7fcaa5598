"""What decides in a group with leases, simulated: processes with voters, or a store.

A voter is killed between writing its record and saying so, or before; it cannot write; it loses its
record and is replaced. A store is away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Ballot, Heartbeat, HeartbeatAck, ViewDecided
from peerlock.node.quorum.voter import VoterRecord
from peerlock.node.quorum.voter_driver import VoterDriver
from peerlock.node.store.requests import Request
from peerlock.sim.cluster.leases import LeasedRegistry
from peerlock.sim.cluster.plan import LeasedPlan
from peerlock.sim.cluster.process import Clock, Process, Registry

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World

ELIGIBLE = tuple((f"v{at}", "") for at in range(1, 8))  # the first three or five of them vote at first
WRONG_RATE = 0.1089  # by so much the clocks of hosts are too fast or too slow, at most
TIMER_LATE_S = 1e-7  # a timer never rings before its time, whatever floating point does


class LeaseAuthority:
    def __init__(self, world: World) -> None:
        assert isinstance(world.plan, LeasedPlan)
        self.world, self.plan = world, world.plan
        together = world.random.random() < 0.5
        self.home_of = {f"v{at}": f"node-{at}" for at in (1, 2, 3)} if together else {}
        self.first_voters = ELIGIBLE[: 5 if world.random.random() < 0.2 else 3]
        self.voters: dict[str, VoterProcess] = {}
        if self.plan.registry == "voters":
            names = (name for name, _ in ELIGIBLE[: len(self.first_voters) + 2])
            self.voters = {name: VoterProcess(self, name) for name in names}
        self.store = self.plan.memory()
        self.store_away = 0.0  # until then

    def new_clock(self) -> Clock:
        rate = 1 + self.world.random.uniform(-WRONG_RATE, WRONG_RATE)
        return Clock(rate, self.world.random.uniform(0, 1000), TIMER_LATE_S)

    def registry(self, process: Process) -> Registry:
        return LeasedRegistry(process, self)

    def reached_at(self, peer: Peer) -> Process | None:
        return self.world.running(peer)

    def members(self) -> list[LeasedRegistry]:
        """The registries of all processes that live."""
        found = (process.registry for process in self.world.processes if process.alive)
        return [registry for registry in found if isinstance(registry, LeasedRegistry)]

    def newest(self) -> View:
        """By the records of the voters."""
        return max((voter.record.decided for voter in self.voters.values()), key=lambda view: view.epoch)

    def at_work(self) -> list[tuple[VoterProcess, VoterDriver]]:
        found = ((voter, voter.driver) for voter in self.voters.values() if voter.alive)
        return [(voter, driver) for voter, driver in found if driver is not None and driver.voter.votes_here]

    # -- the store -----------------------------------------------------------------------------------------

    def ask_store(self, registry: LeasedRegistry, request: Request) -> None:
        world, network, site = self.world, self.world.network, registry.site
        peer = registry.process.peer

        def arrives() -> None:
            if world.now < self.store_away or network.cut_off(site, "store"):
                return
            before = self.store.snapshot.revision
            done, snapshot = self.store.ask(request)
            if snapshot.view is not None:
                world.oracle.decided(snapshot.view)
            if self.store.snapshot.revision != before:
                for other in self.members():
                    if other is not registry:
                        self.watch(other)
            answer(lambda: registry.answered(request.number, done, snapshot))

        def answer(act: Callable[[], None]) -> None:
            if not network.cut_off("store", site) and not network.loses():
                world.later(
                    world.delay(), lambda: registry.do(lambda: act() if registry.process.peer == peer else None)
                )

        if not network.cut_off(site, "store") and not network.loses():
            world.later(network.datagram_delay(), arrives)

    def watch(self, registry: LeasedRegistry) -> None:
        """The store tells of its own accord."""
        world, snapshot = self.world, self.store.snapshot
        if not world.network.cut_off("store", registry.site) and world.random.random() < 0.9:
            world.later(world.delay(), lambda: registry.do(lambda: registry.answered(0, False, snapshot)))


class Killed(Exception):
    """A voter does not come to say what it has to say; how that came."""


class VoterProcess:
    """A process that votes, or may be asked to. Its record survives it, unless that is lost: then
    it never votes again.
    """

    def __init__(self, authority: LeaseAuthority, name: str) -> None:
        self.authority, self.world, self.name = authority, authority.world, name
        self.clock = authority.new_clock()
        first = authority.first_voters
        self.record = VoterRecord(View(0, (), first if (name, "") in first else ()))
        self.driver: VoterDriver | None = None
        self.alive, self.paused, self.lost = False, False, False
        self.full_until = 0.0  # there is no room for its record
        self.postponed: list[Callable[[], object]] = []
        self.tick_at = 0.0
        self.start()

    @property
    def site(self) -> str:
        return self.authority.home_of.get(self.name, self.name)

    @property
    def now(self) -> float:
        return self.clock.read(self.world.now)

    def start(self) -> None:
        self.alive, self.tick_at = True, 0.0
        plan = self.authority.plan
        self.driver = VoterDriver(plan.voter.restarted(self.name, plan.lease_s, self.record, self.now), self, self.now)

    def crash(self) -> None:
        self.alive, self.driver, self.postponed, self.paused = False, None, [], False

    def restart(self) -> None:
        if not self.alive and not self.lost:
            self.start()

    def go_on(self) -> None:
        self.paused = False
        postponed, self.postponed = self.postponed, []
        for act in postponed:
            self.do(act)

    def do(self, act: Callable[[], object]) -> None:
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
        other = self.authority.voters[to]
        self.world.network.datagram(self, other, lambda: other.receive(self.name, message))

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None:
        process = self.world.by_peer.get(peer)
        if process is not None and isinstance(process.registry, LeasedRegistry):
            self.tell(process.registry, ack)

    def tell(self, registry: LeasedRegistry, word: HeartbeatAck | ViewDecided) -> None:
        self.world.network.datagram(self, registry, lambda: registry.heard(self.name, word))

    def decided(self, view: View) -> None:
        self.world.oracle.decided(view)
        for registry in self.authority.members():
            self.tell(registry, ViewDecided(view))

    def wake_at(self, when: float) -> None:
        if self.tick_at <= self.now or when < self.tick_at:
            self.tick_at = when
            self.world.at(self.clock.when(when), lambda: self.do(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if self.driver is not None and when == self.tick_at:
            self.tick_at = 0.0
            self.driver.tick(self.now)
