"""One suite over the whole catalogue: every algorithm, N = 2 to 9, 200 seeds, in both orders of delivery, from the paper's
start and with somebody inside."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest

from peerlock.algorithms import CATALOGUE
from peerlock.user_algorithm import find
from running import assert_sound, run_seeds, topologies_for, writer

SEEDS = range(1, 201)
ENTRIES = 3

# Variants that a user gets by an option are algorithms of their own here.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in CATALOGUE),
    ("suzuki-kasami-b", {"l": 3}),
    ("ricart-agrawala", {"own_counts": True}),
    ("ricart-agrawala-token", {"first_pass": True}),
]
IDS = [name + "".join(f"-{key}" for key in options) for name, options in VARIANTS]


def delays_for(name: str) -> list[str]:
    delays = ["uniform:0.5,1.5", "adversary:4"]
    return delays if find(name).needs.delay_bound else [*delays, "exponential:1"]


@pytest.mark.parametrize("fifo", [False, True], ids=["any-order", "fifo"])
@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_from_the_papers_start(name: str, options: dict[str, Any], n: int, fifo: bool) -> None:
    settings = [(t, d) for t in topologies_for(name, n) for d in delays_for(name)]
    parts = [SEEDS[at :: len(settings)] for at in range(len(settings))]
    for (topology, delay), seeds in zip(settings, parts, strict=True):
        for seed, ran in zip(
            seeds,
            run_seeds(
                name, seeds, nodes=n, options=options, fifo=fifo, topology=topology, delay=delay, entries=ENTRIES,
                home=seeds[0] % n + 1,
            ),
            strict=True,
        ):  # fmt: skip
            assert_sound(ran, seed, n * ENTRIES)


@pytest.mark.parametrize("fifo", [False, True], ids=["any-order", "fifo"])
@pytest.mark.parametrize("n", range(2, 10))
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_with_somebody_inside(name: str, options: dict[str, Any], n: int, fifo: bool) -> None:
    settings = list(zip(range(1, n + 1), cycle((t, d) for t in topologies_for(name, n) for d in delays_for(name))))
    parts = [SEEDS[at :: len(settings)] for at in range(len(settings))]
    for (node, (topology, delay)), seeds in zip(settings, parts, strict=True):
        for seed, ran in zip(
            seeds,
            run_seeds(
                name, seeds, nodes=n, options=options, fifo=fifo, topology=topology, delay=delay, entries=ENTRIES,
                inside=writer(node), home=node % n + 1,
            ),
            strict=True,
        ):  # fmt: skip
            assert_sound(ran, seed, n * ENTRIES)


@pytest.mark.parametrize("n", range(2, 10))
def test_readers_inside(n: int) -> None:
    for readers in range(1, n + 1):
        seeds = range(readers, 200, n)
        for seed, ran in zip(
            seeds,
            run_seeds(
                "ricart-agrawala-rw", seeds, nodes=n, entries=ENTRIES, inside=dict.fromkeys(range(1, readers + 1), "read"),
                delay="adversary:3",
            ),
            strict=True,
        ):  # fmt: skip
            assert_sound(ran, seed, n * ENTRIES)


@pytest.mark.parametrize("load", ["closed:5", "poisson:0.05", "burst:20", "hot:1,0.8", "nodes:1,3"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_under_every_load(name: str, load: str) -> None:
    for seed, ran in enumerate(run_seeds(name, range(1, 21), nodes=4, load=load, entries=5), 1):
        assert_sound(ran, seed, 10 if load == "nodes:1,3" else 20)


# A pause breaks the delay bound, on which the others rest: tests/papers shows what happens to them.
@pytest.mark.parametrize("name", [name for name in CATALOGUE if not find(name).needs.delay_bound])
def test_a_paused_node_holds_nobody_up_for_ever(name: str) -> None:
    for seed, ran in enumerate(
        run_seeds(name, range(1, 41), nodes=4, entries=4, faults=("pause:2@1..30", "pause:3@5..8")), 1
    ):
        assert_sound(ran, seed, 16)
