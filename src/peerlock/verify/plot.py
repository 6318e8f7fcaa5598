"""A run as a picture: which process believed that it held the lock when, and the faults below."""

from __future__ import annotations

from pathlib import Path

from peerlock.verify.history import Belief
from peerlock.verify.plan import Fault

NARROW_S = 0.03  # shorter holds are drawn as long as this
COLOURS = {"released": "tab:blue", "left": "tab:blue", "lost": "tab:orange", "lease": "tab:orange", "died": "tab:red"}
LEGEND = {"held and released": "tab:blue", "held until it was lost": "tab:orange", "killed": "tab:red"}


def timeline(held: list[Belief], faults: list[Fault], out: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    nodes = sorted({belief.node for belief in held})
    kinds = sorted({fault.kind for fault in faults})
    times = [belief.start for belief in held] + [fault.when for fault in faults]
    start, end = min(times, default=0.0), max(times, default=1.0)
    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(min(40.0, 8 + (end - start) / 15), 1.6 + 0.32 * (len(nodes) + len(kinds))),
        height_ratios=[max(1, len(nodes)), max(1, len(kinds))],
    )  # fmt: skip
    for row, node in enumerate(nodes):
        for why, colour in COLOURS.items():
            spans = [
                (belief.start - start, max(NARROW_S, min(belief.end, end + 1) - belief.start))
                for belief in held
                if belief.node == node and belief.why == why
            ]
            if spans:
                above.broken_barh(spans, (row - 0.4, 0.8), facecolors=colour, linewidth=0)
    above.set_yticks(range(len(nodes)), nodes)
    above.invert_yaxis()
    above.set_title(title)
    for words, colour in LEGEND.items():
        above.barh([0], [0], color=colour, label=words)
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    for row, kind in enumerate(kinds):
        times = [fault.when - start for fault in faults if fault.kind == kind]
        below.plot(times, [row] * len(times), "|", markersize=9, color="black")
    below.set_yticks(range(len(kinds)), kinds)
    below.set_ylim(-0.7, len(kinds) - 0.3)
    below.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(out, dpi=90)
    pyplot.close(figure)


def sketch(held: list[Belief], faults: list[Fault], width: int = 72) -> list[str]:
    """The same in characters, one line per node: # held, o lost, x killed; and the faults below."""
    if not held:
        return []
    start = min(belief.start for belief in held)
    end = max([belief.start for belief in held] + [fault.when for fault in faults])
    step = max(1e-9, (end - start) / width)
    lines = []
    for node in sorted({belief.node for belief in held}):
        row = [" "] * width
        for belief in held:
            if belief.node == node:
                at = min(width - 1, int((belief.start - start) / step))
                mark = {"died": "x", "lost": "o", "lease": "o"}.get(belief.why, "#")
                row[at] = mark if row[at] in " #" else row[at]
        lines.append(f"{node:>10} {''.join(row)}")
    row = [" "] * width
    for fault in faults:
        row[min(width - 1, max(0, int((fault.when - start) / step)))] = "^"
    return [*lines, f"{'faults':>10} {''.join(row)}"]
