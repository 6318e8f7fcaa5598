"""A protocol explored as a `Model`: its nodes run the very classes that ship.

A node of such a model says what it can do by itself (`events`) and which letters change nothing
there any more (`ignores`). An observer keeps what no node knows, in a tuple whose last entry says
what went wrong; `NothingIsWrong` looks at that entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from peerlock.check.engine import Cells
from peerlock.check.model import Detail, Done, Letter, Local, Model
from peerlock.check.observers import Event, Observer
from peerlock.check.properties import Bad, Checks, Property, Sums
from peerlock.check.search import Outcome, Progress, Search
from peerlock.contract import Members, Needs, NodeId

Explored: TypeAlias = tuple[Search, Outcome, dict[str, str]]


class Post(Protocol):
    """The network, as a node of the model sees it. A message is any value that can be hashed."""

    def send(self, to: NodeId, message: Hashable) -> None: ...


class ProtocolGroup(Struct, frozen=True):
    """What a `Model` asks of what it explores, as far as it is the same for all protocols."""

    @property
    def form(self) -> str:
        return "views"

    @property
    def needs(self) -> Needs:
        return Needs()

    def blamed(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()


class ProtocolModel(Model):
    """A protocol without users: nodes do what `events` says, observers hear what was noticed."""

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        return [("timeout", event) for event in local.algorithm.events()]

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        after, sends, entered = super().run(at, local, what, detail)
        noticed = self.noticed(at, local.algorithm, self.columns[at].locals[after].algorithm, detail)
        return after, sends + self._told(noticed), entered

    def noticed(self, at: int, before: Struct, after: Struct, detail: Detail) -> list[Event]:
        """What the observers are told of a step: how a node was before it and after it."""
        raise NotImplementedError  # a subclass knows its nodes


def apart(nodes: Sequence[NodeId]) -> dict[NodeId, Members]:
    """Shapes for nodes that know each other by other means."""
    return {node: Members((node,), 1) for node in nodes}


class NothingIsWrong(Property):
    """One view per epoch, and no excluded member believes that it may hold."""

    name = "one view per epoch, and no excluded member believes that it may hold"

    def __init__(self, model: Model, observer: type[Observer]) -> None:
        super().__init__(model)
        self.observer = observer

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        at = next(i for i, o in enumerate(self.model.observers, len(self.model.nodes)) if isinstance(o, self.observer))
        column = self.model.columns[at]
        wrong = np.array([bool(column.locals[local][-1]) for local, _ in column.cells])
        return np.asarray(wrong[columns[at]], bool)


class Sometimes(Property):
    """In some reachable state some node is like this."""

    sometimes = True

    def __init__(self, model: Model, name: str, is_like_this: Callable[[Struct], bool]) -> None:
        super().__init__(model)
        self.name, self.is_like_this = name, is_like_this

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(self.is_like_this(local.algorithm))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 0


def explored(
    model: Model, properties: Sequence[Property], max_states: int | None, progress: Progress | None
) -> Explored:
    checks = Checks(properties)
    search = Search(model, checks)
    outcome = search.run(max_states, progress=progress)
    return search, outcome, checks.verdicts(outcome.violated, outcome.finished)
