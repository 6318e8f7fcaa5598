"""The search: exact counts, the same as those of the obvious checker, and the failures that simulation may miss."""

from __future__ import annotations

from typing import Any

import pytest

from peerlock.algorithms import choose
from peerlock.check.model import Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.check.verdicts import shapes_of
from peerlock.contract import NOBODY, Members, Neighbours, NodeId, Ring, Shape
from reference_search import explore


def members(n: int) -> dict[NodeId, Shape]:
    return dict.fromkeys(range(1, n + 1), Members(tuple(range(1, n + 1)), 1, 1.0))


def ring(n: int) -> dict[NodeId, Shape]:
    return {j: Ring((j - 2) % n + 1, j % n + 1, 1) for j in range(1, n + 1)}


def line(n: int) -> dict[NodeId, Shape]:
    return {j: Neighbours(tuple(k for k in (j - 1, j + 1) if 1 <= k <= n), 1) for j in range(1, n + 1)}


def shapes_for(name: str, n: int) -> dict[NodeId, Shape]:
    return {"dijkstra-ring": ring, "helary-plouzeau-raynal": line}.get(name, members)(n)


def search(
    name: str,
    n: int,
    entries: int,
    inside: Any = NOBODY,
    as_printed: bool = False,
    fifo: bool = False,
    bits: int = 64,
    **options: Any,
) -> Outcome:
    model = Model(choose(name, as_printed=as_printed, **options), shapes_for(name, n), [entries] * n, inside, fifo=fifo)
    found = Search(model, Checks(standard(model)), exact_bits=bits)
    outcome = found.run()
    if outcome.row is not None:
        outcome.way = found.way_to(outcome.row)
    return outcome


# From an independent model of Ricart-Agrawala: see the class for what is counted.
@pytest.mark.parametrize(
    ("n", "entries", "own_counts", "states"),
    [
        (3, 1, False, 2_858), (3, 2, False, 39_933), (3, 3, False, 219_992), (4, 1, False, 2_074_509),
        (3, 1, True, 2_822), (3, 2, True, 37_229), (3, 3, True, 177_626),
    ],
)  # fmt: skip
def test_exact_counts(n: int, entries: int, own_counts: bool, states: int) -> None:
    found = search("ricart-agrawala", n, entries, own_counts=own_counts)
    assert (found.violated, found.finished, found.states) == (None, True, states)
    if (n, entries, own_counts) == (4, 1, False):
        assert found.transitions == 13_398_410


def test_random_keys_count_the_same() -> None:
    """Keys that do not fit, from the start or from some point on."""
    for bits in (3, 20, 30):
        found = search("ricart-agrawala", 3, 2, bits=bits)
        assert (found.exact, found.states, found.transitions) == (False, 39_933, 134_067)
        assert found.collision_bound < 1e-9


SMALL = [
    ("suzuki-kasami-a", 3, 1, {}),
    ("suzuki-kasami-a", 2, 3, {}),
    ("suzuki-kasami-b", 2, 5, {"l": 2}),
    ("suzuki-kasami-b", 2, 5, {"l": 3}),
    ("suzuki-kasami-b", 3, 1, {}),
    ("helary-plouzeau-raynal", 3, 1, {}),
    ("dijkstra-ring", 3, 2, {}),
    ("dijkstra-ring", 2, 3, {}),
    ("carvalho-roucairol", 3, 1, {}),
    ("carvalho-roucairol", 2, 4, {}),
    ("ricart-agrawala-token", 3, 1, {}),
    ("ricart-agrawala-token", 2, 3, {"first_pass": True}),
    ("ricart-agrawala-priority", 3, 1, {}),
    ("ricart-agrawala-dynamic", 3, 1, {}),
]


@pytest.mark.parametrize("fifo", [False, True], ids=["any-order", "fifo"])
@pytest.mark.parametrize("inside", [0, 1, 2], ids=["nobody", "1-inside", "2-inside"])
@pytest.mark.parametrize(("name", "n", "entries", "options"), SMALL)
def test_every_interleaving(
    name: str, n: int, entries: int, options: dict[str, Any], inside: NodeId, fifo: bool
) -> None:
    """Clean, and the same states and transitions as the obvious checker finds."""
    who: Any = {inside: "write"} if inside else NOBODY
    found = search(name, n, entries, who, fifo=fifo, **options)
    assert found.violated is None
    assert found.finished
    if not fifo:
        obvious = explore(choose(name, **options), shapes_for(name, n), [entries] * n, who)
        assert (found.states, found.transitions) == (obvious.states, obvious.transitions)


def words(outcome: Outcome) -> list[str]:
    return [step.action.what for step in outcome.way]


@pytest.mark.parametrize("bits", [64, 4])
def test_a_holder_that_enters_again_stops_algorithm_b_as_printed(bits: int) -> None:
    found = search("suzuki-kasami-b", 2, 4, as_printed=True, bits=bits)
    assert found.violated == "no deadlock"
    assert len(found.way) == found.depth == 18
    obvious = explore(choose("suzuki-kasami-b", as_printed=True), members(2), [4, 4])
    assert (obvious.violated, len(obvious.path)) == ("stuck", 18)


def test_implicit_replies_need_their_time() -> None:
    # Timers that may fire at any time: no delay bound is kept.
    found = search("ricart-agrawala-implicit", 2, 1)
    assert found.violated == "mutual exclusion"
    assert sorted(words(found)) == ["request", "request", "timeout", "timeout"]


def test_failure_handling_as_printed_is_unsafe_when_nobody_is_dead() -> None:
    found = search("ricart-agrawala-failures", 2, 1, {2: "write"}, as_printed=True)
    assert found.violated == "mutual exclusion"


@pytest.mark.parametrize("chunk", [100, 1000, 5000])
@pytest.mark.parametrize("bits", [20, 26, 30, 32])
def test_no_state_is_lost_when_the_keys_become_random(bits: int, chunk: int) -> None:
    """The switch puts a level that is being expanded into another order, wherever in it it happens."""
    model = Model(choose("ricart-agrawala"), shapes_of("ricart-agrawala", 3), (2, 2, 2))
    outcome = Search(model, Checks(standard(model)), exact_bits=bits, chunk=chunk).run()
    assert (outcome.exact, outcome.states, outcome.transitions) == (False, 39_933, 134_067)
