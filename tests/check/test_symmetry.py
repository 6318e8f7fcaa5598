"""Reductions by symmetry: used where the algorithm allows it, and with the same verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peerlock.algorithms import CATALOGUE, AlgorithmSpec, choose
from peerlock.check import counterexample
from peerlock.check.model import ANY, Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.check.symmetry import NotSymmetric, Symmetry, groups
from peerlock.check.verdicts import shapes_of
from peerlock.contract import Members, NodeId, Shape
from peerlock.sim.transcript import play
from peerlock.user_algorithm import load, wrap

ROOT = Path(__file__).parents[2]


def full(spec: AlgorithmSpec, shapes: dict[NodeId, Shape], entries: list[int], **settings: Any) -> Outcome:
    model = Model(spec, shapes, entries, **settings)
    return Search(model, Checks(standard(model))).run()


def reduced(
    spec: AlgorithmSpec, shapes: dict[NodeId, Shape], entries: list[int], **settings: Any
) -> tuple[Search, Outcome, str]:
    """With the largest group that the algorithm allows."""
    for name, group in groups(shapes).items():
        model = Model(spec, shapes, entries, **settings)
        try:
            symmetry = Symmetry(model, group)
            search = Search(model, Checks(standard(model)), symmetry=symmetry)
            outcome = search.run()
            symmetry.verify(search.engine)
            return search, outcome, name
        except NotSymmetric:
            continue
    raise NotSymmetric(spec.name)


@pytest.mark.parametrize(("n", "states"), [(3, 29), (4, 101), (5, 347), (6, 1_187)])
def test_a_ring_has_as_many_rotations_as_nodes(n: int, states: int) -> None:
    shapes = shapes_of("dijkstra-ring", n)
    _, outcome, _ = reduced(choose("dijkstra-ring"), shapes, [ANY] * n)
    whole = full(choose("dijkstra-ring"), shapes, [ANY] * n)
    assert (outcome.states, outcome.violated) == (states, None)
    assert whole.states == states * n


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_verdicts_agree_wherever_it_applies(name: str, fifo: bool) -> None:
    spec, shapes = choose(name), shapes_of(name, 3)
    ticks = 1 if spec.needs.delay_bound else None
    whole = full(spec, shapes, [1, 1, 1], fifo=fifo, delay_bound=ticks)
    assert whole.violated is None
    try:
        _, outcome, group = reduced(spec, shapes, [1, 1, 1], fifo=fifo, delay_bound=ticks)
    except NotSymmetric:
        # A tie broken by node number, or a loop from 1 to N: who is who matters.
        assert name not in ("dijkstra-ring", "ricart-agrawala-token")
        return
    assert (outcome.finished, outcome.violated) == (True, None)
    assert outcome.states < whole.states
    assert (name, group) in (("dijkstra-ring", "all permutations"), ("ricart-agrawala-token", "rotations"))


def broken(tmp_path: Path) -> AlgorithmSpec:
    """The coordinator of the example, which forgets that somebody is inside when a second request comes."""
    text = (ROOT / "examples" / "my_lock.py").read_text()
    text = text.replace(
        "            self.queue = (*self.queue, source)\n",
        "            self.queue = (*self.queue, source)\n            self.holder = 0\n",
    )
    (tmp_path / "broken.py").write_text(text)
    return wrap(load(str(tmp_path / "broken.py"), "CentralLock"))


def test_a_counterexample_is_unfolded(tmp_path: Path) -> None:
    shapes: dict[NodeId, Shape] = dict.fromkeys((1, 2, 3), Members((1, 2, 3), 1))
    search, outcome, _ = reduced(broken(tmp_path), shapes, [1, 1, 1])
    assert outcome.violated == "mutual exclusion"
    assert outcome.row is not None
    way = search.way_to(outcome.row)
    assert len(way) == full(broken(tmp_path), shapes, [1, 1, 1]).depth
    setting = [f"algorithm {tmp_path / 'broken.py'}:CentralLock", "nodes 3"]
    assert "VIOLATION" in play(counterexample.transcript(search.model, way, setting, "two inside"))
