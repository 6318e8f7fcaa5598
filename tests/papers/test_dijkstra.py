"""Dijkstra 1983: the invariants of the note, looked at after every step of many runs.

P0 and P1 hold between steps. P3 speaks of the process and its left-hand neighbour between steps as well. P4, P5 speak of the
recipient at the moment of receipt, before the step that the message causes.
"""

from __future__ import annotations

import pytest

from peerlock.algorithms.dijkstra_ring import DijkstraRing, Signal, Token
from peerlock.contract import NodeId, Wire
from peerlock.sim.experiment import Experiment
from peerlock.sim.world import World
from peerlock.trace import Recorder
from running import run


class Watch(Recorder):
    """Checks every invariant at every receipt, and how many messages each connection carries."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.flight: dict[int, tuple[NodeId, NodeId, Wire]] = {}
        self.seen: set[str] = set()

    def node(self, j: NodeId) -> DijkstraRing:
        assert self.world is not None
        algorithm = self.world.places[j].algorithm
        assert isinstance(algorithm, DijkstraRing)
        return algorithm

    def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None:
        self.flight[id] = (node, to, message)
        # EWD-LINK. A connection is a process with its right-hand neighbour: signals leave it, the token comes to it.
        on = [a if isinstance(m, Signal) else b for a, b, m in self.flight.values()]
        assert len(on) == len(set(on))

    def received(self, t: float, id: int, node: NodeId, source: NodeId) -> None:
        _, _, message = self.flight.pop(id)
        process = self.node(node)
        if isinstance(message, Signal):
            assert not process.black  # P4
            self.seen.add("P4")
        else:
            assert process.black or process.section == "waiting"  # P5
            self.seen.add("P5")
        self.between_steps()

    def between_steps(self) -> None:
        assert self.world is not None
        nodes = {j: self.node(j) for j in self.world.places}
        tokens = sum(process.holds_token for process in nodes.values())
        # The message being received has been taken out of flight already.
        tokens += sum(isinstance(message, Token) for _, _, message in self.flight.values())
        assert tokens <= 1
        for process in nodes.values():
            if process.section == "critical":
                assert process.holds_token  # P0
                self.seen.add("P0")
            if process.holds_token:
                assert process.section != "waiting"  # P1
                self.seen.add("P1")
            if process.holds_token and process.section == "noncritical":
                assert not process.black  # P6
                self.seen.add("P6")
            left = nodes[process.left]
            if process.black and not left.black:
                assert left.section == "waiting"  # P3
                self.seen.add("P3")


@pytest.mark.parametrize("n", [2, 3, 4, 6, 9])
def test_invariants(n: int) -> None:
    """EWD-P0, P1, P3, P4, P5, P6 and EWD-LINK."""
    seen: set[str] = set()
    for seed in range(1, 41):
        watch = Watch()
        prepared = Experiment(
            algorithm="dijkstra-ring", nodes=n, entries=5, load="closed:3", delay="exponential:1"
        ).prepare()
        watch.world = prepared.world(seed, [watch])
        watch.world.run()
        seen |= watch.seen
    assert seen >= {"P0", "P1", "P3", "P4", "P5", "P6"}


def test_ewd_quiet() -> None:
    """EWD-QUIET: no messages flow while nobody wants to enter; the holder enters without any."""
    ran = run("dijkstra-ring", nodes=5, load="nodes:1", entries=20)
    assert ran.metrics.messages == 0
    assert ran.metrics.entries == {1: 20}


def test_only_a_mean_is_given() -> None:
    """Signals serve many."""
    from peerlock.observe.metrics import summary

    figures = summary([run("dijkstra-ring", nodes=5).metrics], mean_only=True)
    mean = figures["messages_per_entry"]["mean"]
    assert mean is not None
    assert figures["messages_per_entry"]["min"] is None
    assert mean * figures["entries"] == figures["messages"]
    assert figures["overhead"] == 0
