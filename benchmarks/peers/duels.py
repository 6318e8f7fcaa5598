"""The lock and others in turns.

Machines that others use as well change their speed within seconds, by as much as two. A row of the comparison takes half a
minute, so two rows are measured on what may be two machines. What the targets speak of is therefore measured once more,
in turns: the peer, then this lock, then the peer again. What counts is this lock over the peer just before and just after it.

A target compares with the best networked peer, however either of them talks on one host. Who wants to see like beside like
finds that here as well: both over Unix sockets, and both over TCP.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.peers.drivers import Row
from benchmarks.peers.figures import (
    CROWDS,
    OURS,
    OURS_PLAIN,
    OURS_RING,
    OURS_TCP,
    STARTED,
    WAYS,
    Contended,
    Duel,
    Figures,
    contended,
)
from benchmarks.peers.floor import idle_us, two_cores
from benchmarks.peers.scenes import percentile, play
from benchmarks.peers.servers import STARTERS

ROUNDS = 4
CROWDED, PARKED = (OURS, OURS_PLAIN, OURS_RING), (OURS, OURS_PLAIN)
ALIKE = ((OURS, "Redis BLPOP, Unix socket"), (OURS_TCP, "Redis BLPOP"))
ENOUGH = 10  # times, for a median


def planned(
    rows: Sequence[Row], seen: Mapping[str, Figures], seconds: float
) -> Iterator[tuple[str, Callable[[], list[Duel]]]]:
    """What each is called, and what does it. `seen` is what the rows have shown in this run."""
    there = {row.name: row for row in rows if row.name in seen}
    crowded = [there[name] for name in CROWDED if name in there]
    for way, words in WAYS.items():
        for of in CROWDS:
            peer = best(rows, seen, way, of)
            if peer is not None and crowded:
                yield (
                    f"{of} processes{words}, in turns with {peer.name}",
                    partial(crowd, crowded, peer, way, of, seconds),
                )
    for ours, name in _alike(there):
        for of in CROWDS:
            yield (
                f"{of} processes, {ours.name} in turns with {name.name}",
                partial(crowd, [ours], name, "contended", of, seconds, aimed=False),
            )
    for row in _parked(there):
        yield f"{row.name}: parked, in turns with a bare message", partial(parked, row, seconds)


def how_many(rows: Sequence[Row]) -> int:
    """How many there will be, if nothing fails."""
    there = {row.name: row for row in rows}
    crowded = bool(there.keys() & set(CROWDED)) and any(row.networked and not row.ours for row in rows)
    return crowded * len(WAYS) * len(CROWDS) + len(_alike(there)) * len(CROWDS) + len(_parked(there))


def _alike(there: Mapping[str, Row]) -> list[tuple[Row, Row]]:
    return [(there[ours], there[peer]) for ours, peer in ALIKE if ours in there and peer in there]


def _parked(there: Mapping[str, Row]) -> list[Row]:
    return [there[name] for name in PARKED if name in there and two_cores()]


def best(rows: Sequence[Row], seen: Mapping[str, Figures], way: str, of: int) -> Row | None:
    """The networked peer whose owner changed most often."""
    found = {
        row.name: getattr(seen[row.name], way)[of].owner_changes_a_second
        for row in rows
        if row.networked and not row.ours and row.name in seen and of in getattr(seen[row.name], way)
    }
    return next((row for row in rows if found and row.name == max(found, key=found.__getitem__)), None)


def crowd(ours: Sequence[Row], peer: Row, way: str, of: int, seconds: float, aimed: bool = True) -> list[Duel]:
    mine: dict[str, list[Contended]] = {row.name: [] for row in ours}
    theirs: dict[str, list[float]] = {row.name: [] for row in ours}
    with contextlib.ExitStack() as stack:

        def place(row: Row) -> str:
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="peerlock-bench-"))
            return stack.enter_context(STARTERS[row.server](Path(where)))

        addresses = {row.name: place(row) for row in (*ours, peer)}

        def once(row: Row) -> Contended:
            return contended(play(row, "contended", of, seconds, addresses[row.name], start=STARTED[way]))

        if peer.warm_up_s:
            play(peer, "contended", of, peer.warm_up_s, addresses[peer.name])
        before = once(peer)
        for number in range(ROUNDS):
            for row in ours if number % 2 else ours[::-1]:
                mine[row.name].append(once(row))
                after = once(peer)
                both = before.owner_changes_a_second + after.owner_changes_a_second
                theirs[row.name].append(
                    max(both / 2, 0.1)
                )  # a lock that changed hands in neither is slow, not infinitely so
                before = after
    return [
        Duel(
            row.name, peer.name, way, of,
            tuple(each.owner_changes_a_second / other for each, other in zip(mine[row.name], theirs[row.name], strict=True)),
            tuple(each.owner_changes_a_second for each in mine[row.name]),
            tuple(theirs[row.name]),
            tuple(each.fairness for each in mine[row.name]),
            max(each.lost_updates for each in mine[row.name]),
            aimed,
        )
        for row in ours
    ]  # fmt: skip


def parked(row: Row, seconds: float) -> list[Duel]:
    """Each process on a core of its own."""
    two, mine, theirs = two_cores(), list[float](), list[float]()
    before = idle_us(row.loop, seconds / 2, two)
    for _ in range(ROUNDS):
        times = [time for told in play(row, "parked", 2, seconds, cores=two) for time in told["times"]]
        after = idle_us(row.loop, seconds / 2, two)
        if len(times) >= ENOUGH:
            mine.append(percentile(times, 0.5) * 1e6)
            theirs.append(statistics.mean((before, after)))
        before = after
    ratios = tuple(one / other for one, other in zip(mine, theirs, strict=True))
    return [Duel(row.name, "a bare message", "parked", 2, ratios, tuple(mine), tuple(theirs))] if ratios else []
