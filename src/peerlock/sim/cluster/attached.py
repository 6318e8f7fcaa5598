"""A host node and the processes attached to it, simulated, on one host with other members.

What runs is `AttachedCore` in each process and `Sharing` in the host node, with frames that are
encoded and decoded. Hand-overs go from process to process in the order in which they were sent.
Pages are lists that both sides see.

A process is started, leaves, crashes, is stopped and goes on, and its connection breaks. The host
node crashes, or is stopped; if it is stopped for long, the processes end it. The next one is
started by the first process that finds none. It collects what processes have, and joins the group
as a member that holds it. No member takes a dead host node for dead before that, while a process of
it lives.

What is not here: a process that is stopped between its mark and its look. The checker has that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.node import effects
from peerlock.node.attached.chain import Number, ProcessId
from peerlock.node.attached.core import AttachedCore
from peerlock.node.attached.messages import Attached, FromHostNode, Handed, ToHostNode
from peerlock.node.attached.pages import SLOTS
from peerlock.node.effects import Effect
from peerlock.node.locks.fence import fence
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer
from peerlock.node.wire import framed, next_frame, opened
from peerlock.sim.cluster.host import Host, HostRegistry
from peerlock.sim.cluster.nemesis import HostNemesis
from peerlock.sim.cluster.network import Link
from peerlock.sim.cluster.plan import AttachedPlan, Broken
from peerlock.sim.cluster.process import Process
from peerlock.sim.cluster.users import User, Wish

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World

TICK_S = 0.05  # as in `net/attached/serving.py`
REPORT_S = 0.5
GONE_S = 0.02
LATE_S = 0.1  # as in `net/attached/shell.py`
START_S = 0.2  # for a host node to start
STOPPED_S = 0.7  # a host node that is stopped for longer is ended


class Page:
    """The memory that a process shares with its host node."""

    def __init__(self) -> None:
        self.inside, self.accepted, self.revoked, self.signals = ([0] * SLOTS for _ in range(4))
        self.slots: dict[int, tuple[str, int]] = {}
        self.dead = False

    def open(self, slot: int, lock: str, algorithm: int) -> None:
        self.inside[slot] = self.accepted[slot] = 0
        self.slots[slot] = lock, algorithm


class Pages:
    """As the host node sees them."""

    def __init__(self, pages: dict[ProcessId, Page]) -> None:
        self.pages = pages

    def marks(self, process: ProcessId, slot: int) -> tuple[int, Number]:
        page = self.pages[process]
        return page.inside[slot], page.accepted[slot]

    def signal(self, process: ProcessId, slot: int, number: Number) -> None:
        page = self.pages[process]
        page.signals[slot] = max(page.signals[slot], number)

    def revoke(self, process: ProcessId, slot: int, number: Number) -> int:
        page = self.pages[process]
        page.revoked[slot] = max(page.revoked[slot], number)
        self.signal(process, slot, number)
        return page.inside[slot]


class AttachedHost(Host):
    """One host: its members, its host node, and the processes that are attached."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world.plan, AttachedPlan)
        self.plan: AttachedPlan = world.plan
        self.generation = 0
        self.host_node: HostNode | None = None  # that lives, or was the last one
        self.starting = False
        self.pages: dict[ProcessId, Page] = {}  # of all processes that were not found dead
        self.processes: dict[ProcessId, AttachedProcess] = {}
        world.others.extend(AttachedProcess(world, f"process-{at + 1}", self) for at in range(self.plan.attached))

    def registry(self, process: Process) -> HostRegistry:
        return AttachedRegistry(process, self)

    def has_living(self) -> bool:
        return any(not page.dead for page in self.pages.values())

    def start_host_node(self) -> None:
        """By a process that has found none."""
        if not self.starting and (self.host_node is None or not self.host_node.alive):
            self.starting = True
            self.world.later(START_S * self.world.random.random(), self.started)

    def started(self) -> None:
        self.starting = False
        world = self.world
        self.host_node = made = HostNode(world, "host", self)
        world.by_peer[made.peer] = made
        world.processes.append(made)
        made.do(made.collect)


class AttachedRegistry(HostRegistry):
    """Only the next host node takes a dead one for dead, while a process of it lives."""

    host: AttachedHost

    def lives(self, peer: Peer) -> bool:
        process = self.world.by_peer[peer]
        adopts = isinstance(self.process, HostNode)
        waits = isinstance(process, HostNode) and not adopts and self.host.has_living() and self.host.plan.members_wait
        return super().lives(peer) or (waits and not process.alive)

    def learn(self) -> None:
        """A member that is about to join decides a view with itself in it, or reads one."""
        if self.process.core.admitted or self.process.peer in self.host.members:
            super().learn()


class HostNode(Process):
    """The member that shares its locks: `net/attached/serving.py`, in virtual time."""

    def __init__(self, world: World, name: str, host: AttachedHost) -> None:
        super().__init__(world, name)
        self.host = host
        host.generation += 1
        self.sharing = host.plan.sharing(self.core, Pages(host.pages), host.generation)
        self.sharing.on_change = self.changed
        self.sharing.in_group = False
        self.ticking, self.began = False, world.now
        self.attached: dict[Link, ProcessId] = {}
        for process, page in list(host.pages.items()):
            if page.dead:
                del host.pages[process]
            else:
                self.sharing.was_attached(process)

    def carry_out(self) -> None:
        super().carry_out()
        by_process = {process: link for link, process in self.attached.items()}
        for process, frame in self.sharing.take_frames():
            if process in by_process:
                self.world.network.transmit(by_process[process], self, framed(frame))

    def carry_out_one(self, effect: Effect) -> None:
        super().carry_out_one(effect)
        if isinstance(effect, effects.EpochStarted):
            self.sharing.touch_all(self.now)
        elif isinstance(effect, effects.OthersAsk):
            effect.ticket.others_ask()

    def collect(self) -> None:
        """What do the processes have? Each reports, or is read."""
        for process in list(self.sharing.unresolved):
            self.look_for_death(process, again=False)
        if self.sharing.unresolved and self.now - self.began < REPORT_S:
            self.world.later(0.01, lambda: self.do(self.collect))
            return
        older = fence(self.host.epoch + 1, 0) - 1
        for process in list(self.sharing.unresolved):
            self.world.faults["read"] += 1
            slots = [(slot, *what) for slot, what in self.host.pages[process].slots.items()]
            self.sharing.read(process, slots, older, self.now)
        for process in list(self.host.pages):
            self.look_for_death(process)
        self.become_member()

    def become_member(self) -> None:
        self.host.holding.add(self.peer)
        self.sharing.adopt(self.now)
        self.sharing.in_group = True
        self.registry.join()

    # -- processes -----------------------------------------------------------------------------------------

    def attach(self, link: Link, process: AttachedProcess) -> None:
        if not link.up:
            return
        if process.id not in self.host.pages or process.id in self.attached.values():
            self.world.network.cut(link)  # it was found dead; or its earlier connection is not seen to have ended
            return
        self.attached[link] = process.id
        self.sharing.attach(process.id, process.name, 1)
        self.world.network.transmit(link, self, framed(Attached(self.sharing.generation, self.name)))

    def arrives(self, link: Link, side: int, data: bytes) -> None:
        process = self.attached.get(link)
        if process is None:
            super().arrives(link, side, data)
            return
        half = link.halves[side]
        half += data
        while (body := next_frame(half)) is not None:
            frame = opened(body)
            assert isinstance(frame, ToHostNode)
            self.sharing.receive(process, frame, self.now)
            self.changed()

    def ended(self, link: Link) -> None:
        process = self.attached.pop(link, None)
        if process is None:
            super().ended(link)
        else:
            self.look_for_death(process)

    def look_for_death(self, process: ProcessId, again: bool = True) -> None:
        """The end of a connection is no proof."""
        page = self.host.pages.get(process)
        if page is None or process in self.attached.values():
            return
        if page.dead or self.host.plan.silence_is_death:
            self.sharing.died(process, self.now)
            self.host.pages.pop(process, None)
        elif again:
            self.world.later(GONE_S, lambda: self.do(lambda: self.look_for_death(process)))

    def changed(self) -> None:
        if not self.ticking:
            self.ticking = True
            self.world.later(TICK_S, lambda: self.do(self.tick))

    def tick(self) -> None:
        self.ticking = self.sharing.tick(self.now)
        if self.ticking:
            self.world.later(TICK_S, lambda: self.do(self.tick))


class Losses:
    """What a user's process is asked when a hold is lost: on one host that must not be."""

    def __init__(self, process: AttachedProcess) -> None:
        self.process = process

    def hold_lost(self, user: User, wish: Wish) -> None:
        raise Broken(f"{self.process.name}: {wish.error}")

    def crashed(self) -> None:
        self.process.page.dead = True


class AttachedProcess:
    """A process with users: `net/attached/shell.py`, in virtual time."""

    hung = False

    def __init__(self, world: World, name: str, host: AttachedHost) -> None:
        self.world, self.name, self.host = world, name, host
        self.id: ProcessId = world.random.getrandbits(62)
        self.page = host.pages[self.id] = Page()
        host.processes[self.id] = self
        self.alive, self.paused, self.leaving = True, False, False
        self.postponed: list[Callable[[], object]] = []
        self.links: dict[Peer, Link] = {}  # to other members: none
        self.link: Link | None = None
        self.generation = 0  # of the host node that is connected
        self.late = False
        self.hands_due = 0.0
        self.registry = Losses(self)
        self.core = AttachedCore(Peer(name, self.id, ""), "sim", Limits(local_grants=3), self.page, self.hand)
        self.users = [
            User(self, f"lock-{at}") for at in range(world.plan.locks) for _ in range(world.random.choice((1, 1, 2)))
        ]
        world.later(world.delay(), lambda: self.do(self.connect))

    @property
    def now(self) -> float:
        return self.world.now

    @property
    def site(self) -> str:
        return self.name

    def do(self, act: Callable[[], object]) -> None:
        if self.alive and self.paused:
            self.postponed.append(act)
        elif self.alive:
            act()
            self.carry_out()

    def go_on(self) -> None:
        self.paused = False
        postponed, self.postponed = self.postponed, []
        for act in postponed:
            self.do(act)

    def carry_out(self) -> None:
        core = self.core
        while core.effects:
            effect = core.effects.pop(0)
            if isinstance(effect, effects.Wake):
                effect.ticket.woken()
        if core.table.dirty:
            self.flush()
        elif core.table.late and not self.late:
            self.late = True
            self.world.later(LATE_S, lambda: self.do(self.flush))

    def flush(self) -> None:
        self.late = False
        for frame in self.core.take_frames():
            if self.link is not None:
                self.world.network.transmit(self.link, self, framed(frame))

    # -- the host node -------------------------------------------------------------------------------------

    def connect(self) -> None:
        host_node = self.host.host_node
        if self.link is not None or self.leaving:
            return
        if host_node is None or not host_node.alive:
            self.host.start_host_node()
            self.world.later(0.01, lambda: self.do(self.connect))
            return
        self.link = link = self.world.network.connect(self, host_node, host_node.peer)
        self.world.later(self.world.delay(), lambda: host_node.do(lambda: host_node.attach(link, self)))

    def arrives(self, link: Link, side: int, data: bytes) -> None:
        half = link.halves[side]
        half += data
        while link is self.link and (body := next_frame(half)) is not None:
            frame = opened(body)
            if isinstance(frame, Attached):
                if frame.generation != self.host.generation:
                    self.world.network.cut(link)
                    return
                self.generation = frame.generation
                self.core.welcomed(frame.generation, self.now)
            elif isinstance(frame, FromHostNode):
                self.core.receive(self.generation, frame, self.now)

    def ended(self, link: Link) -> None:
        if link is self.link:
            self.link = None
            self.core.disconnected()
            self.connect()

    # -- hand-overs ----------------------------------------------------------------------------------------

    def hand(self, process: ProcessId, handed: Handed) -> bool:
        """A datagram: its socket is there while the process lives, and may be full."""
        to = self.host.processes[process]
        if not to.alive or self.world.random.random() < 0.01:
            return False
        to.hands_due = max(to.hands_due, self.now + self.world.delay())
        self.world.at(to.hands_due, lambda: to.do(lambda: to.core.handed(handed, to.now)))
        return True

    def leave(self) -> None:
        """All is given back, and then the process is as if dead."""
        self.leaving = True
        for user in self.users:
            if user.wish is not None:
                self.world.oracle.left(user, user.wish)
        self.core.close(self.now)
        self.carry_out()
        self.flush()
        self.alive, self.page.dead = False, True
        self.world.network.cut_all(self)


class AttachedNemesis(HostNemesis):
    faults = (
        *HostNemesis.faults, "process crash", "process start", "process leave", "process pause", "connection", "host crash",
        "host pause", "host ended", "read",
    )  # fmt: skip
    kinds = (
        *HostNemesis.kinds, "process crash", "process start", "process leave", "process pause", "process pause",
        "connection", "host crash", "host pause",
    )  # fmt: skip

    def cause(self, kind: str, up: list[Process], running: list[Process]) -> None:
        world, authority = self.world, self.world.authority
        assert isinstance(authority, AttachedHost)
        living = [process for process in world.others if process.alive]
        host_node = authority.host_node
        match kind:
            case "process start" if len(living) < authority.plan.attached + 2:
                world.faults[kind] += 1
                self.names += 1
                world.others.append(AttachedProcess(world, f"process-late-{self.names}", authority))
            case "process crash" if len(living) > 2:
                world.faults[kind] += 1
                world.end(self.random.choice(living))
            case "process leave" if len(living) > 2:
                world.faults[kind] += 1
                leaving = self.random.choice(living)
                leaving.do(leaving.leave)
            case "process pause" if living:
                self.pause_one(kind, self.random.choice(living))
            case "connection" if living and (link := self.random.choice(living).link) is not None:
                world.faults[kind] += 1
                world.network.cut(link)
            case "host crash" if host_node is not None and host_node.alive:
                world.faults[kind] += 1
                world.end(host_node)
                if living and self.random.random() < 0.5:
                    self.pause_one("process pause", self.random.choice(living))  # it does not report
            case "host pause" if host_node is not None and host_node.alive and not host_node.paused:
                self.pause_one(kind, host_node)
                world.later(STOPPED_S, lambda: self.end_if_stopped(host_node))
            case _ if not kind.startswith(("process", "host", "connection")):
                members = [process for process in up if not isinstance(process, HostNode)]
                super().cause(kind, members, [process for process in members if not process.paused])

    def pause_one(self, kind: str, process: Process | AttachedProcess) -> None:
        if not process.paused:
            self.world.faults[kind] += 1
            process.paused = True
            self.world.later(self.random.choice((0.01, 0.1, 0.6, 4.0)), lambda: self.goes_on(process))

    def goes_on(self, process: Process | AttachedProcess) -> None:
        if process.alive and process.paused:
            process.go_on()

    def end_if_stopped(self, host_node: HostNode) -> None:
        if host_node.alive and host_node.paused:
            self.world.faults["host ended"] += 1
            self.world.end(host_node)

    def heal(self) -> None:
        super().heal()
        for process in self.world.others:
            self.goes_on(process)


__all__ = ["AttachedHost", "AttachedNemesis", "AttachedProcess", "AttachedRegistry", "HostNode"]
