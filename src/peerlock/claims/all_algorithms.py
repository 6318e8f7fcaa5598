"""What every algorithm claims: mutual exclusion, no deadlock, no starvation, and all that without an order of delivery."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from peerlock.algorithms import CATALOGUE, choose
from peerlock.check.model import ANY
from peerlock.claims.evidence import Evidence, Finding, Lab, Setup, judge
from peerlock.claims.registry import CLAIMS, Claim
from peerlock.contract import Mode, NodeId

WORDS = {
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
    """Nobody inside, and who may be: one node, or each, and sets of readers."""
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
    return lab.explore(
        every, [what], f"{what}, {' and '.join(sorted({str(len(setup.entries)) for setup in every}))} nodes"
    )


def fair(lab: Lab, name: str, *, printed: bool = False, clock: bool = False) -> list[Evidence]:
    """No starvation: decided on the graph where it is finite, else by how often a node is passed over."""
    if name == "dijkstra-ring":
        rings = [Setup(name, (ANY,) * n) for n in range(2, 7 if lab.full else 6)]
        return [
            lab.explore(
                rings, ["no starvation", "no deadlock"], "every fair run of rings with any number of entries", True
            )
        ]
    ticks = 1 if clock and choose(name).needs.delay_bound else None
    few = choose(name).needs.delay_bound
    most = 3 if lab.full or name != "helary-plouzeau-raynal" else 2
    sizes = [(times, 1) if few else (times, times, 1) for times in range(1, most + 1)]
    if lab.full and name == "helary-plouzeau-raynal":
        sizes = sizes[:2]
    found = [lab.passed_over([Setup(name, entries, printed, delay_bound=ticks) for entries in sizes])]
    if name == "suzuki-kasami-b":
        both = [Setup(name, (ANY, ANY), printed, fifo, options={"l": l}) for l in (2, 3) for fifo in (False, True)]
        found.append(
            lab.explore(
                both, ["no starvation", "no deadlock"], "every fair run of 2 nodes, any number of entries", True
            )
        )
        wrapping = [Setup(name, (4, 4), printed), Setup(name, (4, 3, 1), printed)]
        found.append(lab.explore(wrapping, ["no deadlock"], "every run ends with every entry done, past the wrap"))
    return found


def evidence(lab: Lab, id: str, name: str, **form: bool) -> list[Evidence]:
    match id:
        case "ALL-ME":
            return [safe(lab, name, "mutual exclusion", (False, True), **form)]
        case "ALL-DF":
            return [safe(lab, name, "no deadlock", (False, True), **form)]
        case "ALL-SF":
            return fair(lab, name, **form)
    return [
        safe(lab, name, "mutual exclusion", (False,), **form),
        safe(lab, name, "no deadlock", (False,), **form),
        *fair(lab, name, **form),
    ]


def test(lab: Lab, id: str, name: str) -> Finding:
    needs, printed = choose(name).needs, "as_printed" in CATALOGUE[name].forms
    settings: dict[str, Any] = {}
    if name == "ricart-agrawala-failures" and id in ("ALL-DF", "ALL-SF"):
        # It asks again and again as long as it suspects, so this never comes to an end; that is not evidence for it.
        claimed = [Evidence("exhaustive", "time-outs at any time: states without end, not explored", False)]
    elif name == "ricart-agrawala-failures" and id == "ALL-NF":
        claimed = [safe(lab, name, "mutual exclusion", (False,), printed=printed)]
    else:
        claimed = evidence(lab, id, name, printed=printed)
    if needs.delay_bound:
        # The condition is about time, so the printed form gets its chance with a clock.
        bounded = evidence(lab, id, name, printed=printed, clock=True)
        if printed:
            settings = {"repaired": evidence(lab, id, name, clock=True), "repair": REPAIRS[name], "condition": SUSPECTS}
        condition = SUSPECTS if name == "ricart-agrawala-failures" else IMPLICIT
        return judge(claimed, given=bounded, **{"condition": condition, **settings})
    if printed:
        settings = {"repaired": evidence(lab, id, name), "repair": REPAIRS[name]}
    return judge(claimed, **settings)


for _id, _words in WORDS.items():
    for _name in CATALOGUE:
        CLAIMS[f"{_id}:{_name}"] = Claim(f"{_id}:{_name}", "every-algorithm", _words, partial(test, id=_id, name=_name))
