"""The first checker: exact counts, and the failures that simulation may miss."""

from __future__ import annotations

from typing import Any

import pytest

from peerlock.algorithms import choose
from peerlock.check.search import Found, explore
from peerlock.contract import NOBODY, Members, Neighbours, Node, Ring, Shape


def members(n: int) -> dict[Node, Shape]:
    return dict.fromkeys(range(1, n + 1), Members(tuple(range(1, n + 1)), 1, 1.0))


def ring(n: int) -> dict[Node, Shape]:
    return {j: Ring((j - 2) % n + 1, j % n + 1, 1) for j in range(1, n + 1)}


def line(n: int) -> dict[Node, Shape]:
    return {j: Neighbours(tuple(k for k in (j - 1, j + 1) if 1 <= k <= n), 1) for j in range(1, n + 1)}


def search(name: str, n: int, entries: int, inside: Any = NOBODY, as_printed: bool = False, **options: Any) -> Found:
    shapes = {"dijkstra-ring": ring, "helary-plouzeau-raynal": line}.get(name, members)(n)
    return explore(choose(name, as_printed=as_printed, **options), shapes, [entries] * n, inside)


# From an independent model of Ricart-Agrawala: see the class for what is counted.
@pytest.mark.parametrize(
    ("n", "entries", "own_counts", "states"),
    [(3, 1, False, 2_858), (3, 2, False, 39_933), (3, 1, True, 2_822), (3, 2, True, 37_229)],
)
def test_exact_counts(n: int, entries: int, own_counts: bool, states: int) -> None:
    found = search("ricart-agrawala", n, entries, own_counts=own_counts)
    assert (found.violated, found.states) == (None, states)


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


@pytest.mark.parametrize("inside", [0, 1, 2], ids=["nobody", "1-inside", "2-inside"])
@pytest.mark.parametrize(("name", "n", "entries", "options"), SMALL)
def test_every_interleaving(name: str, n: int, entries: int, options: dict[str, Any], inside: Node) -> None:
    found = search(name, n, entries, {inside: "write"} if inside else NOBODY, **options)
    assert found.violated is None, "\n".join(found.path)


def test_a_holder_that_enters_again_stops_algorithm_b_as_printed() -> None:
    found = search("suzuki-kasami-b", 2, 4, as_printed=True)
    assert found.violated == "stuck"
    assert len(found.path) == 18


def test_implicit_replies_need_their_time() -> None:
    # Timers that may fire at any time: no delay bound is kept.
    found = search("ricart-agrawala-implicit", 2, 1)
    assert found.violated == "two inside"


def test_failure_handling_as_printed_is_unsafe_when_nobody_is_dead() -> None:
    found = search("ricart-agrawala-failures", 2, 1, {2: "write"}, as_printed=True)
    assert found.violated == "two inside"
