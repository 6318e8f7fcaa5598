"""The obvious checker, for the tests: tuples in a set, no interning, no arrays. The real one must count what this counts.

A global state is the nodes' states, how often each may still ask, and the bag of messages in flight; timers that run are
events that may happen at any time. Two global states are the same if these are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

from msgspec import Struct

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import NOBODY, Effects, Mode, NodeId, Shape, Wire

Flight: TypeAlias = tuple[tuple[NodeId, NodeId, Wire], ...]  # sorted: a bag
Local: TypeAlias = tuple[Any, str, int]  # algorithm, where it is in its invocation, entries left
Global: TypeAlias = tuple[tuple[Local, ...], Flight, tuple[tuple[NodeId, str], ...]]


class Found(Struct):
    states: int
    transitions: int
    violated: str | None = None
    path: tuple[str, ...] = ()


def explore(
    spec: AlgorithmSpec,
    shapes: Mapping[NodeId, Shape],
    entries: Sequence[int],
    inside: Mapping[NodeId, Mode] = NOBODY,
    *,
    timers: bool = True,
    most: int = 10_000_000,
) -> Found:
    """All states that can be reached; stops at the first in which two are inside or somebody waits for ever."""
    nodes = tuple(shapes)
    locals_ = tuple(
        (spec.start(j, shapes[j], inside), "inside" if j in inside else "idle", left)
        for j, left in zip(nodes, entries, strict=True)
    )
    first: Global = (locals_, (), ())
    came: dict[Any, tuple[Any, str]] = {_key(first): (None, "")}
    level, transitions = [first], 0
    while level:
        following = []
        for state in level:
            steps = 0
            for label, successor in _steps(nodes, state, timers):
                steps += 1
                key = _key(successor)
                if key not in came:
                    came[key] = (_key(state), label)
                    following.append(successor)
                    if sum(where == "inside" for _, where, _ in successor[0]) > 1:
                        return Found(len(came), transitions + steps, "two inside", _path(came, key))
            transitions += steps
            if not steps and any(where != "idle" for _, where, _ in state[0]):
                return Found(len(came), transitions, "stuck", _path(came, _key(state)))
        level = following
        if len(came) > most:
            return Found(len(came), transitions, "unfinished")
    return Found(len(came), transitions)


def _steps(nodes: tuple[NodeId, ...], state: Global, timers: bool) -> Iterator[tuple[str, Global]]:
    locals_, flight, running = state
    for index, j in enumerate(nodes):
        _, where, left = locals_[index]
        if where == "idle" and left:
            yield f"request {j}", _step(nodes, state, index, lambda node, out: node.request("write", out), "waiting", 1)
        if where == "inside":
            yield f"release {j}", _step(nodes, state, index, lambda node, out: node.release(out), "ending", 0)
    seen: set[Any] = set()
    for at, (source, to, message) in enumerate(flight):
        channel = (source, to, message)
        if channel in seen:
            continue
        seen.add(channel)
        rest = (locals_, flight[:at] + flight[at + 1 :], running)
        receive = lambda node, out, source=source, message=message: node.receive(source, message, out)  # noqa: E731
        yield f"deliver {source}->{to} {message}", _step(nodes, rest, nodes.index(to), receive, None, 0)
    for j, name in running if timers else ():
        rest = (locals_, flight, tuple(timer for timer in running if timer != (j, name)))
        fire = lambda node, out, name=name: node.on_timeout(name, out)  # noqa: E731
        yield f"timeout {j} {name}", _step(nodes, rest, nodes.index(j), fire, None, 0)


def _step(nodes: tuple[NodeId, ...], state: Global, index: int, act: Any, where: str | None, used: int) -> Global:
    locals_, flight, running = state
    node, out = copy(locals_[index][0]), Effects()
    act(node, out)
    where = "idle" if out.ended else "inside" if out.entered else where or locals_[index][1]
    me = nodes[index]
    new = (node, where, locals_[index][2] - used)
    sent = tuple((me, to, message) for to, message in out.sent)
    bag = tuple(sorted(flight + sent, key=repr))
    timers = tuple(sorted({*running, *((me, name) for name, _ in out.timers)}))
    return (*locals_[:index], new, *locals_[index + 1 :]), bag, timers


def _key(state: Global) -> Any:
    locals_, flight, running = state
    return tuple((node.key(), where, left) for node, where, left in locals_), flight, running


def _path(came: dict[Any, tuple[Any, str]], key: Any) -> tuple[str, ...]:
    labels = []
    while key is not None:
        key, label = came[key]
        labels.append(label)
    return tuple(reversed(labels[:-1]))
