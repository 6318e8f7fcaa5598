"""The configurations of the table of verdicts, and what each shows.

Every algorithm with three nodes and two entries each, from every legal start, in both orders of delivery; Algorithm B up to
where its numbers wrap, and with unbounded entries; Helary, Plouzeau and Raynal on every connected graph of four and five nodes;
Dijkstra's rings with unbounded entries; and the printed forms, which fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from msgspec import Struct

from peerlock.algorithms import CATALOGUE, choose
from peerlock.check.liveness import Graph
from peerlock.check.model import ANY, Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Search
from peerlock.contract import Members, Mode, Neighbours, Node, Ring, Shape

THREE = (1, 2, 3)


class Configuration(Struct, frozen=True):
    """One exploration, as plain values, so that another process can do it."""

    name: str
    shapes: dict[Node, Any]
    entries: tuple[int, ...]
    what: str  # the words of the table's row that it belongs to
    inside: dict[Node, Mode] = {}
    as_printed: bool = False
    fifo: bool = False
    options: dict[str, Any] = {}
    delay_bound: int | None = None
    crashes: int = 0


class Verdict(Struct):
    """What exploring it has shown."""

    what: str
    name: str
    form: str
    fifo: bool
    states: int
    transitions: int
    finished: bool
    violated: str | None
    seconds: float
    exact: bool


def explore(configuration: Configuration, max_states: int | None, max_seconds: float | None) -> Verdict:
    """Explore one configuration; unbounded entries are looked through for starvation as well."""
    chosen = choose(configuration.name, as_printed=configuration.as_printed, **configuration.options)
    model = Model(
        chosen, configuration.shapes, configuration.entries, configuration.inside, fifo=configuration.fifo,
        delay_bound=configuration.delay_bound, crashes=configuration.crashes,
    )  # fmt: skip
    checks = Checks(standard(model))
    search = Search(model, checks)
    outcome = search.run(max_states, max_seconds)
    violated = outcome.violated
    asks = sum(left != 0 for left in configuration.entries)
    if outcome.finished and violated is None and asks > 1:
        # With one node asking nobody can wait for another.
        verdicts = checks.verdicts(None, True)
        violated = next((name for name, verdict in verdicts.items() if verdict == "violated"), None)
    if outcome.finished and violated is None and ANY in configuration.entries and outcome.states < 100_000:
        graph = Graph(search)
        violated = next((f"node {node} starves" for node in model.nodes if graph.starves(node) is not None), None)
    return Verdict(
        configuration.what, configuration.name, chosen.form, configuration.fifo, outcome.states, outcome.transitions,
        outcome.finished, violated, outcome.seconds, outcome.exact,
    )  # fmt: skip


def shapes_of(name: str, n: int, home: Node = 1, bound: float = 1.0) -> dict[Node, Shape]:
    """A complete network, or a ring."""
    nodes = tuple(range(1, n + 1))
    shape = choose(name).needs.shape
    if shape is Ring:
        return {j: Ring((j - 2) % n + 1, j % n + 1, home) for j in nodes}
    if shape is Neighbours:
        return {j: Neighbours(tuple(k for k in nodes if k != j), home) for j in nodes}
    return dict.fromkeys(nodes, Members(nodes, home, bound))


def starts(name: str) -> list[dict[Node, Mode]]:
    """Nobody inside, each node inside, and for readers every set of them."""
    found: list[dict[Node, Mode]] = [{}]
    for j in THREE:
        found.append({j: "write"})
    if "read" in choose(name).needs.modes:
        for count in THREE:
            for some in combinations(THREE, count):
                reading: dict[Node, Mode] = {}
                reading.update(dict.fromkeys(some, "read"))
                found.append(reading)
    return found


def configurations(graphs: Mapping[str, Mapping[Node, tuple[Node, ...]]], entries: int = 2) -> Iterator[Configuration]:
    """All of them; `graphs` are the connected graphs of 4 and 5 nodes, by name."""
    for fifo in (False, True):
        for name in CATALOGUE:
            ticks = 1 if choose(name).needs.delay_bound else None
            for inside in starts(name):
                yield Configuration(
                    name,
                    shapes_of(name, 3),
                    (entries,) * 3,
                    f"3 nodes, {entries} entries each",
                    inside,
                    fifo=fifo,
                    delay_bound=ticks,
                )
        for l in (2, 3):
            for bounds in ((4, 3, 1), (5, 5, 1)):
                words = f"L = {l}, entries {','.join(map(str, bounds))}"
                yield Configuration(
                    "suzuki-kasami-b", shapes_of("suzuki-kasami-b", 3), bounds, words, fifo=fifo, options={"l": l}
                )
            words = f"L = {l}, 2 nodes, any number of entries"
            yield Configuration(
                "suzuki-kasami-b", shapes_of("suzuki-kasami-b", 2), (ANY,) * 2, words, fifo=fifo, options={"l": l}
            )
        for n in range(2, 7):
            words = f"ring of {n}, any number of entries"
            yield Configuration("dijkstra-ring", shapes_of("dijkstra-ring", n), (ANY,) * n, words, fifo=fifo)
        yield from _on_graphs(graphs, fifo)
    yield from _printed()


def _on_graphs(graphs: Mapping[str, Mapping[Node, tuple[Node, ...]]], fifo: bool) -> Iterator[Configuration]:
    for graph in graphs.values():
        nodes = tuple(graph)
        for home in nodes:
            shapes: dict[Node, Any] = {j: Neighbours(names, home) for j, names in graph.items()}
            for count in (1, 2, 3) if len(nodes) == 4 else (1,):
                for asking in combinations(nodes, count):
                    words = f"every connected graph of {len(nodes)} nodes, {count} request{'s' * (count > 1)}, token anywhere"
                    bounds = tuple(int(j in asking) for j in nodes)
                    yield Configuration("helary-plouzeau-raynal", shapes, bounds, words, fifo=fifo)


def _printed() -> Iterator[Configuration]:
    sk_b, failures = "suzuki-kasami-b", "ricart-agrawala-failures"
    yield Configuration(sk_b, shapes_of(sk_b, 2), (4, 4), "L = 2, 2 nodes, 4 entries each", as_printed=True)
    yield Configuration(sk_b, shapes_of(sk_b, 3), (4, 3, 1), "L = 2, entries 4,3,1", as_printed=True)
    yield Configuration(
        failures, shapes_of(failures, 2), (2, 2), "2 nodes, 2 entries each, delays kept", as_printed=True, delay_bound=1
    )
    implicit = "ricart-agrawala-implicit"
    yield Configuration(
        implicit,
        shapes_of(implicit, 2, bound=2.0),
        (1, 1),
        "a time-out shorter than two delays",
        options={"timeout": 3},
        delay_bound=2,
    )
    repaired = failures
    yield Configuration(repaired, shapes_of(failures, 2), (1, 1), "time-outs at any time: a live node is suspected")
    yield Configuration(
        repaired,
        shapes_of(failures, 3),
        (1, 1, 1),
        "3 nodes, 1 entry each, 1 crash, delays kept",
        delay_bound=1,
        crashes=1,
    )
