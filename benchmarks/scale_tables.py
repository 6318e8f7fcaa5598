"""What `python -m benchmarks scale` prints and draws."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from rich.table import Table

from benchmarks.scale import KINDS, Point

BESIDE = "Redis BLPOP"


def middle(points: list[Point], kind: str, count: int, what: str) -> float | None:
    values = [getattr(point, what) for point in points if (point.kind, point.processes) == (kind, count)]
    return median(values) if values else None


def shown(points: list[Point]) -> Table:
    table = Table(
        "processes", "lock", "all in", "owner changes/s", f"/ {BESIDE}", "fairness", "CPU per change", "idle", "memory",
        "overlaps, lost, disorder",
    )  # fmt: skip
    for count in dict.fromkeys(point.processes for point in points):
        beside = middle(points, BESIDE, count, "changes")
        for kind in KINDS:
            if (changes := middle(points, kind, count, "changes")) is None:
                continue
            of = [point for point in points if (point.kind, point.processes) == (kind, count)]
            wrong = [
                sum(getattr(point, what) for point in of)
                for what in ("overlaps", "lost_updates", "fences_out_of_order")
            ]
            table.add_row(
                str(count), kind, f"{middle(points, kind, count, 'join_s'):.1f} s", f"{changes:,.0f}",
                f"{changes / beside:.2f}" if beside else "", f"{middle(points, kind, count, 'fairness'):.2f}",
                f"{middle(points, kind, count, 'cpu_us'):,.0f} us", f"{middle(points, kind, count, 'idle_percent'):.1f} %",
                f"{middle(points, kind, count, 'memory_mb'):.0f} MB", ", ".join(map(str, wrong)),
            )  # fmt: skip
    return table


def draw(points: list[Point], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4))
    left, right = figure.subplots(1, 2)
    for kind in KINDS:
        counts = sorted({point.processes for point in points if point.kind == kind})
        left.plot(counts, [middle(points, kind, count, "changes") for count in counts], marker="o", label=kind)
        right.plot(counts, [middle(points, kind, count, "join_s") for count in counts], marker="o", label=kind)
    for axes, what in ((left, "owner changes per second"), (right, "seconds until all processes are in")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("processes")
        axes.set_title(what)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path)
