"""A simulated process: a node's core, its users, and a shell in virtual time.

What runs is the code that ships: frames are encoded and decoded, sessions number and repeat, views
change, tables queue. A process is started, crashes, is stopped and goes on, joins, leaves, and is
started again under its name. A crash is seen by the others as the end of their links. A stopped
process takes no notice of anything until it goes on. A process *hangs* if its event loop does not
come back; the thread that sends its heartbeats goes on for a while.

What differs from one kind of group to another is a process's half of the registry (`Registry`): one
file per kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from peerlock.errors import ProtocolError
from peerlock.node import effects
from peerlock.node.effects import Effect
from peerlock.node.locks.ticket import Limits
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import Hello, StaticState, framed, next_frame, opened
from peerlock.sim.cluster.network import Link
from peerlock.sim.cluster.plan import Broken
from peerlock.sim.cluster.users import User, Wish

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World


class Clock:
    """The clock of a host, by the time of the world."""

    def __init__(self, rate: float = 1.0, offset: float = 0.0, late: float = 0.0) -> None:
        self.rate, self.offset = rate, offset
        self.jumped = 0.0  # a suspension that was none
        self.late = late  # of a timer

    def read(self, world_now: float) -> float:
        return world_now * self.rate + self.offset + self.jumped

    def steady(self, world_now: float) -> float:
        """The clock that does not jump."""
        return world_now * self.rate + self.offset

    def when(self, local: float) -> float:
        """The world's time when a timer that is set to that is due."""
        return (local - self.offset - self.jumped) / self.rate + self.late


class CoreOptions(TypedDict, total=False):
    leases: bool
    patience_s: float
    waits_outside: bool


class Registry:
    """A process's half of the registry. What a kind of group has no need of does nothing."""

    core_options = CoreOptions()

    def __init__(self, process: Process) -> None:
        self.process, self.world = process, process.world

    def join(self) -> None:
        """A new incarnation wants to be a member, after a moment."""

    def request_epoch(self) -> None:
        """A view with the same members is wanted."""

    def leave(self) -> None:
        """This process leaves its group; its core is closed."""

    def forget(self) -> None:
        """This incarnation was excluded."""

    def look(self, peer: Peer) -> None:
        """Its link is down. Is it dead?"""

    def confirms(self, view: View) -> bool:
        """A peer says that this was decided."""
        return True

    def learned(self, view: View) -> bool:
        """What must be durable about it now is. False: it cannot be written, and is tried again
        later.
        """
        return True

    def refresh(self) -> None:
        """Learn the newest view, if it can be known without waiting."""

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Those that may not be excluded."""
        return peers

    def begin_holding(self) -> bool:
        return True

    def end_holding(self) -> None:
        """This process holds nothing."""

    def hold_lost(self, user: User, wish: Wish) -> None:
        """Where there are no leases, that must not be."""
        raise Broken(f"{self.process.name}: {wish.error}")

    def crashed(self) -> None:
        """The process is gone."""

    # -- links -------------------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        self.world.later(self.world.delay(), lambda: self.process.do(lambda: self.world.connect(self.process, peer)))

    def wants_link(self, peer: Peer) -> bool:
        return peer in self.process.core.view_change.coming

    def not_reached(self, peer: Peer) -> None:
        self.look(peer)

    def admits(self, hello: Hello) -> bool:
        """May the process at the other end of a link come in?"""
        return hello.to == self.process.peer.id

    def linked(self, peer: Peer) -> None:
        """It has said hello."""

    def unlinked(self, peer: Peer) -> None:
        """The link with it is down."""

    def told(self, peer: Peer, state: StaticState) -> None:
        """On a fixed list: it says what it knows."""


class Process:
    """One node, with one incarnation after the other."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.clock = world.authority.new_clock()
        self.peer = world.new_peer(name)
        self.links: dict[Peer, Link] = {}
        self.greeted: dict[Link, Peer] = {}
        self.alive, self.paused, self.hung, self.leaving = True, False, False, False
        self.went_on = world.now  # was started, or continued
        self.hung_since = 0.0
        self.postponed: list[Callable[[], object]] = []  # until it goes on
        self.late: list[Callable[[], object]] = []  # until its event loop comes back
        self.users: list[User] = []
        self.registry = world.authority.registry(self)
        limits = Limits(local_grants=3, idle_locks=40)
        self.core = world.plan.core(self.peer, "sim", limits, self.now, **self.registry.core_options)

    @property
    def now(self) -> float:
        """By the clock of this process."""
        return self.clock.read(self.world.now)

    @property
    def site(self) -> str:
        return self.name

    def do(self, act: Callable[[], object]) -> None:
        """Something happens to this process: now, when it goes on, or never."""
        if not self.alive:
            return
        if self.paused:
            self.postponed.append(act)
        elif self.hung:
            self.late.append(act)
        else:
            act()
            self.carry_out()

    def beside(self, act: Callable[[], object]) -> None:
        """In the thread that sends heartbeats: it goes on while the event loop hangs."""
        hung, self.hung = self.hung, False
        try:
            self.do(act)
        finally:
            self.hung = hung

    def go_on(self) -> None:
        """It was stopped."""
        self.paused, self.went_on = False, self.world.now
        postponed, self.postponed = self.postponed, []
        for act in postponed:
            self.do(act)

    def comes_back(self) -> None:
        """Its event loop did not."""
        self.hung, self.went_on = False, self.world.now
        late, self.late = self.late, []
        if self.paused:
            self.postponed[:0] = late  # what is older comes first
            return
        for act in late:
            self.do(act)

    def at(self, when: float, act: Callable[[], object]) -> None:
        """By the clock of this process."""
        self.world.at(self.clock.when(when), lambda: self.do(act))

    # -- what the core asks for --------------------------------------------------------------------------

    def carry_out(self) -> None:
        core = self.core
        while True:
            for peer, data in core.take_writes():
                self.write(peer, data)
            if not core.effects:
                return
            self.carry_out_one(core.effects.pop(0))

    def carry_out_one(self, effect: Effect) -> None:
        core, registry = self.core, self.registry
        match effect:
            case effects.Wake():
                effect.ticket.woken()
            case effects.WakeAt():
                self.at(effect.when, lambda: core.tick(self.now))
            case effects.WithheldDueAt():
                self.at(effect.when, lambda: core.on_withheld_due(self.now))
            case effects.Write():
                self.write(effect.peer, effect.data)
            case effects.Dial():
                registry.dial(effect.peer)
            case effects.HangUp():
                self.hang_up(effect.peer)
                registry.unlinked(effect.peer)
            case effects.CheckLiveness():
                registry.look(effect.peer)
                core.links.may_redial(effect.peer)
            case effects.RefreshView():
                registry.refresh()
            case effects.Suspect():
                core.links.waits_for(registry.suspect(effect.peers))
            case effects.RequestEpoch():
                self.request_epoch()
            case effects.Rejoin():
                self.rejoin()
            case effects.BeginHolding():
                if registry.begin_holding():
                    core.holding_allowed(self.now)
                else:
                    core.holding_refused()
            case effects.EndHolding():
                registry.end_holding()
            case _:
                pass  # it is for a log, for a status, or for a waiter that may spin

    def request_epoch(self) -> None:
        self.world.faults["renewal"] += 1
        self.world.later(0.0, lambda: self.do(self.renewal))

    def renewal(self) -> None:
        self.core.epoch_requested()
        self.registry.request_epoch()

    def rejoin(self) -> None:
        """A process that was excluded joins again as a new incarnation."""
        if self.leaving:
            return
        self.registry.forget()
        for link in list(self.links.values()):
            self.drop(link)
        self.links.clear()
        self.peer = self.world.new_peer(self.name)
        self.world.by_peer[self.peer] = self
        self.core.rejoined(self.peer)
        self.registry.join()

    def learn(self, view: View) -> bool:
        learned = self.registry.learned(view)
        if learned:
            self.core.learn(view.epoch, view.members, self.now)
        return learned

    # -- links -------------------------------------------------------------------------------------------

    def write(self, peer: Peer, data: bytes) -> None:
        link = self.links.get(peer)
        if link is not None:
            self.world.network.transmit(link, self, data)

    def hang_up(self, peer: Peer) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            self.drop(link)

    def arrives(self, link: Link, side: int, data: bytes) -> None:
        half = link.halves[side]
        half += data
        while not link.refused[side] and (body := next_frame(half)) is not None:
            try:
                self.frame(link, body)
            except ProtocolError as problem:
                raise Broken(f"{self.name}: {problem}") from problem

    def frame(self, link: Link, body: bytes) -> None:
        frame = opened(body)
        peer = self.greeted.get(link)
        if peer is None:
            assert isinstance(frame, Hello), frame
            self.greet(link, frame)
        elif isinstance(frame, StaticState):
            self.registry.told(peer, frame)
        else:
            view = self.core.receive(peer, frame, self.now)
            if view is not None:
                if not self.registry.confirms(view):
                    raise ProtocolError(f"a view of epoch {view.epoch}, which the registry does not know")
                if not self.learn(view):
                    self.refuse(link)  # the frame will come again
                    return
                self.core.receive(peer, frame, self.now)

    def greet(self, link: Link, hello: Hello) -> None:
        peer = hello.peer
        if not self.registry.admits(hello):
            self.drop(link)
            return
        self.greeted[link] = peer
        old = self.links.get(peer)
        if old is not None and old is not link:
            self.drop(old)
        self.links[peer] = link
        if link.ends[0] is self and link.dialled.id:
            self.core.links.answered(peer, hello.received, self.now)
        else:
            if link.ends[1] is self:
                self.world.network.transmit(link, self, framed(self.core.links.hello(peer)))
            self.core.links.linked(peer, hello.received, self.now)
        self.registry.linked(peer)

    def refuse(self, link: Link) -> None:
        link.refused[link.ends.index(self)] = True
        self.world.network.cut(link)

    def drop(self, link: Link) -> None:
        """Another link has taken its place: what still comes on it is not wanted."""
        self.greeted.pop(link, None)
        self.refuse(link)

    def ended(self, link: Link) -> None:
        peer = self.greeted.pop(link, None)
        for known, mine in list(self.links.items()):
            if mine is link:
                del self.links[known]
                peer = known
        if peer is not None and peer not in self.links:
            self.core.links.unlinked(peer, self.now)
        self.registry.unlinked(peer or link.dialled)
