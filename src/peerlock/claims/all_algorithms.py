"""The claims of every algorithm: mutual exclusion, no deadlock, no starvation, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeAlias

from peerlock.algorithms import CATALOGUE, choose
from peerlock.check.model import ANY
from peerlock.claims.evidence import Evidence, Finding, Lab, Setup, judge
from peerlock.claims.registry import CLAIMS, Claim
from peerlock.contract import Mode, NodeId

Every: TypeAlias = Literal["ALL-ME", "ALL-DF", "ALL-SF", "ALL-NF"]
WORDS: dict[Every, str] = {
    "ALL-ME": "at most one node is in its critical section",
    "ALL-DF": "no deadlock: while somebody waits, somebody will enter",
    "ALL-SF": "no starvation: every request is granted after finitely many steps, under fair delivery",
    "ALL-NF": "all that without messages arriving in the order sent",
}
IMPLICIT = "no message takes longer than the known bound, and the time-out is at least twice that"
SUSPECTS = "no message takes longer than the known bound, so that a live node is never suspected"
REPAIRS = {
    "suzuki-kasami-b": "a round ends with an entry that was asked for; a bit beside RN and LN says which round they are from",
    "helary-plouzeau-raynal": "the oldest request has the smallest time, not the smallest name; and no request is forgotten",
    "ricart-agrawala-failures": "replies carry the number of the request that they answer",
}


def starts(lab: Lab, name: str, n: int) -> list[dict[NodeId, Mode]]:
    """Which nodes may be inside at the start: none, one writer, two readers."""
    found: list[dict[NodeId, Mode]] = [{}]
    for j in range(1, n + 1) if lab.full else (2,):
        found.append({j: "write"})
    if "read" in choose(name).needs.modes:
        found.append({1: "read", 2: "read"})
    return found


def setups(lab: Lab, name: str, *, fifo: bool, printed: bool = False, clock: bool = False) -> list[Setup]:
    """The configurations in which an algorithm is explored."""
    sizes: list[tuple[int, ...]] = [(2, 2), (1, 1, 1)]
    if lab.full and name not in (
        "ricart-agrawala-failures",
        "helary-plouzeau-raynal",
        "ricart-agrawala-implicit",
        "ricart-agrawala-broadcast-implicit",
    ):
        sizes.append((2, 2, 2))
    if name == "suzuki-kasami-b":
        sizes += [(4, 4), (4, 3, 1)]  # past the point where the numbers wrap
    ticks = 1 if clock and choose(name).needs.delay_bound else None
    if choose(name).needs.delay_bound and not clock:
        sizes = [(1, 1), (2, 2)]  # time-outs at any time: enough to see what goes wrong
    return [
        Setup(name, entries, printed, fifo, inside, delay_bound=ticks)
        for entries in sizes
        for inside in starts(lab, name, len(entries))
    ]


def safe(lab: Lab, name: str, what: str, orders: Sequence[bool], **form: bool) -> Evidence:
    """One property in all configurations."""
    every = [setup for fifo in orders for setup in setups(lab, name, fifo=fifo, **form)]
    sizes = sorted({str(len(setup.entries)) for setup in every})
    return lab.explore(every, [what], f"{what}, {' and '.join(sizes)} nodes")


def fair(lab: Lab, name: str, *, printed: bool = False, clock: bool = False) -> list[Evidence]:
    """No starvation: decided on a finite graph, else by how often a node is passed over."""
    both = ["no starvation", "no deadlock"]
    if name == "dijkstra-ring":
        rings = [Setup(name, (ANY,) * n) for n in range(2, 7 if lab.full else 6)]
        return [lab.explore(rings, both, "every fair run of rings with any number of entries", True)]
    if name == "naimi-trehel":  # its messages carry no numbers, so that its states are finitely many
        trees = [Setup(name, (ANY,) * n) for n in range(2, 5 if lab.full else 4)]
        return [lab.explore(trees, both, "every fair run with any number of entries", True)]
    bounded = choose(name).needs.delay_bound
    ticks = 1 if clock and bounded else None
    most = 2 if name == "helary-plouzeau-raynal" else 3
    sizes = [(times, 1) if bounded else (times, times, 1) for times in range(1, most + 1)]
    found = [lab.passed_over([Setup(name, entries, printed, delay_bound=ticks) for entries in sizes])]
    if name == "suzuki-kasami-b":
        pairs = [Setup(name, (ANY, ANY), printed, fifo, options={"l": l}) for l in (2, 3) for fifo in (False, True)]
        wrapping = [Setup(name, (4, 4), printed), Setup(name, (4, 3, 1), printed)]
        found += [
            lab.explore(pairs, both, "every fair run of 2 nodes, any number of entries", True),
            lab.explore(wrapping, ["no deadlock"], "every run ends with every entry done, past the wrap"),
        ]
    return found


def evidence(lab: Lab, id: Every, name: str, **form: bool) -> list[Evidence]:
    """What speaks for one of the four claims, for one algorithm."""
    match id:
        case "ALL-ME":
            return [safe(lab, name, "mutual exclusion", (False, True), **form)]
        case "ALL-DF":
            return [safe(lab, name, "no deadlock", (False, True), **form)]
        case "ALL-SF":
            return fair(lab, name, **form)
        case "ALL-NF":
            unordered = [safe(lab, name, what, (False,), **form) for what in ("mutual exclusion", "no deadlock")]
            return [*unordered, *fair(lab, name, **form)]


def test(lab: Lab, id: Every, name: str) -> Finding:
    printed, clock = "as_printed" in CATALOGUE[name].forms, choose(name).needs.delay_bound
    suspects = name == "ricart-agrawala-failures"
    if suspects and id in ("ALL-DF", "ALL-SF"):
        # A node asks again as long as it suspects another, without end: no evidence for the claim.
        claimed = [Evidence("exhaustive", "time-outs at any time: states without end, not explored", False)]
    elif suspects and id == "ALL-NF":
        claimed = [safe(lab, name, "mutual exclusion", (False,), printed=printed)]
    else:
        claimed = evidence(lab, id, name, printed=printed)
    # The condition of those that need a delay bound is about time, so they get a clock.
    given = evidence(lab, id, name, printed=printed, clock=True) if clock else []
    repaired = evidence(lab, id, name, clock=clock) if printed else []
    condition = None if not clock else SUSPECTS if suspects else IMPLICIT
    return judge(claimed, given=given, condition=condition, repaired=repaired, repair=REPAIRS.get(name))


for _id, _words in WORDS.items():
    for _name in CATALOGUE:
        CLAIMS[f"{_id}:{_name}"] = Claim(f"{_id}:{_name}", "every-algorithm", _words, partial(test, id=_id, name=_name))
