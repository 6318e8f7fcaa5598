"""Networks: which nodes are connected.

A topology numbers its nodes 1 to n and keeps the names that a file gave them as labels. Complete
networks are not stored as edges, so that a thousand nodes cost nothing. Everything else comes from
networkx.
"""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from peerlock.algorithms import Size
from peerlock.contract import Members, Needs, Neighbours, NodeId, Ring, Shape
from peerlock.errors import TopologyError

if TYPE_CHECKING:
    import networkx as nx

    AnyGraph: TypeAlias = nx.Graph[Any]  # whatever a file calls its nodes

SYNTAX = (
    "complete, ring, line, star, tree (binary), tree:BRANCHES, grid, grid:ROWSxCOLUMNS, random (about 3 links a node), "
    "random:P, regular:DEGREE, or a .gml or .graphml file"
)
MOST_NODES = 100_000
_GRAPH_SEED = 1  # a random topology is the same in every run


class Topology(Struct, frozen=True):
    text: str
    kind: str  # complete, ring, line, tree or general
    n: int
    edges: int
    diameter: int
    neighbours: dict[NodeId, tuple[NodeId, ...]] | None  # None: complete
    labels: dict[NodeId, str] = {}
    notes: tuple[str, ...] = ()  # what was odd about the file

    @property
    def nodes(self) -> range:
        return range(1, self.n + 1)

    def size(self, l: int = 2) -> Size:
        return Size(self.n, self.edges, self.diameter, self.kind, l)

    def around(self, node: NodeId) -> tuple[NodeId, ...]:
        if self.neighbours is None:
            return tuple(j for j in self.nodes if j != node)
        return self.neighbours[node]

    def shapes(self, needs: Needs, home: NodeId = 1, delay_bound: float | None = None) -> dict[NodeId, Shape]:
        """What each node may know of this network, for an algorithm with these needs."""
        if needs.shape is Neighbours:
            return {j: Neighbours(self.around(j), home) for j in self.nodes}
        if needs.shape is Ring:
            return self._ring(home)
        if self.kind != "complete" and self.edges != self.n * (self.n - 1) // 2:
            raise TopologyError(
                f"This algorithm needs a complete network, where every node talks to every other; {self.text} is not one. "
                "Leave --topology out, or use helary-plouzeau-raynal, which runs on any connected network."
            )
        members = Members(tuple(self.nodes), home, delay_bound)
        return dict.fromkeys(self.nodes, members)

    def _ring(self, home: NodeId) -> dict[NodeId, Shape]:
        if self.n > 2 and any(len(self.around(j)) != 2 for j in self.nodes):
            odd = next(j for j in self.nodes if len(self.around(j)) != 2)
            raise TopologyError(
                f"This algorithm needs a ring, but in {self.text} node {odd} has {len(self.around(odd))} neighbours, not 2."
            )
        order, before = [1], 0
        while len(order) < self.n:
            following = [j for j in self.around(order[-1]) if j != before]
            before = order[-1]
            order.append(following[0])
        return {j: Ring(order[at - 1], order[(at + 1) % self.n], home) for at, j in enumerate(order)}


def default_for(needs: Needs) -> str:
    return {Members: "complete", Ring: "ring", Neighbours: "random"}[needs.shape]


def parse(text: str, n: int | None) -> Topology:
    """A topology from its text; files bring their own number of nodes."""
    if Path(text).suffix.lower() in (".gml", ".graphml"):
        return read_file(text, n)
    if n is None:
        grid = re.fullmatch(r"grid:(\d+)x(\d+)", text)
        n = int(grid[1]) * int(grid[2]) if grid else 5
    if n < 2:
        raise TopologyError(f"A network needs at least 2 nodes; got {n}.")
    if n > MOST_NODES:
        raise TopologyError(f"{n} nodes are more than this simulator is made for ({MOST_NODES:,}).")
    if text == "complete":
        return Topology("complete", "complete", n, n * (n - 1) // 2, 1, None)
    return of_graph(_graph(text, n), text, n)


def _graph(text: str, n: int) -> AnyGraph:
    import networkx as nx

    name, _, rest = text.partition(":")
    try:
        match name, rest:
            case "ring", "":
                return nx.cycle_graph(n) if n > 2 else nx.path_graph(n)
            case "line", "":
                return nx.path_graph(n)
            case "star", "":
                return nx.star_graph(n - 1)
            case "tree", _:
                return nx.full_rary_tree(int(rest or 2), n)
            case "grid", "":
                rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
                return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows))
            case "grid", _:
                rows, columns = (int(part) for part in rest.split("x"))
                return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
            case "random", _:
                p = float(rest) if rest else min(1.0, 3 / (n - 1))
                if not 0 < p <= 1:
                    raise TopologyError(f"{text!r}: P is the chance of a link, above 0 and at most 1.")
                return _random(n, p)
            case "regular", _ if rest:
                return nx.random_regular_graph(int(rest), n, seed=_GRAPH_SEED)
    except TopologyError:
        raise
    except ValueError:
        pass  # not a number where there must be one: see below
    except nx.NetworkXError as problem:
        raise TopologyError(f"{text!r} with {n} nodes is not possible: {problem}.") from None
    raise TopologyError(f"{text!r} is not a topology. Use one of: {SYNTAX}.")


def _random(n: int, p: float) -> AnyGraph:
    import networkx as nx

    for attempt in range(1000):
        graph: AnyGraph = nx.gnp_random_graph(n, p, seed=_GRAPH_SEED + attempt)
        if nx.is_connected(graph):
            return graph
    raise TopologyError(f"random:{p:g} with {n} nodes gave no connected network in 1000 tries; use a larger P.")


def of_graph(graph: AnyGraph, text: str = "graph", n: int | None = None, notes: tuple[str, ...] = ()) -> Topology:
    """A topology from a networkx graph, in the order of its nodes."""
    import networkx as nx

    count = graph.number_of_nodes()
    if n is not None and count != n:
        raise TopologyError(f"{text} has {count} nodes, not {n}: leave -n out, or say -n {count}.")
    if count < 2:
        raise TopologyError(f"{text} has {count} node{'s' * (count != 1)}; a network needs at least 2.")
    if not nx.is_connected(graph):
        parts = sorted(nx.connected_components(graph), key=len)
        raise TopologyError(
            f"{text} is not connected: it has {len(parts)} parts, the smallest with {len(parts[0])} of {count} nodes. "
            "A request could never reach all nodes; connect the parts or take one of them."
        )
    number = {node: at for at, node in enumerate(graph.nodes, 1)}
    neighbours = {number[node]: tuple(sorted(number[k] for k in graph[node])) for node in graph.nodes}
    edges = graph.number_of_edges()
    labels = {number[node]: str(data["label"]) for node, data in graph.nodes(data=True) if "label" in data}
    return Topology(text, _kind(neighbours, edges), count, edges, nx.diameter(graph), neighbours, labels, notes)


def _kind(neighbours: dict[NodeId, tuple[NodeId, ...]], edges: int) -> str:
    n, degrees = len(neighbours), [len(names) for names in neighbours.values()]
    if edges == n * (n - 1) // 2:
        return "complete"
    if edges == n - 1:
        return "line" if max(degrees) <= 2 else "tree"
    return "ring" if set(degrees) == {2} else "general"


def read_file(path: str, n: int | None = None) -> Topology:
    """A network from a GML or GraphML file, with its quirks smoothed and told."""
    import networkx as nx

    file, notes = Path(path), []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # networkx about ports and the like
            graph: Any = nx.read_graphml(file) if file.suffix.lower() == ".graphml" else _read_gml(file)
    except OSError as problem:
        raise TopologyError(f"{path} cannot be read: {problem.strerror}.") from None
    except Exception as problem:  # whatever a parser says of a file that is no graph
        raise TopologyError(f"{path} is not a graph that can be read: {problem}.") from None
    if graph.is_directed():
        notes.append("its edges have directions, which are ignored")
    plain = nx.Graph()
    plain.add_nodes_from(graph.nodes(data=True))
    plain.add_edges_from((a, b) for a, b in graph.edges() if a != b)
    doubled = sum(1 for a, b in graph.edges() if a != b) - plain.number_of_edges()
    if doubled:
        silent = "" if graph.graph.get("declared", True) else " without saying that it is a multigraph"
        notes.append(f"it lists {doubled} edge{'s' * (doubled != 1)} more than once{silent}; each is taken once")
    loops = nx.number_of_selfloops(graph)
    if loops:
        notes.append(f"it connects {loops} node{'s' * (loops != 1)} to itself; that is ignored")
    return of_graph(plain, path, n, tuple(f"{path}: {note}." for note in notes))


def _read_gml(file: Path) -> Any:
    import networkx as nx

    text = file.read_text(encoding="utf-8-sig", errors="replace")
    try:
        return nx.parse_gml(text, label="id")
    except nx.NetworkXError as problem:
        if "duplicated" not in str(problem):
            raise
        graph = nx.parse_gml(text.replace("graph [", "graph [\n  multigraph 1", 1), label="id")
        graph.graph["declared"] = False
        return graph
