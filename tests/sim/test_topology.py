"""Networks."""

from __future__ import annotations

import pytest

from peerlock.contract import Needs, Neighbours, Ring
from peerlock.sim import topology


@pytest.mark.parametrize(
    ("text", "n", "kind", "edges", "diameter"),
    [
        ("complete", 6, "complete", 15, 1),
        ("ring", 6, "ring", 6, 3),
        ("ring", 3, "complete", 3, 1),
        ("ring", 2, "complete", 1, 1),
        ("line", 5, "line", 4, 4),
        ("star", 5, "tree", 4, 2),
        ("tree", 7, "tree", 6, 4),
        ("tree:3", 13, "tree", 12, 4),
        ("grid", 12, "general", 17, 5),
        ("grid:3x3", 9, "general", 12, 4),
        ("regular:4", 9, "general", 18, 2),
        ("random:1", 5, "complete", 10, 1),
    ],
)
def test_shapes(text: str, n: int, kind: str, edges: int, diameter: int) -> None:
    made = topology.parse(text, n)
    assert (made.n, made.kind, made.edges, made.diameter) == (n, kind, edges, diameter)


def test_a_random_network_is_the_same_every_time() -> None:
    assert topology.parse("random", 20).neighbours == topology.parse("random", 20).neighbours


def test_neighbours_are_mutual_and_nodes_know_nothing_else() -> None:
    shapes = topology.parse("random", 12).shapes(Needs(shape=Neighbours))
    for j, shape in shapes.items():
        assert isinstance(shape, Neighbours)
        for k in shape.names:
            other = shapes[k]
            assert isinstance(other, Neighbours)
            assert j in other.names


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_ring_goes_round(n: int) -> None:
    shapes = topology.parse("ring", n).shapes(Needs(shape=Ring))
    seen, at = [], 1
    for _ in range(n):
        seen.append(at)
        shape = shapes[at]
        assert isinstance(shape, Ring)
        following = shapes[shape.right]
        assert isinstance(following, Ring)
        assert following.left == at
        at = shape.right
    assert at == 1
    assert sorted(seen) == list(range(1, n + 1))
