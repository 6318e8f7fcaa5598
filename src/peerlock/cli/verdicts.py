"""`peerlock verdicts`: the table of verdicts in the documentation."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer

from peerlock.check.verdicts import Configuration, Verdict, configurations, explore
from peerlock.cli.app import app, check_output, progress, save
from peerlock.contract import Node


@app.command()
def verdicts(
    out: Annotated[Path | None, typer.Option(help="Write the table to this file, FILE.md.")] = None,
    entries: Annotated[int, typer.Option(help="How often each of three nodes enters.", min=1)] = 2,
    max_states: Annotated[int, typer.Option(help="States of one exploration at the most.")] = 60_000_000,
    max_seconds: Annotated[float, typer.Option(help="Seconds of one exploration at the most.")] = 300.0,
    processes: Annotated[int, typer.Option(help="So many explorations at once.", min=1)] = 2,
) -> None:
    """Explore every algorithm in its small configurations and print a table of verdicts: half an hour."""
    check_output(out, ".md")
    jobs = list(configurations(_graphs(), entries))
    found: dict[int, Verdict] = {}
    with ProcessPoolExecutor(processes, max_tasks_per_child=50) as pool:
        futures = {pool.submit(explore, job, max_states, max_seconds): at for at, job in enumerate(jobs)}
        for future in progress(as_completed(futures), "verdicts", len(jobs)):
            found[futures[future]] = future.result()
    text = _table(jobs, [found[at] for at in range(len(jobs))])
    if out:
        save(out, text)
    else:
        print(text, end="")


def _graphs() -> dict[str, dict[Node, tuple[Node, ...]]]:
    """The connected graphs of 4 and 5 nodes: 6 and 21 of them."""
    import networkx as nx
    from networkx.generators.atlas import graph_atlas_g

    return {
        graph.name: {node + 1: tuple(sorted(k + 1 for k in graph[node])) for node in graph}
        for graph in graph_atlas_g()
        if graph.number_of_nodes() in (4, 5) and nx.is_connected(graph)
    }


def _table(jobs: list[Configuration], results: list[Verdict]) -> str:
    """One row for all configurations of the same words: the worst verdict, and the sum of the states."""
    rows: dict[tuple[str, str, str, bool], list[Verdict]] = {}
    for verdict in results:
        rows.setdefault((verdict.name, verdict.form, verdict.what, verdict.fifo), []).append(verdict)
    lines = [
        "# Verdicts",
        "",
        "Made by `peerlock verdicts --out docs/reference/verdicts.md`. Every property that the algorithm must have, and the",
        "invariants of its paper; *holds* means in every reachable state of every start (nobody inside, each node inside).",
        "",
        "| algorithm | form | configuration | order | starts | states | transitions | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, form, what, fifo), found in rows.items():
        violated = sorted({verdict.violated for verdict in found if verdict.violated})
        unfinished = sum(not verdict.finished and not verdict.violated for verdict in found)
        words = f"**violated**: {', '.join(violated)}" if violated else "holds"
        if unfinished:
            words = f"unfinished in {unfinished} of {len(found)}" + ("" if not violated else f"; {words}")
        states, transitions = sum(v.states for v in found), sum(v.transitions for v in found)
        order = "fifo" if fifo else "any"
        lines.append(f"| {name} | {form} | {what} | {order} | {len(found)} | {states:,} | {transitions:,} | {words} |")
    return "\n".join(lines) + "\n"
