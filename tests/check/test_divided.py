"""What must be indivisible: SK-INDIV, CR-INDIV, RT-INDIV, cut by cut."""

from __future__ import annotations

import pytest

from peerlock.algorithms import CATALOGUE, choose
from peerlock.check.model import Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.check.verdicts import shapes_of
from peerlock.errors import UsageError
from running import run_seeds

# (nodes, entries, how it fails, the length of the shortest way); everything else is harmless.
FAILS = {
    "suzuki-kasami-a": {
        "look": (3, 2, "no deadlock", 25),
        "test_q": (2, 3, "no deadlock", 11),
        "requesting_false": (2, 3, "no deadlock", 11),
        "p2_have_privilege_false": (2, 2, "mutual exclusion", 5),
    },
    "carvalho-roucairol": {
        "our_number": (2, 2, "no deadlock", 6),
        "ask": (2, 3, "mutual exclusion", 28),
        "waiting_false": (2, 3, "mutual exclusion", 16),
        "using_true": (2, 2, "mutual exclusion", 8),
        "first_if": (2, 2, "no deadlock", 6),
        "reply_deferred_true": (2, 3, "mutual exclusion", 18),
        "second_if": (2, 2, "no deadlock", 6),
        "reply": (2, 3, "mutual exclusion", 10),
    },
    "ricart-agrawala-token": {
        "have_token_true": (2, 2, "mutual exclusion", 6),
        "in_critical_section_true": (2, 2, "mutual exclusion", 6),
        "token_data_own": (2, 2, "mutual exclusion", 5),
        "in_critical_section_false": (2, 2, "mutual exclusion", 5),
        "look": (2, 2, "mutual exclusion", 5),
        "send_token": (2, 2, "mutual exclusion", 5),
        "have_token_false": (2, 2, "mutual exclusion", 4),
    },
}


def check(name: str, cut: str, n: int, entries: int) -> Outcome:
    model = Model(choose(name, cut=cut), shapes_of(name, n), [entries] * n)
    return Search(model, Checks(standard(model))).run()


def harmless(name: str) -> list[str]:
    divided = CATALOGUE[name].divided
    return [cut for cut in getattr(divided, "statements", ()) if cut not in FAILS[name]]


@pytest.mark.parametrize(("name", "cut"), [(name, cut) for name, cuts in FAILS.items() for cut in cuts])
def test_what_goes_wrong(name: str, cut: str) -> None:
    n, entries, how, depth = FAILS[name][cut]
    outcome = check(name, cut, n, entries)
    assert (outcome.violated, outcome.depth) == (how, depth)


@pytest.mark.parametrize("name", FAILS)
def test_what_need_not_be_indivisible(name: str) -> None:
    """All other cuts at once do no harm: with two nodes, three entries each, and three nodes, one entry each."""
    cuts = "+".join(harmless(name))
    for n, entries in ((2, 3), (3, 1)):
        outcome = check(name, cuts, n, entries)
        assert (outcome.finished, outcome.violated) == (True, None)


@pytest.mark.parametrize("name", FAILS)
def test_the_simulator_interrupts_too(name: str) -> None:
    for ran in run_seeds(name, range(1, 11), nodes=3, options={"cut": "+".join(harmless(name))}):
        assert (ran.metrics.violations, ran.world.stuck(), len(ran.costs)) == (0, [], 30)


def test_a_second_token_is_a_verdict_and_not_a_mistake() -> None:
    """A token that comes when nobody waits for it stays unread, as in the figures."""
    model = Model(
        choose("ricart-agrawala-token", cut="all"), shapes_of("ricart-agrawala-token", 2), (1, 1), {2: "write"}
    )
    assert Search(model, Checks(standard(model))).run().violated == "mutual exclusion"
    model = Model(choose("suzuki-kasami-a", cut="p2_have_privilege_false"), shapes_of("suzuki-kasami-a", 2), (2, 2))
    deadlock = [prop for prop in standard(model) if prop.name == "no deadlock"]
    assert Search(model, Checks(deadlock)).run().finished


def test_a_cut_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="no statement 'nowhere' to cut before"):
        Model(choose("suzuki-kasami-a", cut="nowhere"), shapes_of("suzuki-kasami-a", 2), (1, 1))
    with pytest.raises(UsageError, match="has no option 'cut'"):
        choose("dijkstra-ring", cut="all")
