"""What happened, as a picture: who believed to hold the lock when, and what was done to whom."""

from __future__ import annotations

from pathlib import Path

from peerlock.verify.history import Belief

NARROW_S = 0.03  # a hold that is shorter is drawn as long as that


def timeline(held: list[Belief], faults: list[tuple[float, str, str]], out: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    nodes = sorted({belief.node for belief in held})
    kinds = sorted({kind for _, kind, _ in faults})
    start = min([belief.start for belief in held] + [when for when, _, _ in faults], default=0.0)
    end = max([belief.start for belief in held] + [when for when, _, _ in faults], default=1.0)
    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(min(40.0, 8 + (end - start) / 15), 1.6 + 0.32 * (len(nodes) + len(kinds))),
        height_ratios=[max(1, len(nodes)), max(1, len(kinds))],
    )  # fmt: skip
    colours = {
        "released": "tab:blue",
        "lost": "tab:orange",
        "lease": "tab:orange",
        "died": "tab:red",
        "left": "tab:blue",
    }
    for row, node in enumerate(nodes):
        for why, colour in colours.items():
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
    for why, colour in (
        ("held and released", "tab:blue"),
        ("held until it was lost", "tab:orange"),
        ("killed", "tab:red"),
    ):
        above.barh([0], [0], color=colour, label=why)
    above.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    for row, kind in enumerate(kinds):
        times = [when - start for when, what, _ in faults if what == kind]
        below.plot(times, [row] * len(times), "|", markersize=9, color="black")
    below.set_yticks(range(len(kinds)), kinds)
    below.set_ylim(-0.7, len(kinds) - 0.3)
    below.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(out, dpi=90)
    pyplot.close(figure)


def sketch(held: list[Belief], faults: list[tuple[float, str, str]], width: int = 72) -> list[str]:
    """The same in characters: a line a node, a column a while; # held, o it was lost, x killed; and the faults below."""
    if not held:
        return []
    start = min(belief.start for belief in held)
    end = max([belief.start for belief in held] + [when for when, _, _ in faults])
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
    for when, _, _ in faults:
        row[min(width - 1, max(0, int((when - start) / step)))] = "^"
    return [*lines, f"{'faults':>10} {''.join(row)}"]
