"""The lock and the best of the others in turns.

Machines that others use as well change their speed within seconds, by as much as two. A row of the comparison takes half a
minute, so two rows are measured on what may be two machines. What the targets speak of is therefore measured once more,
in turns: the peer, then this lock, then again, a second each, and it is the ratio of one round that counts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from peerlock.bench.peers.drivers import Row
from peerlock.bench.peers.figures import (
    CROWDS,
    OURS,
    OURS_PLAIN,
    OURS_RING,
    STARTED,
    WAYS,
    Contended,
    Duel,
    Figures,
    contended,
)
from peerlock.bench.peers.floor import idle_us, two_cores
from peerlock.bench.peers.scenes import percentile, play
from peerlock.bench.peers.servers import STARTERS

ROUNDS = 5
CROWDED, PARKED = (OURS, OURS_PLAIN, OURS_RING), (OURS, OURS_PLAIN)
ENOUGH = 10  # times, for a median


def planned(
    rows: Sequence[Row], seen: Mapping[str, Figures], seconds: float
) -> Iterator[tuple[str, Callable[[], list[Duel]]]]:
    """What each is called, and what does it. `seen` is what the rows have shown in this run."""
    ours = {row.name: row for row in rows if row.ours and row.name in seen}
    crowded = [ours[name] for name in CROWDED if name in ours]
    for way, words in WAYS.items():
        for of in CROWDS:
            peer = best(rows, seen, way, of)
            if peer is not None and crowded:
                yield (
                    f"{of} processes{words}, in turns with {peer.name}",
                    partial(crowd, crowded, peer, way, of, seconds),
                )
    for name in PARKED if two_cores() else ():
        if name in ours:
            yield f"{name}: parked, in turns with a bare message", partial(parked, ours[name], seconds)


def how_many(rows: Sequence[Row]) -> int:
    """How many there will be, if nothing fails."""
    ours = {row.name for row in rows if row.ours}
    crowded = bool(ours.intersection(CROWDED)) and any(row.networked and not row.ours for row in rows)
    return crowded * len(WAYS) * len(CROWDS) + bool(two_cores()) * len(ours.intersection(PARKED))


def best(rows: Sequence[Row], seen: Mapping[str, Figures], way: str, of: int) -> Row | None:
    """The networked peer whose owner changed most often."""
    found = {
        row.name: getattr(seen[row.name], way)[of].owner_changes_a_second
        for row in rows
        if row.networked and not row.ours and row.name in seen and of in getattr(seen[row.name], way)
    }
    return next((row for row in rows if found and row.name == max(found, key=found.__getitem__)), None)


def crowd(ours: Sequence[Row], peer: Row, way: str, of: int, seconds: float) -> list[Duel]:
    rounds: dict[str, list[Contended]] = {row.name: [] for row in (*ours, peer)}
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place, STARTERS[peer.server](Path(place)) as address:
        if peer.warm_up_s:
            play(peer, "contended", of, peer.warm_up_s, address)
        for number in range(ROUNDS):
            order = (peer, *ours) if number % 2 else (*ours[::-1], peer)
            for row in order:
                told = play(row, "contended", of, seconds, address if row is peer else "", start=STARTED[way])
                rounds[row.name].append(contended(told))
    return [
        Duel(
            row.name, peer.name, way, of,
            tuple(
                mine.owner_changes_a_second / max(1.0, theirs.owner_changes_a_second)
                for mine, theirs in zip(rounds[row.name], rounds[peer.name], strict=True)
            ),
            tuple(each.fairness for each in rounds[row.name]),
            max(each.lost_updates for each in rounds[row.name]),
        )
        for row in ours
    ]  # fmt: skip


def parked(row: Row, seconds: float) -> list[Duel]:
    """Each process on a core of its own; the bare message just before and just after."""
    two, ratios = two_cores(), list[float]()
    before = idle_us(row.loop, seconds / 2, two)
    for _ in range(ROUNDS):
        times = [time for told in play(row, "parked", 2, seconds, cores=two) for time in told["times"]]
        after = idle_us(row.loop, seconds / 2, two)
        if len(times) >= ENOUGH:
            ratios.append(percentile(times, 0.5) * 1e6 / statistics.mean((before, after)))
        before = after
    return [Duel(row.name, "a bare message", "parked", 2, tuple(ratios))] if ratios else []
