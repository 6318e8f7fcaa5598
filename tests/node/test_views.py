"""The view change in every interleaving: clean with its rules, and not without any one of them."""

from __future__ import annotations

import pytest

from peerlock.algorithms import choose
from peerlock.check.protocols.view_change import CLEAN, Group, explore
from peerlock.check.protocols.view_mutants import MUTANTS, ViewMutant
from peerlock.node.membership.view_change import ViewChange
from peerlock.node.wire_algorithms import ON_THE_WIRE

# Exact numbers: a rule that is forgotten or a state that is merged shows in them.
STATES = {
    "3 members, 2 crashes": 90_116,
    "3 members, a crash and a renewal": 1_195_234,
    "3 members, 2 renewals": 1_166_960,
    "3 members, a crash and a leaver": 117_678,
    "2 members, a joiner, a crash": 125_621,
    "3 members, one is excluded and comes back": 6_212_571,
    "3 readers and writers, a renewal": 3_152_611,
    "3 members with leases, one is excluded and comes back": 5_934_985,
    "3 members with leases, one ends, a renewal": 570_521,
    "3 members with leases, a crash, one is excluded": 4_359_271,
}


@pytest.mark.parametrize(("name", "group"), CLEAN, ids=[name for name, _ in CLEAN])
def test_two_changes_of_three_nodes_are_clean(name: str, group: Group) -> None:
    _, outcome, verdicts = explore(group)
    assert outcome.finished
    assert set(verdicts.values()) == {"holds"}, verdicts
    assert outcome.states == STATES[name]


@pytest.mark.parametrize("algorithm", ON_THE_WIRE)
@pytest.mark.parametrize("what", [{"crashes": 1}, {"members": 2, "joiners": 1}, {"leavers": (2,), "crashes": 1}])
def test_every_algorithm_of_the_wire(algorithm: str, what: dict[str, object]) -> None:
    group = Group(choose(algorithm), **what)  # type: ignore[arg-type]
    _, outcome, verdicts = explore(group)
    assert outcome.finished
    assert set(verdicts.values()) == {"holds"}, verdicts


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.rule for mutant in MUTANTS])
def test_without_a_rule_two_hold_or_nobody_goes_on(mutant: ViewMutant) -> None:
    _, outcome, _ = explore(mutant.group, 20_000_000)
    assert outcome.violated in ("mutual exclusion", "no deadlock", "assertions")


def test_the_bookkeeping() -> None:
    view_change = ViewChange("a")
    assert view_change.wedged
    assert view_change.learn(1, ("a", "b"))
    assert not view_change.learn(1, ("a",)), "an epoch is learned once"
    assert not view_change.on_report("a", 1, "mine")
    assert view_change.missing() == ("b",)
    assert view_change.fate(1) == "wait"
    assert view_change.on_report("b", 1, "theirs")
    assert view_change.begin() == (("a", "mine"), ("b", "theirs"))
    assert not view_change.wedged
    assert (view_change.number("a"), view_change.member(2)) == (1, "b")
    assert [view_change.fate(epoch) for epoch in (0, 1, 2)] == ["drop", "deliver", "wait"]
    assert view_change.learn(3, ("b",))
    assert view_change.excluded
    assert view_change.fate(3) == "drop"
