"""The configurations of the table of verdicts, and what each shows.

Every algorithm with three nodes and two entries each, from every legal start, in both orders of
delivery; Algorithm B up to where its numbers wrap, and with unbounded entries; Helary, Plouzeau and
Raynal on every connected graph of four and five nodes; Dijkstra's rings with unbounded entries; how
often a waiting node is passed over, as the others enter more often; how many messages an entry
costs at the least and at the most; the printed forms, which fail; and procedures cut in two, one
place at a time and all harmless places together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from msgspec import Struct

from peerlock.algorithms import CATALOGUE, Size, choose
from peerlock.check.model import ANY
from peerlock.check.run import Configuration as Explored
from peerlock.check.run import run
from peerlock.contract import Members, Mode, Neighbours, NodeId, Ring, Shape

THREE = (1, 2, 3)

# Where a procedure may be interrupted without harm, as far as it was explored; the rows for single
# cuts show the others.
HARMLESS = {
    "suzuki-kasami-a": (
        "test_have_privilege", "next_number", "have_privilege_true", "ln_own", "append", "have_privilege_false",
        "send_privilege", "p2_test", "p2_send_privilege",
    ),
    "carvalho-roucairol": ("send_request", "look", "send_reply", "our_priority", "third_if", "ask_again"),
    "ricart-agrawala-token": ("ask", "test_idle_token"),
}  # fmt: skip


class Configuration(Struct, frozen=True):
    """One exploration, as plain values, so that another process can do it."""

    name: str
    shapes: Mapping[NodeId, Shape]
    entries: tuple[int, ...]
    what: str  # the words of the table's row that it belongs to
    inside: dict[NodeId, Mode] = {}
    as_printed: bool = False
    fifo: bool = False
    options: Mapping[str, int | str] = {}
    delay_bound: int | None = None
    crashes: int = 0
    count: str = ""  # "messages" an entry costs, or how often the last node is "passed over"


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
    properties: dict[str, str]  # holds, violated or unfinished, each
    figures: tuple[int, ...]  # what was counted
    seconds: float
    exact: bool


def explore(configuration: Configuration, max_states: int | None, max_seconds: float | None) -> Verdict:
    """Explore one configuration; unbounded entries are looked through for starvation as well."""
    spec = choose(configuration.name, as_printed=configuration.as_printed, **configuration.options)
    found = run(
        Explored(
            spec, configuration.shapes, configuration.entries, configuration.inside, configuration.fifo,
            configuration.crashes, configuration.delay_bound, costs=configuration.count == "messages",
            size=_size(configuration) if configuration.count == "messages" else None,
            passed_over=len(configuration.shapes) if configuration.count == "passed over" else 0,
            max_states=max_states, max_seconds=max_seconds,
        )
    )  # fmt: skip
    outcome = found.outcome
    if found.verdict == "holds" and ANY in configuration.entries and outcome.states < 100_000:
        found.look_for_starvation()
    figures: tuple[int, ...] = ()
    if configuration.count == "messages":
        figures = tuple(sorted(found.costs))
    elif configuration.count == "passed over":
        figures = (found.passed_over,)
    return Verdict(
        configuration.what, configuration.name, spec.form, configuration.fifo, outcome.states, outcome.transitions,
        outcome.finished, found.violated, found.verdicts, figures, outcome.seconds, outcome.exact,
    )  # fmt: skip


def _size(configuration: Configuration) -> Size:
    """What a formula for costs may speak of."""
    nodes = configuration.shapes
    linked = {j: set(getattr(shape, "names", set(nodes) - {j})) for j, shape in nodes.items()}
    n, e = len(nodes), sum(map(len, linked.values())) // 2
    d = max(max(_distances(linked, j).values()) for j in nodes)
    ends = sum(len(names) == 1 for names in linked.values())
    if e == n * (n - 1) // 2:
        kind = "complete"
    elif e == n - 1:
        kind = "line" if ends == 2 else "tree"
    else:
        kind = "ring" if e == n and all(len(names) == 2 for names in linked.values()) else "general"
    return Size(n, e, d, kind, int(configuration.options.get("l", 2)))


def _distances(linked: Mapping[NodeId, set[NodeId]], start: NodeId) -> dict[NodeId, int]:
    found, edge = {start: 0}, [start]
    for j in edge:
        for k in linked[j] - found.keys():
            found[k] = found[j] + 1
            edge.append(k)
    return found


def shapes_of(name: str, n: int, home: NodeId = 1, bound: float = 1.0) -> dict[NodeId, Shape]:
    """A complete network, or a ring."""
    nodes = tuple(range(1, n + 1))
    shape = choose(name).needs.shape
    if shape is Ring:
        return {j: Ring((j - 2) % n + 1, j % n + 1, home) for j in nodes}
    if shape is Neighbours:
        return {j: Neighbours(tuple(k for k in nodes if k != j), home) for j in nodes}
    return dict.fromkeys(nodes, Members(nodes, home, bound))


def starts(name: str) -> list[dict[NodeId, Mode]]:
    """No node inside, each node inside, and for readers every set of them."""
    found: list[dict[NodeId, Mode]] = [{}, {1: "write"}, {2: "write"}, {3: "write"}]
    if "read" in choose(name).needs.modes:
        for count in THREE:
            for some in combinations(THREE, count):
                reading: dict[NodeId, Mode] = {}
                reading.update(dict.fromkeys(some, "read"))
                found.append(reading)
    return found


def configurations(
    graphs: Mapping[str, Mapping[NodeId, tuple[NodeId, ...]]], entries: int = 2
) -> Iterator[Configuration]:
    """All of them; `graphs` are the connected graphs of 4 and 5 nodes, by name."""
    for fifo in (False, True):
        for name in CATALOGUE:
            ticks = 1 if choose(name).needs.delay_bound else None
            for inside in starts(name):
                words = f"3 nodes, {entries} entries each"
                yield Configuration(
                    name, shapes_of(name, 3), (entries,) * 3, words, inside, fifo=fifo, delay_bound=ticks
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
    yield from _counted(graphs)
    yield from _printed()
    yield from _divided()


def _on_graphs(graphs: Mapping[str, Mapping[NodeId, tuple[NodeId, ...]]], fifo: bool) -> Iterator[Configuration]:
    for graph in graphs.values():
        nodes = tuple(graph)
        for home in nodes:
            shapes: Mapping[NodeId, Shape] = {j: Neighbours(names, home) for j, names in graph.items()}
            for count in (1, 2, 3) if len(nodes) == 4 else (1,):
                for asking in combinations(nodes, count):
                    words = f"every connected graph of {len(nodes)} nodes, {count} request{'s' * (count > 1)}, token anywhere"
                    bounds = tuple(int(j in asking) for j in nodes)
                    yield Configuration("helary-plouzeau-raynal", shapes, bounds, words, fifo=fifo)


def _counted(graphs: Mapping[str, Mapping[NodeId, tuple[NodeId, ...]]]) -> Iterator[Configuration]:
    """Messages an entry, and how often a node is passed over."""
    for name, entry in CATALOGUE.items():
        if choose(name).needs.delay_bound:
            continue  # too many states beside a clock
        for form in entry.forms:
            printed, shapes = form == "as_printed", shapes_of(name, 3)
            if printed and name == "suzuki-kasami-b":
                continue  # fails before there is anything to count
            few = 1 if name == "helary-plouzeau-raynal" else 2
            if entry.mean_only:
                continue  # its calls serve many and do not say which node calls
            words = f"3 nodes, {few} entr{'y' if few == 1 else 'ies'} each: messages an entry"
            yield Configuration(name, shapes, (few,) * 3, words, as_printed=printed, count="messages")
            for times in (1, 2, 3) if name != "helary-plouzeau-raynal" else (1, 2):
                words = f"entries {times},{times},1: how often node 3 is passed over"
                yield Configuration(name, shapes, (times, times, 1), words, as_printed=printed, count="passed over")
    for printed in (False, True):
        for graph in graphs.values():
            nodes = tuple(graph)
            if len(nodes) == 4:
                for home in nodes:
                    on: dict[NodeId, Shape] = {j: Neighbours(names, home) for j, names in graph.items()}
                    for asking in combinations(nodes, 2):
                        bounds = tuple(int(j in asking) for j in nodes)
                        words = "every connected graph of 4 nodes, 2 requests: messages an entry"
                        yield Configuration(
                            "helary-plouzeau-raynal", on, bounds, words, as_printed=printed, count="messages"
                        )


def _divided() -> Iterator[Configuration]:
    """Each procedure cut at one place, and at every place that is harmless alone."""
    for name, entry in CATALOGUE.items():
        if entry.divided is None:
            continue
        for cut in getattr(entry.divided, "statements"):  # noqa: B009 - only divided classes have it
            for n, times in ((2, 3), (3, 2)):
                words = f"{n} nodes, {times} entries each, cut before {cut}"
                yield Configuration(name, shapes_of(name, n), (times,) * n, words, options={"cut": cut})
        harmless = "+".join(HARMLESS[name])
        for n, times in ((2, 3), (3, 1)):
            words = f"{n} nodes, {times} entr{'y' if times == 1 else 'ies'} each, every other cut at once"
            yield Configuration(name, shapes_of(name, n), (times,) * n, words, options={"cut": harmless})


def _printed() -> Iterator[Configuration]:
    sk_b, failures = "suzuki-kasami-b", "ricart-agrawala-failures"
    yield Configuration(sk_b, shapes_of(sk_b, 2), (4, 4), "L = 2, 2 nodes, 4 entries each", as_printed=True)
    yield Configuration(sk_b, shapes_of(sk_b, 3), (4, 3, 1), "L = 2, entries 4,3,1", as_printed=True)
    yield Configuration(
        failures, shapes_of(failures, 2), (2, 2), "2 nodes, 2 entries each, delays kept", as_printed=True, delay_bound=1
    )
    implicit = "ricart-agrawala-implicit"
    words, shapes = "a time-out shorter than two delays", shapes_of(implicit, 2, bound=2.0)
    yield Configuration(implicit, shapes, (1, 1), words, options={"timeout": 3}, delay_bound=2)
    yield Configuration(failures, shapes_of(failures, 2), (1, 1), "time-outs at any time: a live node is suspected")
    words = "3 nodes, 1 entry each, 1 crash, delays kept"
    yield Configuration(failures, shapes_of(failures, 3), (1, 1, 1), words, delay_bound=1, crashes=1)
