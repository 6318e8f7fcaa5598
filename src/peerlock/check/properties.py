"""What a state must be like, always or sometimes.

A `Property` gives every cell of every node a number, once; the numbers of a row are added up, and
an expression over the sum says whether the state is bad. So a property costs one look-up a node and
state. With a field of bits for each node the sum holds whatever a property needs to know of each; a
`Predicate` in Python sees the whole state and is as slow as Python.

The invariants that the papers state are here too, by the ids of their claims, and are checked
whenever their algorithm is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from peerlock.check.engine import Bools, Cells
from peerlock.check.model import Letter, Local, Model
from peerlock.contract import NodeId
from peerlock.errors import PeerlockError, UsageError

Sums: TypeAlias = NDArray[np.int64]
Bad: TypeAlias = Bools  # by state


class Property:
    """Always: no reachable state is bad."""

    name = ""
    sometimes = False  # else: some reachable state is like this

    def __init__(self, model: Model) -> None:
        self.model = model
        self._features = [np.zeros(0, np.int64) for _ in model.columns]

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        """The number of a cell of node number `at`."""
        raise NotImplementedError  # a subclass says which

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        """Which sums are bad; `enabled` counts the actions that can happen."""
        raise NotImplementedError  # a subclass says which

    # For the reductions. By symmetry: is it the same for a state and the same state with its nodes
    # renamed? By partial order (`early`): does `ignores` know what this property looks at?
    symmetric = False
    can_ignore = False

    def ignores(self, before: Local, letter: Letter, after: Local, sent: Sequence[Letter]) -> bool:
        """Can the property not see this delivery? It leaves the node where it is, and its mode."""
        return False

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        sums = np.zeros(len(enabled), np.int64)
        for at in range(len(self.model.nodes)):
            sums += self._known(at)[columns[at]]
        return self.bad(sums, enabled)

    def _known(self, at: int) -> NDArray[np.int64]:
        have, model = self._features[at], self.model
        count = len(model.columns[at].cells)
        if len(have) < count:
            fresh = [self.feature(at, model.local(at, cell), model.inbox(at, cell)) for cell in range(len(have), count)]
            have = self._features[at] = np.concatenate([have, np.array(fresh, np.int64)])
        return have


class LooksAtWhere(Property):
    """Looks at nothing but where the nodes are and in which mode; their names do not matter."""

    symmetric = True
    can_ignore = True

    def ignores(self, before: Local, letter: Letter, after: Local, sent: Sequence[Letter]) -> bool:
        return True


class MutualExclusion(LooksAtWhere):
    """ALL-ME: one writer inside, or readers."""

    name = "mutual exclusion"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return 0 if local.where != "inside" else 1 if local.mode == "read" else 1 << 16

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return np.asarray((sums > 1 << 16) | (sums >> 16 > 1), bool)


class Deadlock(LooksAtWhere):
    """ALL-DF: if nothing more can happen, no node is in the middle of an invocation."""

    name = "no deadlock"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(local.where not in ("idle", "outside", "gone", "crashed"))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return np.asarray((enabled == 0) & (sums > 0), bool)


class Assertions(LooksAtWhere):
    """No assertion of the algorithm fails, and no message comes that it excludes."""

    name = "assertions"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(local.where == "broken")

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 0


class OneToken(Property):
    """At most one token, those under way included; `at_node` and `kinds` say what one is."""

    name = "one token"
    symmetric = can_ignore = True

    def __init__(self, model: Model, at_node: Callable[[Any], bool], kinds: frozenset[str]) -> None:
        super().__init__(model)
        self.at_node, self.kinds = at_node, kinds

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        here = local.where != "crashed" and self.at_node(local.algorithm)
        return int(here) + sum(letter.message.kind in self.kinds for letter in letters)

    def ignores(self, before: Local, letter: Letter, after: Local, sent: Sequence[Letter]) -> bool:
        moved = any(other.message.kind in self.kinds for other in (letter, *sent))
        return not moved and self.at_node(before.algorithm) == self.at_node(after.algorithm)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 1


class PermissionsExclude(Property):
    """CR-AUTH: never both A_i[j] and A_j[i]."""

    name = "CR-AUTH"
    symmetric = can_ignore = True

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        n = len(self.model.nodes)
        return sum(1 << (at * n + self.model.place[j]) for j in local.algorithm.a)

    def ignores(self, before: Local, letter: Letter, after: Local, sent: Sequence[Letter]) -> bool:
        return bool(before.algorithm.a == after.algorithm.a)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        n = len(self.model.nodes)
        bad = np.zeros(len(sums), bool)
        for i in range(n):
            for j in range(i):
                bad |= ((sums >> (i * n + j)) & (sums >> (j * n + i)) & 1).astype(bool)
        return bad


class ClocksAreAhead(Property):
    """HPR, proof of Theorem 3: a request has a smaller stamp than the clock of its receiver."""

    name = "HPR-SF, the clocks"
    symmetric = can_ignore = True

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        process = local.algorithm
        return int(any(req_time >= process.c for _, (req_time, _) in process.req_array))

    def ignores(self, before: Local, letter: Letter, after: Local, sent: Sequence[Letter]) -> bool:
        return self.feature(0, before, ()) == self.feature(0, after, ())

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 0


class DijkstraInvariants(Property):
    """EWD-P0, P1, P3, P6 between steps; P4, P5 of the addressee of a message; EWD-LINK.

    P4 and P5 speak of the moment of receipt. A message under way may be received now, so they must
    hold for the addressee of every message in flight.
    """

    name = "EWD-P0..P6, EWD-LINK"
    symmetric = True

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        process = local.algorithm
        signals = sum(letter.message.kind == "SIGNAL" for letter in letters)
        tokens = len(letters) - signals
        alone = (
            (process.section != "critical" or process.holds_token)  # P0
            and (not process.holds_token or process.section != "waiting")  # P1
            and not (process.holds_token and process.section == "noncritical" and process.black)  # P6
            and (not signals or not process.black)  # P4
            and (not tokens or process.black or process.section == "waiting")  # P5
            and signals <= 1
            and tokens <= 1
        )
        bits = process.black | (not process.black and process.section != "waiting") << 1 | (not alone) << 2
        return int((bits | (signals > 0) << 3 | (tokens > 0) << 4) << (5 * at))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        bad = np.zeros(len(sums), bool)
        first = {j: self.model.local(at, self.model.first[at]).algorithm for at, j in enumerate(self.model.nodes)}
        for at, j in enumerate(self.model.nodes):
            left = self.model.place[first[j].left]
            mine, lefts = sums >> (5 * at), sums >> (5 * left)
            bad |= ((mine & 1) & (lefts >> 1 & 1)).astype(
                bool
            )  # P3: black, and its left neighbour white and not waiting
            bad |= (mine >> 2 & 1).astype(bool)
            bad |= ((mine >> 3 & 1) & (lefts >> 4 & 1)).astype(bool)  # LINK: a signal to me and the token to my left
        return bad


class State:
    """A whole state, as a predicate in Python sees it."""

    def __init__(self, model: Model, row: Sequence[int]) -> None:
        self.nodes: Mapping[NodeId, Any] = {j: model.local(at, row[at]).algorithm for at, j in enumerate(model.nodes)}
        self.where: Mapping[NodeId, str] = {j: model.local(at, row[at]).where for at, j in enumerate(model.nodes)}
        self.modes: Mapping[NodeId, str] = {j: model.local(at, row[at]).mode for at, j in enumerate(model.nodes)}
        self.messages: list[tuple[NodeId, NodeId, Any]] = [
            (letter.source, j, letter.message)
            for at, j in enumerate(model.nodes)
            for letter in model.inbox(at, row[at])
        ]

    @property
    def inside(self) -> list[NodeId]:
        return [j for j, where in self.where.items() if where == "inside"]

    @property
    def waiting(self) -> list[NodeId]:
        return [j for j, where in self.where.items() if where == "waiting"]


class Predicate(Property):
    """A property as a function of the whole state: true means good. Slow: a Python call a state."""

    def __init__(self, model: Model, name: str, good: Callable[[State], bool], sometimes: bool = False) -> None:
        super().__init__(model)
        self.name, self.good, self.sometimes = name, good, sometimes

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        try:
            return self._looked(columns)
        except PeerlockError:
            raise
        except Exception as problem:
            raise UsageError(f"The property {self.name} raised {type(problem).__name__}: {problem}.") from problem

    def _looked(self, columns: list[Cells]) -> Bad:
        rows = zip(*(column.tolist() for column in columns[: len(self.model.nodes)]), strict=True)
        # A sometimes property asks for the states that are like this, an always property for those
        # that are not.
        return np.array([bool(self.good(State(self.model, row))) == self.sometimes for row in rows], bool)


class OneWaitsWhileAnotherIsInside(LooksAtWhere):
    """The model is not vacuous: there is contention in it."""

    name = "sometimes one waits while another is inside"
    sometimes = True

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return {"waiting": 1, "inside": 1 << 16}.get(local.where, 0)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return (sums & 0xFFFF > 0) & (sums >> 16 > 0)


class EachNodeEnters(LooksAtWhere):
    """The model is not vacuous: each node is inside in some state, as its cells show."""

    name = "sometimes each node that may ask is inside"
    sometimes = True

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.seen = {at for at in range(len(model.nodes)) if not model.local(at, model.first[at]).left}
        # With a reduction by symmetry, the nodes that a node can be renamed into are inside where
        # it is.
        self.alike = {at: {at} for at in range(len(model.nodes))}

    def look(self, columns: list[Cells], enabled: Cells) -> Bad:
        for at in range(len(self.model.nodes)):
            known = self._known(at)
            if at not in self.seen and bool(known[columns[at]].any()):
                self.seen |= self.alike[at]
        return np.array([len(self.seen) == len(self.model.nodes)])

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(local.where == "inside")


class ReadersShare(LooksAtWhere):
    """The readers' lock is not vacuous: two readers are inside together."""

    name = "sometimes two readers are inside together"
    sometimes = True

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(local.where == "inside" and local.mode == "read")

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 1


def standard(model: Model) -> list[Property]:
    """The properties that every algorithm must have, and the invariants of its paper."""
    found: list[Property] = [MutualExclusion(model), Deadlock(model), Assertions(model)]
    if model.spec.form != "divided":  # between two statements of a procedure an invariant need not hold
        found += _invariants(model)
    if "read" in model.spec.needs.modes:
        found.append(ReadersShare(model))
    return [*found, OneWaitsWhileAnotherIsInside(model), EachNodeEnters(model)]


# A property is named after what must be; a sentence says what was found instead.
_FINDINGS = {
    "mutual exclusion": "two nodes are inside together",
    "no deadlock": "deadlock found",
    "no starvation": "a node can wait for ever",
    "assertions": "an assertion failed",
    "one token": "more than one token found",
    "messages an entry": "an entry takes more or fewer messages than claimed",
}


def finding(name: str) -> str:
    """What was found where the property of that name is violated, as the rest of a sentence."""
    if name.startswith("sometimes "):
        return f"never found: {name.removeprefix('sometimes ')}"
    return _FINDINGS.get(name, f"{name} is violated")


def _invariants(model: Model) -> list[Property]:
    found: list[Property] = []
    fields: tuple[str, ...] = model.local(0, model.first[0]).algorithm.__struct_fields__
    for field, kind in (
        ("have_privilege", "PRIVILEGE"), ("token_here", "TOKEN"), ("holds_token", "TOKEN"), ("have_token", "TOKEN"),
    ):  # fmt: skip
        if field in fields:
            found.append(OneToken(model, attrgetter(field), frozenset({kind})))
    if model.spec.name == "carvalho-roucairol":
        found.append(PermissionsExclude(model))
    if model.spec.name == "helary-plouzeau-raynal":
        found.append(ClocksAreAhead(model))
    if model.spec.name == "dijkstra-ring":
        found.append(DijkstraInvariants(model))
    return found


class Checks:
    """Looks at every level; remembers what was violated and what sometimes happened."""

    def __init__(self, properties: Sequence[Property]) -> None:
        self.always = [prop for prop in properties if not prop.sometimes]
        self.hoped_for = [prop for prop in properties if prop.sometimes]
        self.happened: set[str] = set()

    def __call__(self, columns: list[Cells], enabled: Cells) -> tuple[str, int] | None:
        for prop in self.hoped_for:
            if prop.name not in self.happened and bool(prop.look(columns, enabled).any()):
                self.happened.add(prop.name)
        for prop in self.always:
            found = np.flatnonzero(prop.look(columns, enabled))
            if len(found):
                return prop.name, int(found[0])
        return None

    def verdicts(self, violated: str | None, finished: bool) -> dict[str, str]:
        """holds, violated, or unfinished, for each property."""
        result = {}
        for prop in self.always:
            result[prop.name] = "violated" if prop.name == violated else "holds" if finished else "unfinished"
        for prop in self.hoped_for:
            result[prop.name] = "holds" if prop.name in self.happened else "violated" if finished else "unfinished"
        return result
