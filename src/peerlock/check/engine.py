"""Every reachable state, breadth first, as arrays of integers.

A state is a row of cells, one a node (`model`). A level of the search is an array of rows.
Expanding it takes, for each node, the actions that its cells allow, and looks up what each does to
the other cells; there is no Python object a state. What no table has yet is collected for a whole
chunk, computed by the model, and written into the table.

**The key of a row** is a sum of one term a node modulo 2^64, so a successor's key is its parent's
key plus differences. While the cells of all nodes together need at most 64 bits, the terms are the
cell numbers themselves, each shifted to its own place: the key *is* the row, no two rows share one,
and only keys are stored. When a node outgrows its place, all keys are packed anew; the order of the
fields stays, so sorted keys stay sorted. Beyond 64 bits the terms are random numbers and rows are
stored beside the keys; `collision_bound` then says how likely it is that two states were taken for
one.

**Seen before?** A level's successors are sorted and made unique, then looked up in the states seen
so far: a few sorted runs, merged as they grow in number. Levels are kept, so the way to a state can
be found again backwards: its predecessor is in the level before, and expanding that level finds it.
Nothing else has to be stored for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from peerlock.check.model import Action, Model

Cells: TypeAlias = NDArray[np.int32]
Keys: TypeAlias = NDArray[np.uint64]
Bools: TypeAlias = NDArray[np.bool_]
Edges: TypeAlias = tuple[int, Cells, Cells, Keys]  # node number, parents, actions, keys of the states afterwards

CHUNK = 1 << 17  # rows expanded at once


class Outgrown(Exception):
    """Cells were made that have no place in the keys."""


class Level:
    """The states that are first reached after the same number of steps."""

    def __init__(self, keys: Keys, rows: list[Cells] | None) -> None:
        self.keys = keys
        self.rows = rows  # one array a node; None: the keys say it all

    def __len__(self) -> int:
        return len(self.keys)


class Engine:
    """Rows of a model, and how to go from one level to the next."""

    def __init__(self, model: Model, seed: int = 1, exact_bits: int = 64) -> None:
        self.model = model
        self.n = len(model.columns)
        self.tables = [Table(model, at) for at in range(self.n)]
        self.random = np.random.default_rng(seed)
        self.exact_bits = exact_bits
        self.exact = True
        self.widths = [1] * self.n
        self._place_fields()

    # -- keys ----------------------------------------------------------------------------------

    def _place_fields(self) -> None:
        self.shifts = [sum(self.widths[at + 1 :]) for at in range(self.n)]

    def terms(self, at: int) -> Keys:
        """The term of every cell of a node."""
        return self.tables[at].terms

    def grow(self, levels: list[Level], runs: list[Keys]) -> None:
        """Make room for new cells in the keys of everything stored."""
        needed = [max(1, (len(column.cells) - 1).bit_length()) for column in self.model.columns]
        if self.exact and any(need > have for need, have in zip(needed, self.widths, strict=True)):
            if sum(needed) > self.exact_bits:
                self._become_inexact(levels, runs)
            else:
                self._repack(needed, levels, runs)
        for at, table in enumerate(self.tables):
            table.grow_terms(len(self.model.columns[at].cells), self.exact, self.shifts[at], self.random)

    def _repack(self, needed: list[int], levels: list[Level], runs: list[Keys]) -> None:
        """Wider fields for those that need them, and for all as much air as there is."""
        spare = (self.exact_bits - sum(needed)) // self.n
        old_shifts, old_widths = self.shifts, self.widths
        self.widths = [need + min(spare, 2) for need in needed]
        self._place_fields()
        for at, table in enumerate(self.tables):
            table.terms = np.zeros(0, np.uint64)
            table.grow_terms(len(self.model.columns[at].cells), True, self.shifts[at], self.random)
        for level in levels:
            level.keys = self._packed(level.keys, old_shifts, old_widths)
        for at, run in enumerate(runs):
            runs[at] = self._packed(run, old_shifts, old_widths)

    def _packed(self, keys: Keys, shifts: list[int], widths: list[int]) -> Keys:
        result = np.zeros(len(keys), np.uint64)
        for at in range(self.n):
            field = (keys >> np.uint64(shifts[at])) & np.uint64((1 << widths[at]) - 1)
            result |= field << np.uint64(self.shifts[at])
        return result

    def _become_inexact(self, levels: list[Level], runs: list[Keys]) -> None:
        rows = [level.rows or self.unpack(level.keys) for level in levels]
        self.exact = False
        for at, table in enumerate(self.tables):
            table.terms = np.zeros(0, np.uint64)
            table.grow_terms(len(self.model.columns[at].cells), False, 0, self.random)
        for level, columns in zip(levels, rows, strict=True):
            order = np.argsort(keys := self.key_of(columns), kind="stable")
            level.keys, level.rows = keys[order], [column[order] for column in columns]
        # The runs hold the states of the levels and nothing else.
        runs[:] = [np.sort(np.concatenate([level.keys for level in levels]))] if levels else []

    def key_of(self, columns: list[Cells]) -> Keys:
        keys = np.zeros(len(columns[0]), np.uint64)
        for at, column in enumerate(columns):
            keys += self.terms(at)[column]
        return keys

    def unpack(self, keys: Keys) -> list[Cells]:
        return [
            ((keys >> np.uint64(self.shifts[at])) & np.uint64((1 << self.widths[at]) - 1)).astype(np.int32)
            for at in range(self.n)
        ]

    # -- levels --------------------------------------------------------------------------------

    def first(self) -> Level:
        self.grow([], [])
        columns = [np.array([cell], np.int32) for cell in self.model.first]
        return Level(self.key_of(columns), None if self.exact else columns)

    def successors(self, columns: list[Cells], keys: Keys) -> Iterator[Edges]:
        """For each node: everything that can happen there.

        Raises `Outgrown` if that made cells which have no place in the keys: `grow`, and try again.
        """
        for at, table in enumerate(self.tables):
            cells = columns[at]
            counts = table.count(cells)
            total = int(counts.sum())
            if not total:
                continue
            parents = np.repeat(np.arange(len(cells), dtype=np.int32), counts)
            firsts = np.cumsum(counts) - counts
            actions = np.arange(total, dtype=np.int32) - np.repeat(
                (firsts - table.starts[cells]).astype(np.int32), counts
            )
            yield from self.only(columns, keys, at, parents, actions)
        if self.model.delay_bound is not None:
            yield from self.ticks(columns, keys)

    def only(self, columns: list[Cells], keys: Keys, at: int, parents: Cells, actions: Cells) -> Iterator[Edges]:
        """The same for these actions of one node alone."""
        table, sums = self.tables[at], []
        if not len(actions):
            return
        for to, other in enumerate(self.tables):
            if to == at or not table.sends_to[to]:
                continue
            bundles = table.bundles[to][actions]
            sent = np.flatnonzero(bundles)
            if not len(sent):
                continue
            before = columns[to][parents[sent]]
            after = other.added(bundles[sent], before)
            if other.forbids and int(after.min()) < 0:
                # Some of these must not happen. Leave them out and look up the rest.
                allowed = np.ones(len(actions), bool)
                allowed[sent[after < 0]] = False
                yield from self.only(columns, keys, at, parents[allowed], actions[allowed])
                return
            sums.append((other, sent, before, after))
        self.check_room()
        found = keys[parents] + (table.terms[table.new[actions]] - table.terms[columns[at][parents]])
        for other, sent, before, after in sums:
            found[sent] += other.terms[after] - other.terms[before]
        yield at, parents, actions, found

    def can_tick(self, columns: list[Cells]) -> tuple[Bools, list[Cells]]:
        """In which rows the clock may tick and that changes something, and the cells after it."""
        after = [table.ticks.of(cells) for table, cells in zip(self.tables, columns, strict=True)]
        allowed = np.logical_and.reduce([cells >= 0 for cells in after])
        changed = np.logical_or.reduce([now != then for now, then in zip(columns, after, strict=True)])
        return allowed & changed, after

    def ticks(self, columns: list[Cells], keys: Keys) -> Iterator[Edges]:
        """A tick of the clock, for all nodes at once; it is the action of node number -1."""
        allowed, after = self.can_tick(columns)
        rows = np.flatnonzero(allowed).astype(np.int32)
        if len(rows):
            self.check_room()
            found = keys[rows].copy()
            for table, before, cells in zip(self.tables, columns, after, strict=True):
                found += table.terms[cells[rows]] - table.terms[before[rows]]
            yield -1, rows, np.zeros(len(rows), np.int32), found

    def check_room(self) -> None:
        for table, column in zip(self.tables, self.model.columns, strict=True):
            if len(column.cells) > len(table.terms) or (self.exact and len(column.cells) > 1 << self.widths[table.at]):
                raise Outgrown

    def rows_after(self, columns: list[Cells], at: int, parents: Cells, actions: Cells) -> list[Cells]:
        """The rows that these actions of node number `at` lead to."""
        if at < 0:
            return [table.ticks.of(cells[parents]) for table, cells in zip(self.tables, columns, strict=True)]
        table, result = self.tables[at], []
        for to, other in enumerate(self.tables):
            cells = columns[to][parents]
            if to == at:
                cells = table.new[actions]
            elif table.sends_to[to]:
                bundles = table.bundles[to][actions]
                sent = np.flatnonzero(bundles)
                if len(sent):
                    cells[sent] = other.added(bundles[sent], cells[sent])
            result.append(cells)
        return result

    def row_after(self, row: list[int], at: int, action: Action) -> list[int]:
        """One state and one action: the state afterwards."""
        after = list(row)
        after[at] = action.cell
        for to, bundle in action.sends:
            after[to] = self.model.add(to, row[to], bundle)
        return after


class Table:
    """What is known of a node's cells: actions, terms, and what adding a bundle does."""

    def __init__(self, model: Model, at: int) -> None:
        self.model, self.at, self.n = model, at, len(model.columns)
        self.actions: list[Action] = []
        self.counts = np.zeros(0, np.int32)  # by cell; -1: not expanded yet
        self.starts = np.zeros(0, np.int32)
        self.new = np.zeros(0, np.int32)  # by action
        self.bundles = [np.zeros(0, np.int32) for _ in range(self.n)]  # [to][action]
        self.sends_to = [False] * self.n
        self.terms = np.zeros(0, np.uint64)
        # [bundle, cell]: the cell with the bundle added; -1: not known yet, -2: must not happen
        self.sums = np.full((1, 1), -1, np.int32)
        self.forbids = at >= len(model.nodes)
        self.ticks = ByCell(lambda cell: model.tick(at, cell))  # the cell a tick later; -2: must not happen
        self.lively = np.zeros(0, np.int32)  # by cell: how many of its actions are not crashes
        self._filled = 0

    def grow_terms(self, cells: int, exact: bool, shift: int, random: np.random.Generator) -> None:
        have = len(self.terms)
        if cells <= have:
            return
        room = max(cells, 2 * have, 64)
        if exact:
            self.terms = np.arange(room, dtype=np.uint64) << np.uint64(shift)
        else:
            fresh = random.integers(0, 1 << 64, room - have, dtype=np.uint64)
            self.terms = np.concatenate([self.terms, fresh])

    def count(self, cells: Cells) -> Cells:
        """How many actions each cell has; those met for the first time are computed."""
        top = int(cells.max(initial=-1)) + 1
        if top > len(self.counts):
            room = max(top, 2 * len(self.counts), 64)
            self.counts = _longer(self.counts, room, -1)
            self.starts = _longer(self.starts, room, 0)
            self.lively = _longer(self.lively, room, 0)
        counts = self.counts[cells]
        missing = np.flatnonzero(counts < 0)
        if not len(missing):
            return counts
        for cell in np.unique(cells[missing]).tolist():
            found = self.model.actions(self.at, cell)
            self.starts[cell], self.counts[cell] = len(self.actions), len(found)
            self.lively[cell] = sum(action.what != "crash" for action in found)
            self.actions += found
        self._write_actions()
        return self.counts[cells]

    def _write_actions(self) -> None:
        fresh, start = self.actions[self._filled :], self._filled
        room = len(self.new)
        if len(self.actions) > room:
            room = max(len(self.actions), 2 * room, 64)
            self.new = _longer(self.new, room, 0)
            self.bundles = [_longer(bundles, room, 0) for bundles in self.bundles]
        for number, action in enumerate(fresh, start):
            self.new[number] = action.cell
            for to, bundle in action.sends:
                self.bundles[to][number] = bundle
                self.sends_to[to] = True
        self._filled = len(self.actions)

    def added(self, bundles: Cells, cells: Cells) -> Cells:
        """The cells with these bundles added; sums met for the first time are computed."""
        self._room(int(bundles.max()) + 1, int(cells.max()) + 1)
        sums = self.sums[bundles, cells]
        missing = np.flatnonzero(sums == -1)
        if not len(missing):
            return sums
        pairs = np.unique(bundles[missing].astype(np.int64) << 32 | cells[missing])
        for pair in pairs.tolist():
            bundle, cell = pair >> 32, pair & 0xFFFFFFFF
            self.sums[bundle, cell] = self.model.add(self.at, cell, bundle)
        return self.sums[bundles, cells]

    def _room(self, bundles: int, cells: int) -> None:
        have_bundles, have_cells = self.sums.shape
        if bundles > have_bundles or cells > have_cells:
            shape = (
                have_bundles if bundles <= have_bundles else max(bundles, 2 * have_bundles, 8),
                have_cells if cells <= have_cells else max(cells, 2 * have_cells, 64),
            )
            larger = np.full(shape, -1, np.int32)
            larger[:have_bundles, :have_cells] = self.sums
            self.sums = larger


class ByCell:
    """A number for each cell, computed when the cell is met for the first time."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self.compute, self.known = compute, np.zeros(0, np.int32)  # -1: not known yet

    def of(self, cells: Cells) -> Cells:
        top = int(cells.max(initial=-1)) + 1
        if top > len(self.known):
            self.known = _longer(self.known, max(top, 2 * len(self.known), 64), -1)
        found = self.known[cells]
        missing = np.flatnonzero(found == -1)
        if not len(missing):
            return found
        for cell in np.unique(cells[missing]).tolist():
            self.known[cell] = self.compute(cell)
        return self.known[cells]


def _longer(values: Cells, room: int, fill: int) -> Cells:
    result = np.full(room, fill, values.dtype)
    result[: len(values)] = values
    return result


def unique(keys: Keys) -> Keys:
    """Sorted, each once."""
    # Stable means merge sort: successors of sorted states come in runs, and 4,1 took 1.2 s instead
    # of 1.9 s.
    keys.sort(kind="stable")
    if len(keys) < 2:
        return keys
    first = np.empty(len(keys), bool)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys[first]


def unseen(keys: Keys, runs: list[Keys]) -> Bools:
    """Which of these sorted keys are in none of the sorted runs."""
    fresh = np.ones(len(keys), bool)
    for run in runs:
        if len(run):
            where = np.searchsorted(run, keys)
            where[where == len(run)] = 0
            fresh &= run[where] != keys
    return fresh
