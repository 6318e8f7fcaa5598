"""States that differ only in the names of the nodes are explored once.

If an algorithm treats nodes alike, renaming them turns runs into runs. Then of all states that can
be renamed into each other one is enough: the one with the smallest key. Which renamings an
algorithm allows is not taken on trust. Candidates are all permutations, those that keep the first
node, and rotations, as far as they leave the network as it is; a tie broken by node number destroys
the first two, a loop from 1 to N all of them. After a search every cell that it met is looked at
again: the actions of the renamed cell must be the renamed actions of the cell, for every renaming
that was used. If one is not, the search counts for nothing and is done again with the next
candidate, or with none.

How to rename a value is read off the annotations of the fields: a `NodeId` is a node, a `Row` is
indexed by nodes, a `Book` by names, `tuple[NodeId, ...]` and `frozenset[NodeId]` hold nodes, an
`int` is a number. A field with any other annotation makes the algorithm unsymmetric.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import permutations
from typing import Any, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct

from peerlock.check.engine import ByCell, Cells, Engine, Keys
from peerlock.check.model import Action, Inbox, Letter, Model
from peerlock.contract import Members, Neighbours, NodeId, Ring, Row, Shape

Renaming: TypeAlias = Mapping[NodeId, NodeId]
Value: TypeAlias = Any  # of a field, in the type that its annotation says
How: TypeAlias = Callable[[Value, Renaming], Value]
S = TypeVar("S", bound=Struct)


class NotSymmetric(Exception):
    """The algorithm does not allow these renamings."""


def groups(shapes: Mapping[NodeId, Shape]) -> dict[str, list[dict[NodeId, NodeId]]]:
    """Candidates, largest first; each is closed under composition and keeps the network."""
    nodes = tuple(shapes)
    every = [dict(zip(nodes, image, strict=True)) for image in permutations(nodes)] if len(nodes) <= 5 else []
    n = len(nodes)
    rotations = [{j: nodes[(at + by) % n] for at, j in enumerate(nodes)} for by in range(n)]
    fixed = [renaming for renaming in every if renaming[min(nodes)] == min(nodes)]
    found = {"all permutations": every, "permutations that keep node 1": fixed, "rotations": rotations}
    kept = {name: [renaming for renaming in group if _keeps(shapes, renaming)] for name, group in found.items()}
    return {name: group for name, group in kept.items() if len(group) > 1}


def _keeps(shapes: Mapping[NodeId, Shape], renaming: Renaming) -> bool:
    """Is the renamed network the same network?"""
    for node, shape in shapes.items():
        match shape, shapes[renaming[node]]:
            case Ring(left, right), Ring() as other if (renaming[left], renaming[right]) != (other.left, other.right):
                return False
            case Neighbours(names), Neighbours() as other if {renaming[j] for j in names} != set(other.names):
                return False
            case Members(every), Members() as other if {renaming[j] for j in every} != set(other.all):
                return False
    return True


# -- renaming values -------------------------------------------------------------------------------


def rename(value: S, renaming: Renaming) -> S:
    """A state or a message with its nodes renamed."""
    changes = {name: how(getattr(value, name), renaming) for name, how in _fields(type(value)).items()}
    return type(value)(**{name: changes.get(name, getattr(value, name)) for name in value.__struct_fields__})


@cache
def _fields(kind: type[Struct]) -> dict[str, How]:
    """How to rename each field of a class that has nodes in it."""
    hints: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        hints |= {name: str(hint) for name, hint in inspect.get_annotations(base).items()}
    found = {}
    for name in kind.__struct_fields__:
        try:
            hint = ast.parse(hints[name], mode="eval").body
        except SyntaxError:
            raise NotSymmetric(f"the annotation of {name} cannot be read") from None
        how = _how(hint, name)
        if how is not None:
            found[name] = how
    return found


def _how(hint: ast.expr, name: str) -> How | None:
    """None: nothing in it is a node."""
    match hint:
        case ast.Name("NodeId"):
            return lambda value, renaming: renaming.get(value, value)
        case ast.Name("Row"):
            return _row
        case ast.Name("int" | "bool" | "float" | "str" | "Mode") | ast.Constant(None):
            return None
        case ast.Subscript(ast.Name("Literal"), _):
            return None
        case ast.Subscript(ast.Name("frozenset"), inner):
            how = _how(inner, name)
            return how and partial(_each, frozenset, how)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([inner, ast.Constant(value)])) if value is ...:
            how = _how(inner, name)
            return how and partial(_each, tuple, how)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(parts)):
            hows = [_how(part, name) for part in parts]
            return lambda value, renaming: tuple(
                how(item, renaming) if how else item for how, item in zip(hows, value, strict=True)
            )
        case ast.Subscript(ast.Name("Book"), inner):
            how = _how(inner, name)
            return lambda value, renaming: tuple(
                sorted((renaming.get(key, key), how(item, renaming) if how else item) for key, item in value)
            )
    raise NotSymmetric(f"it is not known how to rename {name}: {ast.unparse(hint)}")


def _row(value: Row, renaming: Renaming) -> Row:
    result = list(value)
    for old, new in renaming.items():
        if old < len(value):
            result[new] = value[old]
    return tuple(result)


def _each(kind: type[tuple[Value, ...]] | type[frozenset[Value]], how: How, value: Value, renaming: Renaming) -> Value:
    return kind(how(item, renaming) for item in value)


# -- renaming cells ----------------------------------------------------------------------------------


class Symmetry:
    """A group of renamings of a model's nodes, applied to cells in bulk."""

    def __init__(self, model: Model, group: list[dict[NodeId, NodeId]]) -> None:
        self.model = model
        self.group = [renaming for renaming in group if any(old != new for old, new in renaming.items())]
        self._tables: dict[tuple[int, int], ByCell] = {}
        self._starts = [model.local(at, model.first[at]).algorithm for at in range(len(model.nodes))]

    def alike(self, at: int) -> set[int]:
        """The nodes that this one can be renamed into."""
        return {at, *(self._target(which, at) for which in range(len(self.group)))}

    def canonical(self, engine: Engine, keys: Keys) -> Keys:
        """For each state the smallest key of all states that it can be renamed into."""
        if not len(keys):
            return keys
        if not engine.exact:
            raise NotSymmetric("there are too many states for keys that can be renamed")
        columns = engine.unpack(keys)
        renamed = [
            [self._renamed(which, at, cells) for at, cells in enumerate(columns)] for which in range(len(self.group))
        ]
        engine.check_room()
        best = keys
        for which, cells in enumerate(renamed):
            found = np.zeros(len(keys), np.uint64)
            for at in range(len(columns)):
                found += engine.terms(self._target(which, at))[cells[at]]
            best = np.minimum(best, found)
        return best

    def _target(self, which: int, at: int) -> int:
        return self.model.place[self.group[which][self.model.nodes[at]]]

    def _renamed(self, which: int, at: int, cells: Cells) -> Cells:
        table = self._tables.get((which, at))
        if table is None:
            table = self._tables[which, at] = ByCell(lambda cell: self.cell(which, at, cell))
        return table.of(cells)

    def cell(self, which: int, at: int, cell: int) -> int:
        """The renamed cell, in the column of the renamed node."""
        renaming, column = self.group[which], self.model.columns[at]
        number, inbox = column.cells[cell]
        local = column.locals[number]
        target = self.model.columns[self._target(which, at)]
        algorithm = rename(local.algorithm, renaming)
        for name in ("others", "neighbours"):
            # A list of nodes that a node goes through in its own order: the order is the renamed
            # node's.
            own = getattr(self._starts[self._target(which, at)], name, None)
            if own is not None and set(own) == set(getattr(algorithm, name)):
                setattr(algorithm, name, own)
        return target.cell(target.local(local._replace(algorithm=algorithm)), self._inbox(which, at, inbox))

    def _inbox(self, which: int, at: int, inbox: Inbox) -> Inbox:
        if self.model.fifo:
            queues = [
                (self.group[which][source], tuple(self._letter(which, at, letter) for letter in queue))
                for source, queue in inbox
            ]
            return tuple(sorted(queues))
        return tuple(sorted(self._letter(which, at, letter) for letter in inbox))

    def _letter(self, which: int, at: int, letter: int) -> int:
        renaming = self.group[which]
        source, message, ticks = self.model.columns[at].letters[letter]
        target = self.model.columns[self._target(which, at)]
        return target.letter(Letter(renaming[source], rename(message, renaming), ticks))

    # -- is it true? -------------------------------------------------------------------------------

    def verify(self, engine: Engine) -> None:
        """The actions of a renamed cell must be the renamed actions of the cell."""
        for at, table in enumerate(engine.tables):
            for cell in np.flatnonzero(table.counts >= 0).tolist():
                start, count = int(table.starts[cell]), int(table.counts[cell])
                actions = table.actions[start : start + count]
                for which in range(len(self.group)):
                    there = self.model.actions(self._target(which, at), self.cell(which, at, cell))
                    if sorted(self._shown(which, at, action) for action in actions) != sorted(map(_plain, there)):
                        node = self.model.nodes[at]
                        raise NotSymmetric(f"renaming {self.group[which]} changes what node {node} does")

    def _shown(self, which: int, at: int, action: Action) -> str:
        """A renamed action, in a form that can be compared."""
        renaming, detail = self.group[which], action.detail
        if isinstance(detail, Letter):
            detail = Letter(renaming[detail.source], rename(detail.message, renaming), detail.ticks)
        sends = []
        for to, bundle in action.sends:
            letters = self.model.columns[to].bundles[bundle]
            target = self._target(which, to)
            renamed = [self._letter(which, to, letter) for letter in letters]
            found = tuple(renamed) if self.model.fifo else tuple(sorted(renamed))
            sends.append((target, self.model.columns[target].bundle(found)))
        return _plain(Action(action.what, detail, self.cell(which, at, action.cell), tuple(sends), action.entered))


def _plain(action: Action) -> str:
    return repr((action.what, action.detail, action.cell, sorted(action.sends), action.entered))
