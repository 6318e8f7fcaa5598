"""A node's place in the world: it is the `Out` of the node's algorithm, and it leads the node
through its work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappush
from math import inf
from typing import TYPE_CHECKING, Any

from peerlock.contract import Mode, NodeId, Wire
from peerlock.errors import ContractError
from peerlock.sim.workload import Work

if TYPE_CHECKING:
    from peerlock.sim.world import World

_LATE = 1 << 60  # added to the number of a timer: after all else that is due at the same time
_MARGIN = 1 + 1e-9  # rounding must not let a timer fire before a message that takes exactly the bound


class Place:
    """The driver of an algorithm, and its `Out`."""

    __slots__ = (
        "algorithm", "arrived", "backlog", "closed", "current", "halted", "leaving", "me", "phase", "receive",
        "releasing", "send", "timers", "work", "world",
    )  # fmt: skip

    def __init__(self, world: World, me: NodeId, algorithm: Any, phase: str) -> None:
        self.world, self.me, self.algorithm, self.phase = world, me, algorithm, phase
        self.receive: Callable[[NodeId, Any, Any], None] = algorithm.receive
        self.work: Iterator[Work] = iter(())
        self.closed = True
        self.send = world.sender(me)
        self.arrived: deque[tuple[float, Work]] = deque()  # open loads: since when, what
        self.current = Work(0.0, 0.0, "write")
        self.timers: dict[str, int] = {}
        self.backlog: deque[Callable[[], None]] | None = None  # while paused: what waits
        self.releasing = self.leaving = self.halted = False

    # -- Out -----------------------------------------------------------------------------------

    def broadcast(self, to: Iterable[NodeId], message: Wire) -> None:
        world, nodes = self.world, tuple(to)
        if not world.network.broadcast:
            for j in nodes:
                self.send(j, message)
        elif nodes:
            which = next(world.numbers)
            world.tell.broadcast(world.now, which, self.me, nodes, message)
            for j in nodes:
                world.transmit(self.me, j, message, which, next(world.numbers))

    def enter(self) -> None:
        world = self.world
        if self.phase != "waiting":
            raise ContractError(f"{world.spec.name}: node {self.me} entered while it was {self.phase}, not waiting.")
        self.phase = "inside"
        world.tell.entered(world.now, self.me, self.current.mode)
        self._later(self.current.hold, self.go_out)

    def timer(self, name: str, after: float) -> None:
        world = self.world
        if not 0 <= after < inf:
            raise ContractError(
                f"{world.spec.name}: node {self.me} set the timer {name!r} to {after!r}; it takes a time."
            )
        number = self.timers[name] = next(world.numbers)
        act = lambda: self._fire(name, number)  # noqa: E731
        heappush(world.queue, (world.now + after * _MARGIN, number + _LATE, world.clock, 0, act))

    def idle(self) -> None:
        world, phase = self.world, self.phase
        if phase == "leaving":
            self.phase = "left"
            world.changed()
            return
        if phase not in ("ending", "joining"):
            raise ContractError(f"{world.spec.name}: node {self.me} became idle while it was {phase}.")
        self.phase = "idle"
        if phase == "joining":
            world.tell.joined(world.now, self.me)
            world.changed()
        else:
            world.tell.idle(world.now, self.me)
        if not self.releasing:
            # Inside a handler: the algorithm must have returned before it is asked again.
            self._later(0.0, self.go_on)

    # -- the node's work -----------------------------------------------------------------------

    def begin_work(self) -> None:
        """The first piece of work is under way."""
        work = next(self.work, None)
        if work is None:
            return
        if self.closed:
            self.current = work
            self._later(work.after, self.arrive)
        else:
            self._later(work.after, lambda: self.arrive_open(work))

    def go_on(self) -> None:
        """Idle again: what next?"""
        if self.phase != "idle" or (self.halted and self._halts(self.go_on)):
            return
        if self.leaving:
            self.depart()
            return
        if not self.closed:
            if self.arrived:
                since, self.current = self.arrived.popleft()
                self.begin(since)
            return
        work = next(self.work, None)
        if work is not None:
            self.current = work
            if work.after:
                self._later(work.after, self.arrive)
            else:
                self.begin(self.world.now)

    def arrive(self) -> None:
        if self.phase == "idle" and not self.leaving and not self._halts(self.arrive):
            self.begin(self.world.now)

    def arrive_open(self, work: Work) -> None:
        if not self._halts(lambda: self.arrive_open(work)):
            self.arrived.append((self.world.now, work))
            self.begin_work()
            self.go_on()

    def begin(self, since: float) -> None:
        self.phase = "waiting"
        self.world.tell.requested(self.world.now, self.me, self.current.mode, since)
        self.algorithm.request(self.current.mode, self)

    def begin_inside(self, mode: Mode, hold: float) -> None:
        self.phase = "inside"
        self.world.tell.entered(0.0, self.me, mode)
        self._later(hold, self.go_out)

    def go_out(self) -> None:
        if self.halted and self._halts(self.go_out):
            return
        self.phase, self.releasing = "ending", True
        self.world.tell.left(self.world.now, self.me)
        self.algorithm.release(self)
        self.releasing = False
        self.go_on()

    def depart_when_idle(self) -> None:
        self.leaving = True
        self.go_on()

    def depart(self) -> None:
        self.phase = "leaving"
        self.arrived.clear()
        self.world.tell.leaving(self.world.now, self.me)
        self.algorithm.leave(self)

    def _later(self, after: float, act: Callable[[], None]) -> None:
        world = self.world
        heappush(world.queue, (world.now + after, next(world.numbers), world.clock, 0, act))

    def _halts(self, act: Callable[[], None]) -> bool:
        """Dead: nothing is done; paused: it is done when resumed."""
        if self.backlog is not None:
            self.backlog.append(act)
            return True
        return self.phase == "crashed"

    def _fire(self, name: str, number: int) -> None:
        if self.timers.get(name) == number and not self._halts(lambda: self._fire(name, number)):
            del self.timers[name]
            self.world.tell.timeout(self.world.now, self.me, name)
            self.algorithm.on_timeout(name, self)

    def withhold(self, source: NodeId, message: Any, place: Any) -> None:
        assert self.backlog is not None
        self.backlog.append(lambda: self.receive(source, message, self))


def dropped(source: NodeId, message: Any, place: Any) -> None:
    """What arrives at a dead node."""
