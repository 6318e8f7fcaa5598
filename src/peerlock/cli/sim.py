"""`peerlock sim`: run one algorithm in virtual time."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.table import Table

from peerlock.cli.app import AsJson, app, check_output, console, numbers, options, output, print_json, save, short
from peerlock.cli.progress import Ticker, bar
from peerlock.contract import Mode
from peerlock.errors import UsageError
from peerlock.observe import diagram as diagrams
from peerlock.observe.metrics import Metrics, PerEntry, Quantiles, summary
from peerlock.sim import delays, topology, workload
from peerlock.sim.experiment import FAULTS, Experiment, Prepared
from peerlock.trace import Keeper, Recorder, Writer

NAME = typer.Argument(metavar="NAME", help="An algorithm of the catalogue, or your own class: ./mine.py:MyLock.")


class Report(Struct):
    """The figures of one or several runs: what `--json` prints."""

    algorithm: str
    form: str
    nodes: int
    edges: int
    diameter: int
    seed: int | str
    entries: int
    messages: int
    messages_per_entry: PerEntry
    overhead: int
    by_kind: dict[str, int]
    bytes_per_entry: float | None
    wait: Quantiles
    sync_delay: Quantiles
    throughput: float | None
    fairness: float | None
    violations: int
    claimed: dict[str, float | None]
    stuck: list[int]
    stuck_seeds: list[int]
    violating_seeds: list[int]


@app.command()
def sim(
    name: Annotated[str, NAME],
    nodes: Annotated[
        int | None, typer.Option("-n", "--nodes", help="Number of nodes. Default: 5, or that of the topology.")
    ] = None,
    topology: Annotated[str | None, typer.Option(help=f"One of: {topology.SYNTAX}.")] = None,
    entries: Annotated[int, typer.Option(help="Entries per node.")] = 10,
    load: Annotated[str, typer.Option(help=f"One of: {workload.SYNTAX}.")] = "closed",
    delay: Annotated[str, typer.Option(help=f"One of: {delays.SYNTAX}.")] = "uniform:0.5,1.5",
    delay_bound: Annotated[
        float | None, typer.Option(help="The longest delay that the nodes assume, true or not.")
    ] = None,
    fifo: Annotated[bool, typer.Option("--fifo", help="Messages between two nodes arrive in the order sent.")] = False,
    seed: Annotated[str, typer.Option(help="One seed, or several (1..100): the figures are over all runs.")] = "1",
    l: Annotated[int | None, typer.Option("--l", help="L of suzuki-kasami-b.")] = None,
    as_printed: Annotated[bool, typer.Option("--as-printed", help="Run the paper's text with its errors.")] = False,
    hold: Annotated[str, typer.Option(help="How long a node stays inside, written like --delay.")] = "constant:0.1",
    readers: Annotated[float | None, typer.Option(help="The share of entries that only read.")] = None,
    inside: Annotated[
        list[str] | None, typer.Option(help="A node that is inside at the start: 2, or 2:read. May be repeated.")
    ] = None,
    home: Annotated[int, typer.Option(help="The node where the token starts if no node is inside.")] = 1,
    fault: Annotated[list[str] | None, typer.Option(help=f"One of: {FAULTS}. May be repeated.")] = None,
    loss: Annotated[float, typer.Option(help="The share of messages lost; the papers assume 0.")] = 0.0,
    duplicate: Annotated[float, typer.Option(help="The share that arrive twice; the papers assume 0.")] = 0.0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="An option of the algorithm: NAME=VALUE.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write all events to this file, one JSON object per line.")] = None,
    diagram: Annotated[Path | None, typer.Option(help="Draw the run as a space-time diagram, FILE.svg.")] = None,
    json: AsJson = False,
) -> None:
    """Run an algorithm in virtual time and print what it cost, beside what the paper claims."""
    seeds = numbers(seed, "seed")
    if (trace or diagram) and len(seeds) > 1:
        raise UsageError("A trace or a diagram is of one run: give one seed.")
    check_output(trace)
    check_output(diagram, ".svg")
    if trace and diagram and trace.resolve() == diagram.resolve():
        raise UsageError("The trace and the diagram need files of their own.")
    settings = options(set_ or [], l)
    experiment = Experiment(
        algorithm=name, as_printed=as_printed, options=settings, nodes=nodes, topology=topology, entries=entries, load=load,
        delay=delay, delay_bound=delay_bound, fifo=fifo, hold=hold, readers=readers, seed=seeds[0], home=home,
        inside=dict(_inside(text) for text in inside or []), loss=loss, duplicate=duplicate, faults=tuple(fault or ()),
    )  # fmt: skip
    prepared = experiment.prepare()
    for note in prepared.topology.notes:
        print(f"peerlock: note: {note}", file=sys.stderr)
    runs, stuck = run_all(prepared, seeds, trace, diagram)
    figures = report(prepared, seeds, runs, stuck)
    if json:
        print_json(figures)
    else:
        _show(figures)


def _inside(text: str) -> tuple[int, Mode]:
    node, _, mode = text.partition(":")
    if not node.isdigit() or mode not in ("", "read", "write"):
        raise UsageError(f"{text!r} is not a node that is inside: write 2, 2:read or 2:write.")
    return int(node), "read" if mode == "read" else "write"


def run_all(
    prepared: Prepared, seeds: list[int], trace: Path | None = None, diagram: Path | None = None
) -> tuple[list[Metrics], dict[int, list[int]]]:
    """Run every seed: the metrics of each run, and for each seed the nodes that were left waiting."""
    runs, stuck = [], {}
    total = len(seeds) * prepared.topology.n * prepared.experiment.entries
    with bar(prepared.spec.name, total) as advance:
        for seed in seeds:
            metrics, left = _run_one(prepared, seed, trace, diagram, Ticker(advance))
            runs.append(metrics)
            if left:
                stuck[seed] = left
    return runs, stuck


def _run_one(
    prepared: Prepared, seed: int, trace: Path | None, diagram: Path | None, ticker: Ticker
) -> tuple[Metrics, list[int]]:
    metrics, keeper = Metrics(), Keeper()
    recorders: list[Recorder] = [metrics, ticker]
    with ExitStack() as files:
        if trace:
            recorders.append(Writer(files.enter_context(output(trace))))
        if diagram:
            recorders.append(keeper)
        # What a user's own class prints is not part of the answer.
        with redirect_stdout(sys.stderr):
            world = prepared.run(seed, recorders)
    if diagram:
        save(diagram, diagrams.svg(keeper.events))
    return metrics, world.stuck()


def report(prepared: Prepared, seeds: list[int], runs: list[Metrics], stuck: dict[int, list[int]]) -> Report:
    spec, network = prepared.spec, prepared.topology
    bounds = spec.claimed.bounds(network.size(spec.options.get("l", 2))) if spec.claimed else None
    return Report(
        algorithm=spec.name,
        form=spec.form,
        nodes=network.n,
        edges=network.edges,
        diameter=network.diameter,
        seed=seeds[0] if len(seeds) == 1 else f"{seeds[0]}..{seeds[-1]}",
        **summary(runs, spec.mean_only),
        claimed={"min": bounds[0] if bounds else None, "max": bounds[1] if bounds else None},
        stuck=sorted({node for nodes in stuck.values() for node in nodes}),
        stuck_seeds=sorted(stuck),
        violating_seeds=[seed for seed, run in zip(seeds, runs, strict=True) if run.violations],
    )


def _show(found: Report) -> None:
    form = "" if found.form == "standard" else f", {found.form.replace('_', ' ')}"
    table = Table(show_header=False, title=f"{found.algorithm}{form}: {found.nodes} nodes, seed {found.seed}")
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in found.by_kind.items())
    per, least, most = found.messages_per_entry, found.claimed["min"], found.claimed["max"]
    rows = {
        "network": f"{found.edges:,} edges, diameter {found.diameter}",
        "entries": f"{found.entries:,}",
        "messages": f"{found.messages:,} ({kinds})" if kinds else "0",
        "messages per entry": f"{short(per['mean'])} on average, {short(per['min'])} to {short(per['max'])}",
        "  the paper claims": f"{short(least)} to {short(most)}" if most is not None else "nothing",
        "  overhead": f"{found.overhead:,} messages that no entry can be charged with",
        "bytes per entry": short(found.bytes_per_entry, 1),
        "wait": _quantiles(found.wait),
        "exit to next entry": _quantiles(found.sync_delay),
        "entries per unit of time": short(found.throughput, 3),
        "fairness": f"{short(found.fairness)} (fewest over most entries of a node)",
        "violations": f"{found.violations}{_which(found.violating_seeds)}",
        "left waiting": f"nodes {found.stuck}{_which(found.stuck_seeds)}" if found.stuck else "no node",
    }
    wrong = {"violations": found.violations, "left waiting": found.stuck}
    for what, words in rows.items():
        table.add_row(what, words, style="bold red" if wrong.get(what) else "")
    console().print(table)


def _quantiles(values: Quantiles) -> str:
    return f"{short(values['p50'])} median, {short(values['p99'])} p99, {short(values['max'])} at most"


def _which(seeds: list[int]) -> str:
    return f" (seed {', '.join(map(str, seeds[:5]))}{' ...' if len(seeds) > 5 else ''})" if seeds else ""
