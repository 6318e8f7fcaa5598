"""A run, frame by frame, with what the user did to it on the way.

A run is a function of its experiment and its acts: *before frame 17 message 4 arrived at once;
before frame 20 node 2 was killed*. So the whole run fits into an address, going back is running
again up to there, and an act in the past is another list of acts: a fork. Nothing is ever undone.

A frame is one thing that the simulator took from its queue: a message that arrived, or something
that was due. Its events are those of a trace. States are kept as one entry for each node that a
frame changed, and a node's variables at any frame are found by bisection. The algorithm's
procedures are noted while they run.

Nodes die and start again at any act. A message is lost only where the run survives it, because the
papers' networks lose nothing; running on shows whether it does. `drop` loses a message all the
same.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappush
from types import CodeType, FrameType

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from peerlock.contract import NodeId, State, Wire
from peerlock.errors import PeerlockError, UsageError
from peerlock.observe.metrics import Metrics
from peerlock.observe.notebook import Trace
from peerlock.sim.experiment import Experiment
from peerlock.sim.place import Place
from peerlock.sim.workload import Work
from peerlock.sim.world import World
from peerlock.trace import About, Event, Keeper, retell, told
from peerlock.user_algorithm import check_state

MOST_FRAMES, MOST_NODES = 20_000, 1_000


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """What the user did. `what` is the number of a message or of a node."""

    at: int  # before this frame
    verb: str
    what: int


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """A run that can be shared: all of it is here."""

    experiment: Experiment
    acts: tuple[Act, ...] = ()
    frames: int = MOST_FRAMES


class Frame(Struct):
    t: float
    events: list[Event]
    ran: dict[NodeId, list[str]]  # the procedures of the algorithm, as they began


class Change(Struct, frozen=True):
    """What a node was from a frame on."""

    frame: int
    phase: str
    state: dict[str, str]
    timers: tuple[str, ...]  # that are set


class Film(Struct):
    plan: Plan
    about: About
    frames: list[Frame]
    changes: dict[NodeId, list[Change]]
    ended: str = ""  # why there are no more frames, as a sentence
    refused: dict[int, str] = field(default_factory=dict)  # acts that were not possible, by their place in the list

    @property
    def trace(self) -> Trace:
        """The whole film, as a trace."""
        return Trace([Event("run", about=self.about), *(event for frame in self.frames for event in frame.events)])

    def _repr_svg_(self) -> str:
        return self.trace._repr_svg_()

    def state(self, frame: int) -> dict[NodeId, Change]:
        """Of every node, after that frame."""
        found = {}
        for node, changes in self.changes.items():
            at = bisect_right(changes, frame, key=lambda change: change.frame)
            if at:
                found[node] = changes[at - 1]
        return found


def shoot(plan: Plan) -> Film:
    """Run it."""
    if not 1 <= plan.frames <= MOST_FRAMES:
        raise UsageError(f"A film has between 1 and {MOST_FRAMES:,} frames; got {plan.frames}.")
    if (plan.experiment.nodes or 0) > MOST_NODES:
        raise UsageError(
            f"More than {MOST_NODES:,} nodes are too many to watch; peerlock sim runs {plan.experiment.nodes:,}."
        )
    for act in plan.acts:
        if act.verb not in VERBS:
            raise UsageError(f"{act.verb!r} cannot be done to a run; what can: {', '.join(VERBS)}.")
    camera, newest = _Camera(plan), len(plan.acts) - 1
    if plan.acts and plan.acts[newest].verb == "lose" and newest not in camera.film.refused and (harm := camera.harm()):
        without = _Camera(replace(plan, acts=plan.acts[:newest]))
        if harm != without.harm():
            without.film.refused[newest] = (
                f"The papers' networks lose nothing, and this run would not survive it: {harm}."
            )
            return without.film
    return camera.film


def at_frame(plan: Plan, frame: int) -> World:
    """The world as it is after that frame."""
    return _Camera(Plan(plan.experiment, plan.acts, max(1, min(frame + 1, MOST_FRAMES)))).world


class _Camera:
    def __init__(self, plan: Plan) -> None:
        prepared = plan.experiment.prepare()
        keeper = Keeper()
        self.world = prepared.world(None, [keeper])
        self.film = Film(plan, keeper.events[0].about or {}, [], {})
        self.events, self.seen = keeper.events, 1
        self.acts = sorted(enumerate(plan.acts), key=lambda entry: entry[1].at)
        self.codes = _procedures(type(next(iter(self.world.places.values())).algorithm))
        self.ran: dict[int, list[str]] = {}  # by the identity of the algorithm
        self.shown: dict[NodeId, dict[str, tuple[object, str]]] = {}
        self.problem = ""
        self.frame(0.0)  # the start
        try:
            with prepared.spec.blamed("a handler"):
                self.run(plan.frames)
        except (AssertionError, PeerlockError) as problem:
            self.frame(self.world.now)
            self.film.ended = self.problem = str(problem)
        keeper.events.clear()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Every procedure that the algorithm begins is noted."""
        before = sys.getprofile()
        sys.setprofile(self.see)
        try:
            yield
        finally:
            sys.setprofile(before)

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in self.codes:
            ran = self.ran.setdefault(id(frame.f_locals.get("self")), [])
            if (name := self.codes[frame.f_code]) not in ran:
                ran.append(name)

    def harm(self) -> str:
        """What went wrong: an error, two nodes inside, or a node that waits for ever."""
        if self.problem:
            return self.problem.rstrip(".")
        counted = Metrics()
        retell(self.film.trace, counted)
        if counted.violations:
            return "two are inside together"
        stuck = self.world.stuck() if not self.world.queue else []
        return f"{_nodes(stuck)} in vain" if stuck else ""

    def run(self, most: int) -> None:
        while len(self.film.frames) < most:
            with self.watched():
                self.do_acts()
                if len(self.film.frames) >= most:
                    break
                more = self.world.step()
            if not more:
                stuck = self.world.stuck()
                self.film.ended = f"Nothing is left to do{f', and {_nodes(stuck)} in vain' if stuck else ''}."
                return
            self.frame(self.world.now)
        self.film.ended = f"The film ends after {most:,} frames; the run does not."

    def frame(self, t: float) -> None:
        events, self.seen = self.events[self.seen :], len(self.events)
        at = len(self.film.frames)
        frame = Frame(t, events, {})
        self.film.frames.append(frame)
        touched = dict.fromkeys(event.node for event in events if event.node) if at else self.world.places
        for node in touched:
            place = self.world.places[node]
            if id(place.algorithm) in self.ran:
                frame.ran[node] = self.ran[id(place.algorithm)]
            before = self.film.changes.setdefault(node, [])
            check_state(self.world.spec, place.algorithm)  # a value that changes in place would be shown as it was
            state = self.state(node, place.algorithm)
            phase = place.phase if place.backlog is None else "stopped"
            now = Change(at, phase, state, tuple(sorted(place.timers)))
            if not before or replace(before[-1], frame=at) != now:
                before.append(now)
        self.ran.clear()

    def state(self, node: NodeId, algorithm: State) -> dict[str, str]:
        """Its variables, written; the same value as before is not written again."""
        before, now = self.shown.get(node, {}), dict[str, tuple[object, str]]()
        for name, value in asdict(algorithm).items():
            known = before.get(name)
            now[name] = known if known is not None and known[0] is value else (value, show(value))
        self.shown[node] = now
        return {name: text for name, (_, text) in now.items()}

    # -- acts --------------------------------------------------------------------------------------

    def do_acts(self) -> None:
        while self.acts and self.acts[0][1].at <= len(self.film.frames):
            number, act = self.acts.pop(0)
            try:
                _DO[act.verb](self, act.what)
            except UsageError as problem:
                self.film.refused[number] = str(problem)
            if self.seen < len(self.events):
                self.frame(self.world.now)  # an act is seen before anything comes of it

    def place(self, node: NodeId) -> Place:
        if node not in self.world.places:
            raise UsageError(f"There is no node {node} at this moment.")
        return self.world.places[node]

    def awake(self, node: NodeId) -> Place:
        if self.place(node).backlog is not None:
            raise UsageError(f"Node {node} is stopped: let it go on first.")
        return self.place(node)

    def taken(self, id: int) -> tuple[float, int, Place, NodeId, Wire]:
        """A message in flight, taken out of the queue."""
        for at, entry in enumerate(self.world.queue):
            if entry[3] and self.world.id_of(entry[1]) == id:
                self.world.queue[at] = self.world.queue[-1]
                self.world.queue.pop()
                heapify(self.world.queue)
                return entry
        raise UsageError(
            f"Message {id} is not under way at this moment: it has arrived (at a node that is stopped it waits there), or "
            "was not sent yet."
        )

    def deliver(self, id: int) -> None:
        due, number, place, source, message = self.taken(id)
        if self.world.network.fifo and any(
            j == source and to is place and n < number for _, n, to, j, _ in self.world.queue
        ):
            heappush(self.world.queue, (due, number, place, source, message))
            raise UsageError("Here messages arrive in the order in which they were sent: an earlier one is under way.")
        heappush(self.world.queue, (self.world.now, -number, place, source, message))
        self.world.rename(-number, id)

    def delay(self, id: int) -> None:
        world = self.world
        due, number, place, source, message = self.taken(id)
        later = due + 5.0 * (due - world.now + 1.0)
        heappush(world.queue, (later, number, place, source, message))
        if world.network.fifo:  # what was sent after it, and what will be, waits for it
            world.queue[:] = [
                (max(t, later), n, to, j, m) if to is place and j == source and n > number else (t, n, to, j, m)
                for t, n, to, j, m in world.queue
            ]
            heapify(world.queue)
            world.keep_order(source, place.me, later)

    def lose(self, id: int) -> None:
        _, _, place, _, _ = self.taken(id)
        self.world.tell.lost(self.world.now, id, place.me)

    def request(self, node: NodeId) -> None:
        place = self.awake(node)
        if place.phase != "idle":
            raise UsageError(f"Node {node} is {place.phase}: only one that is idle can ask.")
        place.current = Work(0.0, 1.0, "write")
        place.begin(self.world.now)

    def release(self, node: NodeId) -> None:
        place = self.awake(node)
        if place.phase != "inside":
            raise UsageError(f"Node {node} is {place.phase}: only one that is inside can leave.")
        queue = self.world.queue
        queue[:] = [entry for entry in queue if entry[4] != place.go_out]
        heapify(queue)
        place.go_out()

    def fire(self, node: NodeId) -> None:
        timers = self.awake(node).timers
        if not timers or self.place(node).phase == "crashed":
            raise UsageError(f"No timer runs at node {node}.")
        self.world.fire(node, min(timers, key=lambda name: timers[name]))

    def crash(self, node: NodeId) -> None:
        if self.place(node).phase == "crashed":
            raise UsageError(f"Node {node} is dead already.")
        self.world.crash(node)

    def restart(self, node: NodeId) -> None:
        self.place(node)
        self.world.restart(node)

    def pause(self, node: NodeId) -> None:
        if self.place(node).phase == "crashed" or self.place(node).backlog is not None:
            raise UsageError(f"Node {node} does nothing already.")
        self.world.pause(node)

    def resume(self, node: NodeId) -> None:
        if self.place(node).backlog is None:
            raise UsageError(f"Node {node} is not stopped. (A dead one does not go on: it can start again.)")
        self.world.resume(node)


_DO: Mapping[str, Callable[[_Camera, int], None]] = {
    "deliver": _Camera.deliver, "delay": _Camera.delay, "lose": _Camera.lose, "drop": _Camera.lose,
    "request": _Camera.request, "release": _Camera.release, "fire": _Camera.fire, "crash": _Camera.crash,
    "restart": _Camera.restart, "pause": _Camera.pause, "resume": _Camera.resume,
}  # fmt: skip
VERBS = tuple(_DO)


def show(value: object) -> str:
    if isinstance(value, frozenset):
        return "{" + ", ".join(map(str, sorted(value))) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ")"
    if isinstance(value, Wire):
        return told(value)
    return str(value)


def classes(algorithm: type) -> list[type]:
    """The class of an algorithm, and the classes that it builds on."""
    return [each for each in algorithm.__mro__ if issubclass(each, State) and each is not State] or [algorithm]


def _procedures(algorithm: type) -> dict[CodeType, str]:
    return {
        method.__code__: method.__qualname__
        for each in classes(algorithm)
        for method in vars(each).values()
        if hasattr(method, "__code__") and not method.__name__.startswith("__")
    }


def _nodes(nodes: Sequence[NodeId]) -> str:
    return f"node {nodes[0]} waits" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))} wait"


__all__ = ["MOST_FRAMES", "VERBS", "Act", "Change", "Film", "Frame", "Plan", "at_frame", "classes", "shoot", "show"]
