"""A member of a group with leases, simulated: its agent at the voters or at the store, and its own
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.agent import QuorumAgent
from peerlock.node.quorum.messages import Heartbeat, HeartbeatAck, ViewDecided
from peerlock.node.store.agent import StoreAgent
from peerlock.node.store.requests import Request, Snapshot
from peerlock.sim.cluster.plan import Broken, LeasedPlan
from peerlock.sim.cluster.process import CoreOptions, Process, Registry
from peerlock.sim.cluster.users import User, Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerlock.sim.cluster.authority import LeaseAuthority

REDIAL_S = 0.3


class LeasedRegistry(Registry):
    def __init__(self, process: Process, authority: LeaseAuthority) -> None:
        super().__init__(process)
        self.authority = authority
        self.dialled_early: tuple[Peer, ...] = ()
        self.dialling: set[Peer] = set()  # it is being tried, or will be again
        plan = authority.plan
        self.core_options = CoreOptions(leases=True, patience_s=max(plan.lease_s, plan.stall_s), waits_outside=True)
        self.agent: QuorumAgent | StoreAgent = (
            QuorumAgent(AgentShell(self, plan), plan.lease_s, authority.first_voters, plan.member, plan.lease)
            if plan.registry == "voters"
            else StoreAgent(AgentShell(self, plan), plan.lease_s, "store", plan.store_member, plan.lease)
        )

    @property
    def site(self) -> str:
        return self.process.site

    def do(self, act: Callable[[], object]) -> None:
        """In the thread that sends heartbeats."""
        self.process.beside(act)

    def join(self) -> None:
        peer = self.process.peer
        self.world.later(self.world.delay(), lambda: self.do(lambda: self.arrive(peer)))

    def arrive(self, peer: Peer) -> None:
        if peer == self.process.peer:
            self.agent.reached(self.greeted_peers(), self.process.now)
            self.agent.arrive(peer, self.process.now)

    def forget(self) -> None:
        self.dialled_early = ()

    def leave(self) -> None:
        process = self.process
        self.agent.leave(process.now)
        self.world.later(3.0, lambda: self.world.end(process) if process.alive else None)

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        self.agent.suspect(peers, self.process.now)
        return peers

    def request_epoch(self) -> None:
        self.agent.wants_renewal(self.process.core.view_change.known, self.process.now)

    def hold_lost(self, user: User, wish: Wish) -> None:
        user.later()

    def look_at_lease(self) -> None:
        process = self.process
        if process.core.deadline.expired(process.now):
            process.core.lapse(process.now)

    def heard(self, voter: str, word: HeartbeatAck | ViewDecided) -> None:
        if isinstance(self.agent, QuorumAgent) and self.agent.started:
            self.agent.on_word(voter, word, self.process.now)

    def answered(self, number: int, done: bool, snapshot: Snapshot) -> None:
        """The store has answered."""
        if isinstance(self.agent, StoreAgent):
            self.agent.answered(number, done, snapshot, self.process.now)

    # -- links -------------------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        self.dial_after(self.world.delay(), peer)

    def dial_after(self, seconds: float, peer: Peer) -> None:
        if peer not in self.dialling:
            self.dialling.add(peer)
            self.world.later(seconds, lambda: self.process.do(lambda: self.connect(peer)))

    def connect(self, peer: Peer) -> None:
        self.dialling.discard(peer)
        self.world.connect(self.process, peer)

    def wants_link(self, peer: Peer) -> bool:
        coming = self.process.core.view_change.coming
        is_joining = not self.process.leaving and self.process.peer not in coming
        return peer in coming or (is_joining and peer in self.dialled_early)

    def not_reached(self, peer: Peer) -> None:
        if peer in self.process.core.view_change.coming or self.world.running(peer) is not None:
            self.dial_after(REDIAL_S, peer)

    def linked(self, peer: Peer) -> None:
        self.reached()

    def unlinked(self, peer: Peer) -> None:
        self.reached()

    def reached(self) -> None:
        self.do(lambda: self.agent.reached(self.greeted_peers(), self.process.now))

    def greeted_peers(self) -> frozenset[Peer]:
        process = self.process
        return frozenset(peer for link, peer in process.greeted.items() if process.links.get(peer) is link)


class AgentShell:
    """What an agent asks for, in a simulated process."""

    def __init__(self, registry: LeasedRegistry, plan: LeasedPlan) -> None:
        self.registry, self.process, self.plan = registry, registry.process, plan
        self.tick_at = 0.0

    def wake_at(self, when: float) -> None:
        process = self.process
        if self.tick_at <= process.now or when < self.tick_at:
            self.tick_at = when
            process.world.at(process.clock.when(when), lambda: process.beside(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if when == self.tick_at:
            self.tick_at = 0.0
            self.registry.agent.tick(self.process.now)

    def learned(self, view: View) -> None:
        def take() -> None:
            if self.process.peer in view.members or self.process.core.view_change.known:
                self.process.learn(view)

        self.process.do(take)

    def leased(self, until: float) -> None:
        process = self.process
        process.core.deadline.extend(until, process.now)
        process.do(lambda: process.core.leased(until, process.now))
        process.at(until, self.registry.look_at_lease)

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        def reach() -> None:
            self.registry.dialled_early = peers
            for peer in peers:
                if peer not in self.process.links:
                    self.registry.dial(peer)

        self.process.do(reach)

    def left(self) -> None:
        self.process.alive = False

    def new_incarnation(self) -> None:
        self.process.do(self.process.rejoin)

    def refuse(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def complain(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def steady(self) -> float:
        return self.process.clock.steady(self.process.world.now)

    def may_send_heartbeat(self) -> bool:
        process = self.process
        return not process.hung or process.world.now - process.hung_since < self.plan.stall_s

    def send(self, to: str, message: Heartbeat) -> None:
        voter = self.registry.authority.voters[to]
        self.process.world.network.datagram(self.registry, voter, lambda: voter.on_heartbeat(message))

    def ask(self, request: Request) -> None:
        self.registry.authority.ask_store(self.registry, request)
