"""The claims of Helary, Plouzeau and Raynal for a token on any network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations

import networkx as nx
from msgspec.structs import asdict, replace
from networkx.generators.atlas import graph_atlas_g

from peerlock.check.engine import Cells
from peerlock.check.model import Letter, Local, Model
from peerlock.check.properties import Bad, MutualExclusion, Predicate, Property, State, Sums
from peerlock.claims.all_algorithms import REPAIRS, evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, Watch, command, explored, judge, run
from peerlock.claims.registry import claim
from peerlock.claims.request_paths import crossings, longest_wait, reaches_everybody, request_counts, retraces
from peerlock.contract import Neighbours, NodeId, look
from peerlock.sim.delays import Delay
from peerlock.sim.experiment import Experiment
from peerlock.sim.topology import of_graph

PAPER = "helary-plouzeau-raynal-1986"
HPR = "helary-plouzeau-raynal"
FORGETS = "a process does not delete a request when the token passes it"
KEPT_ORDER = "lines keep the order of messages, so that no request is overtaken by the next one of its origin"


def graphs(lab: Lab) -> list[dict[NodeId, tuple[NodeId, ...]]]:
    """Every connected graph of 2 to 4 nodes; in a full examination of 5 as well."""
    sizes = (2, 3, 4, 5) if lab.full else (2, 3, 4)
    return [
        {node + 1: tuple(sorted(k + 1 for k in graph[node])) for node in graph}
        for graph in graph_atlas_g()
        if graph.number_of_nodes() in sizes and nx.is_connected(graph)
    ]


def on_graphs(lab: Lab, asking: int, *, printed: bool = False, fifo: bool = False) -> Iterable[Setup]:
    """`asking` requests, from anywhere, to a token anywhere, on every small graph."""
    for graph in graphs(lab):
        if len(graph) < asking or (asking > 1 and len(graph) > 4):
            continue
        for home in graph:
            shapes = {j: Neighbours(names, home) for j, names in graph.items()}
            for some in combinations(graph, asking):
                yield Setup(HPR, tuple(int(j in some) for j in graph), printed, fifo, shapes=shapes, home=home)


def everywhere(lab: Lab, watch: Watch, what: str, printed: bool) -> Evidence:
    """Properties on every small graph with one and two requests, and with repeated ones."""
    asking = [setup for count in (1, 2) for setup in on_graphs(lab, count, printed=printed)]
    return lab.watch(what, [*asking, Setup(HPR, (1, 1, 1), printed), Setup(HPR, (2, 2), printed)], watch)


def both(lab: Lab, watch: Watch, what: str) -> Finding:
    return judge(
        [everywhere(lab, watch, what, printed=True)],
        repaired=[everywhere(lab, watch, what, printed=False)],
        repair=REPAIRS[HPR],
    )


class Tokens(Property):
    """ME2, ME3, and one stored request per origin; with `in_transit` the token under way counts."""

    name = "one token"

    def __init__(self, model: Model, in_transit: bool) -> None:
        super().__init__(model)
        self.in_transit = in_transit

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        process = local.algorithm
        under_way = sum(one.message.kind == "TOKEN" for one in letters) if self.in_transit else 0
        origins = [origin for origin, _ in process.req_array]
        wrong = (process.in_cs and not process.token_here) or len(origins) != len(set(origins))
        return int(process.token_here) + under_way + 100 * wrong

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums != 1 if self.in_transit else sums > 1


@claim("HPR-ME3", PAPER, "at most one process has token_here; in_CS implies token_here (Theorem 1)")
def hpr_me3(lab: Lab) -> Finding:
    return both(lab, lambda model: [Tokens(model, False), MutualExclusion(model)], "ME2 and ME3 in every state")


@claim(
    "HPR-ONE",
    PAPER,
    "a process stores at most one request of each origin; the token is one, the one in transit included",
)
def hpr_one(lab: Lab) -> Finding:
    return both(lab, lambda model: [Tokens(model, True)], "one request of an origin, one token, in every state")


@claim(
    "HPR-L1",
    PAPER,
    "a request reaches every process, along an elementary path, unless overtaken by a younger one of its origin (Lemma 1)",
)
def hpr_l1(lab: Lab) -> Finding:
    return lemma(lab, "Lemma 1", reaches_everybody)


def lemma(lab: Lab, name: str, good: Callable[[Run], bool]) -> Finding:
    """Something about every run, on four kinds of networks, as printed and repaired."""

    def simulated(printed: bool) -> list[Evidence]:
        plain = Experiment(algorithm=HPR, delay="adversary:3", entries=3, as_printed=printed)
        seeds = lab.seeds(15, 150)
        return [
            lab.simulate(replace(plain, nodes=n, topology=topology), seeds, f"{name}, {topology} of {n}", good)
            for topology, n in (("ring", 7), ("random", 9), ("grid", 9), ("regular:4", 10))
        ]

    return judge(simulated(True), repaired=simulated(False), repair=FORGETS)


@claim("HPR-L2", PAPER, "the token retraces the request's path (Lemma 2); its path is acyclic (Corollary)")
def hpr_l2(lab: Lab) -> Finding:
    return lemma(lab, "Lemma 2", retraces)


def unsatisfied(state: State) -> bool:
    """Lemma 3: a process i that waits with a request of time t has lud[i] < t in the token."""
    tokens = [node.lud for node in state.nodes.values() if node.token_here]
    tokens += [message.lud for _, _, message in state.messages if message.kind == "TOKEN"]
    # A process asks with its clock and does not move it until it gives the token away or hears of
    # another request, so the copies of its request that others have say its time.
    for i in state.waiting:
        times = [t for node in state.nodes.values() for origin, (t, _) in node.req_array if origin == i]
        times += [
            message.req_time for _, _, message in state.messages if message.kind == "REQ" and message.req_origin == i
        ]
        if times and any(look(lud, i, -1) >= max(times) for lud in tokens):
            return False
    return True


@claim("HPR-L3", PAPER, "an unsatisfied request (i, t) has lud[i] < t (Lemma 3)")
def hpr_l3(lab: Lab) -> Finding:
    return both(lab, lambda model: [Predicate(model, "Lemma 3", unsatisfied)], "Lemma 3 in every state")


@claim("HPR-DF", PAPER, "deadlock-free (Theorem 2)")
def hpr_df(lab: Lab) -> Finding:
    def explored(printed: bool) -> list[Evidence]:
        setups = [setup for asking in (1, 2) for setup in on_graphs(lab, asking, printed=printed)]
        setups += list(on_graphs(lab, 3, printed=printed, fifo=True)) if lab.full else []
        return [
            *evidence(lab, "ALL-DF", HPR, printed=printed),
            lab.explore(setups, ["no deadlock"], "every small graph, requests and token anywhere"),
        ]

    return judge(explored(True), repaired=explored(False), repair=REPAIRS[HPR])


@claim("HPR-SF", PAPER, "starvation-free (Theorem 3)")
def hpr_sf(lab: Lab) -> Finding:
    return judge(
        [*evidence(lab, "ALL-SF", HPR, printed=True), _longest_waits(True)],
        repaired=[*evidence(lab, "ALL-SF", HPR), _longest_waits(False)],
        repair="compare times first, as the proof does, not origins",
    )


def _longest_waits(printed: bool) -> Evidence:
    """The longest wait of the largest name, as every node enters more often."""
    plain = Experiment(
        algorithm=HPR, nodes=4, topology="complete", delay="constant:1", hold="constant:1.5", as_printed=printed
    )
    waits = [longest_wait(run(replace(plain, entries=times)), 4) for times in (10, 20, 40)]
    words, good = "the longest wait of node 4 of 4 after 10, 20, 40 entries each", waits[-1] <= 1.2 * waits[0]
    return Evidence("simulated", words, good, seeds=3, figures={"longest wait": waits})


@claim("HPR-ZERO", PAPER, "none when the owner enters")
def hpr_zero(lab: Lab) -> Finding:
    setups = [Setup(HPR, (3,) + (0,) * (n - 1), printed) for printed in (True, False) for n in (2, 3, 4)]
    return judge([lab.count(setup, lambda cost, n: cost == 0) for setup in setups])


IN_LINES = Experiment(algorithm=HPR, delay="adversary:3", entries=4, fifo=True)
REPAIRED = replace(IN_LINES, fifo=False)
PRINTED, PRINTED_IN_LINES = (replace(each, as_printed=True) for each in (REPAIRED, IN_LINES))


def broadcast(
    lab: Lab, form: Experiment, topology: str, sizes: Iterable[int], good: Callable[[Run, int], bool], what: str
) -> list[Evidence]:
    found = []
    for n in sizes:
        words = f"{what}: {topology} of {n}"
        words += ", lines keep the order" if form.fifo else ""
        words += ", as printed" if form.as_printed else ""
        experiment = replace(form, nodes=n, topology=topology)
        found.append(lab.simulate(experiment, lab.seeds(15, 150), words, lambda one: good(one, one.n)))
    return found


def _tree(one: Run, n: int) -> bool:
    most = 2 * (n - 1) if one.prepared.topology.kind == "line" else n - 1 + one.prepared.topology.diameter
    return set(request_counts(one)) <= {n - 1} and all(n <= cost <= most for cost in one.costs if cost)


@claim("HPR-TREE", PAPER, "tree: broadcast exactly n-1; total n to n-1+d. Line: n to 2(n-1)")
def hpr_tree(lab: Lab) -> Finding:
    def trees(form: Experiment) -> list[Evidence]:
        kinds = ("line", "star", "tree")
        return [one for kind in kinds for one in broadcast(lab, form, kind, (4, 7), _tree, "n-1 and n to n-1+d")]

    return judge(trees(PRINTED), given=trees(PRINTED_IN_LINES), condition=KEPT_ORDER)


def _ring(one: Run, n: int) -> bool:
    return all(n - 1 <= count <= n + 1 for count in request_counts(one)) and all(
        n <= cost <= 2 * n for cost in one.costs if cost
    )


@claim("HPR-RING", PAPER, "ring: broadcast n-1 to n+1; total n to 2n")
def hpr_ring(lab: Lab) -> Finding:
    def rings(form: Experiment) -> list[Evidence]:
        return broadcast(lab, form, "ring", (3, 4, 5, 8), _ring, "n-1 to n+1, n to 2n")

    return kept_order(rings)


def kept_order(found: Callable[[Experiment], list[Evidence]]) -> Finding:
    """As printed; as printed where lines keep the order; repaired where lines keep the order."""
    return judge(
        found(PRINTED),
        given=found(PRINTED_IN_LINES),
        condition=KEPT_ORDER,
        repaired=found(IN_LINES),
        repair=f"{FORGETS}; and {KEPT_ORDER}",
    )


@claim("HPR-COMPLETE", PAPER, "complete network: exactly n")
def hpr_complete(lab: Lab) -> Finding:
    def exact(one: Run, n: int) -> bool:
        return set(one.costs) <= {0, n}

    found = []
    for form in (PRINTED, REPAIRED):
        setups = [Setup(HPR, entries, form.as_printed) for entries in ((2, 2), (1, 1, 1))]
        found += [lab.count(setup, lambda cost, n: cost in (0, n)) for setup in setups]
        found += broadcast(lab, form, "complete", (3, 6), exact, "exactly n")
    return judge(found)


def _general(one: Run, n: int) -> bool:
    e = sum(len(one.prepared.topology.around(node)) for node in one.prepared.topology.nodes) // 2
    return (
        crossings(one) <= 2
        and all(n - 1 <= count <= 2 * e for count in request_counts(one))
        and all(n <= cost <= 2 * e + n - 1 for cost in one.costs if cost)
    )


@claim(
    "HPR-GENERAL",
    PAPER,
    "any network: a request crosses a line at most twice, so n-1 to 2e request messages; total n to 2e+n-1",
)
def hpr_general(lab: Lab) -> Finding:
    def networks(form: Experiment) -> list[Evidence]:
        shapes = (("regular:4", (8, 12)), ("random", (8, 14)), ("grid", (9, 12)))
        words = "twice a line, n-1 to 2e, n to 2e+n-1"
        return [one for shape, sizes in shapes for one in broadcast(lab, form, shape, sizes, _general, words)]

    return kept_order(networks)


@claim("HPR-TIME", PAPER, "a whole request takes at most 2d one-hop delays")
def hpr_time(lab: Lab) -> Finding:
    experiment = Experiment(algorithm=HPR, nodes=7, topology="ring", delay="constant:1", entries=3)
    contended = lab.simulate(
        experiment,
        [1],
        "everybody asks, unit delays, ring of 7",
        lambda one: max(one.metrics.waits) <= 2 * one.prepared.topology.diameter,
    )
    shapes = (("ring", 7), ("grid", 9), ("random", 9), ("tree", 7), ("complete", 5))
    return judge(
        [contended, *(_fast_one_way(rim) for rim in (8, 12))],
        given=[_lone(topology, n) for topology, n in shapes],
        condition="nobody else wants to enter and every hop takes the same time; with hops of up to 1 a request may run "
        "ahead on a long fast way, and the token has to come back on it",
    )


def _lone(topology: str, n: int) -> Evidence:
    """One node asks, with the token anywhere."""
    plain = Experiment(algorithm=HPR, nodes=n, topology=topology, delay="constant:1", entries=1)
    worst, d, against = 0.0, 0, None
    for home in range(1, n + 1):
        asking = (home % n + n // 2 - 1) % n + 1
        experiment = replace(plain, home=home, load=f"nodes:{asking}")
        for seed in (1, 2, 3):
            one = Run(experiment.prepare(), seed)
            d = one.prepared.topology.diameter
            if max(one.metrics.waits, default=0.0) > worst:
                worst, against = max(one.metrics.waits), command(experiment, seed)
    good = worst <= 2 * d + 1e-9
    return Evidence(
        "simulated",
        f"a lone request, constant:1, {topology} of {n}, d = {d}",
        good,
        seeds=3 * n,
        figures={"longest": round(worst, 3), "2d": 2 * d},
        counterexample=None if good else against,
    )


def _fast_one_way(rim: int) -> Evidence:
    """A wheel: its rim is fast in one direction, and all other hops take 1.

    The request runs round the rim before the hub has it, and the token must come back the long way.
    """
    wheel, hub = nx.cycle_graph(range(1, rim + 1)), rim + 1
    wheel.add_edges_from((node, hub) for node in range(1, rim + 1))
    network = of_graph(wheel)
    home = 4  # the request leaves 1 by way of the last node of the rim
    prepared = Experiment(
        algorithm=HPR, nodes=rim + 1, topology="complete", home=home, load="nodes:1", entries=1, delay="constant:1"
    ).prepare()

    def draw(source: NodeId, to: NodeId) -> float:
        fast = hub not in (source, to) and (to == source - 1 or (source, to) == (1, rim))
        return 0.001 if fast else 1.0

    prepared.topology, prepared.shapes = network, network.shapes(prepared.spec.needs, home)
    prepared.network = replace(prepared.network, delay=Delay("one way fast", 1.0, lambda _: draw))
    one = Run(prepared, 1)
    d = network.diameter
    return Evidence(
        "constructed",
        f"a lone request on a wheel of {rim + 1}, hops of at most 1, the rim fast in one direction",
        one.metrics.waits[0] <= 2 * d,
        seeds=1,
        figures={"took": round(one.metrics.waits[0], 3), "2d": 2 * d},
    )


@claim("HPR-LOCAL", PAPER, "no process uses anything but its neighbours' names")
def hpr_local(lab: Lab) -> Finding:
    def to_neighbours(one: Run) -> bool:
        around = {node: set(one.prepared.topology.around(node)) for node in one.prepared.topology.nodes}
        return all(event.to in around[event.node] for event in one.events if event.event == "sent")

    found = []
    for topology, n in (("ring", 6), ("random", 12), ("grid", 9)):
        experiment = Experiment(algorithm=HPR, nodes=n, topology=topology)
        words = f"every message goes to a neighbour, {topology} of {n}"
        found.append(lab.simulate(experiment, lab.seeds(5, 50), words, to_neighbours))
    # With names that cannot be guessed from each other there are the same states and steps.
    plain, odd = (
        lab.look(Setup(HPR, (1, 1, 1), shapes={j: Neighbours(tuple(k for k in names if k != j), home) for j in names}))
        for names, home in (((1, 2, 3), 1), ((17, 40, 1003), 17))
    )
    same = (plain.verdicts, plain.states) == (odd.verdicts, odd.states)
    found.append(explored("with the names 17, 40, 1003 as with 1, 2, 3", [plain, odd], same))
    return judge(found)


@claim("HPR-RECONF", PAPER, "the network may be reconfigured: only neighbour sets have to be updated")
def hpr_reconf(lab: Lab) -> Finding:
    line = Experiment(algorithm=HPR, nodes=4, topology="line", load="burst:50", entries=2)
    good = rewired(
        "a line of 4 becomes another line while nothing is under way",
        line,
        [(40, {1: (2, 4), 4: (1, 3)}), (45, {2: (1,), 3: (4,)})],
    )
    ring = Experiment(algorithm=HPR, nodes=4, topology="ring", load="nodes:3", entries=1, delay="constant:1")
    # The request has come to 1 by way of 2, and the token is on its way to 2.
    token = rewired("a ring of 4 loses a line that the token has still to cross", ring, [(2.5, {2: (1,), 3: (4,)})])
    # The request is on its way to 2 and 4 when 3 gets other neighbours: the way back is gone.
    star: dict[NodeId, tuple[NodeId, ...]] = {3: (1,), 1: (2, 3, 4), 2: (1,), 4: (1,)}
    request = rewired("a ring of 4 becomes a star while a request is under way", ring, [(0.5, star)])
    condition = "while the neighbour sets change, no request and no token is under way and nobody waits"
    return judge([good, token, request], given=[good], condition=condition)


def rewired(
    what: str, experiment: Experiment, changes: list[tuple[float, dict[NodeId, tuple[NodeId, ...]]]]
) -> Evidence:
    """Four nodes whose neighbours change while they run: does every node that asks get in?"""
    world = experiment.prepare().world()

    def change(neighbours: dict[NodeId, tuple[NodeId, ...]]) -> None:
        for node, names in neighbours.items():
            world.rewire(node, names)

    for t, neighbours in changes:
        world.at(t, partial(change, neighbours))
    world.run()
    stuck = world.stuck()
    told = "; ".join(f"at {t:g} the neighbours become {neighbours}" for t, neighbours in changes)
    values, plain = asdict(experiment), asdict(Experiment(algorithm=HPR))
    settings = {key: values[key] for key in ("topology", "load", "entries", "delay") if values[key] != plain[key]}
    words = f"helary-plouzeau-raynal on 4 nodes, {settings}: {told}; then {stuck} wait for ever"
    return Evidence("constructed", what, not stuck, seeds=1, counterexample=words if stuck else None)
