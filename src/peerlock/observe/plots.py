"""Plots of figures. matplotlib is imported when a plot is drawn, not before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The figures of one algorithm, as `peerlock compare --json` prints them; `x` is nodes or think
# time.
Row: TypeAlias = Mapping[str, Any]

_PANELS: tuple[tuple[str, Callable[[Row], float | None]], ...] = (
    ("messages an entry", lambda row: row["messages_per_entry"]["mean"]),
    ("waiting time, median", lambda row: row["wait"]["p50"]),
    ("entries a unit of time", lambda row: row["throughput"]),
)


def use_files() -> None:
    """Plots go to files, and equal figures give equal files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "peerlock"


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A picture without curves."""
    use_files()
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path, dpi: float | None = None) -> None:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=dpi or "figure", metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def compare_plot(against_n: Sequence[Row], against_load: Sequence[Row], nodes: int, path: Path) -> None:
    """Messages, waiting time and throughput, against N (above) and against load (below)."""
    use_files()
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row["algorithm"] for row in against_n))
    colours = plt.get_cmap("tab20")
    figure, axes = plt.subplots(2, 3, figsize=(14, 8.5), layout="constrained")
    rows = ((against_n, "nodes", "closed loop"), (against_load, "think time: heavy load to light", f"{nodes} nodes"))
    for line, (figures, x_words, title) in zip(axes, rows, strict=True):
        for axis, (words, value) in zip(line, _PANELS, strict=True):
            for at, name in enumerate(names):
                points = [(row["x"], value(row)) for row in figures if row["algorithm"] == name]
                x, y = [p[0] for p in points], [p[1] for p in points]
                style = "--" if at % 2 else "-"
                axis.plot(x, y, style, marker="o", markersize=3, color=colours(at % 20), label=name)
            if "think" in x_words:
                axis.set_xscale("symlog", linthresh=1)
            axis.set(xlabel=x_words, title=f"{words} ({title})", ylim=(0, None))
            axis.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    save(figure, path, dpi=120)
