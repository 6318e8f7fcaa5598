"""Time, crashes, liveness, observers, and counterexamples in every form."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from peerlock.algorithms import AlgorithmSpec, choose
from peerlock.check import counterexample
from peerlock.check.liveness import Graph, Lasso
from peerlock.check.model import ANY, Model
from peerlock.check.observers import Costs, Overtaking
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.contract import NOBODY, Members, Neighbours, NodeId, Ring, Shape
from peerlock.observe import diagram, shiviz
from peerlock.sim.transcript import play
from peerlock.user_algorithm import load, wrap

ROOT = Path(__file__).parents[2]


def shapes(spec: AlgorithmSpec, n: int, bound: float = 1.0) -> dict[NodeId, Shape]:
    nodes = range(1, n + 1)
    if spec.needs.shape is Ring:
        return {j: Ring((j - 2) % n + 1, j % n + 1, 1) for j in nodes}
    if spec.needs.shape is Neighbours:
        return {j: Neighbours(tuple(k for k in nodes if k != j), 1) for j in nodes}
    return dict.fromkeys(nodes, Members(tuple(nodes), 1, bound))


def explore(
    spec: AlgorithmSpec, entries: list[int], inside: Any = NOBODY, bound: float = 1.0, **settings: Any
) -> tuple[Search, Outcome]:
    model = Model(spec, shapes(spec, len(entries), bound), entries, inside, **settings)
    search = Search(model, Checks(standard(model)))
    return search, search.run(max_states=3_000_000)


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ticks", [1, 2])
@pytest.mark.parametrize(
    "name", ["ricart-agrawala-implicit", "ricart-agrawala-broadcast-implicit", "ricart-agrawala-failures"]
)
def test_with_the_bound_kept_they_are_safe(name: str, ticks: int) -> None:
    _, outcome = explore(choose(name), [2, 2], bound=ticks, delay_bound=ticks)
    assert (outcome.finished, outcome.violated) == (True, None)


def test_three_nodes_and_implicit_replies() -> None:
    _, outcome = explore(choose("ricart-agrawala-implicit"), [1, 1, 1], delay_bound=1)
    assert (outcome.finished, outcome.violated, outcome.states) == (True, None, 34_304)


def test_a_time_out_shorter_than_two_delays_is_unsafe() -> None:
    search, outcome = explore(choose("ricart-agrawala-implicit", timeout=3), [1, 1], bound=2, delay_bound=2)
    assert outcome.violated == "mutual exclusion"
    assert outcome.row is not None
    assert any(step.at < 0 for step in search.way_to(outcome.row))


def test_failure_handling_as_printed_fails_although_every_delay_is_kept() -> None:
    _, outcome = explore(choose("ricart-agrawala-failures", as_printed=True), [2, 2], delay_bound=1)
    assert outcome.violated == "mutual exclusion"


# -- crashes ---------------------------------------------------------------------------------------


def test_one_crash_stops_ricart_agrawala_but_not_with_failure_handling() -> None:
    _, outcome = explore(choose("ricart-agrawala"), [1, 1, 1], crashes=1)
    assert outcome.violated == "no deadlock"
    _, outcome = explore(choose("ricart-agrawala-failures"), [1, 1, 1], crashes=1, delay_bound=1)
    assert (outcome.finished, outcome.violated, outcome.states) == (True, None, 526_272)


def test_a_budget_of_crashes_is_kept() -> None:
    search, _ = explore(choose("dijkstra-ring"), [1, 1, 1], crashes=2)
    most = 0
    for level in search.levels:
        for row in zip(*search.rows(level, slice(None)), strict=True):
            most = max(most, sum(search.model.local(at, int(row[at])).where == "crashed" for at in range(3)))
    assert most == 2


# -- liveness --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "n", "states"),
    [
        ("dijkstra-ring", {}, 2, 16), ("dijkstra-ring", {}, 3, 87), ("dijkstra-ring", {}, 4, 404),
        ("dijkstra-ring", {}, 5, 1_735), ("dijkstra-ring", {}, 6, 7_122),
        ("suzuki-kasami-b", {"l": 2}, 2, 166), ("suzuki-kasami-b", {"l": 3}, 2, 208),
    ],
)  # fmt: skip
def test_nobody_starves_however_often_nodes_enter(name: str, options: dict[str, Any], n: int, states: int) -> None:
    search, outcome = explore(choose(name, **options), [ANY] * n)
    assert (outcome.finished, outcome.violated, outcome.states) == (True, None, states)
    graph = Graph(search)
    assert len(graph.source) == outcome.transitions
    assert [graph.starves(node) for node in search.model.nodes] == [None] * n


def unfair(tmp_path: Path) -> Any:
    """The coordinator of the example, serving the last who asked first."""
    text = (ROOT / "examples" / "my_lock.py").read_text()
    text = text.replace(
        "self.holder, self.queue = self.queue[0], self.queue[1:]",
        "self.holder, self.queue = self.queue[-1], self.queue[:-1]",
    )
    (tmp_path / "lifo.py").write_text(text)
    return load(str(tmp_path / "lifo.py"), "CentralLock")


def test_a_lasso(tmp_path: Path) -> None:
    search, outcome = explore(wrap(unfair(tmp_path)), [ANY] * 3)
    assert outcome.violated is None
    graph = Graph(search)
    for node in search.model.nodes:
        lasso = graph.starves(node)
        assert isinstance(lasso, Lasso)
        first = lasso.stem[-1].row if lasso.stem else search.model.first
        assert lasso.loop[-1].row == first
        at = search.model.place[node]
        assert all(search.model.local(at, step.row[at]).where == "waiting" for step in lasso.loop)
        # Whatever is always open on the loop is met on the loop: some letter arrives, somebody leaves.
        assert {"deliver", "release"} <= {step.action.what for step in lasso.loop}


# -- observers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "entries", "costs"),
    [
        ("ricart-agrawala", [2, 2, 2], {4}),
        ("ricart-agrawala-broadcast", [1, 1, 1], {3}),
        ("suzuki-kasami-a", [2, 2, 2], {0, 3}),
        ("suzuki-kasami-b", [3, 2, 1], {0, 3, 5}),
        ("carvalho-roucairol", [2, 2, 2], {0, 2, 4}),
        ("ricart-agrawala-token", [2, 2, 2], {0, 3}),
        ("helary-plouzeau-raynal", [1, 1, 1], {0, 3}),
    ],
)
def test_what_an_entry_costs_over_all_interleavings(name: str, entries: list[int], costs: set[int]) -> None:
    observer = Costs()
    _, outcome = explore(choose(name), entries, observers=[observer])
    assert outcome.finished
    assert observer.seen == costs


@pytest.mark.parametrize(
    ("name", "as_printed", "figures"),
    [
        ("ricart-agrawala", False, [2, 2, 2]),
        ("suzuki-kasami-a", False, [2, 2, 2]),
        ("carvalho-roucairol", False, [2, 2, 2]),
        ("ricart-agrawala-token", False, [1, 2, 2]),
        ("ricart-agrawala-rw", False, [2, 2, 2]),
    ],
)
def test_how_often_a_waiting_node_is_passed_over(name: str, as_printed: bool, figures: list[int]) -> None:
    """A figure that does not grow: no starvation."""
    assert [_passed_over(choose(name, as_printed=as_printed), entries) for entries in (1, 2, 3)] == figures


def test_as_printed_the_largest_name_starves() -> None:
    """HPR-SF: the figure grows with the entries as printed, and stays with the repair."""
    printed = choose("helary-plouzeau-raynal", as_printed=True)
    assert [_passed_over(printed, entries) for entries in (1, 2)] == [2, 4]
    assert [_passed_over(choose("helary-plouzeau-raynal"), entries) for entries in (1, 2)] == [2, 2]


def _passed_over(spec: AlgorithmSpec, entries: int) -> int:
    observer = Overtaking(3)
    _, outcome = explore(spec, [entries, entries, 1], observers=[observer])
    assert outcome.finished
    return observer.most


# -- counterexamples -------------------------------------------------------------------------------


def test_a_counterexample_in_every_form() -> None:
    search, outcome = explore(choose("suzuki-kasami-b", as_printed=True), [4, 4])
    assert outcome.row is not None
    model, way = search.model, search.way_to(outcome.row)
    script = counterexample.transcript(model, way, ["algorithm suzuki-kasami-b as_printed", "nodes 2"], "a title")
    played = play(script)
    assert played.startswith("# a title\nalgorithm suzuki-kasami-b as_printed\n")
    assert played.count("enters") == sum(step.action.entered for step in way)
    events = counterexample.events(model, way, {"algorithm": "suzuki-kasami-b"})
    assert "ENTERS" in diagram.text(events, most=100)
    assert "<svg" in diagram.svg(events)
    log = shiviz.log(events).splitlines()
    assert len(log) % 2 == 0
    clocks = [json.loads(line.split(" ", 1)[1]) for line in log[::2]]
    assert all(isinstance(count, int) for clock in clocks for count in clock.values())
    exported = counterexample.itf(model, way, "a title")
    assert json.loads(json.dumps(exported)) == exported
    assert len(exported["states"]) == len(way) + 1
    assert counterexample.steps(model, way)[0]["what"] == "request"


def test_shiviz_clocks_respect_messages() -> None:
    search, outcome = explore(choose("ricart-agrawala-implicit"), [1, 1])
    assert outcome.row is not None
    events = counterexample.events(search.model, search.way_to(outcome.row), {})
    assert "ENTERS" in shiviz.log(events)


def test_an_assertion_that_fails_is_a_violation(tmp_path: Path) -> None:
    text = (
        (ROOT / "examples" / "my_lock.py")
        .read_text()
        .replace("        out.idle()\n", "        assert self.me != 2, 'not me'\n        out.idle()\n", 1)
    )
    (tmp_path / "asserting.py").write_text(text)
    _, outcome = explore(wrap(load(str(tmp_path / "asserting.py"), "CentralLock")), [1, 1])
    assert outcome.violated == "assertions"


def test_python_stays_out_of_the_search() -> None:
    """A handler runs once for each local state and input, not once a transition."""
    _, outcome = explore(choose("ricart-agrawala"), [2, 2, 2])
    assert outcome.handler_calls * 40 < outcome.transitions
    assert sys.getrefcount(outcome) < 10
