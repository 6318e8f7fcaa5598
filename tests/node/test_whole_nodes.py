"""The very nodes that ship, in the simulator: seeds without a violation, and planted bugs that are found.

`make sim-nodes` and `make sim-leases` run ten thousand seeds of this.
"""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from peerlock.node.core import Core
from peerlock.node.wire_algorithms import ON_THE_WIRE
from peerlock.sim.cluster import KINDS, Broken, Plan, run
from peerlock.sim.cluster.planted import PLANTED
from peerlock.sim.cluster.seeds import PLANS, Job, explore

SEEDS = {"host": 50, "attached": 40, "static": 20, "voters": 20, "store": 40}
FAULTS = {kind: set(KINDS[kind].nemesis.faults) for kind in PLANS}
NEVER = {"voters": {"store away"}, "store": {fault for fault in FAULTS["store"] if "voter" in fault}}
RARE = {"few voters for good"}


@pytest.mark.parametrize("registry", PLANS)
@pytest.mark.parametrize("algorithm", ON_THE_WIRE)
def test_seeds(algorithm: str, registry: str) -> None:
    plan = replace(PLANS[registry], algorithm=algorithm, readers=algorithm.endswith("-rw"))
    for seed in range(1, SEEDS[registry] + 1):
        found = run(seed, plan)
        assert found.grants >= 200
        assert sum(found.faults.values()) >= 5


@pytest.mark.parametrize(
    ("seed", "algorithm"),
    [
        (2550, "ricart-agrawala-token"),
        (5667, "helary-plouzeau-raynal"),
    ],  # the owner of a token has not heard which nodes wait
)
def test_seeds_that_found_something(seed: int, algorithm: str) -> None:
    assert not explore(Job(seed, registry="attached", algorithm=algorithm)).problem


@pytest.mark.parametrize("registry", PLANS)
def test_every_kind_of_fault_happens(registry: str) -> None:
    faults = sum((run(seed, PLANS[registry]).faults for seed in range(1, 60)), Counter[str]())
    assert FAULTS[registry] - (+faults).keys() - NEVER.get(registry, set()) <= RARE


# Seeds that found them last, to be tried first: without them these take a minute each.
NEAR = {
    "requests sent to the successor alone": 549,
    "lease counted from the answer": 35,
    "voters renew after accepting": 1806,
    "a voter forgets what it has accepted": 547,
    "what was accepted is not proposed again": 16,
    "an old wish admits a peer": 106,
    "voters remember members that left": 89,
    "store: lease counted from the answer": 1322,
    "list: an epoch is not durable": 37,
    "holds without permission": 147,
    "attached: no report is waited for": 31,
    "attached: a silent process is not revoked": 587,
    "attached: other hosts wait for idle processes": 25,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str) -> None:
    for seed in (NEAR.get(bug, 1), *range(1, 2001)):
        if explore(Job(seed, planted=bug)).problem:  # by the oracle, or by the node itself
            return
    pytest.fail(f"{bug} was not found in 2000 seeds")


@pytest.mark.parametrize("registry", PLANS)
def test_one_seed_is_one_run(registry: str) -> None:
    assert run(7, PLANS[registry]) == run(7, PLANS[registry])


def test_the_oracle_sees_two_holders() -> None:
    class Careless(Core):
        def begin(self) -> None:
            super().begin()
            self.links.numbers = {**self.links.numbers}
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
