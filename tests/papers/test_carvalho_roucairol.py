"""Carvalho and Roucairol 1983 and the authors' response: what they claim, as far as simulation can decide it."""

from __future__ import annotations

import pytest

from peerlock.algorithms.carvalho_roucairol import CarvalhoRoucairol
from peerlock.contract import NodeId
from peerlock.sim.experiment import Experiment
from peerlock.sim.world import World
from peerlock.trace import Keeper, Recorder
from running import run, run_seeds


@pytest.mark.parametrize("n", [2, 4, 8])
def test_cr_msg(n: int) -> None:
    """CR-MSG: 0 to 2(N-1), and both ends are reached."""
    costs: set[int] = set()
    for ran in run_seeds("carvalho-roucairol", range(1, 51), nodes=n, delay="adversary:3", load="closed:2"):
        costs |= set(ran.costs)
    assert min(costs) == 0
    assert max(costs) == 2 * (n - 1)


def test_cr_auth() -> None:
    """CR-AUTH: never both A_i[j] and A_j[i]."""

    class Watch(Recorder):
        world: World | None = None

        def received(self, t: float, id: int, node: NodeId, source: NodeId) -> None:
            assert self.world is not None
            a = {j: place.algorithm.a for j, place in self.world.places.items()}
            for i, permitted in a.items():
                assert not any(i in a[j] for j in permitted)

    for seed in range(1, 51):
        watch = Watch()
        prepared = Experiment(algorithm="carvalho-roucairol", nodes=4, delay="adversary:3").prepare()
        watch.world = prepared.world(seed, [watch])
        watch.world.run()


def test_cr_order() -> None:
    """CR-ORDER: not first come first served: a node enters twice while another's request is on its way."""
    overtaken = 0
    for seed in range(1, 21):
        keeper = Keeper()
        Experiment(algorithm="carvalho-roucairol", nodes=2, entries=20, load="closed:0.2").prepare().run(seed, [keeper])
        since: dict[NodeId, float] = {}
        for event in keeper.events:
            if event.event == "requested":
                since[event.node] = event.t
            elif event.event == "entered":
                mine = since.pop(event.node)
                overtaken += any(other < mine for other in since.values())
    assert overtaken > 0


@pytest.mark.parametrize("n", [2, 5])
def test_resp_master(n: int) -> None:
    """RESP-MASTER: when all is quiet, the last node to have entered holds every permission."""
    for seed in range(1, 51):
        keeper = Keeper()
        world = Experiment(algorithm="carvalho-roucairol", nodes=n, delay="adversary:3").prepare().run(seed, [keeper])
        last = [event.node for event in keeper.events if event.event == "entered"][-1]
        master = world.places[last].algorithm
        assert isinstance(master, CarvalhoRoucairol)
        assert len(master.a) == n - 1


def test_resp_round1() -> None:
    """RESP-ROUND1: the first round of the original and of the modified algorithm are identical."""
    for seed in range(1, 31):
        traces = []
        for name in ("ricart-agrawala", "carvalho-roucairol"):
            keeper = Keeper()
            Experiment(algorithm=name, nodes=4, entries=1, delay="adversary:3").prepare().run(seed, [keeper])
            traces.append(
                [(event.event, event.t, event.node, event.to, event.kind, event.fields) for event in keeper.events[1:]]
            )
        assert traces[0] == traces[1]


@pytest.mark.parametrize("n", [2, 5, 9])
def test_rt_msg(n: int) -> None:
    """RT-MSG: the Appendix's algorithm: 0 or N."""
    for ran in run_seeds("ricart-agrawala-token", range(1, 31), nodes=n, delay="adversary:3", load="closed:1"):
        assert set(ran.costs) <= {0, n}


def test_rt_origin() -> None:
    """RT-ORIGIN: the token made by one pass; exactly one is made."""
    for ran in run_seeds(
        "ricart-agrawala-token", range(1, 51), nodes=5, options={"first_pass": True}, delay="adversary:3"
    ):
        assert ran.metrics.by_kind()["MADE"] == 4
        assert sum(place.algorithm.then.have_token for place in ran.world.places.values()) == 1


def test_table_1_note_3() -> None:
    """TABLE-I, Note 3: from a quiet network one round trip, for all three (one way is 0.5 of it)."""
    for name in ("ricart-agrawala", "carvalho-roucairol", "ricart-agrawala-token"):
        ran = run(name, nodes=5, delay="constant:1", load="nodes:3", entries=1)
        assert ran.metrics.waits == [2.0]
