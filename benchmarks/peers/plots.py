"""The comparison as a picture: three bars a row, on scales that multiply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.curves import Curves
from benchmarks.peers.drivers import ROWS
from benchmarks.peers.figures import Comparison, Figures

OURS, OTHERS = "#2a6fb0", "#9aa3ad"


def figure_of(width: float, height: float, columns: int) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "peerlock"  # equal figures, equal files
    from matplotlib import pyplot as plt

    return plt.subplots(1, columns, figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def draw(found: Comparison, path: Path) -> None:
    names = list(found.rows)[::-1]
    ours = {row.name for row in ROWS if row.ours}
    figure, axes = figure_of(14, 1.5 + 0.34 * len(names), 3)
    panels: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
        ("uncontended entry, us: less is better", lambda row: row.uncontended_us),
        ("3 processes, owner changes a second: more is better",
         lambda row: row.contended[3].owner_changes_a_second if 3 in row.contended else None),
        ("hand-over to a parked waiter, us: less is better", lambda row: row.parked_us),
    )  # fmt: skip
    for axis, (title, value) in zip(axes, panels, strict=True):
        values = [value(found.rows[name]) for name in names]
        bars = axis.barh(names, [each or 0.0 for each in values], color=[OURS if n in ours else OTHERS for n in names])
        words = ["" if each is None else f" {each:,.0f}" if each >= 10 else f" {each:.2f}" for each in values]
        axis.bar_label(bars, words, fontsize=8)
        axis.set_xscale("log")
        axis.set_xlim(left=min((each for each in values if each), default=1.0) / 3)
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
        if axis is not axes[0]:
            axis.set_yticklabels([])
    save(figure, path)


def draw_curves(found: Curves, path: Path) -> None:
    figure, axes = figure_of(15, 4, 4)
    for algorithm in dict.fromkeys(point.algorithm for point in found.members):
        points = [point for point in found.members if point.algorithm == algorithm]
        nodes = [point.nodes for point in points]
        axes[0].plot(nodes, [point.messages_a_change for point in points], "o-", label=algorithm)
        axes[0].plot(nodes, [point.formula for point in points], "k:", linewidth=1)
        axes[1].plot(nodes, [point.cpu_us_a_change for point in points], "o-", label=algorithm)
    axes[0].set(title="messages an owner change\n(dotted: the paper's formula)", xlabel="members")
    axes[1].set(title="CPU an owner change, us, all processes", xlabel="members")
    axes[2].plot([name.names for name in found.names], [name.entry_us for name in found.names], "o-")
    axes[2].set(title="an entry nobody competes for, us", xlabel="names in use", xscale="log")
    axes[3].plot([wait.waiters for wait in found.waiters], [wait.grants_a_second for wait in found.waiters], "o-")
    axes[3].set(title="grants a second", xlabel="waiting tasks in each of two processes", xscale="log")
    for axis in axes:
        axis.set_ylim(0, None)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8)
    save(figure, path)
