"""A way through the states as a transcript to play, as events to draw, and as states to export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from peerlock.check.model import Letter, Model
from peerlock.check.search import Step
from peerlock.contract import NodeId, Wire
from peerlock.trace import Event, Keeper, told

Json: TypeAlias = Any  # what `json.dumps` takes


def command(model: Model, step: Step) -> str:
    """One step as a line of a transcript."""
    if step.at < 0:
        return "tick"
    node, action = model.nodes[step.at], step.action
    match action.what, action.detail:
        case "deliver", Letter(source, message):
            return f"deliver {source}->{node} {told(message)}"
        case "timeout", name:
            return f"timeout {node} {name}"
        case what, mode:
            return f"{what} {node}" + (" read" if mode == "read" else "")


def transcript(model: Model, way: Sequence[Step], setting: Sequence[str], title: str) -> str:
    """A transcript that does it again; `setting` are the lines that set the stage."""
    return "\n".join([f"# {title}", *setting, *(command(model, step) for step in way)]) + "\n"


def events(model: Model, way: Sequence[Step], about: Mapping[str, Json]) -> list[Event]:
    """The way as a trace; the time is the number of the step, and 0 for what was sent before."""
    keeper = Keeper()
    keeper.run({**about, "nodes": len(model.nodes)})
    flight: list[tuple[int, NodeId, NodeId, Wire]] = []  # id, source, to, message
    number = 0
    before = model.first
    for at, node in enumerate(model.nodes):
        local = model.local(at, before[at])
        if local.where == "inside":
            keeper.entered(0.0, node, local.mode)
        elif local.where == "waiting":
            keeper.requested(0.0, node, local.mode, 0.0)
        elif local.where == "crashed":
            keeper.crashed(0.0, node)
        for early in model.inbox(at, before[at]):
            number += 1
            flight.append((number, early.source, node, early.message))
            keeper.sent(0.0, number, early.source, node, early.message)
    for t, step in enumerate(way, 1):
        if step.at < 0:
            before = step.row
            continue
        node, action = model.nodes[step.at], step.action
        was, now = model.local(step.at, before[step.at]), model.local(step.at, step.row[step.at])
        match action.what, action.detail:
            case "deliver", Letter(source, message):
                arriving = next(sent for sent in flight if sent[1:] == (source, node, message))
                flight.remove(arriving)
                keeper.received(t, arriving[0], node, source)
            case "request", mode:
                keeper.requested(t, node, "read" if mode == "read" else "write", t)
            case "timeout", str(name):
                keeper.timeout(t, node, name)
            case "release", _:
                keeper.left(t, node)
            case "crash", _:
                keeper.crashed(t, node)
        for to, bundle in action.sends:
            if to >= len(model.nodes):
                continue
            column = model.columns[to]
            for letter in column.bundles[bundle]:
                number += 1
                message = column.letters[letter].message
                flight.append((number, node, model.nodes[to], message))
                keeper.sent(t, number, node, model.nodes[to], message)
        if action.entered:
            keeper.entered(t, node, now.mode)
        if now.where == "idle" and was.where != "idle":
            keeper.idle(t, node)
        before = step.row
    keeper.end(len(way))
    return keeper.events


def steps(model: Model, way: Sequence[Step]) -> list[dict[str, str | int]]:
    """The way for a JSON file: what happened, in order."""
    result = list[dict[str, str | int]]()
    for step in way:
        if step.at < 0:
            result.append({"what": "tick"})
            continue
        node, action = model.nodes[step.at], step.action
        row: dict[str, str | int] = {"what": action.what, "node": node}
        match action.what, action.detail:
            case "deliver", Letter(source, message):
                row |= {"source": source, "message": told(message)}
            case "timeout", str(name):
                row["timer"] = name
            case "request", str(mode):
                row["mode"] = mode
        if action.entered:
            row["enters"] = True
        result.append(row)
    return result


def itf(model: Model, way: Sequence[Step], title: str) -> dict[str, Json]:
    """The states on the way in the Informal Trace Format, which model checkers exchange."""
    rows = [model.first, *(step.row for step in way)]
    labels = ["start", *(command(model, step) for step in way)]
    return {
        "#meta": {"format": "ITF", "description": title, "source": "peerlock check"},
        "vars": ["action", "nodes", "where", "messages"],
        "states": [
            {"#meta": {"index": index}, "action": label, **_itf_state(model, row)}
            for index, (row, label) in enumerate(zip(rows, labels, strict=True))
        ],
    }  # fmt: skip


def _itf_state(model: Model, row: Sequence[int]) -> dict[str, Json]:
    nodes, where, messages = [], [], []
    for at, node in enumerate(model.nodes):
        local = model.local(at, row[at])
        variables = {name: _itf_value(getattr(local.algorithm, name)) for name in local.algorithm.__struct_fields__}
        nodes.append([node, variables])
        where.append([node, local.where])
        messages += [
            {"source": letter.source, "to": node, "message": told(letter.message)}
            for letter in model.inbox(at, row[at])
        ]
    return {"nodes": {"#map": nodes}, "where": {"#map": where}, "messages": messages}


def _itf_value(value: object) -> Json:
    if isinstance(value, frozenset):
        return {"#set": sorted(_itf_value(item) for item in value)}
    if isinstance(value, tuple):
        return {"#tup": [_itf_value(item) for item in value]}
    return value if isinstance(value, bool | int | str) else str(value)
