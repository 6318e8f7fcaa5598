"""The users of a simulated node: each takes a lock, holds it for a while and gives it back; some
give up waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.contract import Mode
from peerlock.node.locks.ticket import DONE, HELD, WAITING, Ticket
from peerlock.node.wire_algorithms import wire_algorithm

if TYPE_CHECKING:
    from peerlock.sim.cluster.attached import AttachedProcess
    from peerlock.sim.cluster.process import Process


class Wish(Ticket):
    def __init__(self, mode: Mode, user: User, lock: str) -> None:
        self.mode, self.user, self.lock, self.entered = mode, user, lock, False

    def woken(self) -> None:
        self.user.woken(self)


class User:
    def __init__(self, process: Process | AttachedProcess, lock: str) -> None:
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
            patience = world.random.expovariate(0.2 / world.plan.pace)
            world.later(patience, lambda: self.process.do(lambda: self.give_up(wish)))

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
            return
        self.process.world.oracle.left(self, wish)
        self.wish = None
        if wish.error is not None and not self.process.core.table.closed:
            self.process.registry.hold_lost(self, wish)

    def entered(self, wish: Wish) -> None:
        world = self.process.world
        wish.entered = True
        world.oracle.entered(self, wish)
        world.later(world.random.expovariate(2 / world.plan.pace), lambda: self.process.do(lambda: self.leave(wish)))

    def leave(self, wish: Wish) -> None:
        if wish.state == HELD and wish.local_lock is not None:
            self.process.world.oracle.left(self, wish)
            self.process.core.release(wish, self.process.now)
            if wish.state == DONE:
                self.wish = None
                self.later()
