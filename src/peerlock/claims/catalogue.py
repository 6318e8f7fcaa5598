"""All claims, in the order of the papers, and how to test them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import partial

from peerlock.claims import (
    all_algorithms,
    carvalho_roucairol,
    dijkstra,
    helary_plouzeau_raynal,
    ricart_agrawala,
    suzuki_kasami,
)
from peerlock.claims.evidence import Evidence, Finding, Lab, broken, judge
from peerlock.claims.registry import CLAIMS, PAPERS, Claim
from peerlock.errors import UsageError
from peerlock.parallel import spread

MODULES = (all_algorithms, suzuki_kasami, helary_plouzeau_raynal, dijkstra, ricart_agrawala, carvalho_roucairol)


def select(wanted: Iterable[str]) -> list[Claim]:
    """The claims of these ids; `ALL-ME` means that claim of every algorithm. None: all."""
    found: dict[str, Claim] = {}
    for key in map(str.upper, wanted):
        family = {one.id: one for one in CLAIMS.values() if one.id.upper() == key or one.id.startswith(f"{key}:")}
        if not family:
            near = difflib.get_close_matches(key, [*CLAIMS, *all_algorithms.WORDS], n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else "peerlock claims --list shows them all."
            raise UsageError(f"No claim is called {key!r}. {hint}")
        found |= family
    order = list(PAPERS)
    return sorted((found or CLAIMS).values(), key=lambda one: order.index(one.paper))


def examine(claims: list[Claim], *, full: bool, processes: int = 2) -> Iterator[tuple[Claim, Finding]]:
    """Test claims, several at a time; the findings come in the order of the claims."""
    tasks: dict[str, list[str]] = {}
    for one in claims:
        # Claims about one algorithm rest on the same explorations.
        name = one.id.partition(":")[2]
        tasks.setdefault(name or one.id, []).append(one.id)
    work = partial(_examine, full=full)
    found: dict[str, Finding] = {}
    if processes < 2 or len(tasks) < 2:
        for ids in tasks.values():
            found |= dict(work(ids))
        yield from ((one, found[one.id]) for one in claims)
        return
    waiting = [one.id for one in claims]
    for results in spread(work, tasks.values(), processes, lifetime=10):
        found |= dict(results)
        while waiting and waiting[0] in found:
            key = waiting.pop(0)
            yield CLAIMS[key], found.pop(key)


def _examine(ids: list[str], full: bool) -> list[tuple[str, Finding]]:
    lab = Lab(full)
    return [(key, _tested(CLAIMS[key], lab)) for key in ids]


def _tested(claim: Claim, lab: Lab) -> Finding:
    try:
        return claim.test(lab)
    except Exception as problem:
        if not broken(problem):
            raise
        # A broken algorithm may stop in mid-run. That is evidence too.
        words = f"could not be carried out: {type(problem).__name__}: {problem}"
        return judge([Evidence("constructed", words, False)])


__all__ = ["CLAIMS", "MODULES", "PAPERS", "examine", "select"]
