"""The one way to check an algorithm: a `Configuration` is explored, and a `Result` says what that
has shown.

    found = run(Configuration(choose("ricart-agrawala"), shapes_of("ricart-agrawala", 3), (1, 1,
    1))) found.verdict, found.verdicts, found.outcome.states, found.way

The command line, the table of verdicts, the lab, the claims and the tests of mutants all come
through here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from peerlock.algorithms import AlgorithmSpec, Size
from peerlock.check import counterexample
from peerlock.check.explore import SHORTEN, explore
from peerlock.check.liveness import Graph
from peerlock.check.model import ANY, Model
from peerlock.check.observers import Costs, Observer, Overtaking
from peerlock.check.properties import Property, standard
from peerlock.check.search import Outcome, Progress, Search, Step
from peerlock.check.symmetry import groups
from peerlock.contract import NOBODY, Inside, NodeId, Shape
from peerlock.errors import UsageError
from peerlock.trace import Event

Verdict: TypeAlias = Literal["holds", "violated", "unfinished"]
MESSAGES, STARVATION = "messages an entry", "no starvation"
MOST_TRANSITIONS = 2_000_000  # of a graph that is looked through for starvation


class Configuration(Struct, frozen=True):
    """What is explored, and what is asked about it."""

    spec: AlgorithmSpec
    shapes: Mapping[NodeId, Shape]
    entries: Sequence[int]  # of each node; `ANY`: as often as it likes
    inside: Inside = NOBODY
    fifo: bool = False
    crashes: int = 0
    delay_bound: int | None = None
    leavers: Sequence[NodeId] = ()
    at_once: bool = False  # several nodes may come and go at a time
    begin: Callable[[Model], Sequence[int]] | None = None  # the state to begin with; None: the start
    observers: Sequence[Observer] = ()

    properties: Callable[[Model], list[Property]] = standard
    costs: bool = False  # count the messages per entry
    size: Size | None = None  # compare them with what the paper claims for such a network
    passed_over: NodeId = 0  # count how often this node is passed over, once every node has its request
    liveness: bool = False  # can a node wait for ever under fair delivery?

    reduce: bool = False
    max_states: int | None = None
    max_seconds: float | None = None

    def model(self, more: Sequence[Observer] = ()) -> Model:
        model = Model(
            self.spec, self.shapes, self.entries, self.inside, fifo=self.fifo, crashes=self.crashes,
            delay_bound=self.delay_bound, leavers=self.leavers, at_once=self.at_once,
            observers=[*self.observers, *more],
        )  # fmt: skip
        if self.begin is not None:
            model.first = tuple(self.begin(model))
        return model


class Result(Struct):
    configuration: Configuration
    search: Search
    outcome: Outcome
    verdicts: dict[str, str]
    way: tuple[Step, ...] = ()  # to what is violated
    loop_from: int | None = None  # the steps of the way from here on repeat for ever
    costs: set[int] = set()
    passed_over: int = 0
    reduction: str | None = None  # in words; None: every state was looked at
    reduction_checked: bool = False
    shortest: bool = True  # is the way the shortest?

    @property
    def model(self) -> Model:
        return self.search.model

    @property
    def violated(self) -> str | None:
        return self.outcome.violated or next((name for name, what in self.verdicts.items() if what == "violated"), None)

    @property
    def verdict(self) -> Verdict:
        if self.violated is not None:
            return "violated"
        return "holds" if self.outcome.finished and "unfinished" not in self.verdicts.values() else "unfinished"

    def events(self) -> list[Event]:
        """The way as a trace."""
        spec = self.configuration.spec
        return counterexample.events(self.model, self.way, {"algorithm": spec.name, "form": spec.form})

    def look_for_starvation(self, note: Callable[[str], None] = lambda words: None) -> None:
        """Only the whole graph can tell, and only one of moderate size in good time."""
        self.verdicts[STARVATION] = "unfinished"
        if not self.outcome.finished:
            return
        if self.outcome.transitions > MOST_TRANSITIONS:
            note(
                f"{self.outcome.transitions:,} transitions are more than the search for starvation is made for "
                f"({MOST_TRANSITIONS:,})"
            )
            return
        graph = Graph(self.search)
        lasso = next((found for node in self.model.nodes if (found := graph.starves(node)) is not None), None)
        self.verdicts[STARVATION] = "holds" if lasso is None else "violated"
        if lasso is not None:
            self.way, self.loop_from = (*lasso.stem, *lasso.loop), len(lasso.stem)


def run(
    configuration: Configuration,
    drive: Callable[[Search], Outcome] | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda words: None,
) -> Result:
    """Explore. `note` hears why a reduction is not used; `drive` runs a search, for callers that
    can stop it.
    """
    asked, most = configuration, configuration.max_states
    counted, overtaking = Costs(), Overtaking(asked.passed_over)
    observers: list[Observer] = [*([counted] if asked.costs else []), *([overtaking] if asked.passed_over else [])]
    if asked.reduce and (observers or asked.crashes or asked.liveness):
        raise UsageError("--reduce merges states; without it: --crashes, --costs, --passed-over and --liveness.")
    explored = explore(
        partial(asked.model, observers),
        asked.properties,
        drive or (lambda search: search.run(most, asked.max_seconds, progress)),
        groups(asked.shapes) if asked.reduce else None,
        note=note,
        most=most and min(most, SHORTEN),
    )
    search, outcome = explored.search, explored.outcome
    verdicts = explored.checks.verdicts(outcome.violated, outcome.finished)
    if sum(left != 0 for left in asked.entries) < 2:
        # If one node alone asks, no node can wait for another.
        verdicts = {name: verdict for name, verdict in verdicts.items() if not name.startswith("sometimes")}
    claimed = asked.spec.claimed.bounds(asked.size) if asked.size is not None and asked.spec.claimed else None
    if claimed is not None:
        wrong = any(not claimed[0] <= cost <= claimed[1] for cost in counted.seen)
        verdicts[MESSAGES] = "violated" if wrong else "holds" if outcome.finished else "unfinished"
    result = Result(
        asked, search, outcome, verdicts, search.way_to(outcome.row) if outcome.row is not None else (),
        costs=counted.seen, passed_over=overtaking.most, reduction=explored.reduction,
        reduction_checked=explored.verified, shortest=explored.shortest,
    )  # fmt: skip
    if asked.liveness:
        result.look_for_starvation(note)
    return result


__all__ = ["ANY", "Configuration", "Result", "run"]
