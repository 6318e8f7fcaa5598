"""The simulator itself: determinism, order, faults, loads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peerlock.algorithms import CATALOGUE, choose
from peerlock.contract import Members
from peerlock.errors import Unfinished, UsageError
from peerlock.observe.metrics import Metrics, quantiles
from peerlock.sim import delays, workload
from peerlock.sim.experiment import Experiment, from_trace
from peerlock.sim.world import Network, World
from peerlock.trace import Keeper, Writer, read, retell
from running import run


def trace_of(seed: int = 1, **settings: Any) -> bytes:
    stream = io.BytesIO()
    Experiment(**{"algorithm": "ricart-agrawala", "nodes": 3, **settings}).prepare().run(seed, [Writer(stream)])
    return stream.getvalue()


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_same_seed_gives_the_same_bytes_in_another_process(name: str, tmp_path: Path) -> None:
    traces = []
    for hash_seed in ("0", "1", "4711"):
        file = tmp_path / f"{hash_seed}.jsonl"
        command = [
            sys.executable,
            "-m",
            "peerlock",
            "sim",
            name,
            "-n",
            "5",
            "--seed",
            "7",
            "--entries",
            "4",
            "--trace",
            str(file),
        ]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
        traces.append(file.read_bytes())
    assert traces[0] == traces[1] == traces[2]
    assert traces[0].count(b"\n") > 50


def test_another_seed_gives_another_trace() -> None:
    assert trace_of(1) == trace_of(1)
    assert trace_of(1).splitlines()[1:] != trace_of(2).splitlines()[1:]


def test_a_trace_says_how_to_make_it_again(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(
        trace_of(
            5,
            algorithm="suzuki-kasami-b",
            options={"l": 3},
            delay="adversary:2",
            inside={2: "write"},
            faults=("pause:1@2..3",),
        )
    )
    experiment = from_trace(read(file)[0].about or {})
    stream = io.BytesIO()
    experiment.prepare().run(recorders=[Writer(stream)])
    assert stream.getvalue() == file.read_bytes()


@pytest.mark.parametrize("name", CATALOGUE)
def test_metrics_folded_from_a_file_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    live, file = Metrics(), tmp_path / "t.jsonl"
    with file.open("wb") as stream:
        Experiment(algorithm=name, nodes=5).prepare().run(3, [live, Writer(stream)])
    folded = Metrics()
    retell(read(file), folded)
    assert [(c.messages, c.size, c.made) for c in folded.costs] == [(c.messages, c.size, c.made) for c in live.costs]
    assert folded.by_kind() == live.by_kind()
    assert (folded.waits, folded.sync_delays, folded.overhead) == (live.waits, live.sync_delays, live.overhead)


def test_fifo_keeps_the_order_and_its_absence_does_not() -> None:
    def overtakings(fifo: bool) -> int:
        keeper = Keeper()
        Experiment(algorithm="suzuki-kasami-a", nodes=4, fifo=fifo, delay="adversary:3", entries=20).prepare().run(
            recorders=[keeper]
        )
        channel = {event.id: (event.node, event.to) for event in keeper.events if event.event == "sent"}
        last: dict[object, int] = {}
        count = 0
        for event in keeper.events:
            if event.event == "received" and event.id is not None:
                count += event.id < last.get(channel[event.id], 0)
                last[channel[event.id]] = max(event.id, last.get(channel[event.id], 0))
        return count

    assert overtakings(True) == 0
    assert overtakings(False) > 0


def test_broadcast_is_counted_as_what_it_was() -> None:
    with_it = run("ricart-agrawala-broadcast", nodes=5, entries=3)
    assert with_it.metrics.by_kind()["REQUEST"] == 15
    # The Appendix's algorithm says BROADCAST too, but its network is an ordinary one.
    without = run("ricart-agrawala-token", nodes=5, load="nodes:2", entries=1)
    assert without.metrics.by_kind() == {"REQUEST": 4, "TOKEN": 1}


def test_a_crashed_token_holder_stops_everybody() -> None:
    ran = run("suzuki-kasami-a", nodes=4, hold="constant:5", faults=("crash:1@2",))
    assert ran.world.stuck() == [2, 3, 4]
    assert ran.metrics.violations == 0


def test_what_was_sent_before_a_crash_still_arrives() -> None:
    keeper = Keeper()
    Experiment(
        algorithm="ricart-agrawala", nodes=3, faults=("crash:1@0.1",), delay="constant:1", entries=1
    ).prepare().run(recorders=[keeper])
    assert [event.node for event in keeper.events if event.event == "received" and event.source == 1] == [2, 3]
    assert {event.node for event in keeper.events if event.event == "lost"} == {1}


def test_a_node_that_starts_again_has_forgotten_everything() -> None:
    faults = ("crash:1@1", "restart:1@2")
    ran = run("ricart-agrawala-failures", nodes=3, entries=6, faults=faults)
    assert ran.metrics.entries[1] > 0, "it is back, and the others have not waited for it in vain"
    assert not ran.world.stuck()
    ran = run("ricart-agrawala", nodes=3, entries=6, hold="constant:1", faults=faults)
    assert ran.world.stuck(), "it has forgotten whom it owes a reply"
    with pytest.raises(UsageError, match="only a node that died starts again"):
        run("suzuki-kasami-a", nodes=3, faults=("restart:1@4",))
    with pytest.raises(UsageError, match="does not survive a node that forgets"):
        run("suzuki-kasami-a", nodes=3, seed=0, entries=6, hold="constant:1", faults=("crash:1@3", "restart:1@4"))


def test_a_paused_node_does_nothing_and_forgets_nothing() -> None:
    keeper = Keeper()
    world = (
        Experiment(algorithm="ricart-agrawala", nodes=3, faults=("pause:2@0.1..50",), entries=2)
        .prepare()
        .run(recorders=[keeper])
    )
    assert world.stuck() == []
    assert not [event for event in keeper.events if event.node == 2 and 0.1 < event.t < 50 and event.event != "paused"]
    assert sum(event.node == 2 and event.event == "received" for event in keeper.events) == 8


def test_a_pause_without_receipts_recorded_gives_the_same_run() -> None:
    settings: dict[str, Any] = {"nodes": 4, "faults": ("pause:2@0.5..9", "crash:3@12"), "entries": 5}
    ran = run("suzuki-kasami-a", **settings)
    metrics, keeper = Metrics(), Keeper()
    Experiment(algorithm="suzuki-kasami-a", **settings).prepare().run(recorders=[metrics, keeper])
    assert (metrics.waits, metrics.messages) == (ran.metrics.waits, ran.metrics.messages)


def test_loss_and_duplicates_are_for_layers_below_the_papers() -> None:
    assert run("ricart-agrawala", nodes=3, loss=0.2).world.stuck() != []
    keeper = Keeper()
    Experiment(algorithm="ricart-agrawala", nodes=3, duplicate=0.5, entries=2).prepare().run(recorders=[keeper])
    received = [event.id for event in keeper.events if event.event == "received"]
    assert len(received) > len(set(received))


def test_a_separated_group_cannot_go_on_and_a_healed_one_lost_what_was_sent() -> None:
    world = Experiment(algorithm="ricart-agrawala", nodes=4, entries=3).prepare().world()
    world.at(2.0, lambda: world.separate({1, 2}))
    world.run()
    assert world.stuck() != []


def test_two_algorithms_get_the_same_work() -> None:
    def asked(name: str) -> list[tuple[int, float]]:
        keeper = Keeper()
        Experiment(algorithm=name, nodes=4, load="poisson:0.1", entries=5).prepare().run(recorders=[keeper])
        return sorted((event.node, event.since or 0.0) for event in keeper.events if event.event == "requested")

    assert asked("suzuki-kasami-a") == asked("ricart-agrawala")


def test_an_open_load_waits_from_its_arrival() -> None:
    # Work arrives every unit of time and takes longer than that: waiting times grow with the queue at the node.
    waits = run("ricart-agrawala", nodes=2, load="burst:1", entries=10, hold="constant:2").metrics.waits
    assert waits[-1] > 20


def test_hot_spots() -> None:
    ran = run("ricart-agrawala", nodes=5, load="hot:1,0.6", entries=10)
    assert ran.metrics.entries == {1: 30, 2: 5, 3: 5, 4: 5, 5: 5}


def test_a_delay_for_every_link(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text('{"1": {"2": 1}, "2": {"1": 5}}')
    ran = run("ricart-agrawala", nodes=2, delay=f"matrix:{file}", load="nodes:1", entries=1)
    assert ran.metrics.waits == [6.0]
    with pytest.raises(UsageError, match="no delay for messages from 1 to 3"):
        run("ricart-agrawala", nodes=3, delay=f"matrix:{file}")
    file.write_text("[1, 2]")
    with pytest.raises(UsageError, match="is not a delay matrix"):
        run("ricart-agrawala", nodes=3, delay=f"matrix:{file}")


def test_an_adversary_of_ones_own() -> None:
    spec = choose("ricart-agrawala")
    slow_to_3 = delays.chosen_by(lambda source, to: 9.0 if to == 3 else 1.0, bound=9.0)
    metrics = Metrics()
    members = Members((1, 2, 3), 1)
    world = World(spec, {1: members, 2: members, 3: members}, Network(slow_to_3), recorders=[metrics])
    world.give_work(1, workload.parse("closed").of(1, 3, 1, 1, workload.HOLD, 0.0), closed=True)
    world.run()
    assert metrics.waits == [10.0]


def test_a_run_that_does_not_end_is_cut_off() -> None:
    with pytest.raises(Unfinished, match="still busy after 100 events"):
        Experiment(algorithm="ricart-agrawala", nodes=5).prepare().run(most_events=100)


def test_newcomers_need_new_numbers() -> None:
    world = Experiment(algorithm="ricart-agrawala-dynamic", nodes=3).prepare().world()
    with pytest.raises(UsageError, match="numbers are never used twice"):
        world.join(2, lambda: Members((1,), 1))


def test_only_some_algorithms_can_be_rewired() -> None:
    world = Experiment(algorithm="ricart-agrawala", nodes=3).prepare().world()
    with pytest.raises(UsageError, match="cannot change neighbours while it runs: it has no method rewire"):
        world.rewire(1, (2,))


@pytest.mark.parametrize(
    ("values", "p50", "p99", "most"), [([1.0], 1.0, 1.0, 1.0), ([3.0, 1.0, 2.0], 2.0, 3.0, 3.0), ([], None, None, None)]
)
def test_quantiles(values: list[float], p50: float | None, p99: float | None, most: float | None) -> None:
    assert quantiles(values) == {"p50": p50, "p99": p99, "max": most}


@pytest.mark.parametrize("text", ["constant:2", "uniform:1,2", "exponential:1", "adversary:3"])
def test_delays_keep_their_bound(text: str) -> None:
    from random import Random

    delay = delays.parse(text)
    draw = delay.make(Random(1))
    values = [draw(1, 2) for _ in range(1000)]
    assert min(values) >= 0
    assert delay.bound is None or max(values) <= delay.bound
    assert delays.parse(delay.text).text == delay.text
