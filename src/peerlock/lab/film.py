"""A run, frame by frame, with what somebody did to it on the way.

A run is a function of its experiment and its acts: *before frame 17 message 4 arrived at once; before frame 20 node 2 was
killed*. So the whole run fits into an address, going back is running again up to there, and an act in the past is another
list of acts: a fork. Nothing is ever undone.

A frame is one thing that the simulator took from its queue: a message that arrived, or something that was due. Its events
are those of a trace. States are kept as one entry for each node that a frame changed; what a node's variables were at any
frame is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappush
from typing import Any

from msgspec import Struct, field

from peerlock.contract import Node, Wire
from peerlock.errors import PeerlockError, UsageError
from peerlock.observe.notebook import Trace
from peerlock.sim.experiment import Experiment, Prepared
from peerlock.sim.workload import Work
from peerlock.sim.world import Place, World
from peerlock.trace import Event, Keeper, told

MOST_FRAMES = 20_000
VERBS = ("deliver", "delay", "lose", "request", "release", "crash", "pause", "resume")


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody did. `what` is the number of a message or of a node."""

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


class Change(Struct, frozen=True):
    """What a node was from a frame on."""

    frame: int
    phase: str
    state: dict[str, str]
    procedure: str  # of the algorithm: which one ran


class Film(Struct):
    plan: Plan
    about: dict[str, Any]
    frames: list[Frame]
    changes: dict[Node, list[Change]]
    ended: str = ""  # why there are no more frames: nothing was left to do, or a sentence
    refused: dict[int, str] = field(default_factory=dict)  # acts that were not possible, by their place in the list

    @property
    def trace(self) -> Trace:
        """All of it, as a trace."""
        return Trace([Event("run", about=self.about), *(event for frame in self.frames for event in frame.events)])

    def _repr_svg_(self) -> str:
        return self.trace._repr_svg_()

    def state(self, frame: int) -> dict[Node, Change]:
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
    for act in plan.acts:
        if act.verb not in VERBS:
            raise UsageError(f"{act.verb!r} cannot be done to a run; what can: {', '.join(VERBS)}.")
    return _Camera(plan).film


def at_frame(plan: Plan, frame: int) -> World:
    """The world as it is after that frame."""
    return _Camera(Plan(plan.experiment, plan.acts, max(1, min(frame + 1, MOST_FRAMES)))).world


class _Camera:
    def __init__(self, plan: Plan) -> None:
        prepared: Prepared = plan.experiment.prepare()
        keeper = Keeper()
        self.world: World = prepared.world(None, [keeper])
        about = dict(keeper.events[0].about or {})
        self.film = Film(plan, about, [], {})
        self.events, self.seen = keeper.events, 1
        self.acts = sorted(enumerate(plan.acts), key=lambda entry: entry[1].at)
        self.frame(0.0)  # the start
        try:
            with prepared.chosen.blamed("a handler"):
                self.run(plan.frames)
        except (AssertionError, PeerlockError) as problem:
            self.frame(self.world.now)
            self.film.ended = str(problem)
        keeper.events.clear()

    def run(self, most: int) -> None:
        while len(self.film.frames) < most:
            self.do_acts()
            if not self.world.step():
                stuck = self.world.stuck()
                self.film.ended = (
                    f"Nothing is left to do, and {_nodes(stuck)} in vain." if stuck else "Nothing is left to do."
                )
                return
            self.frame(self.world.now)
        self.film.ended = f"The film ends after {most:,} frames; the run does not."

    def frame(self, t: float) -> None:
        events, self.seen = self.events[self.seen :], len(self.events)
        at = len(self.film.frames)
        self.film.frames.append(Frame(t, events))
        touched = (
            dict.fromkeys(event.node for event in events if event.node) if at else dict.fromkeys(self.world.places)
        )
        for node in touched:
            place = self.world.places[node]
            before = self.film.changes.setdefault(node, [])
            state = {name: show(getattr(place.algorithm, name)) for name in place.algorithm.__struct_fields__}
            if not before or (before[-1].state, before[-1].phase) != (state, place.phase):
                before.append(Change(at, place.phase, state, procedure(events, node)))

    # -- acts ----------------------------------------------------------------------------------------------

    def do_acts(self) -> None:
        while self.acts and self.acts[0][1].at <= len(self.film.frames):
            number, act = self.acts.pop(0)
            try:
                done = getattr(self, act.verb)(act.what)
                assert done is None
            except UsageError as problem:
                self.film.refused[number] = str(problem)

    def place(self, node: Node) -> Place:
        if node not in self.world.places:
            raise UsageError(f"There is no node {node} at this moment.")
        return self.world.places[node]

    def taken(self, id: int) -> tuple[float, int, Any, Node, Any]:
        """A message in flight, taken out of the queue."""
        for at, entry in enumerate(self.world.queue):
            if entry[3] and self.world.id_of(entry[1]) == id:
                self.world.queue[at] = self.world.queue[-1]
                self.world.queue.pop()
                heapify(self.world.queue)
                return entry
        raise UsageError(f"Message {id} is not under way at this moment: it has arrived, or was not sent yet.")

    def deliver(self, id: int) -> None:
        _, number, place, source, message = self.taken(id)
        if self.world.network.fifo:
            for entry in self.world.queue:
                if entry[3] == source and entry[2] is place and entry[1] < number:
                    heappush(self.world.queue, (_, number, place, source, message))
                    raise UsageError(
                        "Here messages arrive in the order in which they were sent: an earlier one is under way."
                    )
        heappush(self.world.queue, (self.world.now, -number, place, source, message))
        self.world.rename(-number, id)

    def delay(self, id: int) -> None:
        due, number, place, source, message = self.taken(id)
        heappush(self.world.queue, (due + 5.0 * (due - self.world.now + 1.0), number, place, source, message))

    def lose(self, id: int) -> None:
        _, _, place, _, _ = self.taken(id)
        self.world.tell.lost(self.world.now, id, place.me)

    def request(self, node: Node) -> None:
        place = self.place(node)
        if place.phase != "idle":
            raise UsageError(f"Node {node} is {place.phase}: only one that is idle can ask.")
        place.current = Work(0.0, 1.0, "write")
        place.begin(self.world.now)

    def release(self, node: Node) -> None:
        place = self.place(node)
        if place.phase != "inside":
            raise UsageError(f"Node {node} is {place.phase}: only one that is inside can leave.")
        queue = self.world.queue
        queue[:] = [entry for entry in queue if entry[4] != place.go_out]
        heapify(queue)
        place.go_out()

    def crash(self, node: Node) -> None:
        if self.place(node).phase == "crashed":
            raise UsageError(f"Node {node} is dead already.")
        self.world.crash(node)

    def pause(self, node: Node) -> None:
        if self.place(node).phase == "crashed" or self.place(node).backlog is not None:
            raise UsageError(f"Node {node} does nothing already.")
        self.world.pause(node)

    def resume(self, node: Node) -> None:
        if self.place(node).backlog is None:
            raise UsageError(f"Node {node} is not stopped. A dead node stays dead: the papers know no way back.")
        self.world.resume(node)


def show(value: Any) -> str:
    if isinstance(value, frozenset):
        return "{" + ", ".join(map(str, sorted(value))) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ")"
    if isinstance(value, Wire):
        return told(value)
    return str(value)


def procedure(events: Sequence[Event], node: Node) -> str:
    """What ran at that node, in our words."""
    words: list[str] = []
    for event in events:
        if event.node != node:
            continue
        match event.event:
            case "requested":
                words.append("it asks to enter")
            case "received":
                words.append(f"a message of node {event.source} arrived")
            case "sent":
                words.append(f"it sends {event.kind} to {event.to}")
            case "broadcast":
                words.append(f"it sends {event.kind} to all")
            case "entered":
                words.append("it enters")
            case "left":
                words.append("it leaves")
            case "timeout":
                words.append(f"its time for {event.name} is up")
            case "crashed" | "paused" | "resumed":
                words.append({"crashed": "it dies", "paused": "it is stopped", "resumed": "it goes on"}[event.event])
            case _:
                pass
    return "; ".join(words)


def _nodes(nodes: Sequence[Node]) -> str:
    return f"node {nodes[0]} waits" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))} wait"


__all__ = ["MOST_FRAMES", "VERBS", "Act", "Change", "Film", "Frame", "Plan", "shoot"]
