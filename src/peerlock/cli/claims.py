"""`peerlock claims`: what the papers claim, computed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer
from rich.table import Column, Table

from peerlock.claims.evidence import Evidence, Finding
from peerlock.claims.registry import PAPERS, Claim
from peerlock.cli.app import AsJsonList, app, console, print_json
from peerlock.cli.progress import progress
from peerlock.errors import UsageError

Json: TypeAlias = "str | float | bool | list[Json] | dict[str, Json] | None"
COLOUR = {"holds": "green", "holds only if": "yellow", "fails as printed": "bold red"}


@app.command()
def claims(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Only these claims, like SK-B-ME or ALL-ME.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small explorations, few seeds: under two minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Large explorations, many seeds: under half an hour.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only list the claims.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write a report into this directory, one page per paper.")] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Fill in the tables of claims in the pages of this directory.", hidden=True)
    ] = None,
    processes: Annotated[int, typer.Option(help="How many claims are tested at once.", min=1)] = 2,
    json: AsJsonList = False,
) -> None:
    """Test every claim of the papers by exploration, simulation and construction, and say which
    claims hold.
    """
    from peerlock.claims.catalogue import examine, select

    if quick and full:
        raise UsageError("--quick and --full exclude each other.")
    for directory in (out, docs):
        if directory is not None and directory.exists() and not directory.is_dir():
            raise UsageError(f"{directory} is a file; give the name of a directory.")
    chosen = select(ids or [])
    if list_:
        _list(chosen, json)
        return
    found = list(progress(examine(chosen, full=full, processes=processes), "claims", len(chosen)))
    if out is not None:
        from peerlock.claims.report import write

        write(out, found, full=full)
    if docs is not None:
        from peerlock.claims.report import fill_in

        fill_in(docs, found, full=full)
    if json:
        print_json([as_json(claim, finding) for claim, finding in found])
    else:
        _show(found)
        if out is not None:
            print(f"The report is in {out}: begin with {out / 'index.html'}.")


def as_json(claim: Claim, finding: Finding) -> dict[str, Json]:
    """A finding without drawings; the same every time."""
    return {
        "id": claim.id,
        "paper": PAPERS[claim.paper],
        "claim": claim.words,
        "verdict": finding.verdict,
        "condition": finding.condition,
        "repair": finding.repair,
        "repair_checked": finding.repair_checked,
        "evidence": [_plain(one) for one in finding.evidence],
        "counterexample": finding.counterexample,
    }


def _plain(one: Evidence) -> dict[str, Json]:
    found: dict[str, Json] = msgspec.to_builtins(one, str_keys=True)
    found.pop("drawing", None)
    return {"role": one.role, **found}


def _list(chosen: list[Claim], json: bool) -> None:
    if json:
        print_json([{"id": one.id, "paper": PAPERS[one.paper], "claim": one.words} for one in chosen])
        return
    table = Table(Column("id", no_wrap=True), "paper", "claim")
    for one in chosen:
        table.add_row(one.id, PAPERS[one.paper], one.words)
    console().print(table)


def strength(finding: Finding) -> str:
    """The kinds of evidence behind the verdict, with the numbers of states and seeds."""
    counted = [one for one in finding.evidence if one.role == "as claimed"]
    if finding.verdict != "holds":
        counted = [one for one in finding.evidence if one.role != "as claimed"] or counted
    kinds = list(dict.fromkeys(one.kind for one in counted))
    states = sum(one.states for one in finding.evidence)
    seeds = sum(one.seeds for one in finding.evidence)
    words = [*([f"{states:,} states"] if states else []), *([f"{seeds:,} seeds"] if seeds else [])]
    return f"{' and '.join(kinds)}{': ' if words else ''}{', '.join(words)}"


def _show(found: list[tuple[Claim, Finding]]) -> None:
    table = Table(Column("id", no_wrap=True), Column("verdict", no_wrap=True), "condition, or repair", "evidence")
    for claim, finding in found:
        table.add_row(claim.id, f"[{COLOUR[finding.verdict]}]{finding.verdict}[/]", finding.words, strength(finding))
    out = console()
    out.print(table)
    counts = {verdict: sum(finding.verdict == verdict for _, finding in found) for verdict in COLOUR}
    out.print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
