"""Nodes in virtual time.

One heap of (time, number, place, source, message), and one loop that takes the next and hands it
over. A `Place` is a node's place in the world: it is the `Out` of its algorithm, and it leads the
node through its work. Everything that happens to a node arrives through `place.receive`, so what is
not a message (time to leave, a timer, new work) is an entry for `_Clock`, whose "message" is the
call to make; a node that is paused or dead has another `receive`. The loop itself has no cases.

Numbers break ties, and they make a run a function of its seed alone: two things due at the same
time happen in the order in which they were scheduled, except that timers come after everything else
due by then. A time-out of twice the delay bound therefore means what the papers mean by it.

What a node does is told to the recorders. Only those that asked for an event are called, and if
none wants to know of receipts the loop does not even look at which node received what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from msgspec import Struct

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import NOBODY, Mode, NodeId, Shape, Wire
from peerlock.errors import ContractError, Unfinished, UsageError
from peerlock.sim.delays import Delay, Draw
from peerlock.sim.place import Place, dropped
from peerlock.sim.workload import Work
from peerlock.trace import Recorder


class Network(Struct, frozen=True):
    """How messages travel."""

    delay: Delay
    fifo: bool = False
    broadcast: bool = False  # one message can reach all nodes
    loss: float = 0.0  # the papers' channels lose nothing and double nothing; layers below them must cope
    duplicate: float = 0.0


class World:
    """A group of nodes, its network and its clock."""

    def __init__(
        self,
        spec: AlgorithmSpec,
        shapes: Mapping[NodeId, Shape],
        network: Network,
        seed: int = 0,
        inside: Mapping[NodeId, Mode] = NOBODY,
        recorders: Sequence[Recorder] = (),
        first_hold: float = 1.0,
    ) -> None:
        self.now = 0.0
        self.spec, self.network, self.shapes = spec, network, dict(shapes)
        self.queue: list[tuple[float, int, Any, NodeId, Any]] = []
        self.numbers = count(1)
        self.draw: Draw = network.delay.make(Random(f"{seed}/delay"))
        self.chance = Random(f"{seed}/chance")
        self.tell = _Told(recorders)
        self.cut: tuple[frozenset[NodeId], ...] = ()
        self.forgetful = False  # a node has started again and remembers nothing
        self.changes: deque[Callable[[], None]] = deque()  # nodes that come or go, now and next
        self.expected: set[NodeId] = set()  # newcomers, there or not yet
        self.links: dict[NodeId, tuple[NodeId, ...]] | None = None  # once rewired: the neighbours of each node
        self._last: dict[tuple[NodeId, NodeId], float] = {}  # fifo: the last arrival on each channel
        self._copies: dict[int, int] = {}  # number in the queue -> id of the broadcast it belongs to
        self.clock = _Clock()
        self.places: dict[NodeId, Place] = _Places(spec.name)
        self._plain = not (network.fifo or network.loss or network.duplicate)  # messages only take time
        for me, shape in shapes.items():
            self.places[me] = Place(self, me, spec.start(me, shape, inside), "idle")
        for me, mode in inside.items():
            self.places[me].begin_inside(mode, first_hold)

    # -- what a driver does to the world ------------------------------------------------------

    def give_work(self, node: NodeId, work: Iterator[Work], closed: bool) -> None:
        """`node` has this to do; closed: each piece some time after the last was done, open: by the
        clock.
        """
        place = self.places[node]
        place.work, place.closed = work, closed
        if place.phase == "idle" or not closed:
            place.begin_work()

    def at(self, t: float, act: Callable[[], None]) -> None:
        """Do something at time `t`: a fault, a change of the network."""
        heappush(self.queue, (t, next(self.numbers), self.clock, 0, act))

    def crash(self, node: NodeId) -> None:
        """It stops; what it has sent still arrives."""
        place = self.places[node]
        place.phase, place.receive, place.backlog, place.halted = "crashed", dropped, None, True
        self.tell.crashed(self.now, node)

    def pause(self, node: NodeId) -> None:
        """It does nothing until it is resumed; what arrives waits."""
        place = self.places[node]
        if place.phase != "crashed" and place.backlog is None:
            place.backlog, place.halted = deque(), True
            place.receive = place.withhold
            self.tell.paused(self.now, node)

    def resume(self, node: NodeId) -> None:
        place = self.places[node]
        if place.backlog is not None:
            backlog, place.backlog, place.halted = place.backlog, None, False
            place.receive = place.algorithm.receive
            self.tell.resumed(self.now, node)
            for act in backlog:
                act()

    def restart(self, node: NodeId) -> None:
        """A dead node starts again with its work left to do and nothing remembered; what is under
        way to it arrives.
        """
        old = self.places[node]
        if old.phase != "crashed":
            raise UsageError(f"Node {node} cannot start again: it is not dead.")
        new = self.places[node] = Place(self, node, self.spec.start(node, self.shapes[node]), "idle")
        new.work, new.closed, new.arrived = old.work, old.closed, old.arrived
        self.queue[:] = [
            (t, number, new if place is old else place, source, message)
            for t, number, place, source, message in self.queue
        ]
        self.forgetful = True
        self.tell.restarted(self.now, node)
        new.go_on()

    def keep_order(self, source: NodeId, to: NodeId, t: float) -> None:
        """Nothing that is sent from now on arrives there before `t`."""
        self._last[source, to] = max(t, self._last.get((source, to), 0.0))

    def fire(self, node: NodeId, name: str) -> None:
        """A timer of that node is up now, before its time."""
        place = self.places[node]
        place._fire(name, place.timers[name])

    def join(self, node: NodeId, knows: Callable[[], Shape], work: Iterable[Work] = (), closed: bool = True) -> None:
        """A newcomer, when no other node is coming or going; `knows` says what it then knows,
        `work` what it has to do.
        """
        if node in self.places or node in self.expected:
            raise UsageError(f"Node {node} cannot join: it is or was there, and numbers are never used twice.")
        _method(self.spec.algorithm, "join", self.spec.name)
        self.expected.add(node)
        self._change(partial(self._join, node, knows, iter(work), closed))

    def _join(self, node: NodeId, knows: Callable[[], Shape], work: Iterator[Work], closed: bool) -> None:
        self.shapes[node] = knows()
        place = self.places[node] = Place(self, node, self.spec.start(node, self.shapes[node]), "joining")
        self.give_work(node, work, closed)
        place.algorithm.join(place)

    def leave(self, node: NodeId) -> None:
        """It leaves for good, when it is next idle and no other node is coming or going."""
        if node not in self.places and node not in self.expected:
            raise UsageError(f"There is no node {node} that could leave.")
        _method(self.spec.algorithm, "leave", self.spec.name)
        self._change(lambda: self.places[node].depart_when_idle())

    def _change(self, begin: Callable[[], None]) -> None:
        """One node at a time comes or goes."""
        self.changes.append(begin)
        if len(self.changes) == 1:
            begin()

    def changed(self) -> None:
        """A node has come or gone: the next one, once the handler that said so has returned."""
        self.changes.popleft()
        if self.changes:
            self.at(self.now, self.changes[0])

    def rewire(self, node: NodeId, neighbours: Iterable[NodeId]) -> None:
        """Change a node's neighbours while it runs; a message over a line that is gone is lost."""
        place, names = self.places[node], tuple(sorted(neighbours))
        rewire = _method(place.algorithm, "rewire", self.spec.name)
        if self.links is None:
            self.links = {j: other.algorithm.neighbours for j, other in self.places.items()}
            self._send_the_long_way()
        self.links[node] = names
        rewire(names)
        self.tell.rewired(self.now, node, names)

    # -- the loop ------------------------------------------------------------------------------

    def run(self, most_events: int = 100_000_000) -> None:
        """Until nothing is left to do."""
        queue = self.queue
        try:
            with self.spec.blamed("a handler"):
                if self.tell.receipts:
                    self._run_observed(most_events)
                else:
                    for _ in range(most_events):
                        if not queue:
                            break
                        self.now, _, place, source, message = heappop(queue)
                        place.receive(source, message, place)
        except (AssertionError, ContractError) as problem:
            if not (self.network.loss or self.network.duplicate or self.cut or self.forgetful):
                raise
            what = "a node that forgets" if self.forgetful else "a network that loses or doubles messages"
            raise UsageError(
                f"{self.spec.name} does not survive {what}, and its paper does not say that it would: {problem}"
            ) from None
        if queue:
            raise Unfinished(
                f"{self.spec.name} was still busy after {most_events:,} events, at time {self.now:g}; "
                f"{len(self.stuck())} nodes wait. Raise the limit, or look at a trace of the first part."
            )
        self.tell.end(self.now)

    def _run_observed(self, most_events: int) -> None:
        queue, copies = self.queue, self._copies
        for _ in range(most_events):
            if not queue:
                break
            self.now, number, place, source, message = heappop(queue)
            if source:
                which = copies.pop(number, number)
                if place.backlog is not None:
                    place.backlog.append(partial(self._hand_over, which, place, source, message))
                else:
                    self._hand_over(which, place, source, message)
            else:
                place.receive(source, message, place)

    def step(self) -> bool:
        """Only the next thing. False: nothing is left to do."""
        if not self.queue:
            self.tell.end(self.now)
            return False
        self._run_observed(1)
        return True

    def id_of(self, number: int) -> int:
        """By which the message with that number in the queue was told of."""
        return self._copies.get(number, number)

    def rename(self, number: int, id: int) -> None:
        """A message has another number in the queue now."""
        self._copies.pop(id, None)
        self._copies[number] = id

    def _hand_over(self, id: int, place: Place, source: NodeId, message: Wire) -> None:
        if place.phase == "crashed":
            self.tell.lost(self.now, id, place.me)
        else:
            self.tell.received(self.now, id, place.me, source)
            place.receive(source, message, place)

    def stuck(self) -> list[NodeId]:
        """Nodes left in the middle of an invocation, or with work that they never could begin."""
        return [
            me
            for me, place in sorted(self.places.items())
            if place.phase in ("waiting", "ending", "outside", "joining", "leaving")
        ]

    # -- sending -------------------------------------------------------------------------------

    def sender(self, me: NodeId) -> Callable[[NodeId, Wire], None]:
        """What `send` of node `me` does: the short way where messages only take time, else the long
        way.
        """
        queue, draw, places, tell, next_number = (
            self.queue,
            self.draw,
            self.places,
            self.tell.sent,
            self.numbers.__next__,
        )

        def send(to: NodeId, message: Wire) -> None:
            number, now = next_number(), self.now
            tell(now, number, me, to, message)
            heappush(queue, (now + draw(me, to), number, places[to], me, message))

        def send_the_long_way(to: NodeId, message: Wire) -> None:
            number = next_number()
            tell(self.now, number, me, to, message)
            self.transmit(me, to, message, number, number)

        return send if self._plain else send_the_long_way

    def _send_the_long_way(self) -> None:
        self._plain = False
        for me, place in self.places.items():
            place.send = self.sender(me)

    def separate(self, *sides: Iterable[NodeId]) -> None:
        """From now on no message passes between a node in a side and one outside of it; no sides:
        all healed.
        """
        self.cut = tuple(frozenset(side) for side in sides)
        self._send_the_long_way()

    def transmit(self, source: NodeId, to: NodeId, message: Wire, id: int, number: int) -> None:
        """The long way: order, loss, duplicates, cuts, lines that are gone."""
        network, copies = self.network, 1
        if self.cut or self.links is not None or network.loss or network.duplicate:
            apart = any((source in side) != (to in side) for side in self.cut)
            gone = self.links is not None and to not in self.links[source]
            if apart or gone or (network.loss and self.chance.random() < network.loss):
                self.tell.lost(self.now, id, to)
                return
            copies += bool(network.duplicate and self.chance.random() < network.duplicate)
        for copy in range(copies):
            at = self.now + self.draw(source, to)
            if network.fifo:
                at = self._last[source, to] = max(at, self._last.get((source, to), 0.0))
            if copy:
                number = next(self.numbers)
            if number != id:
                self._copies[number] = id
            heappush(self.queue, (at, number, self.places[to], source, message))


class _Clock:
    """Receives what is not a message."""

    def receive(self, source: NodeId, act: Callable[[], None], place: Any) -> None:
        act()


class _Told:
    """Tells the recorders, each only of the events that it overrides."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        for name in _EVENTS:
            tellers = tuple(
                getattr(recorder, name)
                for recorder in recorders
                if getattr(type(recorder), name) is not getattr(Recorder, name)
            )
            setattr(self, name, _fan(tellers))
            if name == "received":
                self.receipts = bool(tellers)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_EVENTS = [name for name in vars(Recorder) if not name.startswith("_")]


def _fan(tellers: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    if len(tellers) == 1:
        return tellers[0]

    def tell(*event: Any) -> None:
        for teller in tellers:
            teller(*event)

    return tell


class _Places(dict[NodeId, Place]):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, node: NodeId) -> Place:
        raise ContractError(f"{self.name} sent a message to node {node}, which does not exist.")


def _method(algorithm: Any, name: str, of: str) -> Any:
    method = getattr(algorithm, name, None)
    if method is None:
        what = {"join": "let nodes join", "leave": "let nodes leave", "rewire": "change neighbours while it runs"}[name]
        raise UsageError(f"{of} cannot {what}: it has no method {name}.")
    return method
