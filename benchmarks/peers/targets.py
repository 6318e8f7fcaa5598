"""What this lock is meant to reach beside the others, and whether it does."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.peers.drivers import ROWS
from benchmarks.peers.figures import OURS, OURS_PLAIN, OURS_RING, WAYS, Duel, Figures, Target

AT_MOST = ("at most", "lost updates")  # how the words of such targets end


def over_runs(seen: Sequence[tuple[Mapping[str, Figures], Sequence[Duel]]]) -> list[Target]:
    """Each target is a ratio of things of one run; what counts is the median of these ratios."""
    of_runs: dict[str, list[Target]] = {}
    for rows, duels in seen:
        for target in targets(rows, duels):
            of_runs.setdefault(target.words, []).append(target)
    found = []
    for words, many in of_runs.items():
        values = [target.value for target in many]
        value = max(values) if words.endswith("lost updates") else statistics.median(values)
        found.append(_target(words, value, many[0].bound, tuple(values)))
    return found


def _target(words: str, value: float, bound: float, of_runs: tuple[float, ...] = ()) -> Target:
    return Target(words, value, bound, value <= bound if words.endswith(AT_MOST) else value >= bound, of_runs)


def targets(rows: Mapping[str, Figures], duels: Sequence[Duel]) -> list[Target]:
    """What this lock is meant to reach, as far as what it needs is there."""
    return [target for name in (OURS, OURS_RING, OURS_PLAIN) for target in _of_row(name, rows, duels)]


def _of_row(name: str, rows: Mapping[str, Figures], duels: Sequence[Duel]) -> Iterator[Target]:
    mine = rows.get(name)
    if mine is None:
        return
    peers = {row.name for row in ROWS if row.networked and not row.ours}
    others = [figures for other, figures in rows.items() if other in peers]
    if name != OURS_RING:
        yield from _alone(name, mine, others)
    fought = [duel for duel in duels if duel.row == name]
    for duel in fought:
        if not duel.aimed:
            continue
        middle = statistics.median(duel.ratios)
        if duel.way == "parked":
            # Whether two processes are on one core or on two makes more difference than anything else, and the kernel does
            # as it likes: so like is compared with like.
            words = f"{name}: hand-over to a parked waiter, over a bare message after idling (two cores), at most"
            yield _target(words, middle, 1.6)
            continue
        crowd = f"{name}: {duel.of} processes{WAYS[duel.way]}"
        words = f"{crowd}, owner changes over the best networked peer's, at least"
        yield _target(words, middle, 1.0 if name == OURS_PLAIN else 2.0)
        if duel.of == 3 and name != OURS_PLAIN:
            yield _target(f"{crowd}, fairness, at least", statistics.median(duel.fairness), 0.9)
    if mine.contended:
        lost = [each.lost_updates for each in (*mine.contended.values(), *mine.apart.values())]
        yield _target(f"{name}: lost updates", max(*lost, *(duel.lost_updates for duel in fought), 0.0), 0.0)


def _alone(name: str, mine: Figures, others: Sequence[Figures]) -> Iterator[Target]:
    if name == OURS and mine.over_asyncio_lock is not None:
        yield _target(f"{name}: uncontended, over asyncio.Lock, at most", mine.over_asyncio_lock, 2.0)
    quickest = min((other.uncontended_us for other in others if other.uncontended_us), default=None)
    if quickest is not None and mine.uncontended_us:
        words = f"{name}: uncontended, times as fast as the best networked peer, at least"
        yield _target(words, quickest / mine.uncontended_us, 50.0 if name == OURS else 1.0)
