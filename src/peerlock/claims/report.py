"""The report on the claims: one page per paper, with curves and counterexamples.

The Markdown is made first; the HTML is the same text, rendered. Drawings are SVG files beside it. A
page repeats what the findings say and decides nothing.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from peerlock.claims.automata import Automaton
from peerlock.claims.evidence import Evidence, Figure, Finding, Verdict
from peerlock.claims.registry import PAPERS, Claim
from peerlock.errors import UsageError
from peerlock.observe.plots import blank, save

Found = Sequence[tuple[Claim, Finding]]
BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9em; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
th { background: var(--soft); }
td:first-child { overflow-wrap: normal; white-space: nowrap; }
pre { background: var(--soft); padding: 0.8rem; overflow-x: auto; font-size: 0.85em; }
img { max-width: 100%; background: white; }
h2 { border-top: 1px solid var(--line); padding-top: 1rem; margin-top: 2.5rem; }
"""


def write(directory: Path, found: Found, *, full: bool) -> None:
    """The whole report."""
    directory.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[tuple[Claim, Finding]]] = {}
    for claim, finding in found:
        pages.setdefault(claim.paper, []).append((claim, finding))
    _save(directory / "index", "What the papers claim, computed", _index(pages, full))
    for paper, part in pages.items():
        _save(directory / paper, PAPERS[paper], _page(directory, PAPERS[paper], part))


def _save(path: Path, title: str, markdown: str) -> None:
    from markdown_it import MarkdownIt

    path.with_suffix(".md").write_text(markdown)
    body = MarkdownIt("commonmark").enable("table").render(markdown.replace(".md)", ".html)"))
    path.with_suffix(".html").write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )


def _index(pages: Mapping[str, Found], full: bool) -> str:
    order = get_args(Verdict)
    lines = [
        "# What the papers claim, computed",
        "",
        f"Made by `peerlock claims {'--full' if full else '--quick'}`. Every verdict is computed from the evidence beside it.",
        "",
        f"| paper | {' | '.join(order)} |",
        "|---|---|---|---|",
    ]
    for paper, part in pages.items():
        verdicts = [finding.verdict for _, finding in part]
        lines.append(f"| [{PAPERS[paper]}]({paper}.md) | {' | '.join(str(verdicts.count(each)) for each in order)} |")
    return "\n".join([*lines, ""])


def table(part: Found) -> list[str]:
    """The claims of a paper, one row per claim."""
    lines = ["| id | claim | verdict | |", "|---|---|---|---|"]
    for claim, finding in part:
        lines.append(f"| {claim.id} | {_cell(claim.words)} | {finding.verdict} | {_cell(finding.words)} |")
    return lines


def _page(directory: Path, title: str, part: Found) -> str:
    lines = [f"# {title}: the claims", "", "[All papers](index.md)", "", *table(part), ""]
    for claim, finding in part:
        lines += _claim(directory, claim, finding)
    return "\n".join(lines)


def _claim(directory: Path, claim: Claim, finding: Finding) -> list[str]:
    words = f": {finding.words}" if finding.words else ""
    lines = [f"## {claim.id}", "", f"*{claim.words}*", "", f"**{finding.verdict}**{words}."]
    if finding.repair and finding.condition:
        lines.append(f"The repaired form was checked under a condition: {finding.condition}.")
    lines += ["", "| evidence | what | speaks | extent | figures |", "|---|---|---|---|---|"]
    for one in finding.evidence:
        speaks = "for it" if one.speaks_for else "against it"
        lines.append(
            f"| {one.kind}, {one.role} | {_cell(one.what)} | {speaks} | {_extent(one)} | {_cell(_figures(one))} |"
        )
    lines.append("")
    name = claim.id.replace(":", "-")
    for at, one in enumerate(finding.evidence):
        blocks = {key: value for key, value in one.figures.items() if _is_block(value)}
        for key, value in blocks.items():
            lines += [f"{key}:", "", "```text", str(value), "```", ""]
        curves = {name: points for key, value in one.figures.items() for name, points in _curves(key, value).items()}
        if curves:
            picture = f"{name}-{at}.svg"
            plot(directory / picture, curves, one.what)
            lines += [f"![{one.what}]({picture})", ""]
    if claim.id == "EWD-REGEX":
        lines += _automaton(directory)
    if finding.counterexample:
        lines += ["Counterexample:", ""]
        if finding.drawing:
            (directory / f"{name}.svg").write_text(finding.drawing)
            lines += [f"![a run that shows it]({name}.svg)", ""]
        lines += ["```text", finding.counterexample.rstrip(), "```", ""]
    return lines


def _automaton(directory: Path) -> list[str]:
    """A drawing of what was learned."""
    from peerlock.claims.dijkstra import language

    try:
        draw_automaton(directory / "EWD-REGEX-automaton.svg", language())
    except ValueError:
        return []  # nothing was learned, and the evidence says so
    return ["![the automaton: a double circle accepts](EWD-REGEX-automaton.svg)", ""]


def _is_block(value: Figure) -> bool:
    """Text that does not belong into a cell of a table."""
    return isinstance(value, str) and ("\n" in value or "*" in value)


def _extent(one: Evidence) -> str:
    counted = ((one.configurations, "configuration"), (one.states, "state"), (one.seeds, "seed"))
    return ", ".join(f"{count:,} {word}{'s' * (count > 1)}" for count, word in counted if count)


def _figures(one: Evidence) -> str:
    shown = {key: value for key, value in one.figures.items() if value is not None and not _is_block(value)}
    return "; ".join(f"{key}: {_value(value)}" for key, value in shown.items())


def _value(value: Figure) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _curves(key: str, value: Figure) -> dict[str, dict[int, float]]:
    """What can be drawn as a curve: numbers, or least and most, by a number."""
    if not isinstance(value, Mapping) or len(value) < 5:
        return {}
    numbers, several = dict[int, float](), dict[int, list[float]]()
    for x, y in value.items():
        if isinstance(x, int) and isinstance(y, int | float):
            numbers[x] = y
        elif isinstance(x, int) and isinstance(y, list) and y:
            several[x] = [point for point in y if isinstance(point, int | float)]
    if len(numbers) == len(value):
        return {key: numbers} if len(set(numbers.values())) > 1 else {}
    if len(several) == len(value) and all(several.values()):
        return {
            f"{name} {key}": {x: pick(some) for x, some in several.items()}
            for name, pick in (("least", min), ("most", max))
        }
    return {}


def plot(path: Path, curves: Mapping[str, Mapping[int, float]], title: str) -> None:
    """A small picture of some curves."""
    figure, axis = blank(6.5, 3.4)
    for at, (name, points) in enumerate(curves.items()):
        axis.plot(list(points), list(points.values()), "--" if at else "-", marker="x" if at else "o", label=name)
    wide = max(max(points) for points in curves.values()) > 50
    axis.set(
        title=title, ylim=(0, None), xscale="log" if wide else "linear", xlabel=next(iter(curves)).rpartition("by ")[2]
    )
    axis.title.set_fontsize(9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, path)


def draw_automaton(path: Path, automaton: Automaton) -> None:
    """States from left to right by their distance from the start; a double circle accepts."""
    from matplotlib.patches import Circle

    depth, queue = {0: 0}, [0]
    for state in queue:
        for _, target in automaton.following(state):
            if target not in depth:
                depth[target] = depth[state] + 1
                queue.append(target)
    rows: dict[int, list[int]] = {}
    for state in queue:
        rows.setdefault(depth[state], []).append(state)
    at = {
        state: (2.2 * d, 1.6 * (len(row) - 1) / 2 - 1.6 * i) for d, row in rows.items() for i, state in enumerate(row)
    }
    figure, axis = blank(11, 5)
    labels: dict[tuple[int, int], str] = {}
    for (source, letter), target in sorted(automaton.edges.items()):
        labels[source, target] = labels.get((source, target), "") + letter
    for (source, target), letters in labels.items():
        bend = 0.12 if at[target][0] > at[source][0] else 0.3
        style = {
            "arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 17, "shrinkB": 17,
            "mutation_scale": 14, "color": "0.4",
        }  # fmt: skip
        axis.annotate("", xy=at[target], xytext=at[source], arrowprops=style)
        (x, y), (u, v) = at[source], at[target]
        # Such a curve is farthest from its chord in the middle, by half of `bend` times its length.
        axis.text((x + u) / 2 + bend * (v - y) / 2, (y + v) / 2 - bend * (u - x) / 2, letters, ha="center", va="center",
                  fontsize=11, family="monospace", bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none"})  # fmt: skip
    for state, (x, y) in at.items():
        for radius in (0.3, 0.24) if state in automaton.accepting else (0.3,):
            axis.add_patch(Circle((x, y), radius, fc="white", ec="black", zorder=3))
        axis.text(x, y, str(state), ha="center", va="center", zorder=4, fontsize=9)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.margins(0.05)
    save(figure, path)


def fill_in(directory: Path, found: Found, *, full: bool) -> None:
    """Put the table of claims into the page of each paper, between its two marks."""
    for paper in dict.fromkeys(claim.paper for claim, _ in found):
        path = directory / f"{paper}.md"
        if not path.exists():
            continue
        text = path.read_text()
        if BEGIN not in text or END not in text:
            raise UsageError(f"{path} has no place for the claims: put {BEGIN} and {END} where they belong.")
        before, rest = text.split(BEGIN, 1)
        part = [(claim, finding) for claim, finding in found if claim.paper == paper]
        made = f"Made by `peerlock claims {'--full' if full else '--quick'}`; the evidence is in its report (`--out`)."
        path.write_text("\n".join([before + BEGIN, "", made, "", *table(part), "", END]) + rest.split(END, 1)[1])
