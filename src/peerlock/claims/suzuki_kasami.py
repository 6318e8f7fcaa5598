"""What Suzuki and Kasami claim for Algorithms A and B."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise, product
from typing import Any

from peerlock.algorithms import CATALOGUE
from peerlock.check.model import ANY
from peerlock.check.verdicts import HARMLESS
from peerlock.claims.all_algorithms import REPAIRS, evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, judge, run
from peerlock.claims.fairness import MEANING, strongest
from peerlock.claims.registry import claim
from peerlock.contract import NodeId

PAPER = "suzuki-kasami-1985"
A, B, RA = "suzuki-kasami-a", "suzuki-kasami-b", "ricart-agrawala"


@claim("SK-A-MAX", PAPER, "Algorithm A: at most N messages an entry: N-1 REQUEST and 1 PRIVILEGE")
def sk_a_max(lab: Lab) -> Finding:
    found = [lab.count(Setup(A, entries), lambda cost, n: cost in (0, n)) for entries in ((3, 3), (2, 2, 2))]
    for n in (2, 5, 9):

        def good(one: Run, n: int = n) -> bool:
            kinds = one.metrics.by_kind()
            return set(one.costs) <= {0, n} and kinds["REQUEST"] == (n - 1) * kinds["PRIVILEGE"]

        seeds = lab.seeds(20, 200)
        found.append(
            lab.simulate(
                f"0 or N messages, N-1 REQUESTs to a PRIVILEGE, N = {n}",
                seeds,
                good,
                algorithm=A,
                nodes=n,
                delay="adversary:3",
            )
        )
    return judge(found)


@claim("SK-A-ZERO", PAPER, "Algorithm A: none when the holder is the only one requesting")
def sk_a_zero(lab: Lab) -> Finding:
    return judge([lab.count(Setup(A, (3,) + (0,) * (n - 1)), lambda cost, n: cost == 0) for n in (2, 3, 4)])


@claim(
    "SK-A-DELAY", PAPER, "the privilege moves in one one-way trip; a request is known everywhere after one one-way trip"
)
def sk_a_delay(lab: Lab) -> Finding:
    found = []
    for n in (2, 5, 9):
        busy = run(algorithm=A, nodes=n, delay="constant:1", hold="constant:3")
        delays = sorted({round(delay, 9) for delay in busy.metrics.sync_delays})
        found.append(
            Evidence(
                "simulated",
                f"exit to next entry when the REQUEST has arrived before the exit, unit delay, N = {n}",
                delays == [1.0],
                seeds=1,
                figures={"one-way trips": delays},
            )
        )
        lone = run(algorithm=A, nodes=n, delay="constant:1", load="nodes:2", entries=1)
        found.append(
            Evidence(
                "simulated",
                f"from a quiet network: the request one trip, the privilege one, N = {n}",
                lone.metrics.waits == [2.0],
                seeds=1,
                figures={"one-way trips": lone.metrics.waits},
            )
        )
    hops = lab.count(
        Setup(A, (2, 2, 2)),
        lambda cost, n: cost in (0, 3),
        "one PRIVILEGE an entry at the most: it never takes two hops",
    )
    return judge([*found, hops])


@claim("SK-A-FCFS", PAPER, 'first come first served "to some extent"')
def sk_a_fcfs(lab: Lab) -> Finding:
    order, found = strongest(lab, A)
    weaker = found[-1:] if order else []
    return judge(found[-2::-1] or found, given=weaker, condition=f"first comes {MEANING[order or 'none']}")


@claim("SK-A-NTH", PAPER, "REQUEST(j, n) means that j requests its (n+1)st invocation")
def sk_a_nth(lab: Lab) -> Finding:
    def numbers(one: Run, asked_only: bool) -> bool:
        entries: dict[NodeId, int] = {}
        asked: dict[NodeId, set[int]] = {}
        for event in one.events:
            if event.event == "entered":
                entries[event.node] = entries.get(event.node, 0) + 1
            elif event.kind == "REQUEST" and event.event == "sent":
                number = (event.fields or {})["n"]
                asked.setdefault(event.node, set()).add(number)
                due = len(asked[event.node]) - 1 if asked_only else entries.get(event.node, 0)
                if number != due:
                    return False
        return True

    settings: dict[str, Any] = {"algorithm": A, "nodes": 3, "entries": 20, "load": "closed:1"}
    seeds = lab.seeds(20, 200)
    return judge(
        [lab.simulate("n + 1 is the number of the invocation", seeds, lambda one: numbers(one, False), **settings)],
        given=[lab.simulate("n + 1 counts the requests sent", seeds, lambda one: numbers(one, True), **settings)],
        condition="only invocations for which a REQUEST was sent are counted: a holder that enters again sends none",
    )


@claim("SK-A-UNB", PAPER, "Algorithm A's sequence numbers are unbounded")
def sk_a_unb(lab: Lab) -> Finding:
    entries = (10, 20, 40, 80)
    highest = [max(run(algorithm=A, nodes=3, entries=k).world.places[2].algorithm.rn) for k in entries]
    growing = all(later >= 1.5 * earlier for earlier, later in pairwise(highest))
    return judge(
        [
            Evidence(
                "simulated",
                "the highest number after 10, 20, 40, 80 entries each",
                growing,
                seeds=4,
                figures={"highest": highest},
            )
        ]
    )


@claim("SK-INDIV", PAPER, "P2 is indivisible; of P1 nothing is said")
def sk_indiv(lab: Lab) -> Finding:
    return indivisible(
        lab,
        A,
        [cut for cut in _statements(A) if not cut.startswith("p2")],
        "P1 is not interrupted between its first look at the others' requests and `HavePrivilege := false` or, if nobody "
        "waits, `Requesting := false`; nor P2 between its test and `HavePrivilege := false`",
    )


def _statements(name: str) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(CATALOGUE[name].divided, "statements")  # noqa: B009
    return found


def indivisible(lab: Lab, name: str, claimed: list[str], condition: str) -> Finding:
    """Cut before every statement that somebody may take for harmless; then before all that are."""
    found = []
    for cut in claimed:
        sizes = [(2, 2), (3, 3), (2, 2, 2)] if lab.full else [(3, 3)] if cut != "look" or name != A else [(2, 2, 2)]
        setups = [Setup(name, entries, options={"cut": cut}) for entries in sizes]
        found.append(lab.explore(setups, ["mutual exclusion", "no deadlock"], f"interrupted before {cut}"))
    together = "+".join(HARMLESS[name])
    harmless = [Setup(name, entries, options={"cut": together}) for entries in ((3, 3), (1, 1, 1))]
    given = lab.explore(harmless, ["mutual exclusion", "no deadlock"], f"interrupted before any of {together}")
    return judge(found, given=[given], condition=condition)


@claim("SK-B-BOUND", PAPER, "Algorithm B: all sequence numbers stay in 0..L-1, for every L >= 2")
def sk_b_bound(lab: Lab) -> Finding:
    found = [_bounded(lab, Setup(B, (ANY, ANY), True, options={"l": l}), l) for l in (2, 3, 4)]
    found += [
        _bounded(lab, Setup(B, entries, options={"l": l}), l) for l in (2, 3, 4) for entries in ((ANY, ANY), (2, 2, 2))
    ]
    return judge(found)


def _bounded(lab: Lab, setup: Setup, l: int) -> Evidence:
    from peerlock.check.model import Local
    from peerlock.check.properties import MutualExclusion, Property

    class Bounded(Property):
        name = "numbers"

        def feature(self, at: int, local: Local, letters: Any) -> int:
            node = local.algorithm
            asked = [one.message.n for one in letters if one.message.kind == "REQUEST"]
            carried = [number for one in letters if one.message.kind == "PRIVILEGE" for number in one.message.ln]
            # -1 says "none yet": an array may hold it, a REQUEST may not.
            kept = all(-1 <= number < l for number in (*node.rn, *node.ln, *carried))
            return int(not kept or not all(0 <= number < l for number in asked))

        def bad(self, sums: Any, enabled: Any) -> Any:
            return sums > 0

    seen = lab.look(setup, watch=lambda model: [Bounded(model), MutualExclusion(model)])
    good = seen.finished and seen.verdicts["numbers"] == "holds"
    return Evidence(
        "exhaustive",
        f"every REQUEST in 0..L-1, every array there or at its initial -1, {setup.words}",
        good,
        configurations=1,
        states=seen.states,
    )


def costs_by_node(one: Run) -> dict[NodeId, list[int]]:
    """Messages of the successive entries of each node."""
    by_node: dict[NodeId, list[int]] = {}
    asked = [event.node for event in one.events if event.event == "requested"]
    for node, cost in zip(asked, one.metrics.costs, strict=False):
        if cost.made:  # as printed, some are never made
            by_node.setdefault(node, []).append(cost.messages)
    return by_node


def window_costs(one: Run, l: int) -> list[int]:
    """Messages of any L successive entries of a node."""
    return [sum(costs[at : at + l]) for costs in costs_by_node(one).values() for at in range(len(costs) - l + 1)]


def _windows(one: Run, l: int) -> bool:
    return max(window_costs(one, l), default=0) <= l * one.n + one.n - 1


@claim("SK-B-MAX", PAPER, "Algorithm B: at most L*N + (N-1) messages for L invocations by one node")
def sk_b_max(lab: Lab) -> Finding:
    return judge([*_maxima(lab, True), *_maxima(lab, False)])


def _maxima(lab: Lab, printed: bool) -> list[Evidence]:
    found = []
    for l in (2, 3, 5):
        for n in (2, 3, 5, 8):
            found.append(
                lab.simulate(
                    f"every window of L = {l} entries of a node, N = {n}{', as printed' if printed else ''}",
                    lab.seeds(10, 100),
                    partial(_windows, l=l),
                    algorithm=B,
                    nodes=n,
                    entries=4 * l,
                    options={"l": l},
                    delay="adversary:3",
                    as_printed=printed,
                )
            )
        found.append(
            lab.count(
                Setup(B, (0, l, 0), printed, options={"l": l}),
                lambda cost, n: cost <= 2 * 3 - 1,
                f"L = {l} entries of one node alone",
            )
        )
    return found


def mean_of_b(n: int, l: int) -> float:
    """Messages an entry where everybody always waits, so that nobody enters without asking."""
    one = run(algorithm=B, nodes=n, entries=6 * l + 1, options={"l": l}, hold="constant:5")
    rounds = []
    for costs in costs_by_node(one).values():
        asked = [cost for cost in costs if cost]
        rounds += [sum(asked[at : at + l]) for at in range(0, len(asked) - l + 1, l)]
    return sum(rounds) / len(rounds) / l


@claim("SK-B-AVG", PAPER, "Algorithm B: N + (N-1)/L an entry on average, tending to N as L grows")
def sk_b_avg(lab: Lab) -> Finding:
    found = []
    for n in (3, 5, 8):
        means = {l: round(mean_of_b(n, l), 3) for l in (2, 3, 4, 6, 8, 12)}
        near = all(abs(mean - (n + (n - 1) / l)) < 0.001 for l, mean in means.items())
        falling = list(means.values()) == sorted(means.values(), reverse=True)
        found.append(
            Evidence(
                "simulated",
                f"mean beside N + (N-1)/L where every entry is asked for, N = {n}",
                near and falling,
                seeds=6,
                figures={"N": n, "mean by L": means, "claimed": {l: round(n + (n - 1) / l, 3) for l in means}},
            )
        )
    idle = run(algorithm=B, nodes=5, entries=40, load="closed:30", options={"l": 4})
    mean = sum(idle.costs) / len(idle.costs)
    found.append(
        Evidence(
            "simulated",
            "under light load at most that: the holder enters again without asking",
            mean <= 5 + 4 / 4,
            seeds=1,
            figures={"mean": round(mean, 3)},
        )
    )
    return judge(found)


@claim("SK-B-ME", PAPER, "Algorithm B keeps ALL-ME, ALL-DF, ALL-SF under reordering")
def sk_b_me(lab: Lab) -> Finding:
    return judge(evidence(lab, "ALL-NF", B, printed=True), repaired=evidence(lab, "ALL-NF", B), repair=REPAIRS[B])


@claim("SK-B-FASTER", PAPER, "Algorithm B is faster and uses fewer messages than Ricart-Agrawala")
def sk_b_faster(lab: Lab) -> Finding:
    def compared(pairs: Iterable[tuple[int, int]], what: str) -> Evidence:
        """Messages an entry where every entry is asked for."""
        figures = {f"N = {n}, L = {l}": [round(mean_of_b(n, l), 3), 2 * (n - 1)] for n, l in pairs}
        more = [f"{words}: {b} messages against {ra}" for words, (b, ra) in figures.items() if b >= ra]
        against = "; ".join(more) or None
        return Evidence("simulated", what, not more, seeds=len(figures), figures=figures, counterexample=against)

    def delays(n: int, l: int) -> Evidence:
        waits = {}
        for name in (B, RA):
            options = {"l": l} if name == B else {}
            busy = run(algorithm=name, nodes=n, delay="constant:1", hold="constant:3", options=options)
            light = run(algorithm=name, nodes=n, delay="constant:1", load="poisson:0.005", entries=40, options=options)
            mean = round(sum(light.metrics.waits) / len(light.metrics.waits), 3)
            waits[name] = [max(busy.metrics.sync_delays), mean]
        good = waits[B][0] <= waits[RA][0] and waits[B][1] < waits[RA][1]
        words = f"exit to entry, and mean wait under light load, N = {n}, L = {l}"
        return Evidence("simulated", words, good, seeds=4, figures=waits)

    found = compared(product(range(2, 8), (2, 3, 4, 6)), "fewer messages, N = 2 to 7, L = 2, 3, 4, 6")
    others = [(n, l) for n in range(3, 11) for l in (3, 5, 7)] + [(n, 2) for n in range(4, 11)]
    fewer = compared(others, "fewer messages, also for (N, L) that were not used to find the condition")
    faster = [delays(n, l) for n, l in ((3, 3), (5, 2), (5, 5), (8, 4))]
    return judge([found, *faster], given=[fewer, *faster], condition="N >= 4, or N = 3 and L >= 3")


def bytes_per_entry(name: str, n: int, **options: Any) -> float:
    one = run(algorithm=name, nodes=n, entries=24, options=options, hold="constant:5")
    return sum(cost.size for cost in one.metrics.made) / len(one.metrics.made)


@claim("SK-B-BITS", PAPER, "Algorithm B moves more bits in total than Ricart-Agrawala")
def sk_b_bits(lab: Lab) -> Finding:
    figures, less = {}, []
    for n in range(2, 10):
        ra = bytes_per_entry(RA, n)
        for l in (2, 4, 8):
            b = bytes_per_entry(B, n, l=l)
            figures[f"N = {n}, L = {l}"] = [round(b, 1), round(ra, 1)]
            if b <= ra:
                less.append((n, l))
    claimed = Evidence(
        "simulated",
        "bytes an entry on our wire, B beside RA, N = 2 to 9, L = 2, 4, 8",
        not less,
        seeds=32,
        figures=figures,
    )
    return judge([claimed])
