"""`peerlock compare`: every algorithm on the same work."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from peerlock.algorithms import CATALOGUE
from peerlock.cli.app import app, check_output, console, numbers, print_json, short
from peerlock.cli.progress import progress
from peerlock.cli.sim import report
from peerlock.contract import Neighbours
from peerlock.observe.metrics import Metrics
from peerlock.observe.plots import compare_plot
from peerlock.sim.delays import parse as parse_delay
from peerlock.sim.experiment import Experiment
from peerlock.user_algorithm import find

# Nobody joins, leaves or dies in a comparison, so these two would only repeat their base.
LEFT_OUT = ("ricart-agrawala-dynamic", "ricart-agrawala-failures")


@app.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Which algorithms; if none is given, all but the two that are about nodes that come, go or die.",
        ),
    ] = None,
    nodes: Annotated[int, typer.Option("-n", "--nodes", help="How many nodes, in the table and against load.")] = 5,
    entries: Annotated[int, typer.Option(help="How often each node enters.")] = 20,
    load: Annotated[str, typer.Option(help="The load of the table; see peerlock sim --help.")] = "closed",
    delay: Annotated[str, typer.Option(help="How long messages take; see peerlock sim --help.")] = "uniform:0.5,1.5",
    hold: Annotated[str, typer.Option(help="How long a node stays inside.")] = "constant:0.1",
    seed: Annotated[str, typer.Option(help="The seeds that every figure is over.")] = "1..5",
    sizes: Annotated[str, typer.Option(help="The numbers of nodes in the plot.")] = "2,3,5,8,12,16",
    thinks: Annotated[
        str, typer.Option(help="The think times in the plot: from heavy load to light.")
    ] = "0,1,3,10,30,100",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw messages, waiting time and throughput: FILE.png or FILE.svg.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run every algorithm on the same work: messages, waiting time and throughput, against load and against N."""
    chosen = names or [name for name in CATALOGUE if name not in LEFT_OUT]
    unbounded = parse_delay(delay).bound is None
    for name in list(chosen):
        if find(name).needs.delay_bound and unbounded and not names:
            print(f"peerlock: note: {name} is left out: it needs a delay bound, and {delay} has none.", file=sys.stderr)
            chosen.remove(name)
    check_output(plot, ".png", ".svg")
    seeds = numbers(seed, "seed")
    many, times = numbers(sizes, "number of nodes"), numbers(thinks, "think time")
    base = {"entries": entries, "delay": delay, "hold": hold}
    jobs: list[tuple[str, float, dict[str, Any]]] = [("table", 0, {**base, "nodes": nodes, "load": load})]
    if plot:
        jobs += [("n", n, {**base, "nodes": n, "load": load}) for n in many]
        jobs += [("think", z, {**base, "nodes": nodes, "load": f"closed:{z}"}) for z in times]
    everything = [(name, *job) for job in jobs for name in chosen]
    rows: dict[str, list[dict[str, Any]]] = {"table": [], "n": [], "think": []}
    for name, what, x, settings in progress(everything, "compare", len(everything)):
        rows[what].append({"x": x, **_figures(name, seeds, settings)})
    if plot:
        compare_plot(rows["n"], rows["think"], nodes, plot)
    if json:
        print_json({"table": rows["table"], "against_n": rows["n"], "against_load": rows["think"]})
    else:
        console().print(_table(rows["table"], nodes, load, seeds))
        if "ricart-agrawala-rw" in chosen:
            console().print("Half of the entries of ricart-agrawala-rw only read, and readers share.")
        if plot:
            console().print(f"The plot is in {plot}.")


def _figures(name: str, seeds: list[int], settings: dict[str, Any]) -> dict[str, Any]:
    # On a complete network everybody can be compared; only the ring needs its ring.
    topology = "complete" if find(name).needs.shape is Neighbours else None
    prepared = Experiment(algorithm=name, topology=topology, **settings).prepare()
    runs: list[Metrics] = []
    stuck: dict[int, list[int]] = {}
    for seed in seeds:
        metrics = Metrics()
        with redirect_stdout(sys.stderr):
            left = prepared.run(seed, [metrics]).stuck()
        runs.append(metrics)
        if left:
            stuck[seed] = left
    return report(prepared, seeds, runs, stuck)


def _table(rows: list[dict[str, Any]], nodes: int, load: str, seeds: list[int]) -> Table:
    table = Table(
        "algorithm", "messages an entry", "claimed", "bytes", "wait p50", "wait p99", "exit to entry", "entries / time",
        title=f"{nodes} nodes, load {load}, {len(seeds)} seeds: the same work for all (one hop takes 1 on average)",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        claimed = row["claimed"]
        range_ = "-" if claimed["max"] is None else f"{claimed['min']} to {claimed['max']}"
        if claimed["max"] is not None and claimed["min"] == claimed["max"]:
            range_ = str(claimed["min"])
        wrong = row["violations"] or row["stuck"]
        table.add_row(
            row["algorithm"], short(row["messages_per_entry"]["mean"]), range_, short(row["bytes_per_entry"], 0),
            short(row["wait"]["p50"]), short(row["wait"]["p99"]), short(row["sync_delay"]["p50"]), short(row["throughput"], 3),
            style="bold red" if wrong else "",
        )  # fmt: skip
    return table
