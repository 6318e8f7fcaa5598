"""`peerlock bench`: measurements, as ratios within one run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.table import Table

from peerlock.cli.app import app, console, print_json, progress

bench = typer.Typer(help="Measure, beside something else, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("sim")
def bench_sim(
    runs: Annotated[int, typer.Option(help="How often each program runs; the median counts.")] = 3,
    messages: Annotated[int, typer.Option(help="Messages a run.")] = 200_000,
    nodes: Annotated[int, typer.Option(help="The size of the large runs; 0 leaves them out.")] = 1000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Messages simulated a second, beside SimPy and a bare heap; then a thousand nodes at once."""
    from peerlock.bench import sim

    measured = list(progress(sim.speeds(runs, messages), "speed", runs * len(sim.PROGRAMS)))
    speed = sim.medians(measured)
    large = {}
    if nodes:
        for name, row in progress(sim.large(nodes), f"{nodes} nodes", len(sim.FORMULAS)):
            large[name] = row
            print(f"peerlock: {name}: {row['messages']:,} messages in {row['seconds']:.1f} s", file=sys.stderr)
    ours = speed["peerlock"]
    result = {
        "messages_per_second": speed,
        "over_simpy": ours / speed["SimPy 4"],
        "over_heapq": ours / speed["heapq"],
        "over_heapq_inlined": ours / speed["heapq, inlined"],
        "nodes": nodes,
        "large": large,
    }
    if json:
        print_json(result)
        return
    table = Table(
        "program",
        "messages a second",
        "peerlock is",
        title=f"Suzuki-Kasami A, {sim.NODES} nodes, median of {runs} runs",
    )
    for name, value in speed.items():
        table.add_row(name, f"{value:,.0f}", "" if name == "peerlock" else f"{ours / value:.2f} times as fast")
    console().print(table)
    if large:
        table = Table(
            "algorithm",
            "messages",
            "formula",
            "equal",
            "seconds",
            title=f"{nodes} nodes, one entry each, all at time 0",
        )
        for name, row in large.items():
            good = row["messages"] == row["expected"] and row["entries"] == nodes and not row["violations"]
            table.add_row(
                name,
                f"{row['messages']:,}",
                f"{row['formula']} = {row['expected']:,}",
                "yes" if good else "NO",
                f"{row['seconds']:.1f}",
            )
        console().print(table)
