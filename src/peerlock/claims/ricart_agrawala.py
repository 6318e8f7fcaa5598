"""The claims of Ricart and Agrawala, for the algorithm and its variations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from peerlock.claims.all_algorithms import IMPLICIT, REPAIRS, SUSPECTS, evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, command, judge, only, run
from peerlock.claims.fairness import strongest
from peerlock.claims.registry import claim
from peerlock.contract import Members, NodeId, Shape
from peerlock.sim.experiment import Experiment

PAPER = "ricart-agrawala-1981"
RA = "ricart-agrawala"
THREE: dict[NodeId, Shape] = dict.fromkeys((1, 2, 3), Members((1, 2, 3), 1))
ONE_BY_ONE = "one node at a time comes or goes (drivers queue changes)"
COMES: dict[NodeId, Shape] = {1: Members((1, 2), 1), 2: Members((1, 2), 1), 3: Members((2,), 1)}
SAFE = ("mutual exclusion", "no deadlock", "assertions")


def costs_in(
    lab: Lab, experiment: Experiment, sizes: Sequence[int], allowed: Callable[[int, int], bool]
) -> list[Evidence]:
    """Is `allowed(messages, n)` true of every entry, over seeds?"""

    def good(one: Run) -> bool:
        return all(allowed(cost, one.n) for cost in one.costs)

    return lab.by_size(experiment, sizes, lab.seeds(15, 150), "messages an entry", good)


@claim("RA-MSG", PAPER, "exactly 2(N-1) messages an entry")
def ra_msg(lab: Lab) -> Finding:
    def exact(cost: int, n: int) -> bool:
        return cost == 2 * (n - 1)

    found = [lab.count(Setup(RA, entries), exact) for entries in ((3, 3), (2, 2, 2))]
    return judge([*found, *costs_in(lab, Experiment(algorithm=RA, delay="adversary:3"), (2, 3, 6, 9), exact)])


@claim("RA-FCFS", PAPER, "entries follow the order of (sequence number, node number)")
def ra_fcfs(lab: Lab) -> Finding:
    order, found = strongest(lab, RA)

    def by_number(one: Run) -> bool:
        """Of two that wait at the same time, the smaller pair enters first."""
        waiting: dict[NodeId, tuple[int, NodeId]] = {}
        for event in one.events:
            if event.event == "sent" and event.kind == "REQUEST":
                waiting[event.node] = ((event.fields or {})["n"], event.node)
            elif event.event == "entered":
                mine = waiting.pop(event.node)
                if any(other < mine for other in waiting.values()):
                    return False
        return True

    experiment = Experiment(algorithm=RA, nodes=4, delay="adversary:3", load="closed:2")
    words = "of two that wait, the smaller (number, node) enters first"
    pairs = lab.simulate(experiment, lab.seeds(30, 300), words, by_number)
    return judge([pairs, *found[-1:]], beside=found[-2::-1] if order else [])


@claim("RA-BCAST", PAPER, "with broadcast: 1 REQUEST and N-1 REPLIES, so N")
def ra_bcast(lab: Lab) -> Finding:
    def kinds(one: Run) -> bool:
        return one.metrics.by_kind() == {"REPLY": len(one.costs) * (one.n - 1), "REQUEST": len(one.costs)}

    name = f"{RA}-broadcast"
    found = [lab.count(Setup(name, entries), lambda cost, n: cost == n) for entries in ((2, 2), (1, 1, 1))]
    experiment = Experiment(algorithm=name, delay="adversary:3")
    words = "1 REQUEST and N-1 REPLIES an entry"
    return judge([*found, *lab.by_size(experiment, (2, 5, 9), lab.seeds(10, 100), words, kinds)])


@claim("RA-IMPLICIT", PAPER, "with implicit replies (DEFERRED): 1(N-1) to 3(N-1), near 1(N-1) under light contention")
def ra_implicit(lab: Lab) -> Finding:
    name, n = f"{RA}-implicit", 5
    found = [lab.count(Setup(name, (2, 2), delay_bound=1), lambda cost, n: 1 <= cost <= 3)]
    experiment = Experiment(algorithm=name, entries=20)
    found += costs_in(lab, experiment, (2, 5, 8), lambda cost, n: n - 1 <= cost <= 3 * (n - 1))
    light = run(Experiment(algorithm=name, nodes=n, entries=40, load="poisson:0.001"))
    mean = sum(light.costs) / len(light.costs)
    figures = {"mean": round(mean, 3), "N-1": n - 1}
    words, good = "mean under light contention, N = 5", mean < 1.1 * (n - 1)
    return judge([*found, Evidence("simulated", words, good, seeds=1, figures=figures)])


@claim("RA-BOTH", PAPER, "both together: as low as 1")
def ra_both(lab: Lab) -> Finding:
    name = f"{RA}-broadcast-implicit"
    least = min(run(Experiment(algorithm=name, nodes=5, load="poisson:0.001")).costs)
    words = "the least under light contention, N = 5"
    return judge([
        lab.count(Setup(name, (1, 0, 0), delay_bound=1), lambda cost, n: cost == 1, "one node alone: one message"),
        Evidence("simulated", words, least == 1, seeds=1, figures={"least": least}),
    ])  # fmt: skip


@claim("RA-IMPLICIT-SAFE", PAPER, "implicit replies are safe")
def ra_implicit_safe(lab: Lab) -> Finding:
    name = f"{RA}-implicit"
    exclusion = ["mutual exclusion"]
    early = Setup(name, (1, 1), delay_bound=2, bound=2.0, options={"timeout": 3})
    short = lab.explore([early], exclusion, "a time-out of 3 with delays of up to 2")
    exact = [
        Setup(name, entries, delay_bound=d, bound=float(d), fifo=fifo)
        for entries in ((2, 2), (1, 1, 1))
        for d in (1, 2)
        for fifo in (False, True)
        if not (len(entries) == 3 and d == 2 and not lab.full)
    ]
    long = lab.explore(exact, exclusion, "a time-out of twice the longest delay, which is 1 or 2")
    experiment = Experiment(algorithm=name, nodes=3, faults=("pause:2@1..20",), hold="constant:2")
    words = "a node pauses for longer than the time-out"
    paused = lab.simulate(experiment, lab.seeds(20, 60), words, lambda one: one.metrics.violations == 0)
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
    options = {"increments": increments}
    experiment = Experiment(
        algorithm=f"{RA}-priority", nodes=4, options=options, entries=entries, load="closed:6", hold="constant:1"
    )
    asked, waits = 0.0, []
    for event in run(experiment).events:
        if event.node == 1 and event.event == "requested":
            asked = event.t
        elif event.node == 1 and event.event == "entered":
            waits.append(event.t - asked)
    return waits


@claim("RA-PRIO", PAPER, "small increments for high priority and large for low")
def ra_prio(lab: Lab) -> Finding:
    means = {}
    for increment in (1, 2, 5, 20, 100, 500):
        waits = waits_of_1((increment, 1, 1, 1), 300)
        means[increment] = round(sum(waits) / len(waits), 3)
    preferred = all(mean > means[1] for increment, mean in means.items() if increment > 1)
    words, figures = (
        "mean wait of node 1 of 4 by its increment; the others count by 1",
        {"mean wait by increment": means},
    )
    preference = Evidence("simulated", words, preferred, seeds=len(means), figures=figures)
    low = [Setup(f"{RA}-priority", (k, k, 1), options={"increments": (1, 1, 50)}) for k in (1, 2, 3)]
    starves = lab.passed_over(low)
    starves.what = "the lowest priority does not starve: how often it is passed over once everybody has its request"
    return judge([preference, starves])


def changes(lab: Lab, shapes: dict[NodeId, Shape], leavers: Sequence[tuple[NodeId, ...]], what: str) -> Evidence:
    setups = [
        Setup(f"{RA}-dynamic", (1, 1, 1), shapes=shapes, leavers=some, fifo=fifo)
        for some in leavers
        for fifo in (False, True)
    ]
    return lab.explore(setups, SAFE, what)


def comes_and_goes(lab: Lab, faults: tuple[str, ...]) -> Evidence:
    def good(one: Run) -> bool:
        return one.sound and {place.phase for place in one.world.places.values()} <= {"idle", "left"}

    experiment = Experiment(algorithm=f"{RA}-dynamic", nodes=4, delay="adversary:4", faults=faults)
    return lab.simulate(experiment, lab.seeds(30, 150), ", ".join(faults), good)


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


def two_at_once(lab: Lab, shapes: dict[NodeId, Shape], leavers: tuple[NodeId, ...], what: str) -> Evidence:
    setup = Setup(f"{RA}-dynamic", (1, 1, 1), shapes=shapes, leavers=leavers, at_once=True)
    return lab.watch(what, [setup], only(SAFE))


@claim("RA-FAIL", PAPER, "failure: time-outs, ARE_YOU_THERE, YES_I_AM_HERE, notices: the rest go on after a crash")
def ra_fail(lab: Lab) -> Finding:
    name = f"{RA}-failures"

    def explored(printed: bool) -> Evidence:
        setups = [Setup(name, entries, printed, delay_bound=1, crashes=1) for entries in ((1, 1), (1, 1, 1))]
        words = "one crash at any time, delays kept, every interleaving"
        return lab.explore(setups, ["mutual exclusion", "no deadlock"], words)

    def simulated(printed: bool) -> Evidence:
        against, seeds = None, (1, 2) if lab.full else (1,)
        plain = Experiment(algorithm=name, nodes=4, delay="adversary:1", hold="constant:1", as_printed=printed)
        for at in range(40):
            experiment = replace(plain, faults=(f"crash:2@{at / 2}",))
            for seed in seeds:
                one = Run(experiment.prepare(), seed)
                if not one.sound or [one.metrics.entries[j] for j in (1, 3, 4)] != [10, 10, 10]:
                    against = against or command(experiment, seed)
        words = "node 2 of 4 dies at one of 40 moments"
        return Evidence("simulated", words, against is None, seeds=40 * len(seeds), counterexample=against)

    return judge(
        [explored(True), simulated(True)],
        repaired=[explored(False), simulated(False)],
        repair=REPAIRS[name],
        condition=SUSPECTS,
    )


@claim("RA-FAIL-SAFE", PAPER, "failure handling is safe")
def ra_fail_safe(lab: Lab) -> Finding:
    name = f"{RA}-failures"
    words = "time-outs at any time: a live node is suspected"
    suspected = lab.explore([Setup(name, (1, 1))], ["mutual exclusion"], words)
    printed = evidence(lab, "ALL-ME", name, printed=True, clock=True)
    return judge(
        [*printed, suspected],
        given=printed,
        condition=SUSPECTS,
        repaired=evidence(lab, "ALL-ME", name, clock=True),
        repair=REPAIRS[name],
    )
