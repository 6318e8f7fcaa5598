"""What Carvalho and Roucairol claim, what the authors' response claims, and its Appendix and Table I."""

from __future__ import annotations

from typing import Any

from peerlock.check.model import Local, Model
from peerlock.check.properties import Property
from peerlock.claims import table_one
from peerlock.claims.all_algorithms import evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, judge
from peerlock.claims.fairness import MEANING, ORDERS, strongest
from peerlock.claims.registry import claim
from peerlock.claims.suzuki_kasami import _statements, indivisible
from peerlock.contract import Mode, NodeId

PAPER = "carvalho-roucairol-1983"
STARTS: tuple[dict[NodeId, Mode], ...] = ({}, {2: "write"})
CR, RT, RA = "carvalho-roucairol", "ricart-agrawala-token", "ricart-agrawala"


@claim("CR-MSG", PAPER, "0 to 2(N-1) messages an entry")
def cr_msg(lab: Lab) -> Finding:
    found = [
        lab.count(Setup(CR, entries), lambda cost, n: 0 <= cost <= 2 * (n - 1) and cost % 2 == 0)
        for entries in ((3, 3), (2, 2, 2), (1, 1, 1))
    ]
    for n in (2, 4, 8):
        found.append(
            lab.simulate(
                f"0 to 2(N-1), N = {n}",
                lab.seeds(20, 200),
                lambda one: all(0 <= cost <= 2 * (one.n - 1) for cost in one.costs),
                algorithm=CR,
                nodes=n,
                delay="adversary:3",
                load="closed:2",
            )
        )
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
    return judge(
        found[-2::-1] or found,
        given=found[-1:] if order else [],
        condition=f"first comes {MEANING[order or 'none']}",
    )


@claim("CR-INDIV", PAPER, "the procedures must be indivisible")
def cr_indiv(lab: Lab) -> Finding:
    return needed(lab, CR)


def needed(lab: Lab, name: str) -> Finding:
    """The claim is that interruptions do harm: there must be places where one does; where none does is said too."""
    found = indivisible(lab, name, list(_statements(name)), "")
    harmful = [
        one.what.removeprefix("interrupted before ")
        for one in found.evidence
        if one.role == "as claimed" and not one.speaks_for
    ]
    harmless = [
        one.what.removeprefix("interrupted before ")
        for one in found.evidence
        if one.role == "as claimed" and one.speaks_for
    ]
    states = sum(one.states for one in found.evidence)
    together = all(one.speaks_for for one in found.evidence if one.role == "under the condition")
    every = [
        Evidence(
            "exhaustive",
            "an interruption before these statements breaks mutual exclusion or deadlocks",
            bool(harmful),
            configurations=len(found.evidence),
            states=states,
            figures={"statements": harmful},
            counterexample=found.counterexample,
        ),
        Evidence(
            "exhaustive",
            "an interruption before these does not, nor do all of them together",
            together,
            figures={"statements": harmless},
        ),
    ]
    finding = judge(every)
    finding.counterexample = found.counterexample
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
        words.append(f"in {which} algorithm first comes {MEANING[order or 'none']}")
        for one in found:
            one.what = f"{which} algorithm: {one.what}"
    return judge(claimed, given=given, condition="; ".join(words), beside=beside)


class Master(Property):
    """Nothing is under way, nobody waits or is inside, somebody has entered: then some node holds every permission."""

    name = "master"

    def feature(self, at: int, local: Local, letters: Any) -> int:
        busy = local.where != "idle" or bool(letters)
        node = local.algorithm
        started = local.left < self.model.local(at, self.model.first[at]).left
        return (len(node.a) == len(node.others)) | (busy << 8) | (started << 16)

    def bad(self, sums: Any, enabled: Any) -> Any:
        return (sums >> 8 & 0xFF == 0) & (sums >> 16 > 0) & (sums & 0xFF == 0)


@claim("RESP-MASTER", PAPER, "in a quiescent network the last node to have entered holds every permission")
def resp_master(lab: Lab) -> Finding:
    states, good, count = 0, True, 0
    for entries in ((3, 3), (2, 2, 2)):
        for fifo in (False, True):
            seen = lab.look(Setup(CR, entries, fifo=fifo), watch=_master)
            states, good, count = (
                states + seen.states,
                good and seen.finished and seen.verdicts["master"] == "holds",
                count + 1,
            )
    some = Evidence(
        "exhaustive",
        "in every quiet state after an entry some node holds every permission",
        good,
        configurations=count,
        states=states,
    )

    def last(one: Run) -> bool:
        entered = [event.node for event in one.events if event.event == "entered"]
        return len(one.world.places[entered[-1]].algorithm.a) == one.prepared.topology.n - 1

    found = [
        lab.simulate(
            f"and it is the last one that entered, N = {n}",
            lab.seeds(30, 300),
            last,
            algorithm=CR,
            nodes=n,
            delay="adversary:3",
        )
        for n in (2, 5, 8)
    ]
    return judge([some, *found])


def _master(model: Model) -> list[Property]:
    return [Master(model)]


@claim("RESP-ROUND1", PAPER, "the first round of the original and of the modified algorithm are identical")
def resp_round1(lab: Lab) -> Finding:
    from peerlock.claims.evidence import run

    differs, seeds = None, lab.seeds(30, 300)
    for seed in seeds:
        for n in (2, 4, 6):
            told = []
            for name in (RA, CR):
                one = run(seed, algorithm=name, nodes=n, entries=1, delay="adversary:3")
                told.append([(e.event, e.t, e.node, e.to, e.kind, e.fields) for e in one.events[1:]])
            differs = differs or (seed if told[0] != told[1] else None)
    found = Evidence(
        "simulated",
        "one entry each: the same events at the same times, N = 2, 4, 6",
        differs is None,
        seeds=3 * len(seeds),
    )
    return judge([found])


@claim("RT-MSG", PAPER, "the Appendix's token algorithm: 0 or N messages")
def rt_msg(lab: Lab) -> Finding:
    found = [lab.count(Setup(RT, entries), lambda cost, n: cost in (0, n)) for entries in ((3, 3), (2, 2, 2))]
    for n in (2, 5, 9):
        found.append(
            lab.simulate(
                f"0 or N, N = {n}",
                lab.seeds(20, 200),
                lambda one: set(one.costs) <= {0, one.n},
                algorithm=RT,
                nodes=n,
                delay="adversary:3",
                load="closed:1",
            )
        )
    return judge(found)


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

    seeds = lab.simulate(
        "exactly one token is made, N = 5",
        lab.seeds(30, 300),
        one_token,
        algorithm=RT,
        nodes=5,
        options={"first_pass": True},
        delay="adversary:3",
    )
    return judge([explored, seeds])


@claim(
    "TABLE-I",
    PAPER,
    "Table I, all fifteen figures: messages, and Notes 1 to 4 in round trips, for the three algorithms",
)
def table_i(lab: Lab) -> Finding:
    printed: dict[str, Any] = {
        RA: (lambda n, costs: set(costs) == {2 * (n - 1)}, "2(N-1)", 0.5, 1.0, 1.0, lambda n: 1.5),
        CR: (
            lambda n, costs: min(costs) == 0 and max(costs) == 2 * (n - 1),
            "0 to 2(N-1)",
            0.5,
            0.0,
            1.0,
            lambda n: (n - 1) / 2,
        ),
        RT: (lambda n, costs: set(costs) <= {0, n} and 0 in costs, "0 or N", 0.5, 0.0, 1.0, lambda n: 1.0),
    }
    found, slowest = [], dict[str, dict[int, tuple[float, bool]]]()
    for name in table_one.ALGORITHMS:
        as_many, words, first, second, third, fourth = printed[name]
        costs = {n: table_one.messages(name, n) for n in table_one.SIZES}
        found.append(
            Evidence(
                "simulated",
                f"{name}, messages: {words}",
                all(as_many(n, costs[n]) for n in costs),
                seeds=20 * len(costs),
                figures={"by N": costs},
            )
        )
        means = {n: table_one.note_1(name, n) for n in table_one.SIZES}
        near = all(mean >= first - 1e-9 if name == CR else abs(mean - first) < 1e-6 for mean in means.values())
        found.append(
            Evidence(
                "simulated",
                f"{name}, Note 1: {'at least ' if name == CR else ''}{first}",
                near,
                seeds=len(means),
                figures={"by N": means},
            )
        )
        for number, claimed, compute in ((2, second, table_one.note_2), (3, third, table_one.note_3)):
            by_n = {n: compute(name, n) for n in table_one.SIZES}
            found.append(
                Evidence(
                    "constructed",
                    f"{name}, Note {number}: {claimed}",
                    set(by_n.values()) == {claimed},
                    figures={"by N": by_n},
                )
            )
        most = slowest[name] = {n: table_one.note_4(name, n, full=lab.full) for n in table_one.SIZES}
        right = all(value == fourth(n) for n, (value, _) in most.items())
        words = "(N-1)/2" if name == CR else str(fourth(2))
        found.append(
            Evidence(
                "constructed",
                f"{name}, Note 4: {words}",
                right,
                counterexample=None if right else "\n".join(map(table_one.told, (4, 7))),
                figures={
                    "by N": {n: value for n, (value, _) in most.items()},
                    "all times looked at for N": [n for n, (_, all_) in most.items() if all_],
                },
            )
        )
    hurt = {n: max(3, n) / 2 for n in table_one.SIZES}
    corrected = Evidence(
        "constructed",
        "carvalho-roucairol, Note 4: at least N/2, and 1.5 for N = 2 and 3",
        {n: value for n, (value, _) in slowest[CR].items()} == hurt,
        figures={"by N": hurt},
    )
    return judge(
        found, repaired=[corrected], repair="Note 4 of Carvalho and Roucairol reads N/2 and more, 1.5 for N = 2"
    )
