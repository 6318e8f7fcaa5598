"""Does every waiting node get in at last, if every message arrives at last?

A run in which a node waits for ever goes round and round in a finite graph: from some point on it
stays inside one strongly connected component of the states in which that node waits. The run is
*fair* if nothing that can happen all the time is put off for ever: no message, no timer, no
release, no tick of a clock. (No node has to ask.) So a component is a place to starve in exactly if
each of these obligations that is open in all of its states is also met by one of its own steps; if
it is not, no part of the component is one either. This decides the question; the counterexample is
a way into the component and a loop in it that meets every obligation: a lasso.

It needs all states and all steps between them, so it is for graphs of a few million steps:
algorithms whose states are finitely many however often nodes enter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from peerlock.check.engine import Cells, Outgrown
from peerlock.check.model import Detail, Local
from peerlock.check.search import TICK, Search, Step
from peerlock.contract import NodeId

Indices = NDArray[np.int64]


class Lasso(Struct, frozen=True):
    """A node starves: the way to the loop, and the loop."""

    node: NodeId
    stem: tuple[Step, ...]
    loop: tuple[Step, ...]


class Graph:
    """All states of a finished search and all steps between them."""

    def __init__(self, search: Search) -> None:
        assert search.outcome.finished, "liveness needs the whole graph"
        self.search, self.model = search, search.model
        self.classes: dict[tuple[int, str, Detail], int] = {}  # (node number, what, detail) -> the obligation
        self.obliging: list[bool] = []
        while True:
            try:
                parts = self._edges()
                break
            except Outgrown:
                search.engine.grow(search.levels, search.runs)
        # By step: the states before and after it, its obligation, and node number and action in
        # one.
        self.source, self.target, self.label, self.action = map(np.concatenate, zip(*parts, strict=True))

    def _edges(self) -> list[tuple[Indices, Indices, Indices, Indices]]:
        search, engine = self.search, self.search.engine
        keys = np.concatenate([level.keys for level in search.levels])
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        empty = np.zeros(0, np.int64)
        parts = [(empty, empty, empty, empty)]
        for level in search.levels:
            for part in search.chunks(level):
                columns, mine = search.rows(level, part), level.keys[part]
                index = np.searchsorted(self.keys, mine)
                for at, parents, actions, found in engine.successors(columns, mine):
                    label = self._labels(at, actions)
                    packed = (np.int64(at) << 32) | actions.astype(np.int64)
                    parts.append((index[parents], np.searchsorted(self.keys, found), label, packed))
        return parts

    def _labels(self, at: int, actions: Cells) -> Indices:
        table = self.search.engine.tables[at] if at >= 0 else None
        used, where = np.unique(actions, return_inverse=True)
        labels = []
        for number in used.tolist():
            action = table.actions[number] if table is not None else TICK
            key = (at, action.what, action.detail)
            found = self.classes.get(key)
            if found is None:
                found = self.classes[key] = len(self.classes)
                self.obliging.append(action.what in ("deliver", "release", "timeout", "tick"))
            labels.append(found)
        return np.array(labels, np.int64)[where]

    # -- looking for a place to starve in -------------------------------------------------------

    def waiting(self, node: NodeId) -> NDArray[np.bool_]:
        """In which states a node is in the middle of an invocation and not inside."""
        return self.where(self.model.place[node], lambda local: local.where in ("waiting", "ending"))

    def where(self, at: int, test: Callable[[Local], bool]) -> NDArray[np.bool_]:
        """In which states node number `at` is like this."""
        cells = range(len(self.model.columns[at].cells))
        return np.array([test(self.model.local(at, cell)) for cell in cells], bool)[self.cells(at)]

    def cells(self, at: int) -> Cells:
        """The cell of node number `at` in each state."""
        return np.concatenate([self.search.rows(level, slice(None))[at] for level in self.search.levels])[self.order]

    def starves(self, node: NodeId) -> Lasso | None:
        """A fair run in which `node` waits for ever, or None: there is none."""
        here = self.waiting(node)
        inside = here[self.source] & here[self.target]
        source, target = self.source[inside], self.target[inside]
        source, target = _trim(source, target, len(self.keys))
        for component in _components(source, target):
            if self._fair(component):
                return self._lasso(node, component)
        return None

    def _fair(self, component: Indices) -> bool:
        member = np.zeros(len(self.keys), bool)
        member[component] = True
        out = member[self.source]
        pairs = np.unique((self.label[out] << 32) | self.source[out])
        open_in = np.bincount(pairs >> 32, minlength=len(self.classes))
        met = np.zeros(len(self.classes), bool)
        met[self.label[out & member[self.target]]] = True
        always = (open_in == len(component)) & np.array(self.obliging)
        return not bool((always & ~met).any())

    def _lasso(self, node: NodeId, component: Indices) -> Lasso:
        member = set(component.tolist())
        edges: dict[int, list[tuple[int, int, int]]] = {state: [] for state in member}
        enabled: dict[int, set[int]] = {state: set() for state in member}
        chosen = np.flatnonzero(np.isin(self.source, component))
        for number in chosen.tolist():
            state, target, label = int(self.source[number]), int(self.target[number]), int(self.label[number])
            enabled[state].add(label)
            if target in member:
                edges[state].append((target, label, int(self.action[number])))
        first = min(member, key=lambda state: self._place(state)[0])
        loop: list[tuple[int, int]] = []  # (action, state afterwards)
        here, owed = first, self._owed(enabled)
        while owed:
            label = owed.pop()
            path = _path(edges, here, partial(_meets, enabled, label))
            loop += [(action, state) for state, _, action in path]
            here = path[-1][0] if path else here
        loop += [
            (action, state)
            for state, _, action in _path(edges, here, lambda state, taken: state == first, at_least=not loop)
        ]
        stem = self.search.way_to(self._row(first), self._place(first)[0])
        return Lasso(node, stem, tuple(self._step(action, state) for action, state in loop))

    def _owed(self, enabled: dict[int, set[int]]) -> list[int]:
        return [label for label in set().union(*enabled.values()) if self.obliging[label]]

    def _place(self, state: int) -> tuple[int, int]:
        """The depth of a state, and its position in that level."""
        position = int(self.order[state])
        for depth, level in enumerate(self.search.levels):
            if position < len(level):
                return depth, position
            position -= len(level)
        raise AssertionError(f"there is no state {state}")

    def _row(self, state: int) -> tuple[int, ...]:
        depth, position = self._place(state)
        part = self.search.rows(self.search.levels[depth], slice(position, position + 1))
        return tuple(int(column[0]) for column in part)

    def _step(self, packed: int, state: int) -> Step:
        at, number = packed >> 32, packed & 0xFFFFFFFF
        action = TICK if at < 0 else self.search.engine.tables[at].actions[number]
        return Step(at, action, self._row(state))


def _trim(source: Indices, target: Indices, states: int) -> tuple[Indices, Indices]:
    """Without the steps that can be on no loop."""
    while len(source):
        leads_on = np.zeros(states, bool)
        leads_on[source] = True
        is_reached = np.zeros(states, bool)
        is_reached[target] = True
        keep = leads_on[target] & is_reached[source]
        if keep.all():
            break
        source, target = source[keep], target[keep]
    return source, target


def _components(source: Indices, target: Indices) -> list[Indices]:
    """Strongly connected components that contain a loop (Tarjan's algorithm, without recursion)."""
    if not len(source):
        return []
    states, packed = np.unique(np.concatenate([source, target]), return_inverse=True)
    a, b = packed[: len(source)], packed[len(source) :]
    order = np.argsort(a, kind="stable")
    a, b = a[order], b[order]
    starts = np.searchsorted(a, np.arange(len(states) + 1)).tolist()
    following = b.tolist()
    number, low, on_stack = [-1] * len(states), [0] * len(states), bytearray(len(states))
    stack: list[int] = []
    found: list[Indices] = []
    count = 0
    for root in range(len(states)):
        if number[root] >= 0:
            continue
        work = [(root, starts[root])]
        while work:
            state, at = work.pop()
            if number[state] < 0:
                number[state] = low[state] = count
                count += 1
                stack.append(state)
                on_stack[state] = 1
            end, deeper = starts[state + 1], False
            while at < end:
                other = following[at]
                at += 1
                if number[other] < 0:
                    work.append((state, at))
                    work.append((other, starts[other]))
                    deeper = True
                    break
                if on_stack[other]:
                    low[state] = min(low[state], number[other])
            if deeper:
                continue
            if low[state] == number[state]:
                members = []
                while True:
                    member = stack.pop()
                    on_stack[member] = 0
                    members.append(member)
                    if member == state:
                        break
                if len(members) > 1 or state in following[starts[state] : starts[state + 1]]:
                    found.append(states[np.array(members)])
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[state])
    return found


def _meets(enabled: dict[int, set[int]], label: int, state: int, taken: int | None) -> bool:
    """Is this step the obligation, or the state one in which it is not open?"""
    return taken == label or label not in enabled[state]


def _path(
    edges: dict[int, list[tuple[int, int, int]]],
    start: int,
    good: Callable[[int, int | None], bool],
    at_least: bool = False,
) -> list[tuple[int, int, int]]:
    """The shortest way from `start` to a step or a state that is good; none if `start` is."""
    if not at_least and good(start, None):
        return []
    came: dict[int, tuple[int, tuple[int, int, int]]] = {}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for edge in edges[state]:
            if good(edge[0], edge[1]):
                way = [edge]
                while state != start:
                    state, edge = came[state]
                    way.append(edge)
                return way[::-1]
            if edge[0] not in came and edge[0] != start:
                came[edge[0]] = (state, edge)
                queue.append(edge[0])
    raise AssertionError("the component is not connected")
