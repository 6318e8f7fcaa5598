"""Every registry in every interleaving: clean with their rules, and not without any one of them.

The largest of the clean ones are for `make slow`, and those of `--deep` for `peerlock check-registries`: they take minutes.
"""

from __future__ import annotations

import pytest

from peerlock.check.protocols.all import CLEAN, MUTANTS, Explored, explore

# Exact numbers: a rule that is forgotten, a state that is merged or a letter that is lost too early shows in them.
STATES = {
    "3 voters, 3 ballots": 3_868_016,
    "3 voters, 2 ballots, one is restarted": 820_121,
    "3 voters, 2 ballots, a joiner": 131_007,
    "3 voters, 2 ballots, 2 epochs, a wish that is old": 381_460,
    "a voter is replaced, 2 epochs": 160_533,
    "a voter is replaced, m is cut off from one": 64_207,
    "a decision can always be reached, 2 ballots": 79_624,
    "the same, m is cut off from one voter": 24_288,
    "a store": 8_445_055,
    "a store, a member leaves": 6_234_550,
    "one host: 2 processes join": 18_063,
    "one host: 2 processes join, one crashes": 34_764,
    "one host: 2 processes join, the power fails": 18_063,
    "one host: one holds, one excludes it": 4_019,
    "one host: one leaves, one decides": 17_766,
    "one host: one is slow, views are removed": 39_379,
    "one host: one is excluded, a third decides": 27_385,
    "one host: a file is removed": 15,
    "one host: the directory is replaced": 4,
    "a list of 2, all start": 573,
    "a list of 2, one crashes, a link breaks": 2_496,
    "a list of 2, one leaves, a link breaks": 4_894,
    "a list of 2, one crashes, records are not written": 615,
    "a list of 2, one leaves, a record is not written": 497,
    "a list of 2, the operator speaks twice, a record is not written": 28_270,
    "a list of 2, both crash, one is said to be dead": 28_909,
    "a list of 3, all start": 68_195,
    "a list of 3, one crashes": 42_068,
    "a list of 3, one crashes, one leaves, one is said to be dead": 937,
}


@pytest.mark.parametrize("what", [what for what in CLEAN if what.name in STATES], ids=lambda what: what.name)
def test_clean(what: Explored) -> None:
    outcome, found = explore(what)
    assert found is None
    assert outcome.finished
    assert outcome.states == STATES[what.name]


@pytest.mark.slow
@pytest.mark.parametrize("what", [what for what in CLEAN if what.name not in STATES], ids=lambda what: what.name)
def test_clean_too(what: Explored) -> None:
    outcome, found = explore(what)
    assert found is None
    assert outcome.finished


# Half a minute each, and more.
SLOW = ("no renewal while the voters change", "answers are for one ballot")


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[pytest.mark.slow] if what.name in SLOW else [], id=what.name) for what in MUTANTS],
)
def test_each_rule_is_needed(what: Explored) -> None:
    _, found = explore(what)
    assert found is not None
    assert found.startswith("for ever undecided") == what.blocks


def test_every_clean_one_is_explored_somewhere() -> None:
    assert set(STATES) <= {what.name for what in CLEAN}
