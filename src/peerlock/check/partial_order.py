"""Partial order: a message that may as well arrive now arrives now.

Steps of different nodes always commute here: a step changes its own node and adds to the inboxes of
others. So of two orders only those matter in which the same node does two things. If delivering a
letter commutes with everything that its node can do while the letter is under way, now or later,
and no property can see the delivery, then nothing is lost by delivering it at once and looking at
no other step: every other order leads through states that look the same. Such a delivery is called
*early* here. In a state that has one, the search takes that one alone, unless it leads to a state
seen before (then it takes all, so that no step is put off for ever).

**Which deliveries commute is not taken on trust.** The search assumes it of every delivery that no
property can see, by classes: kind of message, where the node is, how often it may still enter.
Afterwards `refuted` follows, for every node, what was skipped: a *shadow* (l, s) of a cell that was
met says "in a run that was not looked at, the node may be in l, with the letters s, which are
delivered here, still under way". For each shadow:

- delivering s must lead from l to the cell's own state, in any order that the network allows, and
  no property may see any of it (except that the node enters: a node that is inside too early in the
  reduced graph can only make matters worse);
- whatever can be done in l can be done in the cell;
- each step of the cell, taken from l and followed by s, must lead to the same state and send the
  same as s followed by the step.

Then the shadow follows the step, and letters that are added to the cell, to the next cell. If all
shadows pass, every state of the full graph has a state of the reduced one that looks the same, and
is it if nothing more can happen in it: by induction along a run, each of whose steps is either the
delivery of a letter of s or a step that the reduced graph has too, after finitely many early
deliveries (they lead to ever new states, so they come to an end). So mutual exclusion, failed
assertions and deadlocks are the same with and without the reduction, and what has happened
*sometimes* has happened. If a shadow fails, its class is refused and the search is done again. A
way to a violated property has been gone, but a shorter one may have been skipped.

A clock that ticks for all, crashes and observers make steps of different nodes depend on each
other: not with this reduction. Nor with a property that does not say what it cannot see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from peerlock.check.engine import Cells, Engine
from peerlock.check.model import Action, Detail, Letter, Model, Sends
from peerlock.check.properties import Property

MOST = 6  # letters that may be late in one shadow; if there are more, the class with the most in one is refused
MOST_SHADOWS = 20_000  # of one node; likewise

Class: TypeAlias = tuple[str, str, int]  # kind of message, where the node is, entries left


class Late(NamedTuple):
    """A letter that was delivered early, and as what."""

    letter: Letter
    as_what: Class


class Shadow(NamedTuple):
    """The node may be in this local state instead, with these letters still under way."""

    local: int
    late: tuple[Late, ...]


class Differs(Exception):
    """A shadow does not lead where its cell does."""


class Early:
    """Chooses deliveries to make at once, and shows afterwards that it was right to."""

    def __init__(self, model: Model, properties: Sequence[Property], refused: Iterable[Class] = ()) -> None:
        self.model, self.properties = model, properties
        self.refused = set(refused)
        self._chosen = [np.zeros(0, np.int32) for _ in model.nodes]  # by cell: number of the early action, or -1

    # -- choosing ------------------------------------------------------------------------------

    def choice(self, engine: Engine, columns: list[Cells]) -> Iterator[tuple[int, Cells, Cells]]:
        """(node number, rows, actions): each row at most once, with an action that is enough."""
        free = np.ones(len(columns[0]), bool)
        for at in range(len(self.model.nodes)):
            engine.tables[at].count(columns[at])
            actions = self._known(engine, at)[columns[at]]
            rows = np.flatnonzero(free & (actions >= 0)).astype(np.int32)
            if len(rows):
                free[rows] = False
                yield at, rows, actions[rows]

    def _known(self, engine: Engine, at: int) -> Cells:
        table, have = engine.tables[at], self._chosen[at]
        if len(have) < len(table.counts):
            more = np.full(len(table.counts) - len(have), -2, np.int32)  # -2: not looked at yet
            have = self._chosen[at] = np.concatenate([have, more])
        for cell in np.flatnonzero((have == -2) & (table.counts >= 0)).tolist():
            first = int(table.starts[cell])
            mine = table.actions[first : first + int(table.counts[cell])]
            found = (number for number, action in enumerate(mine, first) if self._early(at, cell, action))
            have[cell] = next(found, -1)
        return have

    def _early(self, at: int, cell: int, action: Action) -> bool:
        letter = action.detail
        if not isinstance(letter, Letter):
            return False
        number = self.model.columns[at].cells[cell][0]
        if self.class_of(at, number, letter) in self.refused:
            return False
        try:
            self._deliver(at, number, letter, may_enter=False)
        except Differs:
            return False
        return True

    @property
    def used(self) -> bool:
        """Was any delivery chosen?"""
        return any(bool((chosen >= 0).any()) for chosen in self._chosen)

    def class_of(self, at: int, number: int, letter: Letter) -> Class:
        local = self.model.columns[at].locals[number]
        return letter.message.kind, local.where, local.left

    def _late(self, at: int, number: int, action: Action) -> Late:
        assert isinstance(action.detail, Letter)
        return Late(action.detail, self.class_of(at, number, action.detail))

    # -- showing that it was right -------------------------------------------------------------

    def refuted(self, engine: Engine) -> set[Class]:
        """Classes of deliveries that do not commute, or too many to tell; none: it is sound."""
        found: set[Class] = set()
        burden: Counter[Class] = Counter()
        for at in range(len(self.model.nodes)):
            refuted, too_many = self._follow(engine, at)
            found |= refuted
            burden |= too_many
        return found or {name for name, _ in burden.most_common(1)}

    def _follow(self, engine: Engine, at: int) -> tuple[set[Class], Counter[Class]]:
        """What is refuted at a node; with too many shadows, the late letters per class."""
        table, column, chosen = engine.tables[at], self.model.columns[at], self._known(engine, at)
        added: dict[int, set[int]] = {}
        for bundle, cell in zip(*np.nonzero(table.sums >= 0), strict=True):
            added.setdefault(int(cell), set()).add(int(table.sums[bundle, cell]))
        refuted: set[Class] = set()
        seen: set[tuple[int, Shadow]] = set()
        work: list[list[tuple[int, Shadow]]] = [[] for _ in range(MOST + 2)]  # by how many letters are late

        def push(cell: int, shadow: Shadow) -> None:
            if shadow.late and (cell, shadow) not in seen:
                seen.add((cell, shadow))
                work[len(shadow.late)].append((cell, shadow))

        for cell in np.flatnonzero(chosen >= 0).tolist():
            action, number = table.actions[chosen[cell]], column.cells[cell][0]
            push(action.cell, Shadow(number, (self._late(at, number, action),)))
        while shortest := next((some for some in work if some), None):
            # The shortest first, so that the blame falls on one class wherever it can.
            cell, shadow = shortest.pop()
            oldest, lag = shadow.late[0].as_what, len(shadow.late)
            if refuted and lag > 1:
                break
            if lag > MOST or len(seen) > MOST_SHADOWS:
                burden: Counter[Class] = Counter()
                for _, (_, some) in seen:
                    burden |= Counter(late.as_what for late in some)
                return refuted, burden
            if oldest in refuted:
                continue
            try:
                for other in self._other_orders(at, column.cells[cell][0], shadow):
                    push(cell, other)
                if cell < len(table.counts) and table.counts[cell] >= 0:
                    first = int(table.starts[cell])
                    for number in range(first, first + int(table.counts[cell])):
                        action = table.actions[number]
                        for other in self._after(at, cell, shadow, action, number == chosen[cell]):
                            push(action.cell, other)
                    self._can_do_the_same(at, cell, shadow)
            except Exception:  # it differs, or the algorithm cannot be brought into this state at all
                refuted.add(oldest)
                continue
            for other_cell in added.get(cell, ()):
                push(other_cell, shadow)
        return refuted, Counter()

    def _deliver(self, at: int, number: int, letter: Letter, *, may_enter: bool = True) -> tuple[int, Sends]:
        """Deliver a letter. No property must see it, except an entry where those are allowed."""
        model = self.model
        after, sends, entered = model.step(at, number, "deliver", letter)
        column = model.columns[at]
        before, then = column.locals[number], column.locals[after]
        where = "inside" if entered and may_enter and before.where == "waiting" else before.where
        same = (where, before.left, before.mode) == (then.where, then.left, then.mode)
        if not same or any(to >= len(model.nodes) for to, _ in sends):
            raise Differs
        sent = [
            model.columns[to].letters[number] for to, bundle in sends for number in model.columns[to].bundles[bundle]
        ]
        if not all(prop.ignores(before, letter, then, sent) for prop in self.properties):
            raise Differs
        return after, sends

    def _deliver_all(self, at: int, number: int, late: Sequence[Late]) -> tuple[int, list[Sends]]:
        every = []
        for letter, _ in late:
            number, sends = self._deliver(at, number, letter)
            every.append(sends)
        return number, every

    def _other_orders(self, at: int, end: int, shadow: Shadow) -> Iterator[Shadow]:
        """The shadow after one of its late letters; all orders must come to the same."""
        number, sends = self._deliver_all(at, shadow.local, shadow.late)
        if number != end:
            raise Differs
        for index, late in enumerate(shadow.late):
            earlier = shadow.late[:index]
            if self.model.fifo and any(other.letter.source == late.letter.source for other in earlier):
                continue
            rest = (*earlier, *shadow.late[index + 1 :])
            now, first = self._deliver(at, shadow.local, late.letter)
            then, others = self._deliver_all(at, now, rest)
            if then != end or self._joined([first, *others]) != self._joined(sends):
                raise Differs
            yield Shadow(now, rest)

    def _after(self, at: int, cell: int, shadow: Shadow, action: Action, early: bool) -> Iterator[Shadow]:
        """The shadow after a step of its cell. It takes the step too, an early delivery later."""
        model = self.model
        end = model.columns[at].cells[cell][0]
        if action.what != "deliver" and (action.what, action.detail) not in self._own_steps(at, shadow.local):
            return
        now, first, _ = model.step(at, shadow.local, action.what, action.detail)
        then, others = self._deliver_all(at, now, shadow.late)
        _, before = self._deliver_all(at, shadow.local, shadow.late)
        after, last, _ = model.step(at, end, action.what, action.detail)
        if then != after or self._joined([first, *others]) != self._joined([*before, last]):
            raise Differs
        yield Shadow(now, shadow.late)
        if early:
            yield Shadow(shadow.local, (*shadow.late, self._late(at, end, action)))

    def _can_do_the_same(self, at: int, cell: int, shadow: Shadow) -> None:
        if not self._own_steps(at, shadow.local) <= self._own_steps(at, self.model.columns[at].cells[cell][0]):
            raise Differs

    def _own_steps(self, at: int, number: int) -> set[tuple[str, Detail]]:
        """What a node can do without a letter."""
        return set(self.model.own_steps(at, self.model.columns[at].locals[number]))

    def _joined(self, every: list[Sends]) -> dict[int, tuple[int, ...]]:
        """All that is sent, by addressee: in the order sent where the network keeps it."""
        found: dict[int, list[int]] = {}
        for sends in every:
            for to, bundle in sends:
                found.setdefault(to, []).extend(self.model.columns[to].bundles[bundle])
        return {
            to: tuple(sent) if self.model.fifo or to >= len(self.model.nodes) else tuple(sorted(sent))
            for to, sent in found.items()
        }


def unfit(model: Model, properties: Sequence[Property]) -> str | None:
    """Why this reduction cannot be used here; None: it can."""
    if model.delay_bound is not None:
        return "a clock ticks for all nodes at once"
    if model.observers:
        return "something is counted that steps of different nodes change"
    blind = [prop.name for prop in properties if not prop.can_ignore]
    return f"{', '.join(blind)}: such a property may look at anything" if blind else None
