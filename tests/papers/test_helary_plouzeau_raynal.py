"""Helary, Plouzeau and Raynal 1986: what the paper claims, as far as simulation can decide it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peerlock.contract import NodeId
from peerlock.sim.experiment import Experiment
from peerlock.trace import Event, Keeper
from running import assert_sound, run, run_seeds

TOPOLOGIES = Path(__file__).parents[2] / "examples" / "topologies"


def events_of(seed: int = 1, **settings: Any) -> list[Event]:
    keeper = Keeper()
    Experiment(algorithm="helary-plouzeau-raynal", **settings).prepare().run(seed, [keeper])
    return keeper.events


def request_messages(events: list[Event]) -> dict[tuple[NodeId, int], list[Event]]:
    """The REQ messages of every request."""
    requests: dict[tuple[NodeId, int], list[Event]] = {}
    for event in events:
        if event.kind == "REQ" and event.fields:
            requests.setdefault((event.fields["req_origin"], event.fields["req_time"]), []).append(event)
    return requests


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("Abilene", 5),
        ("Arpanet19728", 5),
        ("Geant2012", 4),
        ("UsCarrier", 2),
        pytest.param("Kdl", 1, marks=pytest.mark.slow),
    ],
)
def test_real_networks(name: str, entries: int) -> None:
    """All nodes of five real networks enter."""
    path = str(TOPOLOGIES / f"{name}.gml")
    ran = run("helary-plouzeau-raynal", topology=path, entries=entries)
    assert_sound(ran, 1, ran.prepared.topology.n * entries)


def test_hpr_zero() -> None:
    """HPR-ZERO: none when the owner enters."""
    assert set(run("helary-plouzeau-raynal", nodes=6, topology="ring", load="nodes:1").costs) == {0}


@pytest.mark.parametrize("topology", ["line", "star", "tree"])
@pytest.mark.parametrize("n", [4, 7])
def test_hpr_tree(topology: str, n: int) -> None:
    """HPR-TREE: broadcasting takes exactly n-1 and the total is n to n-1+d, if lines keep the order; at most that, if not."""
    for fifo in (True, False):
        for seed in range(1, 21):
            events = events_of(seed, nodes=n, topology=topology, delay="adversary:3", entries=4, fifo=fifo)
            counts = {len(messages) for messages in request_messages(events).values()}
            assert counts == {n - 1} if fifo else max(counts) <= n - 1
        for ran in run_seeds(
            "helary-plouzeau-raynal", range(1, 21), nodes=n, topology=topology, delay="adversary:3", fifo=fifo
        ):
            asked = [cost for cost in ran.costs if cost]
            assert not fifo or n <= min(asked)
            assert max(asked) <= n - 1 + ran.prepared.topology.diameter


def test_hpr_tree_a_request_can_be_overtaken() -> None:
    """HPR-TREE fails below: overtaken by the next request of its origin, a request needs fewer than n-1 messages."""
    fewest = 6
    for seed in range(1, 21):
        events = events_of(seed, nodes=7, topology="line", delay="adversary:3", entries=4)
        fewest = min(fewest, *(len(messages) for messages in request_messages(events).values()))
    assert fewest < 6


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_hpr_ring(n: int) -> None:
    """HPR-RING: broadcasting takes at most n+1 (and the total at most 2n: tests/catalogue)."""
    for seed in range(1, 41):
        events = events_of(seed, nodes=n, topology="ring", delay="adversary:3", entries=4)
        assert max(len(messages) for messages in request_messages(events).values()) <= n + 1
    # A lone request cannot be overtaken, and then it takes n-1 at least.
    for seed in range(1, 41):
        events = events_of(seed, nodes=n, topology="ring", delay="adversary:3", entries=1, load="nodes:2")
        assert {len(messages) for messages in request_messages(events).values()} <= {n - 1, n, n + 1}


def test_hpr_ring_as_printed_fails() -> None:
    """HPR-RING as printed: a forgotten request is flooded again, beyond n+1 messages."""
    most = 0
    for seed in range(1, 101):
        events = events_of(seed, nodes=8, topology="ring", delay="adversary:3", entries=4, as_printed=True)
        most = max(most, *(len(messages) for messages in request_messages(events).values()))
    assert most > 9


def test_hpr_general_as_printed_fails() -> None:
    """HPR-GENERAL as printed: a request can cross a line more than twice. Repaired: never (below)."""
    assert max(_crossings(seed, as_printed=True) for seed in range(1, 31)) > 2


def test_hpr_general() -> None:
    """HPR-GENERAL: a request crosses a line at most twice."""
    assert max(_crossings(seed, as_printed=False) for seed in range(1, 31)) == 2


def _crossings(seed: int, as_printed: bool) -> int:
    events = events_of(seed, nodes=12, topology="regular:4", delay="adversary:3", entries=3, as_printed=as_printed)
    most = 0
    for messages in request_messages(events).values():
        lines: dict[frozenset[NodeId], int] = {}
        for event in messages:
            assert isinstance(event.to, int)
            line = frozenset((event.node, event.to))
            lines[line] = lines.get(line, 0) + 1
        most = max(most, *lines.values())
    return most


@pytest.mark.parametrize("n", [3, 6])
def test_hpr_complete(n: int) -> None:
    """HPR-COMPLETE: exactly n."""
    for ran in run_seeds("helary-plouzeau-raynal", range(1, 31), nodes=n, topology="complete", delay="adversary:3"):
        assert set(ran.costs) <= {0, n}


def test_hpr_l1_and_l2() -> None:
    """HPR-L1, HPR-L2: a request reaches everybody, and the token retraces its path."""
    events = events_of(nodes=9, topology="random", load="nodes:7", entries=1)
    received = {event.id for event in events if event.event == "received"}
    (messages,) = request_messages(events).values()
    assert {event.to for event in messages if event.id in received and isinstance(event.to, int)} == set(
        range(1, 10)
    ) - {7}
    first: dict[NodeId, NodeId] = {}
    by_id = {event.id: event for event in messages}
    for event in events:
        if event.event == "received" and event.id in by_id:
            first.setdefault(event.node, event.source or 0)
    for event in events:
        if event.kind == "TOKEN":
            assert event.to == first[event.node]


def test_hpr_sf_as_printed_fails() -> None:
    """HPR-SF as printed: the larger the other nodes' share of work, the longer the largest name waits. Repaired: not."""

    def longest_wait(entries: int, as_printed: bool) -> float:
        keeper = Keeper()
        Experiment(
            algorithm="helary-plouzeau-raynal", nodes=4, topology="complete", entries=entries, delay="constant:1",
            hold="constant:1.5", as_printed=as_printed,
        ).prepare().run(recorders=[keeper])  # fmt: skip
        asked, longest = 0.0, 0.0
        for event in keeper.events:
            if event.node == 4 and event.event == "requested":
                asked = event.t
            elif event.node == 4 and event.event == "entered":
                longest = max(longest, event.t - asked)
        return longest

    printed = [longest_wait(entries, True) for entries in (10, 20, 40)]
    assert printed[0] * 3 < printed[1] * 2 < printed[2] * 1.5
    repaired = [longest_wait(entries, False) for entries in (10, 20, 40)]
    assert max(repaired) < 15


def test_hpr_time_on_a_tree() -> None:
    """HPR-TIME: with unit delays on a tree a lone request takes at most 2d."""
    for home in range(1, 8):
        for asking in range(1, 8):
            ran = run(
                "helary-plouzeau-raynal",
                nodes=7,
                topology="tree",
                delay="constant:1",
                home=home,
                entries=1,
                load=f"nodes:{asking}",
            )
            assert max(ran.metrics.waits) <= 2 * ran.prepared.topology.diameter


def test_hpr_reconf_when_quiet() -> None:
    """HPR-RECONF: neighbour sets may change while no request and no token is under way."""
    prepared = Experiment(
        algorithm="helary-plouzeau-raynal", nodes=4, topology="line", load="burst:50", entries=2
    ).prepare()
    world = prepared.world()

    def close_the_ring() -> None:
        world.rewire(1, (2, 4))
        world.rewire(4, (1, 3))

    def open_it_elsewhere() -> None:
        world.rewire(2, (1,))
        world.rewire(3, (4,))

    world.at(40, close_the_ring)
    world.at(45, open_it_elsewhere)
    world.run()
    assert world.stuck() == []


def test_hpr_reconf_fails_while_the_token_is_under_way() -> None:
    """HPR-RECONF: take away the line that the token has to cross, and it is lost."""
    prepared = Experiment(
        algorithm="helary-plouzeau-raynal", nodes=4, topology="ring", load="nodes:3", entries=1, delay="constant:1"
    ).prepare()
    world = prepared.world()

    def cut_2_3() -> None:
        world.rewire(2, (1,))
        world.rewire(3, (4,))

    # The request has come to 1 by way of 2, and the token is on its way to 2.
    world.at(2.5, cut_2_3)
    world.run()
    assert world.stuck() == [3]
