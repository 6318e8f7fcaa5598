"""The claims of Carvalho and Roucairol, and of the authors' response to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from peerlock.check.engine import Cells
from peerlock.check.model import Letter, Local
from peerlock.check.properties import Bad, Property, Sums
from peerlock.claims import table_one
from peerlock.claims.all_algorithms import evidence
from peerlock.claims.evidence import Evidence, Figure, Finding, Lab, Run, Setup, judge, run
from peerlock.claims.fairness import MEANING, ORDERS, strongest
from peerlock.claims.registry import claim
from peerlock.claims.suzuki_kasami import interrupted, interrupted_anywhere, statements
from peerlock.contract import Mode, NodeId
from peerlock.sim.experiment import Experiment

PAPER = "carvalho-roucairol-1983"
STARTS: tuple[dict[NodeId, Mode], ...] = ({}, {2: "write"})
CR, RT, RA = "carvalho-roucairol", "ricart-agrawala-token", "ricart-agrawala"


@claim("CR-MSG", PAPER, "0 to 2(N-1) messages an entry")
def cr_msg(lab: Lab) -> Finding:
    def within(one: Run) -> bool:
        return all(0 <= cost <= 2 * (one.n - 1) for cost in one.costs)

    found = [
        lab.count(Setup(CR, entries), lambda cost, n: 0 <= cost <= 2 * (n - 1) and cost % 2 == 0)
        for entries in ((3, 3), (2, 2, 2), (1, 1, 1))
    ]
    experiment = Experiment(algorithm=CR, delay="adversary:3", load="closed:2")
    found += lab.by_size(experiment, (2, 4, 8), lab.seeds(20, 200), "0 to 2(N-1)", within)
    return judge(found)


def everything(lab: Lab, name: str) -> Finding:
    return judge([one for what in ("ALL-ME", "ALL-DF", "ALL-SF") for one in evidence(lab, what, name)])


@claim("CR-SAFE", PAPER, "ALL-ME, ALL-DF, ALL-SF hold")
def cr_safe(lab: Lab) -> Finding:
    return everything(lab, CR)


@claim("CR-AUTH", PAPER, "never both A_i[j] and A_j[i]")
def cr_auth(lab: Lab) -> Finding:
    setups = [
        Setup(CR, entries, fifo=fifo, inside=inside)
        for entries in ((3, 3), (2, 2, 2))
        for fifo in (False, True)
        for inside in STARTS
    ]
    return judge([lab.explore(setups, ["CR-AUTH"], "every state, from nobody inside and from somebody inside")])


@claim("CR-ORDER", PAPER, 'not first come first served, yet "nearly FCFS"')
def cr_order(lab: Lab) -> Finding:
    order, found = strongest(lab, CR)
    return judge(found[-2::-1] or found, given=found[-1:] if order else [], condition=f"first comes {MEANING[order]}")


@claim("CR-INDIV", PAPER, "the procedures must be indivisible")
def cr_indiv(lab: Lab) -> Finding:
    return needed(lab, CR)


def needed(lab: Lab, name: str) -> Finding:
    """Interruptions are claimed to do harm: at least one must. The evidence names the others."""
    cuts, together = interrupted(lab, name, statements(name)), interrupted_anywhere(lab, name)
    harmful = [cut for cut, one in cuts.items() if not one.speaks_for]
    harmless = [cut for cut, one in cuts.items() if one.speaks_for]
    every = [*cuts.values(), together]
    script = next((one.counterexample for one in cuts.values() if one.counterexample), None)
    finding = judge([
        Evidence(
            "exhaustive",
            "an interruption before these statements breaks mutual exclusion or deadlocks",
            bool(harmful),
            configurations=len(every),
            states=sum(one.states for one in every),
            figures={"statements": harmful},
            counterexample=script,
        ),
        Evidence(
            "exhaustive",
            "an interruption before these does not, nor do all of them together",
            together.speaks_for,
            figures={"statements": harmless},
        ),
    ])  # fmt: skip
    finding.counterexample = script
    return finding


@claim(
    "RESP-HB",
    PAPER,
    'a node whose REQUEST messages "happened before" another node\'s REQUEST enters first, in both algorithms',
)
def resp_hb(lab: Lab) -> Finding:
    claimed: list[Evidence] = []
    given: list[Evidence] = []
    beside: list[Evidence] = []
    words = []
    for name, which in ((RA, "the original"), (CR, "the modified")):
        order, found = strongest(lab, name, ORDERS[1:], by_request=True)
        claimed.append(found[0])
        given += found[-1:]
        beside += found[1:-1]
        words.append(f"in {which} algorithm first comes {MEANING[order]}")
        for one in found:
            one.what = f"{which} algorithm: {one.what}"
    return judge(claimed, given=given, condition="; ".join(words), beside=beside)


class Master(Property):
    """When the network is quiet after an entry, some node holds every permission."""

    name = "master"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        busy = local.where != "idle" or bool(letters)
        node = local.algorithm
        started = local.left < self.model.local(at, self.model.first[at]).left
        return (len(node.a) == len(node.others)) | (busy << 8) | (started << 16)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return np.asarray((sums >> 8 & 0xFF == 0) & (sums >> 16 > 0) & (sums & 0xFF == 0), bool)


@claim("RESP-MASTER", PAPER, "in a quiescent network the last node to have entered holds every permission")
def resp_master(lab: Lab) -> Finding:
    def last(one: Run) -> bool:
        entered = [event.node for event in one.events if event.event == "entered"]
        return len(one.world.places[entered[-1]].algorithm.a) == one.n - 1

    setups = [Setup(CR, entries, fifo=fifo) for entries in ((3, 3), (2, 2, 2)) for fifo in (False, True)]
    words = "in every quiet state after an entry some node holds every permission"
    found = [lab.watch(words, setups, lambda model: [Master(model)])]
    experiment = Experiment(algorithm=CR, delay="adversary:3")
    words = "and it is the last one that entered"
    return judge([*found, *lab.by_size(experiment, (2, 5, 8), lab.seeds(30, 300), words, last)])


@claim("RESP-ROUND1", PAPER, "the first round of the original and of the modified algorithm are identical")
def resp_round1(lab: Lab) -> Finding:
    what_and_when = attrgetter("event", "t", "node", "to", "kind", "fields")

    def same(n: int, seed: int) -> bool:
        plain = Experiment(algorithm=RA, nodes=n, entries=1, delay="adversary:3", seed=seed)
        first, second = (run(experiment).events[1:] for experiment in (plain, replace(plain, algorithm=CR)))
        return list(map(what_and_when, first)) == list(map(what_and_when, second))

    seeds, words = lab.seeds(30, 300), "one entry each: the same events at the same times, N = 2, 4, 6"
    good = all(same(n, seed) for seed in seeds for n in (2, 4, 6))
    return judge([Evidence("simulated", words, good, seeds=3 * len(seeds))])


@claim("RT-MSG", PAPER, "the Appendix's token algorithm: 0 or N messages")
def rt_msg(lab: Lab) -> Finding:
    found = [lab.count(Setup(RT, entries), lambda cost, n: cost in (0, n)) for entries in ((3, 3), (2, 2, 2))]
    experiment = Experiment(algorithm=RT, delay="adversary:3", load="closed:1")
    seeds = lab.seeds(20, 200)
    return judge(
        [*found, *lab.by_size(experiment, (2, 5, 9), seeds, "0 or N", lambda one: set(one.costs) <= {0, one.n})]
    )


@claim("RT-SAFE", PAPER, "mutual exclusion, no deadlock, no starvation")
def rt_safe(lab: Lab) -> Finding:
    return everything(lab, RT)


@claim("RT-INDIV", PAPER, "the Appendix's procedures should be executed indivisibly")
def rt_indiv(lab: Lab) -> Finding:
    return needed(lab, RT)


@claim("RT-ORIGIN", PAPER, "the token may be made by one pass of Ricart-Agrawala instead of starting at node 1")
def rt_origin(lab: Lab) -> Finding:
    setups = [
        Setup(RT, entries, fifo=fifo, options={"first_pass": True})
        for entries in ((2, 2), (1, 1, 1))
        for fifo in (False, True)
    ]
    explored = lab.explore(setups, ["mutual exclusion", "no deadlock"], "the token made by a first pass")

    def one_token(one: Run) -> bool:
        made = one.metrics.by_kind()["MADE"] == one.prepared.topology.n - 1
        return one.sound and made and sum(place.algorithm.then.have_token for place in one.world.places.values()) == 1

    experiment = Experiment(algorithm=RT, nodes=5, options={"first_pass": True}, delay="adversary:3")
    made = lab.simulate(experiment, lab.seeds(30, 300), "exactly one token is made, N = 5", one_token)
    return judge([explored, made])


@claim(
    "TABLE-I",
    PAPER,
    "Table I, all fifteen figures: messages, and Notes 1 to 4 in round trips, for the three algorithms",
)
def table_i(lab: Lab) -> Finding:
    printed = {
        RA: Column("2(N-1)", lambda n, costs: set(costs) == {2 * (n - 1)}, 1.0, "1.5", lambda n: 1.5),
        CR: Column(
            "0 to 2(N-1)",
            lambda n, costs: min(costs) == 0 and max(costs) == 2 * (n - 1),
            0.0,
            "(N-1)/2",
            lambda n: (n - 1) / 2,
        ),
        RT: Column("0 or N", lambda n, costs: set(costs) <= {0, n} and 0 in costs, 0.0, "1.0", lambda n: 1.0),
    }
    found = {name: column(name, printed[name], lab.full) for name in table_one.ALGORITHMS}
    hurt = {n: max(3, n) / 2 for n in table_one.SIZES}
    good = found[CR][-1].figures["by N"] == hurt
    words = "carvalho-roucairol, Note 4: at least N/2, and 1.5 for N = 2 and 3"
    corrected = Evidence("constructed", words, good, figures={"by N": hurt})
    repair = "Note 4 of Carvalho and Roucairol reads N/2 and more, 1.5 for N = 2"
    return judge(list(chain(*found.values())), repaired=[corrected], repair=repair)


class Column(NamedTuple):
    """What Table I says of one algorithm."""

    messages: str
    as_many: Callable[[int, list[int]], bool]  # of N and of the costs that occur
    note_2: float
    note_4: str
    slowest: Callable[[int], float]  # Note 4, of N
    note_1: float = 0.5
    note_3: float = 1.0


def column(name: str, printed: Column, full: bool) -> list[Evidence]:
    """The five figures of one algorithm: as printed, and as computed."""
    costs = {n: table_one.messages(name, n) for n in table_one.SIZES}
    as_many = all(printed.as_many(n, costs[n]) for n in costs)
    means = {n: table_one.note_1(name, n) for n in table_one.SIZES}
    least = name == CR
    near = all(mean >= printed.note_1 - 1e-9 if least else abs(mean - printed.note_1) < 1e-6 for mean in means.values())
    words = f"{name}, Note 1: {'at least ' if least else ''}{printed.note_1}"
    found = [
        Evidence(
            "simulated",
            f"{name}, messages: {printed.messages}",
            as_many,
            seeds=20 * len(costs),
            figures={"by N": costs},
        ),
        Evidence("simulated", words, near, seeds=len(means), figures={"by N": means}),
    ]
    for number, claimed, note in ((2, printed.note_2, table_one.note_2), (3, printed.note_3, table_one.note_3)):
        by_n = {n: note(name, n) for n in table_one.SIZES}
        words, good = f"{name}, Note {number}: {claimed}", set(by_n.values()) == {claimed}
        found.append(Evidence("constructed", words, good, figures={"by N": by_n}))
    longest = {n: table_one.note_4(name, n, full=full) for n in table_one.SIZES}
    right = all(value == printed.slowest(n) for n, (value, _) in longest.items())
    figures: dict[str, Figure] = {
        "by N": {n: value for n, (value, _) in longest.items()},
        "all times looked at for N": [n for n, (_, all_) in longest.items() if all_],
    }
    script = None if right else "\n".join(map(table_one.told, (4, 7)))
    words = f"{name}, Note 4: {printed.note_4}"
    found.append(Evidence("constructed", words, right, figures=figures, counterexample=script))
    return found
