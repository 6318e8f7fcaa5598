"""Measure this project beside others: `python -m benchmarks peers`. Nothing of this is installed with the package."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from peerlock.cli.app import answered, check_output, console, print_json
from peerlock.cli.progress import progress, stepping

app = typer.Typer(help="Measure, beside something else, in one run.", no_args_is_help=True, add_completion=False)


def _kept(figures: Any, save: Path | None, as_json: bool) -> bool:
    """Written into the file, if there is one. True: printed as JSON, so nothing else is."""
    if save is not None:
        save.write_text(dumps(figures, indent=1) + "\n")
    if as_json:
        print_json(figures)
    return as_json


@app.command("peers")
def bench_peers(
    only: Annotated[
        str, typer.Option(help="Only these, by how their names begin; a comma in between: 'peerlock,redis'.")
    ] = "",
    runs: Annotated[int, typer.Option(help="How often all of it runs; the median counts.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="For each scene.", min=0.2)] = 1.5,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison into this file: SVG, PNG or PDF.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write all figures into this file, too: JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """This lock beside the locks that people use today: the same work, on this machine, in one run.

    Servers are started on loopback with fresh directories. What is not installed is skipped, with the command that
    installs it; `make bench-peers` installs everything.
    """
    import msgspec

    from benchmarks.peers import side_by_side
    from benchmarks.peers.tables import shown

    rows = side_by_side.chosen([word.strip() for word in only.split(",") if word.strip()])
    check_output(plot, ".svg", ".png", ".pdf")
    check_output(save, ".json")
    with stepping(side_by_side.steps(rows, runs)) as step:
        found = side_by_side.compare(rows, runs, seconds, step)
    if plot is not None:
        from benchmarks.peers.plots import draw

        draw(found, plot)
    if _kept(msgspec.to_builtins(found, str_keys=True), save, json):
        return
    for part in shown(found):
        console().print(part)


@app.command("curves")
def bench_curves(
    seconds: Annotated[float, typer.Option(help="For each point.", min=0.2)] = 2.0,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this file: SVG, PNG or PDF.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write all figures into this file, too: JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What this lock costs with 2 to 20 members, up to 100,000 names, up to 1,000 waiters, TLS, and each registry."""
    import msgspec

    from benchmarks.peers import curves
    from benchmarks.peers.tables import shown_curves

    check_output(plot, ".svg", ".png", ".pdf")
    check_output(save, ".json")
    with stepping(curves.steps()) as step:
        found = curves.curves(seconds, step)
    if plot is not None:
        from benchmarks.peers.plots import draw_curves

        draw_curves(found, plot)
    if _kept(msgspec.to_builtins(found), save, json):
        return
    for part in shown_curves(found):
        console().print(part)


@app.command("scale")
def bench_scale(
    processes: Annotated[str, typer.Option("-n", help="How many processes, with commas.")] = "3,5,20,50,100,200",
    runs: Annotated[int, typer.Option(help="How often each is measured; the median counts.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="For each point.", min=0.5)] = 4.0,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this file: SVG, PNG or PDF.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write all figures into this file, too: JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Many processes of one host and one lock: this lock, a Redis BLPOP token and PostgreSQL's advisory locks."""
    import msgspec

    from benchmarks import scale
    from benchmarks.scale_tables import draw, shown
    from peerlock.cli.app import numbers

    counts = numbers(processes, "process")
    check_output(plot, ".svg", ".png", ".pdf")
    check_output(save, ".json")
    with stepping(scale.steps(counts, runs)) as step:
        found = scale.scale(counts, seconds, runs, step)
    if plot is not None:
        draw(found, plot)
    if _kept(msgspec.to_builtins(found), save, json):
        return
    console().print(shown(found))


@app.command("stuck")
def bench_stuck(
    runs: Annotated[int, typer.Option(help="How often each; the median counts.", min=1)] = 3,
    save: Annotated[Path | None, typer.Option(help="Write all figures into this file, too: JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How long a lock, and another lock, stand still when a process is stopped, killed or busy, joins or leaves."""
    import msgspec

    from benchmarks import stuck

    check_output(save, ".json")
    with stepping(stuck.steps(runs)) as step:
        found = stuck.all_of_them(runs, step)
    if _kept(msgspec.to_builtins(found), save, json):
        return
    table = Table("what happens, for 3 s", "processes are", "A stands still", "B stands still")
    for row in found:
        table.add_row(row.event, row.share, f"{row.a_s:.3f} s", f"{row.b_s:.3f} s")
    console().print(table)
    console().print(f"The longest time between two entries of a lock. {runs} runs each, the median.")


@app.command("takeover")
def bench_takeover(
    registry: Annotated[
        str, typer.Option(help="Only this one: host, embedded or etcd. All of them if nothing is said.")
    ] = "",
    lease: Annotated[float, typer.Option(help="Seconds; on one host there are no leases.", min=0.5)] = 2.0,
    runs: Annotated[int, typer.Option(help="How often, each way.", min=1)] = 5,
    save: Annotated[Path | None, typer.Option(help="Write all figures into this file, too: JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How long a lock is nobody's when its holder is killed, or leaves: real processes, each registry."""
    import msgspec

    from benchmarks import takeover
    from peerlock.errors import UsageError

    if registry and registry not in takeover.REGISTRIES:
        raise UsageError(f"There is no registry {registry!r} to measure; there are: {', '.join(takeover.REGISTRIES)}.")
    check_output(save, ".json")
    wanted = (registry,) if registry else takeover.REGISTRIES
    skipped = {each: why for each in wanted if (why := takeover.missing(each))}
    with stepping(2 * runs * (len(wanted) - len(skipped))) as step:
        rows = [takeover.takeover(each, lease, runs, step) for each in wanted if each not in skipped]
    if _kept({"rows": msgspec.to_builtins(rows), "skipped": skipped}, save, json):
        return
    table = Table(
        "registry", "lease", "killed: next one in", "longest", "left: next one in", "longest", "leave took", "longest"
    )
    for row in rows:
        of = [row.killed, row.left, row.leaving]
        figures = [f"{1000 * value:,.1f} ms" for each in of for value in (sorted(each)[len(each) // 2], max(each))]
        table.add_row(row.registry, "" if row.lease_s is None else f"{row.lease_s:g} s", *figures)
    out = console()
    out.print(table)
    out.print(f"Medians of {runs}. Killed: from SIGKILL; left: from the call of leave.")
    for each, command in skipped.items():
        out.print(f"Skipped: {each}. Install it: {command}")


@app.command("sim")
def bench_sim(
    runs: Annotated[int, typer.Option(help="How often each program runs; the median counts.", min=1)] = 3,
    messages: Annotated[int, typer.Option(help="Messages a run.", min=100)] = 200_000,
    nodes: Annotated[int, typer.Option(help="The size of the large runs; 0 leaves them out.", min=0)] = 1000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Messages simulated a second, beside SimPy and a bare heap; then a thousand nodes at once."""
    from benchmarks import sim

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


@app.command("check")
def bench_check(
    runs: Annotated[int, typer.Option(help="How often each program runs; the median counts.", min=1)] = 3,
    nodes: Annotated[int, typer.Option("-n", "--nodes", help="Nodes.", min=2)] = 4,
    entries: Annotated[int, typer.Option(help="Entries of each.", min=1)] = 1,
    large: Annotated[
        bool, typer.Option("--large", help="Also 4 nodes with 2 entries each, without Spin: minutes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Ricart-Agrawala, every interleaving, beside Spin: the same states, time and memory."""
    from benchmarks import spin

    programs = {"peerlock": spin.run_ours, "Spin": spin.run_spin}
    jobs = [(name, program) for _ in range(runs) for name, program in programs.items()]
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in programs}
    for name, program in progress(jobs, "check", len(jobs)):
        measured[name].append(program(nodes, entries))
    middle = {name: sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2] for name, rows in measured.items()}
    result: dict[str, Any] = {
        **middle,
        "same_states": middle["peerlock"]["states"] == middle["Spin"]["states"],
        "spin_states_per_second": middle["Spin"]["states"] / middle["Spin"]["seconds"],
        "over_spin_speed": middle["Spin"]["seconds"] / middle["peerlock"]["seconds"],
        "of_spin_memory": middle["peerlock"]["mb"] / middle["Spin"]["mb"],
    }
    if large:
        result["4,2"] = spin.run_ours(4, 2)
    if json:
        print_json(result)
        return
    table = Table(
        "program",
        "states",
        "transitions",
        "seconds",
        "MB",
        title=f"Ricart-Agrawala, {nodes} nodes, {entries} entries each",
    )
    rows = {**middle, **({"peerlock, 4 nodes, 2 entries": result["4,2"]} if large else {})}
    for name, row in rows.items():
        table.add_row(name, f"{row['states']:,}", f"{row['transitions']:,}", f"{row['seconds']:.2f}", f"{row['mb']:,}")
    console().print(table)
    console().print(
        f"{result['over_spin_speed']:.2f} times as fast as Spin in {result['of_spin_memory']:.2f} of its memory."
    )
    if not result["same_states"] or result["spin_states_per_second"] < 500_000:
        console().print(
            "The comparison is void: the numbers of states differ, or Spin was slower than 500,000 states a second."
        )


if __name__ == "__main__":
    sys.exit(answered(app))
