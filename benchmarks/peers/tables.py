"""The comparison as tables for a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.peers.curves import Curves
from benchmarks.peers.figures import CROWDS, WAYS, Comparison, Contended


def _us(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


class Rounds(NamedTuple):
    """All rounds of all runs in which a row was in turns with the same other at the same."""

    row: str
    peer: str
    scene: str
    ratios: list[float]
    mine: list[float]
    theirs: list[float]
    fairness: list[float]

    def cells(self, shown: Callable[[float], str]) -> list[str]:
        rates = [shown(statistics.median(values)) for values in (self.mine, self.theirs)]
        fairness = f"{statistics.median(self.fairness):.2f}" if self.fairness else ""
        spread = (min(self.ratios), statistics.median(self.ratios), max(self.ratios))
        return [self.row, self.peer, self.scene, *rates, *(f"{value:.2f}" for value in spread), fairness]


IN_TURNS = (
    "",
    "in turns with",
    "scene",
    "changes/s (parked: us)",
    "the other",
    "lowest ratio",
    "median",
    "highest",
    "fairness",
)


def rounds(found: Comparison) -> list[Rounds]:
    every: dict[tuple[str, str, str], Rounds] = {}
    for duel in found.duels:
        scene = "parked" if duel.way == "parked" else f"{duel.of} processes{WAYS[duel.way]}"
        key = duel.row, duel.peer, scene
        of_all = every.setdefault(key, Rounds(*key, [], [], [], []))
        of_all.ratios.extend(duel.ratios)
        of_all.mine.extend(duel.mine)
        of_all.theirs.extend(duel.theirs)
        of_all.fairness.extend(duel.fairness)
    return sorted(every.values(), key=lambda each: each.scene)


def shown(found: Comparison) -> Iterator[Any]:
    medians = f"median of {found.runs} runs, {found.seconds:g} s a scene" if found.runs > 1 else "one run"
    table = Table(
        "microseconds", "uncontended", "99 %", "x asyncio.Lock", "parked", "99 %", "two cores", "first touch", "alternations/s",
        title=f"one or two at a time; {medians}",
    )  # fmt: skip
    for name, row in found.rows.items():
        over = "-" if row.over_asyncio_lock is None else f"{row.over_asyncio_lock:,.2f}"
        table.add_row(
            name, _us(row.uncontended_us), _us(row.uncontended_99_us), over, _us(row.parked_us), _us(row.parked_99_us),
            _us(row.parked_two_cores_us), _us(row.first_touch_us), _rate(row.alternations_a_second),
        )  # fmt: skip
    yield _justified(table)
    for way, of in ((way, of) for way in WAYS for of in CROWDS):
        table = Table(
            "", "owner changes/s", "grants/s", "wait us", "99 %", "fairness", "lost", "messages", "CPU us",
            title=f"{of} processes{WAYS[way]} that all want it all the time; messages and CPU of the clients an entry",
        )  # fmt: skip
        for name, row in found.rows.items():
            crowds: dict[int, Contended] = getattr(row, way)
            if of in crowds:
                each = crowds[of]
                table.add_row(
                    name, _rate(each.owner_changes_a_second), _rate(each.grants_a_second), _us(each.wait_us),
                    _us(each.wait_99_us), f"{each.fairness:.2f}", f"{each.lost_updates:.0f}",
                    f"{each.messages_an_entry:.2f}" if each.messages_an_entry else "-", _us(each.cpu_us_an_entry),
                )  # fmt: skip
        if table.row_count:
            yield _justified(table)
    table = Table("a bare message, one way", "cores", "hot us", "after 2 ms us", title="the floor")
    for ground in found.floor:
        table.add_row(ground.loop, ground.cores, _us(ground.hot_us), _us(ground.idle_us))
    yield _justified(table)
    if found.duels:
        table = Table(*IN_TURNS, title="duels")
        for turns in rounds(found):
            table.add_row(*turns.cells(_us))
        yield _justified(table)
    if found.targets:
        table = Table("target", "bound", "here", "runs", "", title="targets")
        for target in found.targets:
            runs = ", ".join(f"{value:,.2f}" for value in sorted(target.of_runs)) if len(target.of_runs) > 1 else ""
            verdict = "met" if target.met else "MISSED"
            table.add_row(target.words, f"{target.bound:g}", f"{target.value:,.2f}", runs, verdict)
        yield _justified(table)
    for name, command in found.skipped.items():
        yield f"{name} is not here: {command}"
    for name, why in found.failed.items():
        yield f"{name} failed in a run: {why}"


def _justified(table: Table) -> Table:
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def shown_curves(found: Curves) -> Iterator[Any]:
    table = Table(
        "algorithm", "members", "owner changes/s", "messages per change", "formula", "CPU us per change", "fairness", "lost",
        title="processes that all want one lock all the time",
    )  # fmt: skip
    for point in found.members:
        table.add_row(
            point.algorithm, str(point.nodes), _rate(point.owner_changes_a_second), f"{point.messages_a_change:.2f}",
            str(point.formula), _us(point.cpu_us_a_change), f"{point.fairness:.2f}", f"{point.lost_updates:.0f}",
        )  # fmt: skip
    yield _justified(table)
    table = Table("names", "entry us", title="one process, one name after the other")
    for name in found.names:
        table.add_row(f"{name.names:,}", _us(name.entry_us))
    yield _justified(table)
    table = Table(
        "waiters", "grants/s", "owner changes/s", "wait us", "99 %", title="so many tasks in each of two processes"
    )
    for wait in found.waiters:
        table.add_row(
            f"{wait.waiters:,}", _rate(wait.grants_a_second), _rate(wait.owner_changes_a_second), _us(wait.wait_us),
            _us(wait.wait_99_us),
        )  # fmt: skip
    yield _justified(table)
    table = Table("registry", "uncontended us", "owner changes/s", "parked us", title="three processes")
    for kind in found.kinds:
        table.add_row(kind.registry, _us(kind.uncontended_us), _rate(kind.owner_changes_a_second), _us(kind.parked_us))
    yield _justified(table)
    for kind_name, command in found.skipped.items():
        yield f"{kind_name} was left out: {command}"
