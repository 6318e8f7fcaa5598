"""A way through the states, in every form that somebody may want: a transcript to play, events to draw, states to export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peerlock.check.model import Model
from peerlock.check.search import Step
from peerlock.trace import Event, Keeper, told


def command(model: Model, step: Step) -> str:
    """One step as a line of a transcript."""
    if step.at < 0:
        return "tick"
    node, action = model.nodes[step.at], step.action
    match action.what:
        case "request":
            return f"request {node}" + (" read" if action.detail == "read" else "")
        case "deliver":
            return f"deliver {action.detail.source}->{node} {told(action.detail.message)}"
        case "timeout":
            return f"timeout {node} {action.detail}"
        case what:
            return f"{what} {node}"


def transcript(model: Model, way: Sequence[Step], setting: Sequence[str], title: str) -> str:
    """A transcript that does it again; `setting` are the lines that set the stage."""
    return "\n".join([f"# {title}", *setting, *(command(model, step) for step in way)]) + "\n"


def events(model: Model, way: Sequence[Step], about: Mapping[str, Any]) -> list[Event]:
    """The way as a trace: the time is the number of the step. What is under way at its start was sent at time 0."""
    keeper = Keeper()
    keeper.run({**about, "nodes": len(model.nodes)})
    flight: list[tuple[int, Any, Any, Any]] = []  # id, source, to, message
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
        if action.what == "request":
            keeper.requested(t, node, action.detail, t)
        elif action.what == "release":
            keeper.left(t, node)
        elif action.what == "timeout":
            keeper.timeout(t, node, action.detail)
        elif action.what == "crash":
            keeper.crashed(t, node)
        else:
            arriving = next(sent for sent in flight if sent[1:] == (action.detail.source, node, action.detail.message))
            flight.remove(arriving)
            keeper.received(t, arriving[0], node, action.detail.source)
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


def steps(model: Model, way: Sequence[Step]) -> list[dict[str, Any]]:
    """The way for a JSON file: what happened, in order."""
    result = []
    for step in way:
        if step.at < 0:
            result.append({"what": "tick"})
            continue
        node, action = model.nodes[step.at], step.action
        row: dict[str, Any] = {"what": action.what, "node": node}
        if action.what == "deliver":
            row |= {"source": action.detail.source, "message": told(action.detail.message)}
        elif action.what == "timeout":
            row["timer"] = action.detail
        elif action.what == "request":
            row["mode"] = action.detail
        if action.entered:
            row["enters"] = True
        result.append(row)
    return result


def itf(model: Model, way: Sequence[Step], title: str) -> dict[str, Any]:
    """The states on the way in the Informal Trace Format that model checkers and their viewers exchange."""
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


def _itf_state(model: Model, row: Sequence[int]) -> dict[str, Any]:
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


def _itf_value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return {"#set": sorted(_itf_value(item) for item in value)}
    if isinstance(value, tuple):
        return {"#tup": [_itf_value(item) for item in value]}
    return value if isinstance(value, bool | int | str) else str(value)
