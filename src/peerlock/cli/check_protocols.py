"""`peerlock check-views` and `check-registries`: the protocols of the lock, in every interleaving."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from peerlock.cli.app import app, console, print_json
from peerlock.cli.progress import bar

MOST = 200_000_000  # states of one search


@app.command("check-views")
def check_views(
    algorithm: Annotated[str | None, typer.Option("-a", "--algorithm", help="One algorithm; else a few.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Larger groups and more changes: minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explore the view change in every interleaving, then again with each of its rules taken away.

    Three nodes, two changes of the view: crashes, joins, leaves, a stopped
    member that is excluded and comes back.

    With all rules no two nodes are ever inside together, and no node waits for
    ever. Without any one of them two nodes are, or one does.
    """
    from peerlock.algorithms import choose
    from peerlock.check.protocols.view_change import CLEAN, DEEP, explore
    from peerlock.check.protocols.view_mutants import MUTANTS
    from peerlock.node.wire_algorithms import wire_algorithm

    if algorithm is not None:
        wire_algorithm(algorithm)
    rows: list[dict[str, Any]] = []
    settings = [*CLEAN, *(DEEP if deep else [])]
    with bar("groups", len(settings) + len(MUTANTS)) as advance:
        for name, group in settings:
            spec = choose(algorithm) if algorithm else group.algorithm
            rows.append(_explored(name, explore, group.with_algorithm(spec)))
            advance(1)
        for mutant in MUTANTS:
            rows.append({**_explored(f"without: {mutant.rule}", explore, mutant.group), "mutant": True})
            advance(1)
    _verdict(rows, json)


@app.command("check-registries")
def check_registries(
    deep: Annotated[bool, typer.Option("--deep", help="More ballots at once: ten minutes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explore the voters and the store of a group in every interleaving, then again with each of
    their rules taken away.

    Three voters and up to three ballots; letters that are late, come twice or
    never; voters that are restarted, replaced or dead; leases and promises.

    With all rules there is one view an epoch, nobody believes whom a view leaves
    out, and a decision can always be reached while a majority is up.
    """
    from peerlock.check.protocols.all import CLEAN, DEEP, MUTANTS, explore

    rows: list[dict[str, Any]] = []
    settings = [*CLEAN, *(DEEP if deep else [])]
    with bar("groups", len(settings) + len(MUTANTS)) as advance:
        for what in (*settings, *MUTANTS):
            outcome, found = explore(what, MOST)
            row: dict[str, Any] = {
                "name": what.name, "states": outcome.states, "depth": outcome.depth, "finished": outcome.finished,
                "violated": found, "seconds": round(outcome.seconds, 1),
            }  # fmt: skip
            rows.append(row)
            if what in MUTANTS:
                rows[-1] |= {"name": f"without: {what.name}", "mutant": True}
            advance(1)
    _verdict(rows, json)


def _verdict(rows: list[dict[str, Any]], json: bool) -> None:
    bad = [row["name"] for row in rows if (row["violated"] is None) == ("mutant" in row)]
    unfinished = [row["name"] for row in rows if row["violated"] is None and not row["finished"]]
    if json:
        print_json({"rows": rows, "as_expected": not bad and not unfinished})
    else:
        algorithms = "algorithm" in rows[0]
        table = Table("group", *(["algorithm"] if algorithms else []), "states", "found")
        for row in rows:
            found = (
                row.get("found")
                or row["violated"]
                or ("nothing, complete" if row["finished"] else "nothing, unfinished")
            )
            table.add_row(row["name"], *([row["algorithm"]] if algorithms else []), f"{row['states']:,}", found)
        console().print(table)
        if bad:
            console().print(f"Not as it must be: {', '.join(bad)}")
        elif unfinished:
            console().print(f"Nothing was found, but {MOST:,} states were not all there are: {', '.join(unfinished)}")
        else:
            console().print("As it must be.")
    if bad or unfinished:
        raise typer.Exit(1 if bad else 3)


def _explored(name: str, explore: Any, group: Any) -> dict[str, Any]:
    from peerlock.check.properties import finding

    _, outcome, verdicts = explore(group, MOST)
    never = [prop for prop, verdict in verdicts.items() if verdict == "violated"]
    violated = outcome.violated or (never[0] if never and outcome.finished else None)
    return {
        "name": name, "algorithm": group.algorithm.name, "states": outcome.states, "depth": outcome.depth,
        "finished": outcome.finished, "violated": violated, "found": finding(violated) if violated else None,
        "seconds": round(outcome.seconds, 1),
    }  # fmt: skip
