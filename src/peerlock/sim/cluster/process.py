"""Whole nodes in virtual time: the objects of `peerlock.node`, with every fault that one host can have.

What is simulated is the world around them: processes, links and the registry of one host. What runs is the very code
that ships: frames are encoded and decoded, sessions number and repeat, views change, tables queue. One seed gives one
run.

- A *process* is started, crashes, is stopped and goes on, joins, leaves, is started again under its name. A crash is
  seen by the others as the end of their links; a stopped process takes no notice of anything until it goes on.
- A *link* delivers what was written in order, after a delay of its own; between links anything overtakes anything. A
  reset loses what is under way, or some of it arrives; it may end in the middle of a frame.
- The *registry* decides one view an epoch. It knows who is dead, and excludes a member that is silent only if that
  member does not believe: `may_hold` and `believers` are the kernel's record locks.

Users take a lock, hold it for a while, give it back; some give up waiting. The oracle looks at every grant: no two
holds that exclude each other at one time, and fences that strictly increase. When the faults have stopped, everybody
who waits must get in.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from peerlock.contract import Mode
from peerlock.errors import PeerlockError, ProtocolError
from peerlock.node import effects
from peerlock.node.core import Core
from peerlock.node.locks.ticket import DONE, HELD, WAITING, Limits, Ticket
from peerlock.node.peer import Peer
from peerlock.node.wire import LENGTH, Hello, framed, opened
from peerlock.node.wire_algorithms import wire_algorithm

# Not counted as faults of their own: nothing breaks, or it is counted as a reset already.
HARMLESS = ("gave up", "renewal", "reset in a frame")
FAULTS = ("crash", "restart", "join", "leave", "pause", "reset", "reset in a frame", "slow link", "gave up", "renewal")


class Broken(PeerlockError):
    """The oracle saw what must never be."""


class Plan(Struct, frozen=True):
    """What a run is made of."""

    algorithm: str = "suzuki-kasami-a"
    nodes: int = 4
    most: int = 6  # nodes that are up at one time
    locks: int = 2
    grants: int = 200  # before the faults stop
    delay_s: float = 0.001
    fault_every_s: float = 0.05
    readers: bool = False
    core: type[Core] = Core
    pace_s: float = 0.0  # of the users; 0: as fast as messages

    @property
    def pace(self) -> float:
        return self.pace_s or self.delay_s


class Result(Struct):
    seed: int
    grants: int = 0
    faults: Counter[str] = Counter()
    epochs: int = 0
    messages: int = 0
    seconds: float = 0.0  # of virtual time


class Link:
    """Two ends and what is under way between them."""

    __slots__ = ("deaf", "delay", "due", "ends", "halves", "refused", "up")

    def __init__(self, a: Process, b: Process) -> None:
        self.ends = (a, b)
        self.up = True
        self.deaf = [False, False]  # nothing arrives at this end any more
        self.refused = [False, False]  # and what has arrived is not read
        self.due = [0.0, 0.0]  # when the last thing that was written to an end arrives
        self.halves: list[bytearray] = [bytearray(), bytearray()]  # arrived at an end, not yet a frame
        self.delay = 1.0


class Process:
    """One incarnation of a node: a core, and the shell around it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.peer = world.new_peer(name)
        self.core = self.new_core(Limits(local_grants=3, idle_locks=40))
        self.links: dict[Peer, Link] = {}
        self.greeted: dict[Link, Peer] = {}
        self.alive, self.paused, self.leaving = True, False, False
        self.went_on = world.now  # was started, or continued
        self.postponed: list[Callable[[], None]] = []
        self.users: list[User] = []
        self.handlers: dict[type, Callable[[Any], object]] = {
            effects.Wake: lambda effect: effect.ticket.woken(),
            effects.WakeAt: lambda effect: self.at(effect.when, lambda: self.core.tick(self.now)),
            effects.WithheldDueAt: lambda effect: self.at(effect.when, lambda: self.core.on_withheld_due(self.now)),
            effects.Write: lambda effect: self.write(effect.peer, effect.data),
            effects.Dial: lambda effect: self.dial(effect.peer),
            effects.HangUp: lambda effect: self.hang_up(effect.peer),
            effects.CheckLiveness: lambda effect: self.redial_if_alive(effect.peer),
            effects.RefreshView: lambda effect: self.refresh(),
            effects.Suspect: lambda effect: self.core.waits_for(self.suspect(effect.peers)),
            effects.RequestEpoch: lambda effect: self.request_epoch(),
            effects.Rejoin: lambda effect: self.rejoin(),
            effects.BeginHolding: lambda effect: self.begin_holding(),
            effects.EndHolding: lambda effect: self.end_holding(),
        }

    def new_core(self, limits: Limits) -> Core:
        return self.world.plan.core(self.peer, "sim", limits, self.now)

    @property
    def now(self) -> float:
        """By the clock of this process."""
        return self.world.now

    def do(self, act: Callable[[], None]) -> None:
        """Something happens to this process: now, when it goes on, or never."""
        if not self.alive:
            return
        if self.paused:
            self.postponed.append(act)
            return
        act()
        self.carry_out()

    def carry_out(self) -> None:
        core = self.core
        while True:
            for peer, data in core.take_writes():
                self.write(peer, data)
            if not core.effects:
                return
            effect = core.effects.pop(0)
            handler = self.handlers.get(type(effect))
            if handler is not None:  # else it is for a log, for a status, or for a waiter that may spin
                handler(effect)

    def at(self, when: float, act: Callable[[], None]) -> None:
        """By the clock of this process."""
        self.world.at(when, lambda: self.do(act))

    # -- what the core asks for --------------------------------------------------------------------------

    def write(self, peer: Peer, data: bytes) -> None:
        link = self.links.get(peer)
        if link is not None:
            self.world.transmit(link, self, data)

    def dial(self, peer: Peer) -> None:
        self.world.later(self.world.delay(), lambda: self.do(lambda: self.world.connect(self, peer)))

    def hang_up(self, peer: Peer) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            self.drop(link)

    def redial_if_alive(self, peer: Peer) -> None:
        self.look(peer)
        self.core.may_redial(peer)

    def look(self, peer: Peer) -> None:
        self.world.registry.refresh(self)
        if not self.world.registry.lives(peer):
            self.world.registry.change(self)

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        return epoch < self.world.registry.epoch or members == self.world.registry.members

    def refresh(self) -> None:
        if self.world.random.random() < 0.5:  # a registry may be out of reach
            self.world.registry.refresh(self)

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        return self.world.registry.exclude(self, peers) if peers else ()

    def request_epoch(self) -> None:
        self.world.faults["renewal"] += 1
        self.world.later(0.0, lambda: self.do(self.renewal))

    def renewal(self) -> None:
        self.core.epoch_requested()
        self.world.registry.change(self, even_if_the_same=True)

    def rejoin(self) -> None:
        """A process that was excluded joins again as a new incarnation."""
        if self.leaving:
            return
        self.world.registry.forget(self.peer)
        for link in list(self.links.values()):
            self.drop(link)
        self.links.clear()
        self.peer = self.world.new_peer(self.name)
        self.world.by_peer[self.peer] = self
        self.core.rejoined(self.peer)
        self.world.later(self.world.delay(), lambda: self.do(lambda: self.world.registry.change(self)))

    def begin_holding(self) -> None:
        if self.world.registry.begin_holding(self):
            self.core.holding_allowed(self.now)
        else:
            self.core.holding_refused()

    def end_holding(self) -> None:
        self.world.registry.believers.discard(self.peer)

    def was_told(self, user: User, wish: Wish) -> None:
        """A lock was lost. On one host that must not be."""
        raise Broken(f"{self.name}: {wish.error}")

    # -- links ---------------------------------------------------------------------------------------

    def arrives(self, link: Link, side: int, data: bytes) -> None:
        half = link.halves[side]
        half += data
        while not link.refused[side] and len(half) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(half)
            if len(half) < LENGTH.size + length:
                return
            body = bytes(half[LENGTH.size : LENGTH.size + length])
            del half[: LENGTH.size + length]
            try:
                self.frame(link, body)
            except ProtocolError as problem:
                raise Broken(f"{self.name}: {problem}") from problem

    def frame(self, link: Link, body: bytes) -> None:
        frame = opened(body)
        peer = self.greeted.get(link)
        if peer is None:
            assert isinstance(frame, Hello), frame
            if frame.to != self.peer.id:
                self.drop(link)
                return
            self.greeted[link] = frame.peer
            old = self.links.get(frame.peer)
            if old is not None and old is not link:
                self.drop(old)
            self.links[frame.peer] = link
            if link.ends[0] is self:
                self.core.answered(frame.peer, frame.received, self.now)
            else:
                self.world.transmit(link, self, framed(self.core.hello(frame.peer)))
                self.core.linked(frame.peer, frame.received, self.now)
        else:
            view = self.core.receive(peer, frame, self.now)
            if view is not None:
                if not self.confirms(view.epoch, view.members):
                    raise ProtocolError(f"a view of epoch {view.epoch}, which the registry does not know")
                self.core.learn(view.epoch, view.members, self.now)
                self.core.receive(peer, frame, self.now)

    def drop(self, link: Link) -> None:
        """Another link has taken its place: what still comes on it is not wanted."""
        link.refused[link.ends.index(self)] = True
        self.greeted.pop(link, None)
        self.world.cut(link)

    def ended(self, link: Link) -> None:
        peer = self.greeted.pop(link, None)
        for known, mine in list(self.links.items()):
            if mine is link:
                del self.links[known]
                peer = known
        if peer is not None and peer not in self.links:
            self.core.unlinked(peer, self.now)


class Registry:
    """Of one host: who is dead is known for certain, and who believes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = 0
        self.members: tuple[Peer, ...] = ()
        self.believers: set[Peer] = set()
        self.present: dict[Peer, None] = {}  # whoever has put up a file: alive, and wants to be a member

    def lives(self, peer: Peer) -> bool:
        return peer in self.present and self.world.by_peer[peer].alive

    def forget(self, peer: Peer) -> None:
        self.present.pop(peer, None)
        self.believers.discard(peer)

    def refresh(self, process: Process) -> None:
        if self.epoch:
            process.core.learn(self.epoch, self.members, self.world.now)

    def change(self, process: Process, without: tuple[Peer, ...] = (), even_if_the_same: bool = False) -> None:
        """Decide a view of all processes that are there. The process that asks learns of it."""
        before = process.peer
        self.refresh(process)
        if process.peer != before:
            return  # it was excluded, and joins again as somebody new
        if not process.leaving:
            self.present[process.peer] = None
        members = tuple(sorted(peer for peer in self.present if self.lives(peer) and peer not in without))
        if members and (members != self.members or even_if_the_same):
            self.epoch, self.members = self.epoch + 1, members
            for peer in [peer for peer in self.present if peer not in members]:
                self.forget(peer)
        self.refresh(process)

    def exclude(self, process: Process, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        without = tuple(peer for peer in peers if not self.lives(peer) or peer not in self.believers)
        for peer in without:
            stopped = self.world.by_peer[peer]
            if stopped.alive and not stopped.leaving and self.world.now - stopped.went_on > 3.0 and not stopped.paused:
                raise Broken(f"{process.name} wants to exclude {stopped.name}, which is well")
        if without:
            self.change(process, without)
        return tuple(peer for peer in peers if peer not in without)

    def begin_holding(self, process: Process) -> bool:
        if process.peer in self.members:
            self.believers.add(process.peer)
            return True
        self.world.later(self.world.delay(), lambda: process.do(lambda: self.refresh(process)))
        return False


class Wish(Ticket):
    def __init__(self, mode: Mode, user: User, lock: str) -> None:
        self.mode, self.user, self.lock, self.entered = mode, user, lock, False

    def woken(self) -> None:
        self.user.woken(self)


class User:
    """Takes a lock, holds it, gives it back."""

    def __init__(self, process: Process, lock: str) -> None:
        self.process, self.lock = process, lock
        self.wish: Wish | None = None
        self.stopped = False  # nothing is wanted any more
        self.later()

    def later(self) -> None:
        world = self.process.world
        world.later(world.random.expovariate(1 / world.plan.pace), lambda: self.process.do(self.ask))

    def ask(self) -> None:
        world, core = self.process.world, self.process.core
        if core.table.closed or (world.calm and world.random.random() < 0.5):
            self.stopped = True
            return
        lock = self.lock
        if world.random.random() < 0.05:
            lock = f"rare-{world.random.randrange(60)}"  # more of them than a node remembers
        mode: Mode = "read" if world.plan.readers and world.random.random() < 0.5 else "write"
        self.wish = wish = Wish(mode, self, lock)
        local_lock = core.table.local_lock(lock, wire_algorithm(world.plan.algorithm))
        core.acquire(local_lock, wish, self.process.now)
        if wish.state == HELD:
            self.entered(wish)
        elif world.random.random() < 0.1 and not world.calm:
            world.later(
                world.random.expovariate(0.2 / world.plan.pace), lambda: self.process.do(lambda: self.give_up(wish))
            )

    def give_up(self, wish: Wish) -> None:
        if wish.state == WAITING and wish.local_lock is not None:
            self.process.world.faults["gave up"] += 1
            self.process.core.cancel(wish, self.process.now)
            self.wish = None
            self.later()

    def woken(self, wish: Wish) -> None:
        if wish.state == HELD:
            if not wish.entered:  # else it was granted at once
                self.entered(wish)
        else:
            self.process.world.left(self, wish)
            self.wish = None
            if wish.error is not None and not self.process.core.table.closed:
                self.process.was_told(self, wish)

    def entered(self, wish: Wish) -> None:
        world = self.process.world
        wish.entered = True
        world.entered(self, wish)
        world.later(world.random.expovariate(2 / world.plan.pace), lambda: self.process.do(lambda: self.leave(wish)))

    def leave(self, wish: Wish) -> None:
        if wish.state == HELD and wish.local_lock is not None:
            world = self.process.world
            world.left(self, wish)
            self.process.core.release(wish, self.process.now)
            if wish.state == DONE:
                self.wish = None
                self.later()


class World:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.ids = 0
        self.by_peer: dict[Peer, Process] = {}
        self.processes: list[Process] = []
        self.registry = Registry(self)
        self.faults: Counter[str] = Counter()
        self.grants = 0
        self.calm = False  # no more faults
        self.holds: dict[str, dict[User, Wish]] = {}
        self.fences: dict[str, dict[Mode, int]] = {}
        self.names = 0

    # -- time ------------------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[[], None]) -> None:
        self.number += 1
        heappush(self.heap, (max(when, self.now), self.number, act))

    def later(self, after: float, act: Callable[[], None]) -> None:
        self.at(self.now + after, act)

    def delay(self) -> float:
        return self.random.expovariate(1 / self.plan.delay_s)

    # -- processes and links -----------------------------------------------------------------------------

    def new_peer(self, name: str) -> Peer:
        self.ids += 1
        # Ids are not in the order of their making, as random ones are not.
        return Peer(name, (self.ids * 7919) % 10007 + 10007 * self.ids)

    def start(self, name: str) -> Process:
        process = Process(self, name)
        self.by_peer[process.peer] = process
        self.processes.append(process)
        self.later(self.delay(), lambda: process.do(lambda: self.registry.change(process)))
        for at in range(self.plan.locks):
            process.users.append(User(process, f"lock-{at}"))
            if self.random.random() < 0.3:
                process.users.append(User(process, f"lock-{at}"))
        return process

    def connect(self, process: Process, peer: Peer) -> None:
        if peer in process.links or peer not in process.core.view_change.coming:
            return
        other = self.by_peer.get(peer)
        if other is None or not other.alive or other.peer != peer:
            process.look(peer)
            return
        link = Link(process, other)
        process.links[peer] = link
        self.transmit(link, process, process.core.dialled(peer, self.now))

    def transmit(self, link: Link, source: Process, data: bytes) -> None:
        if not link.up:
            return
        side = 0 if link.ends[1] is source else 1
        to = link.ends[side]
        when = link.due[side] = max(link.due[side], self.now + self.delay() * link.delay)

        def arrive() -> None:
            if not link.deaf[side]:
                to.do(lambda: to.arrives(link, side, data))

        self.at(when, arrive)

    def cut(self, link: Link) -> None:
        """The link is gone. What was under way is lost, or arrives before the end of the link does, which is later."""
        if link.up:
            link.up = False
            for side in (0, 1):
                link.deaf[side] = self.random.random() < 0.5
                self.at(max(link.due[side], self.now + self.delay()), lambda side=side: self.ends(link, side))  # type: ignore[misc]

    def ends(self, link: Link, side: int) -> None:
        end = link.ends[side]
        link.deaf[side] = True
        end.do(lambda: end.ended(link))

    # -- the oracle ----------------------------------------------------------------------------------------

    def entered(self, user: User, wish: Wish) -> None:
        self.grants += 1
        holds = self.holds.setdefault(wish.lock, {})
        for other, theirs in holds.items():
            if theirs.mode == "write" or wish.mode == "write":
                raise Broken(
                    f"two hold {wish.lock} at {self.now:.6f}: {other.process.name} ({theirs.mode}, fence {theirs.fence}) and "
                    f"{user.process.name} ({wish.mode}, fence {wish.fence})"
                )
        last = self.fences.setdefault(wish.lock, {"read": 0, "write": 0})
        before = last["write"] if wish.mode == "read" else max(last.values())
        if wish.fence <= before:
            raise Broken(f"fence {wish.fence} of {user.process.name} for {wish.lock} comes after {before}")
        last[wish.mode] = max(last[wish.mode], wish.fence)
        holds[user] = wish

    def left(self, user: User, wish: Wish) -> None:
        self.holds.get(wish.lock, {}).pop(user, None)

    # -- faults --------------------------------------------------------------------------------------------

    def fault(self) -> None:
        if self.calm:
            return
        self.later(self.random.expovariate(1 / self.plan.fault_every_s), self.fault)
        up = [process for process in self.processes if process.alive and not process.leaving]
        running = [process for process in up if not process.paused]
        kind = self.random.choice(("crash", "join", "leave", "pause", "reset", "reset", "slow link", "renewal"))
        if kind == "join" and len(up) < self.plan.most:
            self.faults["join"] += 1
            self.names += 1
            self.start(f"late-{self.names}")
        elif kind == "crash" and len(running) > 1:
            self.crash(self.random.choice(up))
        elif kind == "leave" and len(running) > 2:
            self.leave(self.random.choice(running))
        elif kind == "pause" and len(running) > 1:
            self.pause(self.random.choice(running))
        elif kind in ("reset", "slow link"):
            links = [link for process in up for link in process.links.values() if link.up]
            if links:
                self.disturb(self.random.choice(links), kind)
        elif kind == "renewal" and running:
            process = self.random.choice(running)
            process.do(process.request_epoch)

    def disturb(self, link: Link, kind: str) -> None:
        if kind == "slow link":
            self.faults[kind] += 1
            link.delay = self.random.choice((1.0, 5.0, 30.0))
            return
        if self.random.random() < 0.5:
            # The first part of what is under way still arrives, and ends in the middle of a frame.
            self.faults["reset in a frame"] += 1
            side = self.random.randrange(2)
            end = link.ends[side]
            end.do(lambda: end.arrives(link, side, b"\0\0\1"))
            self.cut(link)
            link.deaf[:] = True, True
        self.faults["reset"] += 1
        self.cut(link)

    def crash(self, process: Process) -> None:
        self.faults["crash"] += 1
        process.alive = False
        self.registry.believers.discard(process.peer)
        for user in process.users:
            if user.wish is not None:
                self.left(user, user.wish)
        for link in list(process.links.values()):
            self.cut(link)
        if self.random.random() < 0.7:
            self.faults["restart"] += 1
            self.later(self.random.expovariate(0.1 / self.plan.delay_s), lambda: self.restart(process.name))

    def restart(self, name: str) -> None:
        self.start(name)

    def leave(self, process: Process) -> None:
        self.faults["leave"] += 1

        def go() -> None:
            process.leaving = True
            process.core.close(self.now)
            process.carry_out()
            self.registry.believers.discard(process.peer)
            self.registry.present.pop(process.peer, None)
            self.registry.change(process)
            process.carry_out()
            process.alive = False
            for link in list(process.links.values()):
                self.cut(link)

        process.do(go)

    def pause(self, process: Process) -> None:
        self.faults["pause"] += 1
        process.paused = True
        # Now and then for so long that it is excluded, if it is idle.
        after = self.random.choice((0.01, 0.1, 4.0, 6.0))
        self.later(after, lambda: self.resume(process))

    def resume(self, process: Process) -> None:
        process.paused, process.went_on = False, self.now
        postponed, process.postponed = process.postponed, []
        for act in postponed:
            process.do(act)

    # -- a run ---------------------------------------------------------------------------------------------

    def run(self) -> Result:
        for at in range(self.plan.nodes):
            self.start(f"node-{at + 1}")
        self.later(self.plan.fault_every_s, self.fault)
        steps, most = 0, 3_000 * self.plan.grants
        while self.heap:
            when, _, act = heappop(self.heap)
            self.now = when
            act()
            steps += 1
            if not self.calm and self.grants >= self.plan.grants and self.serious() >= 5:
                self.calm = True
                for process in self.processes:
                    if process.paused and process.alive:
                        self.resume(process)
            if steps > most:
                raise Broken(f"{self.grants} grants and no end after {steps} events: {self.who_waits()}")
        if not self.calm or self.grants < self.plan.grants:
            raise Broken(f"everything stands still after {self.grants} grants: {self.who_waits()}")
        waiting = self.who_waits()
        if waiting:
            raise Broken(f"the faults have stopped and these wait for ever: {waiting}")
        messages = sum(process.core.table.messages for process in self.processes)
        return Result(self.seed, self.grants, self.faults, self.registry.epoch, messages, self.now)

    def serious(self) -> int:
        return sum(count for fault, count in self.faults.items() if fault not in HARMLESS)

    def who_waits(self) -> str:
        return ", ".join(
            f"{user.process.name} for {user.lock}"
            for process in self.processes
            if process.alive
            for user in process.users
            if user.wish is not None
        )


def run(seed: int, plan: Plan) -> Result:
    return World(plan, seed).run()


__all__: list[Any] = ["FAULTS", "Broken", "Plan", "Result", "World", "run"]
