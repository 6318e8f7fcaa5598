"""One exploration, reduced where that is wanted and allowed.

Renamings first (`symmetry`), from the largest group to the smallest; where the algorithm allows
none, early deliveries (`early`), whose classes are refused until the rest is shown to be sound; and
nothing where that does not fit either. Every reduction is checked after its search, and a search
whose reduction was not allowed counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from peerlock.check.model import Model
from peerlock.check.partial_order import Class, Early, unfit
from peerlock.check.properties import Checks, EachNodeEnters, Property
from peerlock.check.search import Outcome, Search
from peerlock.check.symmetry import NotSymmetric, Symmetry
from peerlock.contract import NodeId

Groups: TypeAlias = Mapping[str, list[dict[NodeId, NodeId]]]
SHORTEN = 5_000_000  # states that are explored without a reduction to find the shortest way to what one has found


class Explored(Struct):
    """What was explored, how, and what came of it."""

    search: Search
    checks: Checks
    outcome: Outcome
    reduction: str | None = None  # in words; None: every state was looked at
    verified: bool = False  # was every step that the reduction relies on checked to allow it?
    shortest: bool = True  # is the way to a violation the shortest?


def explore(
    new_model: Callable[[], Model],
    properties: Callable[[Model], list[Property]],
    run: Callable[[Search], Outcome],
    groups: Groups | None = None,
    note: Callable[[str], None] = lambda words: None,
    most: int | None = None,
) -> Explored:
    """Explore a model; `groups` are the renamings to try, None: no reduction.

    `note` hears why a reduction is not used. `most` states are looked at to find the shortest way
    to what a reduction has found.
    """
    if groups is not None:
        why: list[str] = []
        found = _by_symmetry(new_model, properties, run, groups, why.append) or _by_partial_order(
            new_model, properties, run, why.append, most or SHORTEN
        )
        if found is None or found.reduction is None:
            for words in why:
                note(words)
        if found is not None:
            return found
    model = new_model()
    checks = Checks(properties(model))
    search = Search(model, checks)
    return Explored(search, checks, run(search))


def _by_symmetry(
    new_model: Callable[[], Model],
    properties: Callable[[Model], list[Property]],
    run: Callable[[Search], Outcome],
    groups: Groups,
    note: Callable[[str], None],
) -> Explored | None:
    model = new_model()
    names = [prop.name for prop in properties(model) if not prop.symmetric]
    if names:
        note(f"not reduced by symmetry: {', '.join(names)} may look at the names of nodes")
        return None
    for words, group in groups.items():
        model = new_model()
        found = properties(model)
        try:
            symmetry = Symmetry(model, group)
            for prop in found:
                if isinstance(prop, EachNodeEnters):
                    prop.alike = {at: symmetry.alike(at) for at in range(len(model.nodes))}
            checks = Checks(found)
            search = Search(model, checks, symmetry=symmetry)
            outcome = run(search)
            symmetry.verify(search.engine)
        except NotSymmetric as why:
            note(f"not reduced by {words}: {why}")
        except Exception as problem:
            # A renamed state can be one that the algorithm does not know. If it is the algorithm's
            # own fault, the search without a reduction will say so.
            note(f"not reduced by {words}: {type(problem).__name__}: {problem}")
        else:
            return Explored(search, checks, outcome, f"symmetry ({words})", verified=True)
    return None


def _by_partial_order(
    new_model: Callable[[], Model],
    properties: Callable[[Model], list[Property]],
    run: Callable[[Search], Outcome],
    note: Callable[[str], None],
    most: int,
) -> Explored | None:
    model = new_model()
    why = unfit(model, properties(model))
    if why is not None:
        note(f"not reduced by partial order: {why}")
        return None
    refused: set[Class] = set()
    while True:
        model = new_model()
        found = properties(model)
        early = Early(model, found, refused)
        checks = Checks(found)
        search = Search(model, checks, early=early)
        outcome = run(search)
        if outcome.violated:
            return _shortened(
                new_model, properties, Explored(search, checks, outcome, "partial order", shortest=False), most
            )
        if not outcome.finished:
            return Explored(search, checks, outcome, "partial order" if early.used else None)
        try:
            refuted = early.refuted(search.engine)
        except KeyboardInterrupt:
            outcome.finished = False
            return Explored(search, checks, outcome, "partial order")
        if not refuted and early.used:
            if all(verdict == "holds" for verdict in checks.verdicts(None, True).values()):
                return Explored(search, checks, outcome, "partial order", verified=True)
            # Something that should happen sometimes did not. Whether it never does, only all states
            # can tell.
            note("not reduced by partial order: a state that was skipped may show what was not seen")
            return None
        if not early.used:
            note("not reduced by partial order: no delivery commutes with all that its node may do")
            return Explored(search, checks, outcome)
        refused |= refuted


def _shortened(
    new_model: Callable[[], Model], properties: Callable[[Model], list[Property]], found: Explored, most: int
) -> Explored:
    """The same violation by the shortest way, if that can be found in good time."""
    model = new_model()
    checks = Checks(properties(model))
    search = Search(model, checks)
    try:
        outcome = search.run(most)
    except KeyboardInterrupt:
        return found
    return Explored(search, checks, outcome, found.reduction) if outcome.violated else found
