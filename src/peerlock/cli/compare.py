"""`peerlock compare`: every algorithm on the same work."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.table import Table

from peerlock.algorithms import CATALOGUE
from peerlock.cli.app import AsJson, app, check_output, console, numbers, print_json, short
from peerlock.cli.progress import progress
from peerlock.cli.sim import Report, report
from peerlock.contract import Neighbours
from peerlock.observe.metrics import Metrics
from peerlock.observe.plots import compare_plot
from peerlock.sim.delays import parse as parse_delay
from peerlock.sim.experiment import Experiment
from peerlock.user_algorithm import find

# No node joins, leaves or dies in a comparison, so these two would only repeat their base.
LEFT_OUT = ("ricart-agrawala-dynamic", "ricart-agrawala-failures")


@app.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Algorithms to compare. Default: all but the two about nodes that join, leave or die.",
        ),
    ] = None,
    nodes: Annotated[int, typer.Option("-n", "--nodes", help="Number of nodes, except against N.")] = 5,
    entries: Annotated[int, typer.Option(help="Entries per node.")] = 20,
    load: Annotated[str, typer.Option(help="The load of the table; see peerlock sim --help.")] = "closed",
    delay: Annotated[str, typer.Option(help="How long messages take; see peerlock sim --help.")] = "uniform:0.5,1.5",
    hold: Annotated[str, typer.Option(help="How long a node stays inside.")] = "constant:0.1",
    seed: Annotated[str, typer.Option(help="Seeds; each figure is over all of them.")] = "1..5",
    sizes: Annotated[str, typer.Option(help="Numbers of nodes in the plot.")] = "2,3,5,8,12,16",
    thinks: Annotated[str, typer.Option(help="Think times in the plot, heavy load first.")] = "0,1,3,10,30,100",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw messages, waiting time and throughput: FILE.png or FILE.svg.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Run every algorithm on the same work: messages, waiting time and throughput, against load and
    against N.
    """
    chosen = names or [name for name in CATALOGUE if name not in LEFT_OUT]
    unbounded = parse_delay(delay).bound is None
    for name in list(chosen):
        if find(name).needs.delay_bound and unbounded and not names:
            print(f"peerlock: note: {name} is left out: it needs a delay bound, and {delay} has none.", file=sys.stderr)
            chosen.remove(name)
    check_output(plot, ".png", ".svg")
    seeds = numbers(seed, "seed")
    many, times = numbers(sizes, "number of nodes"), numbers(thinks, "think time")
    base = Experiment(algorithm="", nodes=nodes, entries=entries, load=load, delay=delay, hold=hold)
    jobs = [("table", 0, base)]
    if plot:
        jobs += [("against_n", n, replace(base, nodes=n)) for n in many]
        jobs += [("against_load", think, replace(base, load=f"closed:{think}")) for think in times]
    everything = [(name, *job) for job in jobs for name in chosen]
    found: dict[str, list[tuple[int, Report]]] = {"table": [], "against_n": [], "against_load": []}
    for name, what, x, work in progress(everything, "compare", len(everything)):
        found[what].append((x, _figures(name, seeds, work)))
    rows = {what: [{"x": x, **msgspec.to_builtins(row)} for x, row in rows] for what, rows in found.items()}
    if plot:
        compare_plot(rows["against_n"], rows["against_load"], nodes, plot)
    if json:
        print_json(rows)
    else:
        console().print(_table([row for _, row in found["table"]], nodes, load, seeds))
        if "ricart-agrawala-rw" in chosen:
            console().print("Half of the entries of ricart-agrawala-rw only read, and readers share.")
        if plot:
            console().print(f"The plot is in {plot}.")


def _figures(name: str, seeds: list[int], work: Experiment) -> Report:
    # On a complete network all can be compared; only the ring needs its ring.
    topology = "complete" if find(name).needs.shape is Neighbours else None
    prepared = replace(work, algorithm=name, topology=topology).prepare()
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


def _table(rows: list[Report], nodes: int, load: str, seeds: list[int]) -> Table:
    table = Table(
        "algorithm", "messages per entry", "claimed", "bytes", "wait p50", "wait p99", "exit to entry", "entries / time",
        title=f"{nodes} nodes, load {load}, {len(seeds)} seeds: the same work for all (one hop takes 1 on average)",
    )  # fmt: skip
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        least, most = row.claimed["min"], row.claimed["max"]
        claimed = "-" if most is None else str(most) if least == most else f"{least} to {most}"
        table.add_row(
            row.algorithm, short(row.messages_per_entry["mean"]), claimed, short(row.bytes_per_entry, 0),
            short(row.wait["p50"]), short(row.wait["p99"]), short(row.sync_delay["p50"]), short(row.throughput, 3),
            style="bold red" if row.violations or row.stuck else "",
        )  # fmt: skip
    return table
