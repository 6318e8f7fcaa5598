"""Suzuki and Kasami 1985: what the paper claims, as far as simulation can decide it."""

from __future__ import annotations

from typing import Any

import pytest

from peerlock.contract import NodeId, Wire
from peerlock.trace import Keeper, Recorder
from running import Ran, run, run_seeds


def window_costs(ran: Ran, l: int) -> list[int]:
    """Messages of any L successive entries of a node."""
    by_node: dict[NodeId, list[int]] = {}
    order = iter(ran.metrics.made)
    for node in _entering(ran):
        by_node.setdefault(node, []).append(next(order).messages)
    return [sum(costs[at : at + l]) for costs in by_node.values() for at in range(len(costs) - l + 1)]


def _entering(ran: Ran) -> list[NodeId]:
    keeper = Keeper()
    ran.prepared.run(recorders=[keeper])
    return [event.node for event in keeper.events if event.event == "requested"]


@pytest.mark.parametrize("n", [2, 3, 5, 9])
def test_sk_a_max(n: int) -> None:
    """SK-A-MAX: at most N messages an entry, N-1 REQUEST and 1 PRIVILEGE."""
    for ran in run_seeds("suzuki-kasami-a", range(1, 51), nodes=n, delay="adversary:3"):
        assert set(ran.costs) <= {0, n}
        kinds = ran.metrics.by_kind()
        assert kinds["REQUEST"] == (n - 1) * kinds["PRIVILEGE"]


def test_sk_a_zero() -> None:
    """SK-A-ZERO: none when the holder is the only one requesting."""
    assert set(run("suzuki-kasami-a", nodes=5, load="nodes:1").costs) == {0}


def test_sk_a_delay() -> None:
    """SK-A-DELAY: from exit to the next entry one one-way trip; a request is known everywhere after one."""
    ran = run("suzuki-kasami-a", nodes=5, delay="constant:1", hold="constant:3")
    assert set(map(round, ran.metrics.sync_delays)) == {1}
    lone = run("suzuki-kasami-a", nodes=5, delay="constant:1", load="nodes:2", entries=1)
    assert lone.metrics.waits == [2.0]


def test_sk_a_nth() -> None:
    """SK-A-NTH: REQUEST(j, n) asks for j's (n+1)st entry only if j never entered without asking."""

    class Requests(Recorder):
        def __init__(self) -> None:
            self.entries, self.off = 0, 0

        def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None:
            if node == 2 and message.kind == "REQUEST":
                self.off = max(self.off, self.entries - getattr(message, "n", 0))

        def entered(self, t: float, node: NodeId, mode: Any) -> None:
            self.entries += node == 2

    requests = Requests()
    ran = run("suzuki-kasami-a", nodes=2, entries=20, load="closed:1")
    ran.prepared.run(recorders=[requests])
    assert requests.off > 0


def test_sk_a_unb() -> None:
    """SK-A-UNB: the numbers grow with the entries."""

    def highest(entries: int) -> int:
        return int(max(run("suzuki-kasami-a", nodes=3, entries=entries).world.places[2].algorithm.rn))

    assert highest(10) < highest(40) < highest(160)


@pytest.mark.parametrize("l", [2, 3, 5])
def test_sk_b_bound(l: int) -> None:
    """SK-B-BOUND: every number stays in 0..L-1."""
    for ran in run_seeds("suzuki-kasami-b", range(1, 31), nodes=4, entries=20, options={"l": l}, delay="adversary:3"):
        for place in ran.world.places.values():
            assert max(place.algorithm.rn) < l
            assert max(place.algorithm.ln, default=0) < l


@pytest.mark.parametrize("l", [2, 3, 5])
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_sk_b_max(n: int, l: int) -> None:
    """SK-B-MAX: at most L*N + (N-1) messages for L invocations by one node."""
    for ran in run_seeds("suzuki-kasami-b", [1], nodes=n, entries=4 * l, options={"l": l}):
        assert max(window_costs(ran, l)) <= l * n + (n - 1)


def test_sk_b_avg() -> None:
    """SK-B-AVG: N + (N-1)/L an entry where every entry is asked for, tending to N."""
    n, means = 5, []
    for l in (2, 4, 8):
        # Long stays and little thinking: everybody always waits, nobody enters without asking.
        ran = run("suzuki-kasami-b", nodes=n, entries=8 * l + 1, options={"l": l}, hold="constant:5")
        asked = [cost for cost in ran.costs if cost]
        assert len(asked) >= len(ran.costs) - 2
        means.append(sum(asked) / len(asked))
        assert means[-1] == pytest.approx(n + (n - 1) / l, rel=0.03)
    assert means == sorted(means, reverse=True)


def test_sk_b_me_as_printed_fails() -> None:
    """SK-B-ME: as printed nodes are left waiting; repaired they never are (tests/catalogue)."""
    stuck = [bool(ran.world.stuck()) for ran in run_seeds("suzuki-kasami-b", range(1, 51), nodes=3, as_printed=True)]
    assert any(stuck)


def test_sk_b_bits() -> None:
    """SK-B-BITS: more bytes an entry than Ricart-Agrawala."""

    def bytes_per_entry(name: str) -> float:
        ran = run(name, nodes=8, entries=30)
        return sum(cost.size for cost in ran.metrics.made) / len(ran.metrics.made)

    assert bytes_per_entry("suzuki-kasami-b") > bytes_per_entry("ricart-agrawala")


def test_sk_b_faster() -> None:
    """SK-B-FASTER: fewer messages than Ricart-Agrawala for N = 5 and L = 4."""
    b = run("suzuki-kasami-b", nodes=5, options={"l": 4}, entries=40, hold="constant:2")
    ra = run("ricart-agrawala", nodes=5, entries=40, hold="constant:2")
    assert sum(b.costs) < sum(ra.costs)
