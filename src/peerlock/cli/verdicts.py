"""`peerlock verdicts`: the table of verdicts in the documentation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from peerlock.check.verdicts import Verdict, configurations, explore
from peerlock.cli.app import app, check_output, save
from peerlock.cli.progress import progress
from peerlock.contract import NodeId
from peerlock.parallel import spread


@app.command()
def verdicts(
    out: Annotated[Path | None, typer.Option(help="Write the table to this file, FILE.md.")] = None,
    entries: Annotated[int, typer.Option(help="How often each of three nodes enters.", min=1)] = 2,
    max_states: Annotated[int, typer.Option(help="States of one exploration at the most.")] = 200_000_000,
    max_seconds: Annotated[float, typer.Option(help="Seconds of one exploration at the most.")] = 600.0,
    processes: Annotated[int, typer.Option(help="So many explorations at once.", min=1)] = 2,
) -> None:
    """Check every algorithm in small groups and print a table of verdicts. Takes about half an hour."""
    check_output(out, ".md")
    jobs = list(configurations(_graphs(), entries))
    work = partial(explore, max_states=max_states, max_seconds=max_seconds)
    found = list(progress(spread(work, jobs, processes, lifetime=20), "verdicts", len(jobs)))
    text = _table(
        found, f"peerlock verdicts --entries {entries} --max-states {max_states} --max-seconds {max_seconds:g}"
    )
    if out:
        save(out, text)
    else:
        print(text, end="")


def _graphs() -> dict[str, dict[NodeId, tuple[NodeId, ...]]]:
    """The connected graphs of 4 and 5 nodes: 6 and 21 of them."""
    import networkx as nx
    from networkx.generators.atlas import graph_atlas_g

    return {
        graph.name: {node + 1: tuple(sorted(k + 1 for k in graph[node])) for node in graph}
        for graph in graph_atlas_g()
        if graph.number_of_nodes() in (4, 5) and nx.is_connected(graph)
    }


def _table(results: list[Verdict], command: str) -> str:
    """One row for all configurations of the same words: the worst verdict of each property, and the
    sum of the states.
    """
    rows: dict[tuple[str, str, str, bool], list[Verdict]] = {}
    for verdict in results:
        rows.setdefault((verdict.name, verdict.form, verdict.what, verdict.fifo), []).append(verdict)
    lines = [
        "# Verdicts",
        "",
        f"Made by `{command}`. *Holds* means: in every reachable state of every start (nobody inside, each node inside,",
        "and every set of readers where there are any), every property that the algorithm must have, the invariants of its",
        "paper, and the *sometimes* properties which show that there was something to see. The numbers say which:",
        "",
        *[f"{number}. {name}" for name, number in _numbered(results).items()],
        "",
        "| algorithm | form | configuration | order | starts | states | transitions | verdict | figures |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, form, what, fifo), found in rows.items():
        states, transitions = sum(v.states for v in found), sum(v.transitions for v in found)
        order, figures = "fifo" if fifo else "any", sorted({figure for v in found for figure in v.figures})
        words = _words(found, _numbered(results))
        lines.append(
            f"| {name} | {form} | {what} | {order} | {len(found)} | {states:,} | {transitions:,} | {words} | "
            f"{', '.join(map(str, figures))} |"
        )
    return "\n".join(lines) + "\n"


def _numbered(results: list[Verdict]) -> dict[str, int]:
    names: dict[str, None] = {}
    for verdict in results:
        names |= dict.fromkeys(verdict.properties)
    return {name: number for number, name in enumerate(names, 1)}


def _words(found: list[Verdict], numbered: dict[str, int]) -> str:
    """`holds (1, 2, 3)`, or what is violated."""
    violated = sorted({verdict.violated for verdict in found if verdict.violated})
    unfinished = sum(not verdict.finished and not verdict.violated for verdict in found)
    good = [name for name in numbered if all(verdict.properties.get(name) == "holds" for verdict in found)]
    words = (
        f"**violated**: {', '.join(violated)}" if violated else f"holds ({', '.join(str(numbered[n]) for n in good)})"
    )
    if unfinished:
        return f"unfinished in {unfinished} of {len(found)}" + (f"; {words}" if violated else "")
    return words
