"""What many tests do: run experiments and look at the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from peerlock.contract import Mode, Neighbours, NodeId, Ring
from peerlock.observe.metrics import Metrics
from peerlock.sim.experiment import Experiment, Prepared
from peerlock.sim.world import World
from peerlock.user_algorithm import find


class Ran(Struct):
    metrics: Metrics
    world: World
    prepared: Prepared

    @property
    def costs(self) -> list[int]:
        return [cost.messages for cost in self.metrics.made]


def run(algorithm: str, seed: int = 1, **settings: Any) -> Ran:
    return next(run_seeds(algorithm, [seed], **settings))


def run_seeds(algorithm: str, seeds: Iterable[int], **settings: Any) -> Iterator[Ran]:
    prepared = Experiment(algorithm=algorithm, **settings).prepare()
    for seed in seeds:
        metrics = Metrics()
        yield Ran(metrics, prepared.run(seed, [metrics]), prepared)


def replay_command(ran: Ran, seed: int) -> str:
    """What to type to see a failure again."""
    experiment = ran.prepared.experiment
    words = [
        f"peerlock sim {experiment.algorithm} -n {ran.prepared.topology.n} --seed {seed} --entries {experiment.entries}"
    ]
    words += [f"--delay {experiment.delay} --load {experiment.load} --hold {experiment.hold}"]
    words += [f"--topology {experiment.topology}"] if experiment.topology else []
    words += ["--fifo"] if experiment.fifo else []
    words += ["--as-printed"] if experiment.as_printed else []
    words += [f"--inside {node}:{mode}" for node, mode in experiment.inside.items()]
    words += [f"--set {key}={value}" for key, value in experiment.options.items()]
    words += [f"--fault {fault}" for fault in experiment.faults]
    return " ".join([*words, "--trace failure.jsonl"])


def assert_sound(ran: Ran, seed: int, entries: int | None = None) -> None:
    """Nobody inside with another, nobody left waiting, and every message an entry costs is one that the paper admits."""
    again = replay_command(ran, seed)
    metrics, chosen, network = ran.metrics, ran.prepared.spec, ran.prepared.topology
    assert metrics.violations == 0, again
    assert ran.world.stuck() == [], again
    if entries is not None:
        assert sum(metrics.entries.values()) == entries, again
    charged = sum(cost.messages for cost in metrics.costs) + metrics.overhead.messages
    assert charged == metrics.messages, again
    if chosen.claimed is not None:
        bounds = chosen.claimed.bounds(network.size(chosen.options.get("l", 2)))
        assert bounds is not None
        assert bounds[0] <= min(ran.costs), again
        assert max(ran.costs) <= bounds[1], again


def topologies_for(algorithm: str, n: int) -> list[str | None]:
    """Networks on which an algorithm runs."""
    shape = find(algorithm).needs.shape
    if shape is Neighbours:
        return ["complete"] if n == 2 else ["ring", "line", "star", "tree", "random", "complete"]
    return [None] if shape is not Ring else ["ring"]


def writer(node: NodeId) -> dict[NodeId, Mode]:
    return {node: "write"}
