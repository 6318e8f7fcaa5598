"""The report: one page a paper, as Markdown and as HTML, with the figures, curves and counterexamples.

The Markdown is made first; the HTML is the same text, rendered. Drawings are SVG files beside it. Nothing here decides
anything: a page says what a finding says.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peerlock.claims.lab import Evidence, Finding
from peerlock.claims.registry import PAPERS, Claim
from peerlock.errors import UsageError

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
    lines = [
        "# What the papers claim, computed",
        "",
        f"Made by `peerlock claims {'--full' if full else '--quick'}`. Every verdict is computed from the evidence beside it.",
        "",
        "| paper | holds | holds only if | fails as printed |",
        "|---|---|---|---|",
    ]
    for paper, part in pages.items():
        verdicts = [finding.verdict for _, finding in part]
        counts = " | ".join(str(verdicts.count(verdict)) for verdict in ("holds", "holds only if", "fails as printed"))
        lines.append(f"| [{PAPERS[paper]}]({paper}.md) | {counts} |")
    return "\n".join([*lines, ""])


def table(part: Found) -> list[str]:
    """The claims of a paper, one row each."""
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
    lines = [
        f"## {claim.id}",
        "",
        f"*{claim.words}*",
        "",
        f"**{finding.verdict}**" + (f": {finding.words}." if finding.words else "."),
    ]
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
        for key, value in one.figures.items():
            if "\n" in str(value):
                lines += [f"{key}:", "", "```text", str(value), "```", ""]
            curves = _curves(value)
            if curves:
                picture = f"{name}-{at}.svg"
                plot(directory / picture, curves, key, one.what)
                lines += [f"![{one.what}: {key}]({picture})", ""]
    if finding.counterexample:
        lines += ["Counterexample:", ""]
        if finding.drawing:
            (directory / f"{name}.svg").write_text(finding.drawing)
            lines += [f"![a run that shows it]({name}.svg)", ""]
        lines += ["```text", finding.counterexample.rstrip(), "```", ""]
    return lines


def _extent(one: Evidence) -> str:
    parts = [
        f"{one.configurations:,} configurations" if one.configurations else "",
        f"{one.states:,} states" if one.states else "",
        f"{one.seeds:,} seeds" if one.seeds else "",
    ]
    return ", ".join(part for part in parts if part)


def _figures(one: Evidence) -> str:
    shown = {key: value for key, value in one.figures.items() if value is not None and "\n" not in str(value)}
    return "; ".join(f"{key}: {_value(value)}" for key, value in shown.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _curves(value: Any) -> dict[str, dict[int, float]]:
    """What can be drawn as a curve: numbers, or least and most, by a number."""
    if not isinstance(value, dict) or len(value) < 5 or not all(isinstance(key, int) for key in value):
        return {}
    if all(isinstance(part, int | float) for part in value.values()):
        return {"": value} if len(set(value.values())) > 1 else {}
    if all(isinstance(part, list) and part for part in value.values()):
        return {
            "least": {key: min(part) for key, part in value.items()},
            "most": {key: max(part) for key, part in value.items()},
        }
    return {}


def plot(path: Path, curves: Mapping[str, Mapping[int, float]], words: str, title: str) -> None:
    """A small picture of one or two curves."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "peerlock"  # equal figures, equal files
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for name, points in curves.items():
        axis.plot(list(points), list(points.values()), marker="o", label=name)
    wide = max(max(points) for points in curves.values()) > 50
    axis.set(title=title, ylabel="", xlabel=words, ylim=(0, None), xscale="log" if wide else "linear")
    axis.title.set_fontsize(9)
    axis.grid(alpha=0.3)
    if len(curves) > 1:
        axis.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


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
