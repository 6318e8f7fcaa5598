"""Early deliveries: fewer states, the same verdicts, and whoever assumes too much is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest

from peerlock.algorithms import CATALOGUE, AlgorithmSpec, choose
from peerlock.check import explore as explorations
from peerlock.check.explore import Explored, explore
from peerlock.check.model import Model
from peerlock.check.mutants import mechanical
from peerlock.check.partial_order import Early, unfit
from peerlock.check.properties import Checks, MutualExclusion, Predicate, Property, standard
from peerlock.check.properties import State as State_
from peerlock.check.search import Outcome, Search
from peerlock.check.symmetry import groups
from peerlock.check.verdicts import shapes_of
from peerlock.contract import NOBODY, Members, Mode, NodeId, Out, Shape, State, Wire
from peerlock.user_algorithm import load, wrap

FORMS = [(name, form == "as_printed") for name, entry in CATALOGUE.items() for form in entry.forms]


def full(spec: AlgorithmSpec, n: int, entries: int, max_states: int | None = None, **settings: Any) -> Outcome:
    model = Model(spec, shapes_of(spec.name, n), [entries] * n, **settings)
    return Search(model, Checks(standard(model))).run(max_states)


def reduced(spec: AlgorithmSpec, n: int, entries: int, max_states: int | None = None, **settings: Any) -> Explored:
    return explore(
        lambda: Model(spec, shapes_of(spec.name, n), [entries] * n, **settings),
        standard,
        lambda search: search.run(max_states),
        groups={},
    )


@pytest.mark.parametrize("fifo", [False, True])
@pytest.mark.parametrize(
    ("name", "as_printed"),
    [pytest.param(*form, marks=pytest.mark.slow if form[0] == "ricart-agrawala-rw" else ()) for form in FORMS],
)
def test_the_verdicts_agree_on_every_small_configuration(name: str, as_printed: bool, fifo: bool) -> None:
    spec = choose(name, as_printed=as_printed)
    for n, entries in ((2, 2), (3, 1)):
        for inside in ({}, {2: "write"}):
            whole = full(spec, n, entries, fifo=fifo, inside=inside)
            found = reduced(spec, n, entries, fifo=fifo, inside=inside)
            assert found.outcome.violated == whole.violated
            assert found.outcome.finished == whole.finished
            if whole.finished:
                assert found.outcome.states <= whole.states
                assert (found.outcome.states < whole.states) <= (found.reduction is not None)


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_verdicts_agree_on_every_mutant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorations, "SHORTEN", 1)  # what the reduced search itself has found
    compared = 0
    for mutant in mechanical(name):
        try:
            whole = full(mutant.spec, 2, 2, 2_000)
            if not whole.finished and not whole.violated:
                continue  # messages without end
            found = reduced(mutant.spec, 2, 2, 500)
        except Exception:  # a mutant that crashes does so with and without a reduction
            continue
        if found.outcome.finished or found.outcome.violated:
            compared += 1
            assert bool(found.outcome.violated) == bool(whole.violated), mutant.what
    assert compared or name == "ricart-agrawala-priority"  # whose methods are one expression each


@pytest.mark.parametrize(
    ("name", "n", "entries", "states", "of"),
    [
        ("ricart-agrawala", 3, 2, 26_053, 39_933),
        ("ricart-agrawala-rw", 3, 1, 15_815, 26_597),
        ("suzuki-kasami-a", 3, 2, 42_406, 62_103),
        ("suzuki-kasami-a", 4, 1, 60_485, 126_799),
        ("ricart-agrawala-token", 3, 2, 27_743, 39_421),
        ("ricart-agrawala", 4, 1, 520_737, 2_074_509),
    ],
)
def test_how_much_is_saved(name: str, n: int, entries: int, states: int, of: int) -> None:
    found = reduced(choose(name), n, entries)
    assert (found.reduction, found.outcome.states, found.outcome.violated) == ("partial order", states, None)
    if of < 1_000_000:
        assert full(choose(name), n, entries).states == of


class First(Wire, frozen=True, tag=1):
    pass


class Second(Wire, frozen=True, tag=2):
    pass


class Racy(State):
    """Node 1 warns with two messages, enters, and says nothing more. If they arrive in the wrong order, node 2 enters too."""

    me: int
    seen: bool = False
    reckless: bool = False

    @classmethod
    def start(cls, me: int, shape: Members, inside: Any = NOBODY) -> Self:
        return cls(me)

    def request(self, mode: Mode, out: Out[Wire]) -> None:
        if self.me == 1:
            out.send(2, First())
            out.send(2, Second())
        if self.me == 1 or self.reckless:
            out.enter()

    def receive(self, source: int, message: Wire, out: Out[Wire]) -> None:
        if isinstance(message, First):
            self.seen = True
        else:
            self.reckless = not self.seen

    def release(self, out: Out[Wire]) -> None:
        out.idle()


def exclusion(model: Model) -> list[Property]:
    return [MutualExclusion(model)]


def test_too_much_assumed_is_found_out() -> None:
    """Delivering the first message early hides what happens when it comes last; nobody may get away with that."""
    shapes: dict[NodeId, Shape] = dict.fromkeys((1, 2), Members((1, 2), 1))
    model = Model(wrap(Racy), shapes, (1, 1))
    assert Search(model, Checks(exclusion(model))).run().violated == "mutual exclusion"
    model = Model(wrap(Racy), shapes, (1, 1))
    early = Early(model, exclusion(model))
    search = Search(model, Checks(exclusion(model)), early=early)
    outcome = search.run()
    assert (outcome.finished, outcome.violated) == (True, None)  # too good to be true
    assert {kind for kind, _, _ in early.refuted(search.engine)} == {"FIRST"}
    found = explore(lambda: Model(wrap(Racy), shapes, (1, 1)), exclusion, lambda search: search.run(), groups={})
    assert found.outcome.violated == "mutual exclusion"


def test_a_property_that_names_nodes_is_not_checked_on_renamed_states() -> None:
    """A ring of three can be rotated; what is asked of node 1 cannot."""
    spec, shapes = choose("dijkstra-ring"), shapes_of("dijkstra-ring", 3)

    def never(state: State_) -> bool:
        return not (state.where[1] == "idle" and state.where[2] == "inside" and state.where[3] == "waiting")

    found = explore(
        lambda: Model(spec, shapes, (1, 1, 1)),
        lambda model: [Predicate(model, "never", never)],
        lambda search: search.run(),
        groups=groups(shapes),
    )
    assert (found.outcome.violated, found.reduction) == ("never", None)


def test_an_algorithm_that_cannot_be_renamed_is_searched_without(tmp_path: Path) -> None:
    """`me: int` says nothing of a node; renamed states are nonsense, and that is not the algorithm's fault."""
    shapes: dict[NodeId, Shape] = dict.fromkeys((1, 2), Members((1, 2), 1))
    found = explore(lambda: Model(wrap(Racy), shapes, (1, 1)), exclusion, lambda search: search.run(), groups(shapes))
    assert found.outcome.violated == "mutual exclusion"
    text = (Path(__file__).parents[2] / "examples" / "my_lock.py").read_text()
    (tmp_path / "plain.py").write_text(text.replace("from __future__ import annotations\n", ""))
    own = wrap(load(str(tmp_path / "plain.py"), "CentralLock"))
    three: dict[NodeId, Shape] = dict.fromkeys((1, 2, 3), Members((1, 2, 3), 1))
    found = explore(lambda: Model(own, three, (1, 1, 1)), standard, lambda search: search.run(), groups(three))
    assert (found.outcome.finished, found.outcome.violated) == (True, None)


def test_where_it_does_not_fit() -> None:
    spec = choose("ricart-agrawala-implicit")
    ticking = Model(spec, shapes_of(spec.name, 2), (1, 1), delay_bound=1)
    assert unfit(ticking, standard(ticking)) == "a clock ticks for all nodes at once"
    dying = Model(spec, shapes_of(spec.name, 2), (1, 1), crashes=1)
    assert "counted" in str(unfit(dying, standard(dying)))
    ring = Model(choose("dijkstra-ring"), shapes_of("dijkstra-ring", 2), (1, 1))
    assert "EWD-P0..P6" in str(unfit(ring, standard(ring)))


def test_a_violation_is_shown_by_the_shortest_way() -> None:
    spec = choose("suzuki-kasami-b", as_printed=True)
    found, whole = reduced(spec, 2, 4), full(spec, 2, 4)
    assert (found.shortest, found.outcome.depth) == (True, whole.depth)
