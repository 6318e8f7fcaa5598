"""The registry of one host, simulated: which process is dead is known for certain, and so is which
may hold locks.

It decides one view per epoch. A silent member is excluded only if it may not hold: that is what the
kernel's record locks say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.sim.cluster.plan import Broken
from peerlock.sim.cluster.process import Clock, Process, Registry

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World

WELL_S = 3.0  # after it was started or continued, a process answers in time


class Host:
    """What all processes share."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = 0
        self.members: tuple[Peer, ...] = ()
        self.holding: set[Peer] = set()  # processes that may hold
        self.present: dict[Peer, None] = {}  # processes with a file: alive, and wanting to be members

    def new_clock(self) -> Clock:
        return Clock()

    def registry(self, process: Process) -> Registry:
        return HostRegistry(process, self)

    def reached_at(self, peer: Peer) -> Process | None:
        return self.world.running(peer)

    def lives(self, peer: Peer) -> bool:
        return peer in self.present and self.world.by_peer[peer].alive

    def forget(self, peer: Peer) -> None:
        self.present.pop(peer, None)
        self.holding.discard(peer)


class HostRegistry(Registry):
    def __init__(self, process: Process, host: Host) -> None:
        super().__init__(process)
        self.host = host

    def join(self) -> None:
        self.world.later(self.world.delay(), lambda: self.process.do(self.change))

    def lives(self, peer: Peer) -> bool:
        return self.host.lives(peer)

    def forget(self) -> None:
        self.host.forget(self.process.peer)

    def crashed(self) -> None:
        self.host.holding.discard(self.process.peer)

    def look(self, peer: Peer) -> None:
        self.learn()
        if not self.lives(peer):
            self.change()

    def confirms(self, view: View) -> bool:
        return view.epoch < self.host.epoch or view.members == self.host.members

    def refresh(self) -> None:
        if self.world.random.random() < 0.5:  # a registry may be out of reach
            self.learn()

    def learn(self) -> None:
        if self.host.epoch:
            self.process.learn(View(self.host.epoch, self.host.members))

    def request_epoch(self) -> None:
        self.change(even_if_the_same=True)

    def change(self, without: tuple[Peer, ...] = (), even_if_the_same: bool = False) -> None:
        """Decide a view of all processes that are there. The process that asks learns of it."""
        process, host = self.process, self.host
        before = process.peer
        self.learn()
        if process.peer != before:
            return  # it was excluded, and joins again as another incarnation
        if not process.leaving:
            host.present[process.peer] = None
        members = tuple(sorted(peer for peer in host.present if self.lives(peer) and peer not in without))
        if members and (members != host.members or even_if_the_same):
            host.epoch, host.members = host.epoch + 1, members
            for peer in [peer for peer in host.present if peer not in members]:
                host.forget(peer)
        self.learn()

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        def is_idle(peer: Peer) -> bool:
            return self.world.by_peer[peer].alive and peer not in self.host.holding

        without = tuple(peer for peer in peers if not self.lives(peer) or is_idle(peer))
        for peer in without:
            suspect = self.world.by_peer[peer]
            is_well = suspect.alive and not suspect.leaving and not suspect.paused
            if is_well and self.world.now - suspect.went_on > WELL_S:
                raise Broken(f"{self.process.name} wants to exclude {suspect.name}, which is well")
        if without:
            self.change(without)
        return tuple(peer for peer in peers if peer not in without)

    def begin_holding(self) -> bool:
        process = self.process
        if process.peer in self.host.members:
            self.host.holding.add(process.peer)
            return True
        self.world.later(self.world.delay(), lambda: process.do(self.learn))
        return False

    def end_holding(self) -> None:
        self.host.holding.discard(self.process.peer)

    def leave(self) -> None:
        process = self.process
        process.carry_out()
        self.host.forget(process.peer)
        self.change()
        process.carry_out()
        process.alive = False
        self.world.network.cut_all(process)
