"""The catalogue: every algorithm, by name.

An entry says where the algorithm is printed, what it needs, what it is claimed to cost, and in
which forms it exists. Most have the one form `standard`. Where the printed text fails its own
claims there are two: `repaired`, which is what a user gets, and `as_printed`, to study and to
check. Where a paper says that procedures must be indivisible, or forgets to, the option `cut` gives
a third one, `divided`, whose procedures are interrupted at the places named.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias, get_type_hints

import msgspec
from msgspec import Struct

from peerlock.algorithms import (
    carvalho_roucairol,
    carvalho_roucairol_divided,
    dijkstra_ring,
    first_pass,
    helary_plouzeau_raynal,
    naimi_trehel,
    ricart_agrawala,
    ricart_agrawala_broadcast,
    ricart_agrawala_broadcast_implicit,
    ricart_agrawala_dynamic,
    ricart_agrawala_failures,
    ricart_agrawala_implicit,
    ricart_agrawala_priority,
    ricart_agrawala_rw,
    ricart_agrawala_token,
    ricart_agrawala_token_divided,
    suzuki_kasami_a,
    suzuki_kasami_a_divided,
    suzuki_kasami_b,
    suzuki_kasami_b_as_printed,
)  # fmt: skip
from peerlock.contract import NOBODY, AnyAlgorithm, Inside, Members, Needs, Neighbours, NodeId, Ring, Shape, Wire
from peerlock.errors import ContractError, PeerlockError, UnknownAlgorithm, UsageError

Option: TypeAlias = bool | int | float | str | tuple[int, ...] | None


class Size(Struct, frozen=True):
    """What a formula for costs may speak of."""

    n: int  # nodes
    e: int  # edges
    d: int  # diameter
    kind: str = "complete"  # complete, ring, line, tree or general
    l: int = 2  # L of Algorithm B


class Cost(Struct, frozen=True):
    """Messages per entry, as the paper claims: in words, and the least and the most by size."""

    words: str
    bounds: Callable[[Size], tuple[int, int] | None]


class Entry(Struct, frozen=True):
    name: str
    paper: str
    year: int
    forms: Mapping[str, type[AnyAlgorithm]]
    claimed: Cost | None = None
    # A message serves many entries, so only the mean number of messages an entry means anything.
    mean_only: bool = False
    options: tuple[str, ...] = ()
    # With procedures that can be interrupted; the option `cut` says where.
    divided: type[AnyAlgorithm] | None = None

    @property
    def needs(self) -> Needs:
        return next(iter(self.forms.values())).needs


class AlgorithmSpec(Struct, frozen=True):
    """An algorithm in one form with its options: what a driver needs to start nodes."""

    name: str
    form: str
    algorithm: type[AnyAlgorithm]
    options: Mapping[str, Any] = {}
    claimed: Cost | None = None
    mean_only: bool = False

    @property
    def needs(self) -> Needs:
        return self.algorithm.needs

    def start(self, me: NodeId, shape: Shape, inside: Inside = NOBODY) -> Any:
        return self.algorithm.start(me, shape, inside, **self.options)

    @contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Whatever a user's own class raises becomes a sentence that names it."""
        try:
            yield
        except PeerlockError:
            raise
        except (Exception, SystemExit) as problem:
            if self.form != "own":
                raise
            where = traceback.extract_tb(problem.__traceback__)[-1]
            raise ContractError(
                f"{self.name} raised {type(problem).__name__} in {what}: {problem} (line {where.lineno}: {where.line})"
            ) from problem


class TokenByFirstPass(first_pass.FirstPass):
    """The Appendix's token made by one pass of the algorithm of 1981."""

    First: ClassVar[type[AnyAlgorithm]] = ricart_agrawala.RicartAgrawala
    Then: ClassVar[type[AnyAlgorithm]] = ricart_agrawala_token.RicartAgrawalaToken
    FirstMessages: ClassVar[tuple[type[Wire], ...]] = (ricart_agrawala.Request, ricart_agrawala.Reply)


def _hpr(size: Size) -> tuple[int, int]:
    """Section 6; the owner enters with no message at all."""
    n = size.n
    most = {"complete": n, "ring": 2 * n, "line": 2 * (n - 1), "tree": n - 1 + size.d}
    return 0, most.get(size.kind, 2 * size.e + n - 1)


def _ricart_agrawala(size: Size) -> tuple[int, int]:
    return 2 * (size.n - 1), 2 * (size.n - 1)


SK85 = "Suzuki, Kasami: A Distributed Mutual Exclusion Algorithm"
HPR86 = "Helary, Plouzeau, Raynal: A distributed algorithm for mutual exclusion in an arbitrary network"
EWD851 = "Dijkstra: Reducing control traffic in a distributed implementation of mutual exclusion (EWD851)"
RA81 = "Ricart, Agrawala: An Optimal Algorithm for Mutual Exclusion in Computer Networks"
CR83 = "Carvalho, Roucairol: On Mutual Exclusion in Computer Networks"
RA83 = "Ricart, Agrawala: Authors' response to Carvalho and Roucairol, Appendix"
NTA96 = "Naimi, Trehel, Arnold: A log(N) Distributed Mutual Exclusion Algorithm Based on Path Reversal"

_ENTRIES = (
    Entry("suzuki-kasami-a", SK85, 1985, {"standard": suzuki_kasami_a.SuzukiKasamiA},
          Cost("0 or N", lambda s: (0, s.n)), options=("cut",), divided=suzuki_kasami_a_divided.SuzukiKasamiADivided),
    Entry("suzuki-kasami-b", SK85, 1985,
          {"repaired": suzuki_kasami_b.SuzukiKasamiB, "as_printed": suzuki_kasami_b_as_printed.AsPrinted},
          Cost("L*N + N-1 for L entries of a node, so 0 to 2N-1", lambda s: (0, 2 * s.n - 1)), options=("l",)),
    Entry("helary-plouzeau-raynal", HPR86, 1986,
          {"repaired": helary_plouzeau_raynal.HelaryPlouzeauRaynal, "as_printed": helary_plouzeau_raynal.AsPrinted},
          Cost("0, or n to 2e + n-1 (complete: n, ring: 2n, tree: n-1 + d)", _hpr)),
    Entry("dijkstra-ring", EWD851, 1983, {"standard": dijkstra_ring.DijkstraRing}, mean_only=True),
    Entry("ricart-agrawala", RA81, 1981, {"standard": ricart_agrawala.RicartAgrawala},
          Cost("2(N-1)", _ricart_agrawala), options=("own_counts",)),
    Entry("ricart-agrawala-broadcast", RA81, 1981, {"standard": ricart_agrawala_broadcast.RicartAgrawalaBroadcast},
          Cost("N", lambda s: (s.n, s.n)), options=("own_counts",)),
    Entry("ricart-agrawala-implicit", RA81, 1981, {"standard": ricart_agrawala_implicit.RicartAgrawalaImplicit},
          Cost("N-1 to 3(N-1)", lambda s: (s.n - 1, 3 * (s.n - 1))), options=("own_counts", "timeout")),
    Entry("ricart-agrawala-broadcast-implicit", RA81, 1981,
          {"standard": ricart_agrawala_broadcast_implicit.RicartAgrawalaBroadcastImplicit},
          Cost("1 to 2N-1", lambda s: (1, 2 * s.n - 1)), options=("own_counts", "timeout")),
    Entry("ricart-agrawala-rw", RA81, 1981, {"standard": ricart_agrawala_rw.RicartAgrawalaRW},
          Cost("2(N-1)", _ricart_agrawala), options=("own_counts",)),
    Entry("ricart-agrawala-priority", RA81, 1981, {"standard": ricart_agrawala_priority.RicartAgrawalaPriority},
          Cost("2(N-1)", _ricart_agrawala), options=("own_counts", "increments")),
    Entry("ricart-agrawala-dynamic", RA81, 1981, {"standard": ricart_agrawala_dynamic.RicartAgrawalaDynamic},
          options=("own_counts",)),
    Entry("ricart-agrawala-failures", RA81, 1981,
          {"repaired": ricart_agrawala_failures.RicartAgrawalaFailures, "as_printed": ricart_agrawala_failures.AsPrinted},
          options=("own_counts", "timeout")),
    Entry("carvalho-roucairol", CR83, 1983, {"standard": carvalho_roucairol.CarvalhoRoucairol},
          Cost("0 to 2(N-1)", lambda s: (0, 2 * (s.n - 1))), options=("cut",),
          divided=carvalho_roucairol_divided.CarvalhoRoucairolDivided),
    Entry("ricart-agrawala-token", RA83, 1983, {"standard": ricart_agrawala_token.RicartAgrawalaToken},
          Cost("0 or N", lambda s: (0, s.n)), options=("cut", "first_pass"),
          divided=ricart_agrawala_token_divided.RicartAgrawalaTokenDivided),
    Entry("naimi-trehel", NTA96, 1996, {"standard": naimi_trehel.NaimiTrehel},
          Cost("0 to N, H(N-1) on average", lambda s: (0, s.n))),
)  # fmt: skip

CATALOGUE: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def choose(name: str, *, as_printed: bool = False, **options: Option) -> AlgorithmSpec:
    """The algorithm of that name, in the form that a user gets or as printed, with its options."""
    entry = CATALOGUE.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, CATALOGUE, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(CATALOGUE)}."
        raise UnknownAlgorithm(
            f"No algorithm is called {name!r}. {hint} (Your own class: give its file and name, ./mine.py:MyLock.)"
        )
    form = "as_printed" if as_printed else next(iter(entry.forms))
    if form not in entry.forms:
        raise UsageError(f"{name} was not repaired, so it has no other form as printed: leave that out.")
    for option in options:
        if option not in entry.options:
            known = f"it takes {', '.join(entry.options)}" if entry.options else "it takes none"
            raise UsageError(f"{name} has no option {option!r}: {known}.")
    algorithm = entry.forms[form]
    claimed = entry.claimed
    if "cut" in options and entry.divided is not None:
        form, algorithm, claimed = "divided", entry.divided, None
        if "first_pass" in options:
            raise UsageError(f"{name}: cut and first_pass do not go together.")
    if typed(name, "first_pass", options.pop("first_pass", False), bool):
        # The pass costs what the paper does not count.
        algorithm, claimed = TokenByFirstPass, None
    return AlgorithmSpec(name, form, algorithm, check_options(name, algorithm, options), claimed, entry.mean_only)


def check_options(name: str, algorithm: type[AnyAlgorithm], options: Mapping[str, Option]) -> dict[str, Option]:
    """The options in the types that `start` asks for."""
    try:
        hints = get_type_hints(algorithm.start)
    except Exception:  # annotations of a user's own that cannot be looked up
        hints = {}
    return {option: typed(name, option, value, hints.get(option, Any)) for option, value in options.items()}


def typed(name: str, option: str, value: Option, hint: Any) -> Any:
    if isinstance(value, int) and "tuple[int" in str(hint):
        value = (value,)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        words = {"int": "a whole number", "bool": "true or false", "float": "a number", "str": "a word"}
        if "tuple[int" in str(hint):
            raise UsageError(f"{name}: {option} must be whole numbers like 1,2,3; got {value!r}.") from None
        wanted = words.get(str(getattr(hint, "__name__", hint)), str(hint).replace(" | None", ""))
        raise UsageError(f"{name}: {option} must be {wanted}; got {value!r}.") from None


__all__ = ["CATALOGUE", "AlgorithmSpec", "Cost", "Entry", "Members", "Neighbours", "Ring", "Size", "choose"]
