"""A fixed list of nodes, simulated: `StaticMember` with its record, which survives the process, and
its faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from peerlock.node.membership.static import NodeRecord, StaticMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import Hello, StaticState, framed
from peerlock.sim.cluster.nemesis import Nemesis
from peerlock.sim.cluster.plan import StaticPlan
from peerlock.sim.cluster.process import Clock, Process, Registry

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World

REDIAL_S = 0.3
RETRY_S = 1.0
SAID_AT = 1 << 20  # the operator's first word is later than any epoch before it


class DiskFull(Exception):
    """The record cannot be written."""


class FixedList:
    """The nodes of the list, and the disks of their hosts."""

    def __init__(self, world: World) -> None:
        assert isinstance(world.plan, StaticPlan)
        self.world, self.plan = world, world.plan
        self.names = [f"node-{at + 1}" for at in range(world.plan.nodes)]
        self.records = {name: NodeRecord("sim", name) for name in self.names}
        self.full_until = dict.fromkeys(self.names, 0.0)

    def new_clock(self) -> Clock:
        return Clock()

    def registry(self, process: Process) -> Registry:
        return StaticRegistry(process, self)

    def reached_at(self, peer: Peer) -> Process | None:
        """Whichever incarnation runs."""
        return self.process(peer.name)

    def process(self, name: str) -> Process | None:
        return next((process for process in self.world.processes if process.alive and process.name == name), None)

    def write(self, name: str, record: NodeRecord) -> None:
        if self.world.now < self.full_until[name]:
            raise DiskFull
        self.records[name] = copied(record)


def copied(record: NodeRecord) -> NodeRecord:
    return replace(record, absent=dict(record.absent), seen=dict(record.seen))


class StaticRegistry(Registry):
    """What a process asks of its member of the list, and (`StaticOutput`) the other way round."""

    def __init__(self, process: Process, places: FixedList) -> None:
        super().__init__(process)
        self.places = places
        record = copied(places.records[process.name])
        self.member: StaticMember = places.plan.static_member(process.name, places.names, record, Output(self))

    def join(self) -> None:
        def start() -> None:
            try:
                self.member.count_start()
            except DiskFull:
                self.world.later(RETRY_S, lambda: self.process.do(start))
                return
            self.member.start(self.process.peer)
            self.member.dial()
            self.heard(self.member.publish)

        self.world.later(self.world.delay(), lambda: self.process.do(start))

    def request_epoch(self) -> None:
        self.heard(self.member.request_epoch)

    def leave(self) -> None:
        process = self.process
        self.member.leave()
        process.carry_out()
        self.world.end(process)

    def kick(self, name: str) -> bool:
        """The operator says that a node is dead."""
        if name in self.member.present or self.process.leaving:
            return False
        self.member.assume_dead(name, SAID_AT + int(1000 * self.world.now))
        self.request_epoch()
        return True

    def learned(self, view: View) -> bool:
        try:
            self.member.learned(view)
        except DiskFull:
            return False
        return True

    def heard(self, event: Callable[[], None]) -> None:
        """What the record cannot take now is tried again, and told to no other node before."""
        try:
            event()
        except DiskFull:
            self.world.later(RETRY_S, lambda: self.process.do(lambda: self.heard(self.member.publish)))

    # -- links -------------------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        """The member dials by itself."""

    def wants_link(self, peer: Peer) -> bool:
        return peer.name not in self.member.present

    def not_reached(self, peer: Peer) -> None:
        self.unlinked(peer)

    def admits(self, hello: Hello) -> bool:
        return hello.to in (0, self.process.peer.id) and not self.member.unwelcome(hello.peer, self.answers)

    def answers(self, peer: Peer) -> bool:
        other = self.world.running(peer)
        return other is not None and not other.paused

    def linked(self, peer: Peer) -> None:
        self.heard(lambda: self.member.linked(peer))

    def unlinked(self, peer: Peer) -> None:
        self.heard(lambda: self.member.unlinked(peer))

    def told(self, peer: Peer, state: StaticState) -> None:
        self.heard(lambda: self.member.on_state(peer, state))


class Output:
    """What the member asks for."""

    def __init__(self, registry: StaticRegistry) -> None:
        self.registry, self.process, self.world = registry, registry.process, registry.world
        self.dialling: set[str] = set()

    def write(self, record: NodeRecord) -> None:
        self.registry.places.write(self.process.name, record)

    def tell(self, peer: Peer, state: StaticState) -> None:
        self.process.write(peer, framed(state))

    def dial(self, name: str) -> None:
        if name not in self.dialling:
            self.dialling.add(name)
            self.world.later(
                self.world.random.uniform(0.0, REDIAL_S), lambda: self.process.do(lambda: self.connect(name))
            )

    def connect(self, name: str) -> None:
        self.dialling.discard(name)
        self.world.connect(self.process, Peer(name, 0))

    def hang_up(self, peer: Peer, why: str) -> None:
        self.process.hang_up(peer)

    def decided(self, view: View) -> None:
        if view.epoch > self.process.core.view_change.known:
            if not self.process.learn(view):
                raise DiskFull
            self.world.oracle.decided(view)

    def complain(self, sentence: str) -> None:
        """It is for a log."""


class StaticNemesis(Nemesis):
    """A node that is down is started again, some time; or the operator says, rightly, that it is
    dead.
    """

    faults = (
        "crash", "restart", "leave", "pause", "reset", "reset in a frame", "slow link", "pair", "kick", "disk full",
        "gave up", "renewal",
    )  # fmt: skip
    kinds = ("crash", "crash", "leave", "pause", "reset", "slow link", "pair", "kick", "kick", "disk full", "renewal")
    pauses_s = (0.01, 0.1, 4.0, 6.0)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world.authority, FixedList)
        self.places = world.authority

    def cause(self, kind: str, up: list[Process], running: list[Process]) -> None:
        match kind:
            case "pair" if len(up) > 1:
                self.world.faults["pair"] += 1
                a, b = (process.name for process in self.random.sample(up, 2))
                self.world.network.separate([(a, b), (b, a)], self.random.choice((0.5, 5.0)))
            case "kick" if running:
                self.kick(self.random.choice(running))
            case "disk full" if up:
                self.world.faults["disk full"] += 1
                name = self.random.choice(up).name
                self.places.full_until[name] = self.world.now + self.random.choice((0.5, 3.0))
            case _:
                super().cause(kind, up, running)

    def crash(self, process: Process) -> None:
        self.world.faults["crash"] += 1
        self.world.end(process)
        self.restart(process)

    def leave(self, process: Process) -> None:
        super().leave(process)
        self.restart(process)

    def restart(self, process: Process) -> None:
        self.world.later(self.random.expovariate(0.5), lambda: self.start_again(process.name))

    def start_again(self, name: str) -> None:
        if self.places.process(name) is None:
            self.world.faults["restart"] += 1
            self.world.start(name)

    def kick(self, process: Process) -> None:
        """One node is dead, and the others can reach each other."""
        dead = [name for name in self.places.names if self.places.process(name) is None]
        registry = process.registry
        assert isinstance(registry, StaticRegistry)
        if len(dead) == 1 and not +self.world.network.blocked and registry.kick(dead[0]):
            self.world.faults["kick"] += 1

    def heal(self) -> None:
        self.world.network.blocked.clear()
        super().heal()
        for name in self.places.names:
            self.world.later(1.0, lambda name=name: self.start_again(name))  # type: ignore[misc]
