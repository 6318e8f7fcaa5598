"""The search: level after level, until there is nothing new, a violation or a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from peerlock.check.engine import CHUNK, Cells, Edges, Engine, Keys, Level, Outgrown, unique, unseen
from peerlock.check.model import Action, Model
from peerlock.check.partial_order import Early
from peerlock.check.symmetry import Symmetry

RUNS = 6  # so many sorted runs of seen states before the small ones are merged


TICK = Action("tick", None, 0, (), False)


class Step(Struct, frozen=True):
    """One step of a way: what happened where (-1: a tick, everywhere), and the row afterwards."""

    at: int
    action: Action
    row: tuple[int, ...]


class Outcome(Struct):
    """What a search has found."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    finished: bool = False
    violated: str | None = None
    row: tuple[int, ...] | None = None  # the first state that violates
    way: tuple[Step, ...] = ()  # the shortest way to it
    exact: bool = True
    collision_bound: float = 0.0
    handler_calls: int = 0


# Given the rows of a level and how many actions each has, the name of a violated property and one
# row that violates it.
Check = Callable[[list[Cells], Cells], tuple[str, int] | None]
Progress = Callable[[Outcome], None]


class Search:
    """Breadth first over all states of a model."""

    def __init__(
        self,
        model: Model,
        check: Check,
        *,
        exact_bits: int = 64,
        chunk: int = CHUNK,
        symmetry: Symmetry | None = None,
        early: Early | None = None,
    ) -> None:
        self.model, self.check, self.chunk, self.symmetry, self.early = model, check, chunk, symmetry, early
        self.engine = Engine(model, exact_bits=exact_bits)
        self.levels: list[Level] = []
        self.runs: list[Keys] = []
        self.outcome = Outcome()

    def run(
        self, max_states: int | None = None, max_seconds: float | None = None, progress: Progress | None = None
    ) -> Outcome:
        began, outcome = time.monotonic(), self.outcome
        self.levels = [self._first()]
        self._remember(self.levels[0].keys)
        while True:
            level = self.levels[-1]
            outcome.states += len(level)
            outcome.seconds = time.monotonic() - began
            outcome.depth = len(self.levels) - 1
            if progress:
                progress(outcome)
            if self._violates(level):
                break
            over = (max_states and outcome.states >= max_states) or (max_seconds and outcome.seconds > max_seconds)
            if over:
                break
            following = self._next(level)
            if not len(following):
                outcome.finished = True
                break
            self.levels.append(following)
            self._remember(following.keys)
        if self.model.own is not None:
            self.model.own.look_again()
        outcome.seconds = time.monotonic() - began
        outcome.exact, outcome.handler_calls = self.engine.exact, self.model.handler_calls
        if not outcome.exact:
            # The chance that two of so many random 64-bit keys are equal.
            outcome.collision_bound = outcome.states**2 / 2 / 2**64
        return outcome

    def _first(self) -> Level:
        level = self.engine.first()
        while self.symmetry is not None:
            try:
                return Level(self.symmetry.canonical(self.engine, level.keys), None)
            except Outgrown:
                self.engine.grow([level], [])
        return level

    # -- a level -------------------------------------------------------------------------------

    def chunks(self, level: Level) -> list[slice]:
        return [slice(start, start + self.chunk) for start in range(0, len(level), self.chunk)]

    def _violates(self, level: Level) -> bool:
        for part in self.chunks(level):
            columns = self.rows(level, part)
            enabled = np.zeros(len(columns[0]), np.int32)
            for table, cells in zip(self.engine.tables, columns, strict=True):
                table.count(cells)
                enabled += table.lively[cells]
            if self.model.delay_bound is not None:
                enabled += self.engine.can_tick(columns)[0]
            found = self.check(columns, enabled)
            if found is not None:
                name, at = found
                self.outcome.violated = name
                self.outcome.row = tuple(int(column[at]) for column in columns)
                return True
        return False

    def rows(self, level: Level, part: slice) -> list[Cells]:
        if level.rows is not None:
            return [column[part] for column in level.rows]
        return self.engine.unpack(level.keys[part])

    def _next(self, level: Level) -> Level:
        before = self.outcome.transitions
        while True:
            exact, pending = self.engine.exact, list[Level]()
            if self._expand_all(level, pending):
                return self._merged(pending)
            assert exact and not self.engine.exact
            # The keys have become random numbers, and the rows of the level have another order:
            # begin it again. What was found of the next level so far has not been seen.
            self.outcome.transitions = before
            self.runs[:] = [np.sort(np.concatenate([known.keys for known in self.levels]))]

    def _expand_all(self, level: Level, pending: list[Level]) -> bool:
        """Expand a level chunk by chunk; false if it was put into another order on the way."""
        exact = self.engine.exact
        for part in self.chunks(level):
            while True:
                try:
                    pending.append(self._expand(level, part))
                    break
                except Outgrown:
                    self.engine.grow([*self.levels, *pending], self.runs)
                    if self.engine.exact != exact:
                        return False
        return True

    def _expand(self, level: Level, part: slice) -> Level:
        """The states that a chunk leads to and that were not seen in an earlier level."""
        columns, keys = self.rows(level, part), level.keys[part]
        exact = self.engine.exact
        found = list(self._steps(columns, keys))
        transitions = sum(len(parents) for _, parents, _, _ in found)
        if exact:
            fresh = unique(np.concatenate([keys for *_, keys in found])) if found else np.zeros(0, np.uint64)
            if self.symmetry is not None:
                fresh = unique(self.symmetry.canonical(self.engine, fresh))
            result = Level(fresh[unseen(fresh, self.runs)], None)
        else:
            result = self._expand_inexact(columns, found)
        self.outcome.transitions += transitions
        return result

    def _steps(self, columns: list[Cells], keys: Keys) -> Iterator[Edges]:
        """All that can happen in these rows, or where that is enough, one early delivery."""
        if self.early is None:
            yield from self.engine.successors(columns, keys)
            return
        rest = np.ones(len(keys), bool)
        for at, rows, actions in self.early.choice(self.engine, columns):
            for _, parents, chosen, found in self.engine.only(columns, keys, at, rows, actions):
                new = unseen(found, self.runs)
                rest[parents[new]] = False
                yield at, parents[new], chosen[new], found[new]
        rows = np.flatnonzero(rest).astype(np.int32)
        for at, parents, actions, found in self.engine.successors([column[rows] for column in columns], keys[rows]):
            yield at, rows[parents], actions, found

    def _expand_inexact(self, columns: list[Cells], found: list[Edges]) -> Level:
        if not found:
            return Level(np.zeros(0, np.uint64), [np.zeros(0, np.int32) for _ in columns])
        keys = np.concatenate([keys for *_, keys in found])
        keys, order = np.unique(keys, return_index=True)
        fresh = unseen(keys, self.runs)
        keys, order = keys[fresh], order[fresh]
        rows = [np.zeros(len(keys), np.int32) for _ in columns]
        start = 0
        for at, parents, actions, part in found:
            mine = np.flatnonzero((order >= start) & (order < start + len(part)))
            which = order[mine] - start
            for row, cells in zip(
                rows, self.engine.rows_after(columns, at, parents[which], actions[which]), strict=True
            ):
                row[mine] = cells
            start += len(part)
        return Level(keys, rows)

    def _merged(self, parts: list[Level]) -> Level:
        if len(parts) == 1:
            return parts[0]
        keys = np.concatenate([part.keys for part in parts])
        if self.engine.exact:
            return Level(unique(keys), None)
        keys, order = np.unique(keys, return_index=True)
        every = [part.rows for part in parts if part.rows is not None]
        return Level(keys, [np.concatenate([rows[at] for rows in every])[order] for at in range(self.engine.n)])

    def _remember(self, keys: Keys) -> None:
        self.runs.append(keys)
        while len(self.runs) > RUNS or (len(self.runs) > 1 and len(self.runs[-2]) < 2 * len(self.runs[-1])):
            small = self.runs.pop()
            self.runs[-1] = np.sort(np.concatenate([self.runs[-1], small]), kind="stable")

    # -- the way to a state --------------------------------------------------------------------

    def way_to(self, row: tuple[int, ...], depth: int | None = None) -> tuple[Step, ...]:
        """A shortest way to a state in the last level, or that of a depth, found backwards."""
        steps: list[Step] = []
        before = self.levels[:-1] if depth is None else self.levels[:depth]
        for level in reversed(before):
            while True:
                try:
                    parent, at, action = self._predecessor(level, row)
                    break
                except Outgrown:
                    self.engine.grow(self.levels, self.runs)
            steps.append(Step(at, action, row))
            row = parent
        way = tuple(reversed(steps))
        return way if self.symmetry is None else self._unfolded(way)

    def _unfolded(self, way: tuple[Step, ...]) -> tuple[Step, ...]:
        """A way through the states themselves, from one through their smallest renamings."""
        row, result = self.model.first, []
        for step in way:
            wanted = self._smallest([np.array([cell], np.int32) for cell in step.row])[0]
            columns = [np.array([cell], np.int32) for cell in row]
            for at, parents, actions, keys in self.engine.successors(columns, self.engine.key_of(columns)):
                hits = np.flatnonzero(self._canonical(keys) == wanted)
                if len(hits):
                    after = self.engine.rows_after(columns, at, parents[hits[:1]], actions[hits[:1]])
                    row = tuple(int(cells[0]) for cells in after)
                    result.append(Step(at, self.engine.tables[at].actions[int(actions[hits[0]])], row))
                    break
            else:
                raise AssertionError(f"no step leads on from {row}")
        return tuple(result)

    def _smallest(self, columns: list[Cells]) -> Keys:
        return self._canonical(self.engine.key_of(columns))

    def _canonical(self, keys: Keys) -> Keys:
        return keys if self.symmetry is None else self.symmetry.canonical(self.engine, keys)

    def _predecessor(self, level: Level, row: tuple[int, ...]) -> tuple[tuple[int, ...], int, Action]:
        key = self.engine.key_of([np.array([cell], np.int32) for cell in row])[0]
        for part in self.chunks(level):
            columns = self.rows(level, part)
            for at, parents, actions, keys in self.engine.successors(columns, level.keys[part]):
                hits = np.flatnonzero(self._canonical(keys) == key)
                if len(hits):
                    parent = int(parents[hits[0]])
                    action = TICK if at < 0 else self.engine.tables[at].actions[int(actions[hits[0]])]
                    return tuple(int(column[parent]) for column in columns), at, action
        raise AssertionError(f"no state of the level before leads to {row}")
