"""What the slides of Ricart and Agrawala claim, for the algorithm and its variations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peerlock.check.model import Model
from peerlock.check.properties import Property, standard
from peerlock.claims.all_algorithms import IMPLICIT, REPAIRS, SUSPECTS, evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, command, judge, run
from peerlock.claims.fairness import strongest
from peerlock.claims.registry import claim
from peerlock.contract import Members, NodeId
from peerlock.sim.experiment import Experiment

PAPER = "ricart-agrawala-1981"
RA = "ricart-agrawala"
THREE: dict[NodeId, Any] = dict.fromkeys((1, 2, 3), Members((1, 2, 3), 1))
ONE_BY_ONE = "one node at a time comes or goes (drivers queue changes)"
COMES: dict[NodeId, Any] = {1: Members((1, 2), 1), 2: Members((1, 2), 1), 3: Members((2,), 1)}


def costs_in(lab: Lab, name: str, sizes: Sequence[int], allowed: Any, **settings: Any) -> list[Evidence]:
    """Messages an entry over seeds; `allowed(cost, n)`."""
    return [
        lab.simulate(
            f"messages an entry, N = {n}",
            lab.seeds(15, 150),
            lambda one: all(allowed(cost, one.n) for cost in one.costs),
            algorithm=name,
            nodes=n,
            **settings,
        )
        for n in sizes
    ]


@claim("RA-MSG", PAPER, "exactly 2(N-1) messages an entry")
def ra_msg(lab: Lab) -> Finding:
    found = [lab.count(Setup(RA, entries), lambda cost, n: cost == 2 * (n - 1)) for entries in ((3, 3), (2, 2, 2))]
    return judge([*found, *costs_in(lab, RA, (2, 3, 6, 9), lambda cost, n: cost == 2 * (n - 1), delay="adversary:3")])


@claim("RA-FCFS", PAPER, "entries follow the order of (sequence number, node number)")
def ra_fcfs(lab: Lab) -> Finding:
    order, found = strongest(lab, RA)

    def by_number(one: Run) -> bool:
        """Of two that wait at the same time, the smaller pair enters first."""
        waiting: dict[NodeId, tuple[int, NodeId]] = {}
        number: dict[NodeId, int] = {}
        for event in one.events:
            if event.event == "sent" and event.kind == "REQUEST":
                number[event.node] = (event.fields or {})["n"]
                waiting[event.node] = (number[event.node], event.node)
            elif event.event == "entered":
                mine = waiting.pop(event.node)
                if any(other < mine for other in waiting.values()):
                    return False
        return True

    pairs = lab.simulate(
        "of two that wait, the smaller (number, node) enters first",
        lab.seeds(30, 300),
        by_number,
        algorithm=RA,
        nodes=4,
        delay="adversary:3",
        load="closed:2",
    )
    return judge([pairs, *found[-1:]], beside=found[-2::-1] if order else [])


@claim("RA-BCAST", PAPER, "with broadcast: 1 REQUEST and N-1 REPLIES, so N")
def ra_bcast(lab: Lab) -> Finding:
    name = f"{RA}-broadcast"
    found = [lab.count(Setup(name, entries), lambda cost, n: cost == n) for entries in ((2, 2), (1, 1, 1))]
    for n in (2, 5, 9):
        found.append(
            lab.simulate(
                f"1 REQUEST and N-1 REPLIES an entry, N = {n}",
                lab.seeds(10, 100),
                lambda one: one.metrics.by_kind() == {"REPLY": len(one.costs) * (one.n - 1), "REQUEST": len(one.costs)},
                algorithm=name,
                nodes=n,
                delay="adversary:3",
            )
        )
    return judge(found)


@claim("RA-IMPLICIT", PAPER, "with implicit replies (DEFERRED): 1(N-1) to 3(N-1), near 1(N-1) under light contention")
def ra_implicit(lab: Lab) -> Finding:
    name = f"{RA}-implicit"
    found = [lab.count(Setup(name, (2, 2), delay_bound=1), lambda cost, n: 1 <= cost <= 3)]
    found += costs_in(lab, name, (2, 5, 8), lambda cost, n: n - 1 <= cost <= 3 * (n - 1), entries=20)
    n = 5
    light = run(algorithm=name, nodes=n, entries=40, load="poisson:0.001")
    mean = sum(light.costs) / len(light.costs)
    found.append(
        Evidence(
            "simulated",
            "mean under light contention, N = 5",
            mean < 1.1 * (n - 1),
            seeds=1,
            figures={"mean": round(mean, 3), "N-1": n - 1},
        )
    )
    return judge(found)


@claim("RA-BOTH", PAPER, "both together: as low as 1")
def ra_both(lab: Lab) -> Finding:
    one = run(algorithm=f"{RA}-broadcast-implicit", nodes=5, load="poisson:0.001")
    return judge(
        [
            lab.count(
                Setup(f"{RA}-broadcast-implicit", (1, 0, 0), delay_bound=1),
                lambda cost, n: cost == 1,
                "one node alone: one message",
            ),
            Evidence(
                "simulated",
                "the least under light contention, N = 5",
                min(one.costs) == 1,
                seeds=1,
                figures={"least": min(one.costs)},
            ),
        ]
    )


@claim("RA-IMPLICIT-SAFE", PAPER, "implicit replies are safe")
def ra_implicit_safe(lab: Lab) -> Finding:
    name = f"{RA}-implicit"
    only = ["mutual exclusion"]
    short = lab.explore(
        [Setup(name, (1, 1), delay_bound=2, bound=2.0, options={"timeout": 3})],
        only,
        "a time-out of 3 with delays of up to 2",
    )
    exact = [
        Setup(name, entries, delay_bound=d, bound=float(d), fifo=fifo)
        for entries in ((2, 2), (1, 1, 1))
        for d in (1, 2)
        for fifo in (False, True)
        if not (len(entries) == 3 and d == 2 and not lab.full)
    ]
    long = lab.explore(exact, only, "a time-out of twice the longest delay, which is 1 or 2")
    paused = lab.simulate(
        "a node pauses for longer than the time-out",
        lab.seeds(20, 60),
        lambda one: one.metrics.violations == 0,
        algorithm=name,
        nodes=3,
        faults=("pause:2@1..20",),
        hold="constant:2",
    )
    return judge([short, paused], given=[long], condition=f"{IMPLICIT}; a pause counts as delay")


@claim("RA-RW", PAPER, "readers reply to readers at once: readers share, writers exclude")
def ra_rw(lab: Lab) -> Finding:
    name = f"{RA}-rw"
    setups = [Setup(name, entries, fifo=fifo) for entries in ((2, 2), (1, 1, 1)) for fifo in (False, True)]
    wanted = ["mutual exclusion", "no deadlock", "sometimes two readers are inside together"]
    share = lab.explore(setups, wanted, "writers exclude, readers sometimes share")
    writer = lab.passed_over([Setup(name, (k, k, 1)) for k in ((1, 2, 3) if lab.full else (1, 2))])
    writer.what = "a writer does not starve: how often node 3 is passed over by entries that exclude its own"
    return judge([share, writer])


def waits_of_1(increments: tuple[int, ...], entries: int) -> list[float]:
    one = run(
        algorithm=f"{RA}-priority",
        nodes=4,
        options={"increments": increments},
        entries=entries,
        load="closed:6",
        hold="constant:1",
    )
    asked, waits = 0.0, []
    for event in one.events:
        if event.node == 1 and event.event == "requested":
            asked = event.t
        elif event.node == 1 and event.event == "entered":
            waits.append(event.t - asked)
    return waits


@claim("RA-PRIO", PAPER, "small increments for high priority and large for low")
def ra_prio(lab: Lab) -> Finding:
    entries = 300
    means = {}
    for increment in (1, 2, 5, 20, 100, 500):
        waits = waits_of_1((increment, 1, 1, 1), entries)
        means[increment] = round(sum(waits) / len(waits), 3)
    preferred = all(mean > means[1] for increment, mean in means.items() if increment > 1)
    preference = Evidence(
        "simulated",
        "mean wait of node 1 of 4 by its increment; the others count by 1",
        preferred,
        seeds=len(means),
        figures={"mean wait by increment": means},
    )
    low = [Setup(f"{RA}-priority", (k, k, 1), options={"increments": (1, 1, 50)}) for k in (1, 2, 3)]
    starves = lab.passed_over(low)
    starves.what = "the lowest priority does not starve: how often it is passed over once everybody has its request"
    return judge([preference, starves])


def changes(lab: Lab, shapes: dict[NodeId, Any], leavers: Sequence[tuple[NodeId, ...]], what: str) -> Evidence:
    setups = [
        Setup(f"{RA}-dynamic", (1, 1, 1), shapes=shapes, leavers=some, fifo=fifo)
        for some in leavers
        for fifo in (False, True)
    ]
    return lab.explore(setups, ["mutual exclusion", "no deadlock", "assertions"], what)


def comes_and_goes(lab: Lab, faults: tuple[str, ...]) -> Evidence:
    def good(one: Run) -> bool:
        phases = {place.phase for place in one.world.places.values()}
        return one.sound and phases <= {"idle", "left"}

    return lab.simulate(
        f"{', '.join(faults)}",
        lab.seeds(30, 150),
        good,
        algorithm=f"{RA}-dynamic",
        nodes=4,
        delay="adversary:4",
        faults=faults,
    )


@claim("RA-JOIN", PAPER, "insertion: ALL-ME and ALL-SF hold while nodes join")
def ra_join(lab: Lab) -> Finding:
    one = changes(lab, COMES, [()], "a third node joins two, one change at a time, every interleaving")
    seeds = [
        comes_and_goes(lab, ("join:5@0", "join:6@0.1", "join:7@0.2", "join:8@0.3")),
        comes_and_goes(lab, ("join:5@1", "join:6@9", "join:7@18")),
    ]
    crossing = two_at_once(lab, COMES, (2,), "a node joins by way of one that leaves at the same time")
    return judge([one, *seeds, crossing], given=[one, *seeds], condition=ONE_BY_ONE)


@claim("RA-LEAVE", PAPER, "removal: ALL-ME and ALL-SF hold while nodes leave")
def ra_leave(lab: Lab) -> Finding:
    one = changes(lab, THREE, [(2,), (1,)], "one of three leaves, every interleaving")
    seeds = [
        comes_and_goes(lab, ("leave:2@0", "leave:3@0.1")),
        comes_and_goes(lab, ("join:5@3", "leave:2@3.5", "leave:5@30", "leave:1@4")),
    ]
    crossing = two_at_once(lab, THREE, (1, 2), "two of three leave at the same time")
    return judge([one, *seeds, crossing], given=[one, *seeds], condition=ONE_BY_ONE)


def two_at_once(lab: Lab, shapes: dict[NodeId, Any], leavers: tuple[NodeId, ...], what: str) -> Evidence:
    setup = Setup(f"{RA}-dynamic", (1, 1, 1), shapes=shapes, leavers=leavers, at_once=True)
    seen = lab.look(setup, watch=_safely)
    good = seen.finished and all(verdict == "holds" for verdict in seen.verdicts.values())
    return Evidence("exhaustive", what, good, configurations=1, states=seen.states, counterexample=seen.script)


def _safely(model: Model) -> list[Property]:
    return [prop for prop in standard(model) if prop.name in ("mutual exclusion", "no deadlock", "assertions")]


@claim("RA-FAIL", PAPER, "failure: time-outs, ARE_YOU_THERE, YES_I_AM_HERE, notices: the rest go on after a crash")
def ra_fail(lab: Lab) -> Finding:
    name = f"{RA}-failures"

    def explored(printed: bool) -> list[Evidence]:
        setups = [Setup(name, entries, printed, delay_bound=1, crashes=1) for entries in ((1, 1), (1, 1, 1))]
        return [
            lab.explore(
                setups, ["mutual exclusion", "no deadlock"], "one crash at any time, delays kept, every interleaving"
            )
        ]

    def simulated(printed: bool) -> list[Evidence]:
        bad, count, times = None, 0, 40
        for at in range(times):
            for seed in (1, 2) if lab.full else (1,):
                count += 1
                experiment = Experiment(
                    algorithm=name,
                    nodes=4,
                    delay="adversary:1",
                    hold="constant:1",
                    faults=(f"crash:2@{at / 2}",),
                    as_printed=printed,
                )
                one = Run(experiment.prepare(), seed)
                if not one.sound or [one.metrics.entries[j] for j in (1, 3, 4)] != [10, 10, 10]:
                    bad = bad or command(experiment, seed)
        return [
            Evidence("simulated", "node 2 of 4 dies at one of 40 moments", bad is None, seeds=count, counterexample=bad)
        ]

    return judge(
        [*explored(True), *simulated(True)],
        repaired=[*explored(False), *simulated(False)],
        repair=REPAIRS[name],
        condition=SUSPECTS,
    )


@claim("RA-FAIL-SAFE", PAPER, "failure handling is safe")
def ra_fail_safe(lab: Lab) -> Finding:
    name = f"{RA}-failures"
    suspected = lab.explore(
        [Setup(name, (1, 1))], ["mutual exclusion"], "time-outs at any time: a live node is suspected"
    )
    printed = evidence(lab, "ALL-ME", name, printed=True, clock=True)
    return judge(
        [*printed, suspected],
        given=printed,
        condition=SUSPECTS,
        repaired=evidence(lab, "ALL-ME", name, clock=True),
        repair=REPAIRS[name],
    )
