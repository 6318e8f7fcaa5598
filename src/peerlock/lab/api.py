"""The questions of the page and their answers: plain values in, plain values out.

The page asks for one state after the other, so a film that was shot is kept for a while. Nothing
else is remembered: every question says all that is needed to answer it. Whatever is wrong becomes a
sentence.
"""

from __future__ import annotations

import inspect
import io
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from peerlock.algorithms import CATALOGUE
from peerlock.check import counterexample
from peerlock.check.model import Inbox, Letter, Local, Model
from peerlock.check.properties import finding
from peerlock.check.run import Configuration, run
from peerlock.contract import NodeId, Wire
from peerlock.errors import TraceError, UsageError
from peerlock.lab.answers import (
    AtFrame,
    Checked,
    Compact,
    Counters,
    Entry,
    Export,
    Frames,
    NodeState,
    Procedure,
    Question,
    Shown,
)  # fmt: skip
from peerlock.lab.film import MOST_NODES, Film, Plan, at_frame, classes, shoot, show
from peerlock.observe import diagram, metrics, shiviz
from peerlock.sim.experiment import Experiment, Prepared
from peerlock.sim.world import World
from peerlock.trace import Event, Writer, retell

KEPT = 8  # films
MOST_STATES, MOST_SECONDS = 400_000, 20.0  # of the checker, for a question of the page

_films: OrderedDict[bytes, Film] = OrderedDict()


def plan_of(question: Question) -> Plan:
    try:
        experiment = msgspec.convert(question.experiment, Experiment, strict=False, str_keys=True)
    except msgspec.ValidationError as problem:
        raise UsageError(f"This run is not described rightly: {problem}.") from None
    return Plan(experiment, question.acts, question.frames)


def film_of(plan: Plan) -> Film:
    key = msgspec.json.encode((plan, _written(plan.experiment)))
    film = _films.pop(key, None) or shoot(plan)
    _films[key] = film
    while len(_films) > KEPT:
        _films.popitem(last=False)
    return film


def _written(experiment: Experiment) -> list[int]:
    """When the user's own files were last written that an experiment names."""
    named = (experiment.algorithm.rpartition(":")[0], experiment.topology or "")
    return [path.stat().st_mtime_ns for path in map(Path, named) if path.is_file()]


# -- answers ---------------------------------------------------------------------------------------


def algorithms() -> list[Entry]:
    return [
        {
            "name": entry.name,
            "paper": entry.paper,
            "year": entry.year,
            "as_printed": "as_printed" in entry.forms,
            "claimed": entry.claimed.words if entry.claimed else "",
            "shape": entry.needs.shape.__name__,
            "fifo": entry.needs.fifo,
        }
        for entry in CATALOGUE.values()
    ]


def film(question: Question) -> Shown:
    plan = plan_of(question)
    found = film_of(plan)
    experiment = plan.experiment
    prepared = experiment.prepare()
    spec = prepared.spec
    return {
        "about": {
            "algorithm": experiment.algorithm, "form": found.about.get("form", ""), "nodes": found.about["nodes"],
            "edges": edges(prepared), "labels": found.about.get("labels") or {},
            "claimed": spec.claimed.words if spec.claimed else "", "seed": experiment.seed, "fifo": experiment.fifo,
        },
        "procedures": procedures(spec.algorithm),
        "frames": [(frame.t, [compact(event) for event in frame.events]) for frame in found.frames],
        "ended": found.ended,
        "refused": {str(number): why for number, why in found.refused.items()},
    }  # fmt: skip


def procedures(algorithm: type) -> dict[str, Procedure]:
    """The algorithm's text, procedure by procedure: what it does in a sentence, and how."""
    found: dict[str, Procedure] = {}
    for each in classes(algorithm):
        for method in vars(each).values():
            if inspect.isfunction(method) and not method.__name__.startswith("__"):
                try:
                    source = inspect.cleandoc("\n" + inspect.getsource(method))
                except OSError:  # the file has gone since it was loaded
                    source = ""
                found[method.__qualname__] = {"says": inspect.getdoc(method) or "", "source": source}
    return found


def edges(prepared: Prepared) -> list[tuple[NodeId, NodeId]]:
    """The lines of the network; none: every node is connected to every other."""
    network = prepared.topology
    if network.neighbours is None:
        return []
    return [(a, b) for a in network.nodes for b in network.around(a) if a < b]


def compact(event: Event) -> Compact:
    words = event.kind or event.mode or event.name or ""
    if event.kind and event.fields:
        words = diagram.label(event.kind, event.fields)
    return [event.event, event.node, event.id or 0, event.to if event.to is not None else event.source or 0, words]


def state(question: Question) -> AtFrame:
    """Every node's variables after a frame, and which of them the frame changed."""
    found = film_of(plan_of(question))
    frame = min(max(question.frame, 0), len(found.frames) - 1)
    before = found.state(frame - 1) if frame else {}
    nodes: dict[str, NodeState] = {}
    for node, change in sorted(found.state(frame).items()):
        old = before[node].state if node in before else change.state
        nodes[str(node)] = {
            "phase": change.phase,
            "state": change.state,
            "changed": [name for name, value in change.state.items() if old.get(name) != value],
            "ran": found.frames[frame].ran.get(node, []),
            "timers": change.timers,
        }
    return {"frame": frame, "nodes": nodes, "counters": counters(found, frame)}


def counters(found: Film, frame: int) -> Counters:
    counted = metrics.Metrics()
    events = [event for each in found.frames[: frame + 1] for event in each.events]
    retell([Event("run", about=found.about), *events, Event("end", found.frames[frame].t)], counted)
    costs = [cost.messages for cost in counted.made]
    return {
        "messages": counted.messages,
        "entries": sum(counted.entries.values()),
        "violations": counted.violations,
        "mean": sum(costs) / len(costs) if costs else None,
    }


def export(question: Question) -> Export:
    found = film_of(plan_of(question))
    events = found.trace
    name = found.plan.experiment.algorithm.rpartition("/")[2].replace(":", "-")
    match question.format:
        case "svg":
            return {"text": diagram.svg(events), "name": f"{name}.svg"}
        case "trace":
            written = io.BytesIO()
            retell(events, Writer(written))
            return {"text": written.getvalue().decode(), "name": f"{name}.jsonl"}
        case "shiviz":
            return {"text": shiviz.log(events), "name": f"{name}.log"}
        case "itf":
            return {"text": itf(found), "name": f"{name}.itf.json"}
        case other:
            raise UsageError(f"There is no export {other!r}; there are: svg, trace, shiviz, itf.")


def itf(found: Film) -> str:
    """The run in the Informal Trace Format, one state per frame, as counterexamples are written."""
    flying: dict[tuple[int, NodeId], dict[str, str | NodeId]] = {}
    states = []
    for at, frame in enumerate(found.frames):
        for event in frame.events:
            match event.event:
                case "sent" | "broadcast":
                    words = diagram.label(event.kind or "?", event.fields or {})
                    for to in event.to if isinstance(event.to, list) else [event.to or 0]:
                        flying[event.id or 0, to] = {"source": event.node, "to": to, "message": words}
                case "received" | "lost":
                    flying.pop((event.id or 0, event.node), None)
                case _:
                    pass
        nodes = found.state(at)
        states.append({
            "#meta": {"index": at, "t": frame.t},
            "action": "; ".join(f"{event.event} {event.node}" for event in frame.events) or "start",
            "nodes": {"#map": [[node, change.state] for node, change in nodes.items()]},
            "where": {"#map": [[node, change.phase] for node, change in nodes.items()]},
            "messages": list(flying.values()),
        })  # fmt: skip
    return msgspec.json.encode({
        "#meta": {"format": "ITF", "description": found.plan.experiment.algorithm, "source": "peerlock lab"},
        "vars": ["action", "nodes", "where", "messages"],
        "states": states,
    }).decode()  # fmt: skip


def check(question: Question) -> Checked:
    """Can anything go wrong from here on, if every node may still enter a few times?

    Where an algorithm counts on time, a message takes at most one unit of it, and the search begins
    at the start of the run: messages and timers under way have no due time in whole units.
    """
    plan = plan_of(question)
    world = at_frame(plan, question.frame)
    experiment, prepared = plan.experiment, plan.experiment.prepare()
    timed = prepared.spec.needs.delay_bound
    stopped = [node for node, place in world.places.items() if place.backlog is not None]
    if stopped:
        raise UsageError(f"Node {stopped[0]} is stopped, and the checker knows no such nodes: let it go on first.")
    if len(world.places) > 5:
        raise UsageError(
            f"The checker looks at every interleaving: with {len(world.places)} nodes that takes too long. Five at most."
        )
    most = max(1, min(experiment.entries, {2: 4, 3: 2}.get(len(world.places), 1)))
    shapes = prepared.topology.shapes(prepared.spec.needs, experiment.home, 1.0) if timed else prepared.shapes
    bounds, bound = [most] * len(world.places), 1 if timed else None
    found = run(
        Configuration(
            prepared.spec, shapes, bounds, experiment.inside, experiment.fifo, delay_bound=bound,
            begin=None if timed else partial(first_row, world=world), max_states=MOST_STATES, max_seconds=MOST_SECONDS,
        )
    )  # fmt: skip
    model, outcome, verdicts, way = found.model, found.outcome, found.verdicts, found.way
    answer: Checked = {
        "verdicts": verdicts, "states": outcome.states, "finished": outcome.finished, "violated": outcome.violated,
        "steps": counterexample.steps(model, way), "entries": most, "from_start": timed,
    }  # fmt: skip
    if outcome.row is not None and outcome.violated is not None:
        answer["finding"] = finding(outcome.violated)
        events = counterexample.events(model, way, {"algorithm": prepared.spec.name})
        answer["frames"] = [
            (float(at), [compact(event) for event in events if event.event != "run" and int(event.t) == at])
            for at in range(len(way) + 1)
        ]
        answer["about"] = {
            "algorithm": prepared.spec.name, "nodes": len(model.nodes), "edges": [], "labels": {}, "claimed": "",
        }  # fmt: skip
        answer["procedures"] = {}
        answer["variables"] = [the_state(model, row) for row in [model.first, *(step.row for step in way)]]
        answer["itf"] = counterexample.itf(model, way, f"{prepared.spec.name}: {answer['finding']}")
    return answer


def the_state(model: Model, row: Sequence[int]) -> dict[str, NodeState]:
    """Every node's variables, as `state` answers for a run."""
    nodes: dict[str, NodeState] = {}
    for at, node in enumerate(model.nodes):
        local = model.local(at, row[at])
        state = {name: show(value) for name, value in asdict(local.algorithm).items()}
        nodes[str(node)] = {"phase": local.where, "state": state}
    return nodes


def first_row(model: Model, world: World) -> tuple[int, ...]:
    """The state of a running world as the start of an exploration."""
    inboxes: dict[NodeId, list[tuple[int, NodeId, Wire]]] = {node: [] for node in world.places}
    for _, number, place, source, message in world.queue:
        if source:
            inboxes[place.me].append((abs(number), source, message))
    first = []
    for column in model.columns[: len(model.nodes)]:
        place = world.places[column.node]
        where = place.phase if place.phase in ("idle", "waiting", "inside", "ending", "crashed") else "idle"
        left = column.locals[column.cells[model.first[model.place[column.node]]][0]].left
        timers = tuple((name, 0) for name in sorted(place.timers))
        local = column.local(Local(copy(place.algorithm), where, left, place.current.mode, timers))
        waiting = sorted(inboxes[column.node], key=lambda entry: entry[0])
        letters = [(source, column.letter(Letter(source, message))) for _, source, message in waiting]
        inbox: Inbox = tuple(sorted(letter for _, letter in letters))
        if model.fifo:
            sources = sorted({source for source, _ in letters})
            inbox = tuple((source, tuple(letter for j, letter in letters if j == source)) for source in sources)
        first.append(column.cell(local, inbox))
    return (*first, *model.first[len(model.nodes) :])


def framed(events: Iterable[Event]) -> Frames:
    """Events of a trace as frames: one for each time."""
    frames: Frames = [(0.0, [])]
    for event in events:
        if event.event == "run":
            continue
        if frames[-1][0] != event.t:
            frames.append((event.t, []))
        frames[-1][1].append(compact(event))
    return frames


def recorded(events: list[Event]) -> Shown:
    """A trace file as something to watch."""
    about = events[0].about or {}
    there = {
        node
        for event in events
        for node in (event.node, *(event.to if isinstance(event.to, list) else [event.to]))
        if node is not None and event.event != "run"
    } - {0}
    low, high = min(there, default=1), max(there, default=1)
    if low < 1 or high > MOST_NODES:
        raise TraceError(f"the trace has a node {low if low < 1 else high}: nodes are 1 to {MOST_NODES:,}.")
    return {
        "about": {
            "algorithm": about.get("algorithm", "trace"), "nodes": max([about.get("nodes", 0), *there]),
            "edges": [], "labels": about.get("labels") or {}, "claimed": "",
        },
        "frames": framed(events),
        "ended": "The trace ends here.",
        "refused": {},
    }  # fmt: skip


__all__ = ["algorithms", "check", "export", "film", "recorded", "state"]
