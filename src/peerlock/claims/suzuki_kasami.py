"""The claims of Suzuki and Kasami for Algorithms A and B."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from typing import cast

from msgspec.structs import replace

from peerlock.algorithms import CATALOGUE
from peerlock.algorithms.interruptible import Divided
from peerlock.algorithms.suzuki_kasami_b_as_printed import Privilege, Request
from peerlock.check.engine import Cells
from peerlock.check.model import ANY, Letter, Local, Model
from peerlock.check.properties import Bad, MutualExclusion, Property, Sums
from peerlock.check.verdicts import HARMLESS
from peerlock.claims.all_algorithms import REPAIRS, evidence
from peerlock.claims.evidence import Evidence, Finding, Lab, Run, Setup, judge, run
from peerlock.claims.fairness import MEANING, strongest
from peerlock.claims.registry import claim
from peerlock.contract import NodeId
from peerlock.sim.experiment import Experiment

PAPER = "suzuki-kasami-1985"
A, B, RA = "suzuki-kasami-a", "suzuki-kasami-b", "ricart-agrawala"


@claim("SK-A-MAX", PAPER, "Algorithm A: at most N messages an entry: N-1 REQUEST and 1 PRIVILEGE")
def sk_a_max(lab: Lab) -> Finding:
    def good(one: Run) -> bool:
        kinds = one.metrics.by_kind()
        return set(one.costs) <= {0, one.n} and kinds["REQUEST"] == (one.n - 1) * kinds["PRIVILEGE"]

    found = [lab.count(Setup(A, entries), lambda cost, n: cost in (0, n)) for entries in ((3, 3), (2, 2, 2))]
    words = "0 or N messages, N-1 REQUESTs to a PRIVILEGE"
    experiment = Experiment(algorithm=A, delay="adversary:3")
    return judge([*found, *lab.by_size(experiment, (2, 5, 9), lab.seeds(20, 200), words, good)])


@claim("SK-A-ZERO", PAPER, "Algorithm A: none when the holder is the only one requesting")
def sk_a_zero(lab: Lab) -> Finding:
    return judge([lab.count(Setup(A, (3,) + (0,) * (n - 1)), lambda cost, n: cost == 0) for n in (2, 3, 4)])


@claim(
    "SK-A-DELAY", PAPER, "the privilege moves in one one-way trip; a request is known everywhere after one one-way trip"
)
def sk_a_delay(lab: Lab) -> Finding:
    found = []
    for n in (2, 5, 9):
        quick = Experiment(algorithm=A, nodes=n, delay="constant:1")
        busy = run(replace(quick, hold="constant:3"))
        delays = sorted({round(delay, 9) for delay in busy.metrics.sync_delays})
        words = f"exit to next entry when the REQUEST has arrived before the exit, unit delay, N = {n}"
        found.append(Evidence("simulated", words, delays == [1.0], seeds=1, figures={"one-way trips": delays}))
        waits = run(replace(quick, load="nodes:2", entries=1)).metrics.waits
        words = f"from a quiet network: the request one trip, the privilege one, N = {n}"
        found.append(Evidence("simulated", words, waits == [2.0], seeds=1, figures={"one-way trips": waits}))
    words = "one PRIVILEGE an entry at the most: it never takes two hops"
    hops = lab.count(Setup(A, (2, 2, 2)), lambda cost, n: cost in (0, 3), words)
    return judge([*found, hops])


@claim("SK-A-FCFS", PAPER, 'first come first served "to some extent"')
def sk_a_fcfs(lab: Lab) -> Finding:
    order, found = strongest(lab, A)
    weaker = found[-1:] if order else []
    return judge(found[-2::-1] or found, given=weaker, condition=f"first comes {MEANING[order]}")


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

    experiment, seeds = Experiment(algorithm=A, nodes=3, entries=20, load="closed:1"), lab.seeds(20, 200)
    entered = lab.simulate(experiment, seeds, "n + 1 is the number of the invocation", lambda one: numbers(one, False))
    sent = lab.simulate(experiment, seeds, "n + 1 counts the requests sent", lambda one: numbers(one, True))
    condition = "only invocations for which a REQUEST was sent are counted: a holder that enters again sends none"
    return judge([entered], given=[sent], condition=condition)


@claim("SK-A-UNB", PAPER, "Algorithm A's sequence numbers are unbounded")
def sk_a_unb(lab: Lab) -> Finding:
    runs = [run(Experiment(algorithm=A, nodes=3, entries=k)) for k in (10, 20, 40, 80)]
    highest: list[int] = [max(one.world.places[2].algorithm.rn) for one in runs]
    growing = all(later >= 1.5 * earlier for earlier, later in pairwise(highest))
    words = "the highest number after 10, 20, 40, 80 entries each"
    return judge([Evidence("simulated", words, growing, seeds=4, figures={"highest": highest})])


@claim("SK-INDIV", PAPER, "P2 is indivisible; of P1 nothing is said")
def sk_indiv(lab: Lab) -> Finding:
    cuts = interrupted(lab, A, [cut for cut in statements(A) if not cut.startswith("p2")])
    return judge(
        list(cuts.values()),
        given=[interrupted_anywhere(lab, A)],
        condition="P1 is not interrupted between its first look at the others' requests and `HavePrivilege := false` or, "
        "if nobody waits, `Requesting := false`; nor P2 between its test and `HavePrivilege := false`",
    )


def statements(name: str) -> tuple[str, ...]:
    """The statements before which a procedure of this algorithm can be interrupted."""
    divided = CATALOGUE[name].divided
    assert divided is not None and issubclass(divided, Divided), name
    return divided.statements


def interrupted(lab: Lab, name: str, cuts: Iterable[str]) -> dict[str, Evidence]:
    """For each statement: does an interruption before it do no harm?"""
    found = {}
    for cut in cuts:
        sizes = [(2, 2), (3, 3), (2, 2, 2)] if lab.full else [(3, 3)] if cut != "look" or name != A else [(2, 2, 2)]
        setups = [Setup(name, entries, options={"cut": cut}) for entries in sizes]
        found[cut] = lab.explore(setups, ["mutual exclusion", "no deadlock"], f"interrupted before {cut}")
    return found


def interrupted_anywhere(lab: Lab, name: str) -> Evidence:
    """Do interruptions before all harmless statements together do no harm?"""
    together = "+".join(HARMLESS[name])
    setups = [Setup(name, entries, options={"cut": together}) for entries in ((3, 3), (1, 1, 1))]
    return lab.explore(setups, ["mutual exclusion", "no deadlock"], f"interrupted before any of {together}")


class Bounded(Property):
    """Numbers stay below L. An array may hold -1, which says "none yet"; a REQUEST may not."""

    name = "numbers"

    def __init__(self, model: Model, l: int) -> None:
        super().__init__(model)
        self.l = l

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        node, messages = local.algorithm, [one.message for one in letters]
        # A mutant has message types of its own, so the kind decides.
        asked = [cast("Request", message).n for message in messages if message.kind == "REQUEST"]
        carried = [
            number for message in messages if message.kind == "PRIVILEGE" for number in cast("Privilege", message).ln
        ]
        kept = all(-1 <= number < self.l for number in (*node.rn, *node.ln, *carried))
        return int(not kept or not all(0 <= number < self.l for number in asked))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 0


@claim("SK-B-BOUND", PAPER, "Algorithm B: all sequence numbers stay in 0..L-1, for every L >= 2")
def sk_b_bound(lab: Lab) -> Finding:
    def bounded(entries: tuple[int, ...], l: int, printed: bool = False) -> Evidence:
        setup = Setup(B, entries, printed, options={"l": l})
        words = f"every REQUEST in 0..L-1, every array there or at its initial -1, {setup.words}"
        return lab.watch(words, [setup], lambda model: [Bounded(model, l), MutualExclusion(model)])

    found = [bounded((ANY, ANY), l, printed=True) for l in (2, 3, 4)]
    return judge([*found, *(bounded(entries, l) for l in (2, 3, 4) for entries in ((ANY, ANY), (2, 2, 2)))])


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
            experiment = Experiment(
                algorithm=B, nodes=n, entries=4 * l, options={"l": l}, delay="adversary:3", as_printed=printed
            )
            words = f"every window of L = {l} entries of a node, N = {n}{', as printed' if printed else ''}"
            found.append(lab.simulate(experiment, lab.seeds(10, 100), words, partial(_windows, l=l)))
        setup = Setup(B, (0, l, 0), printed, options={"l": l})
        found.append(lab.count(setup, lambda cost, n: cost <= 2 * 3 - 1, f"L = {l} entries of one node alone"))
    return found


def mean_of_b(n: int, l: int) -> float:
    """Messages per entry where every node always waits, so that no node enters without asking."""
    one = run(Experiment(algorithm=B, nodes=n, entries=6 * l + 1, options={"l": l}, hold="constant:5"))
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
        words = f"mean beside N + (N-1)/L where every entry is asked for, N = {n}"
        claimed = {l: round(n + (n - 1) / l, 3) for l in means}
        figures = {"N": n, "mean by L": means, "claimed": claimed}
        found.append(Evidence("simulated", words, near and falling, seeds=6, figures=figures))
    idle = run(Experiment(algorithm=B, nodes=5, entries=40, load="closed:30", options={"l": 4}))
    mean = sum(idle.costs) / len(idle.costs)
    words = "under light load at most that: the holder enters again without asking"
    found.append(Evidence("simulated", words, mean <= 5 + 4 / 4, seeds=1, figures={"mean": round(mean, 3)}))
    return judge(found)


@claim("SK-B-ME", PAPER, "Algorithm B keeps ALL-ME, ALL-DF, ALL-SF under reordering")
def sk_b_me(lab: Lab) -> Finding:
    return judge(evidence(lab, "ALL-NF", B, printed=True), repaired=evidence(lab, "ALL-NF", B), repair=REPAIRS[B])


@claim("SK-B-FASTER", PAPER, "Algorithm B is faster and uses fewer messages than Ricart-Agrawala")
def sk_b_faster(lab: Lab) -> Finding:
    def compared(pairs: Iterable[tuple[int, int]], what: str) -> Evidence:
        """Messages per entry where every entry is asked for."""
        figures = {f"N = {n}, L = {l}": [round(mean_of_b(n, l), 3), 2 * (n - 1)] for n, l in pairs}
        more = [f"{words}: {b} messages against {ra}" for words, (b, ra) in figures.items() if b >= ra]
        against = "; ".join(more) or None
        return Evidence("simulated", what, not more, seeds=len(figures), figures=figures, counterexample=against)

    def delays(n: int, l: int) -> Evidence:
        waits = {}
        for name in (B, RA):
            options = {"l": l} if name == B else {}
            plain = Experiment(algorithm=name, nodes=n, delay="constant:1", options=options)
            busy = run(replace(plain, hold="constant:3"))
            light = run(replace(plain, load="poisson:0.005", entries=40))
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


def bytes_per_entry(name: str, n: int, options: Mapping[str, int]) -> float:
    one = run(Experiment(algorithm=name, nodes=n, entries=24, options={**options}, hold="constant:5"))
    return sum(cost.size for cost in one.metrics.made) / len(one.metrics.made)


@claim("SK-B-BITS", PAPER, "Algorithm B moves more bits in total than Ricart-Agrawala")
def sk_b_bits(lab: Lab) -> Finding:
    figures, less = {}, []
    for n in range(2, 10):
        ra = bytes_per_entry(RA, n, {})
        for l in (2, 4, 8):
            b = bytes_per_entry(B, n, {"l": l})
            figures[f"N = {n}, L = {l}"] = [round(b, 1), round(ra, 1)]
            if b <= ra:
                less.append((n, l))
    words = "bytes an entry on our wire, B beside RA, N = 2 to 9, L = 2, 4, 8"
    return judge([Evidence("simulated", words, not less, seeds=32, figures=figures)])
