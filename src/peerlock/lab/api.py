"""What the page asks, and the answers: plain values in, plain values out, and a sentence for whatever is wrong.

A film that was shot is kept for a while, for the page asks for one state after the other. Nothing else is remembered: every
question says all that is needed to answer it.
"""

from __future__ import annotations

import inspect
import io
from collections import OrderedDict
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peerlock.algorithms import CATALOGUE
from peerlock.check import counterexample
from peerlock.check.model import Letter, Local, Model
from peerlock.check.properties import Checks, finding, standard
from peerlock.check.search import Search
from peerlock.contract import NodeId
from peerlock.errors import TraceError, UsageError
from peerlock.lab.film import MOST_NODES, Act, Film, Plan, at_frame, classes, shoot, show
from peerlock.observe import diagram, metrics, shiviz
from peerlock.sim.experiment import Experiment, Prepared
from peerlock.trace import Event, Writer, retell

KEPT = 8  # films
MOST_STATES, MOST_SECONDS = 400_000, 20.0  # that the checker may take for a question of the page


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    experiment: dict[str, Any]
    acts: tuple[Act, ...] = ()
    frames: int = 20_000
    frame: int = 0
    format: str = ""


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
    """When the user's own files that it names were last written."""
    named = (experiment.algorithm.rpartition(":")[0], experiment.topology or "")
    return [path.stat().st_mtime_ns for path in map(Path, named) if path.is_file()]


# -- answers -----------------------------------------------------------------------------------------------


def algorithms() -> list[dict[str, Any]]:
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


def film(question: Question) -> dict[str, Any]:
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
        "frames": [[frame.t, [compact(event) for event in frame.events]] for frame in found.frames],
        "ended": found.ended,
        "refused": {str(number): why for number, why in found.refused.items()},
    }  # fmt: skip


def procedures(algorithm: type) -> dict[str, dict[str, str]]:
    """The algorithm's text, procedure by procedure: what it does in a sentence, and how."""
    found = {}
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
    """The lines of the network; none: everybody talks to everybody."""
    network = prepared.topology
    if network.neighbours is None:
        return []
    return [(a, b) for a in network.nodes for b in network.around(a) if a < b]


def compact(event: Event) -> list[Any]:
    """[what, node, id, to or source, words]: a trace of 20,000 frames goes over the wire in a second."""
    words = event.kind or event.mode or event.name or ""
    if event.kind and event.fields:
        words = diagram.label(event.kind, event.fields)
    return [event.event, event.node, event.id or 0, event.to if event.to is not None else event.source or 0, words]


def state(question: Question) -> dict[str, Any]:
    """What every node's variables are after a frame, and which of them it changed."""
    found = film_of(plan_of(question))
    frame = min(max(question.frame, 0), len(found.frames) - 1)
    before = found.state(frame - 1) if frame else {}
    nodes = {}
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


def counters(found: Film, frame: int) -> dict[str, Any]:
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


def export(question: Question) -> tuple[str, str]:
    """A file, and its name."""
    found = film_of(plan_of(question))
    events = found.trace
    name = found.plan.experiment.algorithm.rpartition("/")[2].replace(":", "-")
    match question.format:
        case "svg":
            return diagram.svg(events), f"{name}.svg"
        case "trace":
            written = io.BytesIO()
            retell(events, Writer(written))
            return written.getvalue().decode(), f"{name}.jsonl"
        case "shiviz":
            return shiviz.log(events), f"{name}.log"
        case "itf":
            return msgspec.json.encode(itf(found)).decode(), f"{name}.itf.json"
        case other:
            raise UsageError(f"There is no export {other!r}; there are: svg, trace, shiviz, itf.")


def exported(question: Question) -> dict[str, str]:
    return dict(zip(("text", "name"), export(question), strict=True))


def itf(found: Film) -> dict[str, Any]:
    """The run in the Informal Trace Format, a state a frame, in the same variables as a counterexample's."""
    flying: dict[tuple[int, NodeId], dict[str, Any]] = {}
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
    return {
        "#meta": {"format": "ITF", "description": found.plan.experiment.algorithm, "source": "peerlock lab"},
        "vars": ["action", "nodes", "where", "messages"],
        "states": states,
    }


def check(question: Question) -> dict[str, Any]:
    """Can anything go wrong from here on, if everybody may still enter so often?

    Where an algorithm counts on time, a message takes at most one unit of it, and the search begins at the start: what a
    run's clock says of messages and timers under way has no meaning in whole units.
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
    model = Model(prepared.spec, shapes, bounds, experiment.inside, fifo=experiment.fifo, delay_bound=bound)
    if not timed:
        model.first = first_row(model, world)
    checks = Checks(standard(model))
    search = Search(model, checks)
    outcome = search.run(MOST_STATES, MOST_SECONDS)
    verdicts = checks.verdicts(outcome.violated, outcome.finished)
    way = search.way_to(outcome.row) if outcome.row is not None else []
    answer: dict[str, Any] = {
        "verdicts": verdicts, "states": outcome.states, "finished": outcome.finished, "violated": outcome.violated,
        "steps": counterexample.steps(model, way), "entries": most, "from_start": timed,
    }  # fmt: skip
    if outcome.row is not None and outcome.violated is not None:
        answer["finding"] = finding(outcome.violated)
        events = counterexample.events(model, way, {"algorithm": prepared.spec.name})
        answer["frames"] = [
            [float(at), [compact(event) for event in events if event.event != "run" and int(event.t) == at]]
            for at in range(len(way) + 1)
        ]
        answer["about"] = {
            "algorithm": prepared.spec.name,
            "nodes": len(model.nodes),
            "edges": [],
            "labels": {},
            "claimed": "",
        }
        answer["procedures"] = {}
        answer["variables"] = [the_state(model, row) for row in [model.first, *(step.row for step in way)]]
        answer["itf"] = counterexample.itf(model, way, f"{prepared.spec.name}: {answer['finding']}")
    return answer


def the_state(model: Model, row: Sequence[int]) -> dict[str, Any]:
    """Of every node, as `state` says it of a run."""
    nodes = {}
    for at, node in enumerate(model.nodes):
        local = model.local(at, row[at])
        state = {name: show(getattr(local.algorithm, name)) for name in local.algorithm.__struct_fields__}
        nodes[str(node)] = {"phase": local.where, "state": state}
    return nodes


def first_row(model: Model, world: Any) -> tuple[int, ...]:
    """The state of a running world as the start of an exploration."""
    inboxes: dict[NodeId, list[tuple[int, NodeId, Any]]] = {node: [] for node in world.places}
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
        if model.fifo:
            inbox: tuple[Any, ...] = tuple(
                (source, tuple(letter for other, letter in letters if other == source))
                for source in sorted({source for source, _ in letters})
            )
        else:
            inbox = tuple(sorted(letter for _, letter in letters))
        first.append(column.cell(local, inbox))
    return (*first, *model.first[len(model.nodes) :])


def framed(events: list[Event]) -> list[list[Any]]:
    """Events of a trace as frames: one for each time."""
    frames: list[list[Any]] = [[0.0, []]]
    for event in events:
        if event.event == "run":
            continue
        if frames[-1][0] != event.t:
            frames.append([event.t, []])
        frames[-1][1].append(compact(event))
    return frames


def recorded(events: list[Event]) -> dict[str, Any]:
    """A trace file as something to watch."""
    about = events[0].about or {}
    there = {
        node
        for event in events
        for node in (event.node, *(event.to if isinstance(event.to, list) else [event.to]))
        if node is not None and event.event != "run"
    } - {0}
    if not all(1 <= node <= MOST_NODES for node in there):
        raise TraceError(
            f"the trace has a node {min(there) if min(there) < 1 else max(there)}: nodes are 1 to {MOST_NODES:,}."
        )
    return {
        "about": {
            "algorithm": about.get("algorithm", "trace"), "nodes": max([about.get("nodes", 0), *there]),
            "edges": [], "labels": about.get("labels") or {}, "claimed": "",
        },
        "frames": framed(events),
        "ended": "The trace ends here.",
        "refused": {},
    }  # fmt: skip


__all__ = ["Question", "algorithms", "check", "export", "exported", "film", "recorded", "state"]
