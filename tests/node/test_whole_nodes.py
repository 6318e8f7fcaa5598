"""The very nodes that ship, in the simulator. `make sim-nodes` runs ten thousand seeds of this."""

from __future__ import annotations

import pytest

from peerlock.cli.sim_nodes import _one
from peerlock.mutants.nodes import PLANTED
from peerlock.node.core import Core
from peerlock.node.wire_algorithms import ON_THE_WIRE
from peerlock.sim.cluster.process import FAULTS, Broken, Plan, run


@pytest.mark.parametrize("algorithm", ON_THE_WIRE)
def test_seeds(algorithm: str) -> None:
    faults: dict[str, int] = {}
    for seed in range(1, 101):
        plan = Plan(algorithm=algorithm, readers=algorithm.endswith("-rw"))
        found = run(seed, plan)
        assert found.grants >= 200
        for fault, count in found.faults.items():
            faults[fault] = faults.get(fault, 0) + count
    assert not [fault for fault in FAULTS if not faults.get(fault)], "every kind of fault happens"


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    for seed in range(2000):
        if "problem" in _one((seed, "suzuki-kasami-a", 4, 200, bug, "host")):
            return
    pytest.fail(f"{bug} was not found in 2000 seeds")


def test_one_seed_is_one_run() -> None:
    assert run(7, Plan()) == run(7, Plan())


def test_the_oracle_sees_two_holders() -> None:
    class Careless(Core):
        def begin(self) -> None:
            super().begin()
            self.numbers = {**self.numbers}
            self.table.opening.clear()

        def report(self) -> None:
            for local_lock in self.table.busy():
                local_lock.held = lambda: None  # type: ignore[method-assign]
            super().report()

    def look() -> None:
        for seed in range(50):
            run(seed, Plan(core=Careless))

    with pytest.raises((Broken, AssertionError, AttributeError)):
        look()
