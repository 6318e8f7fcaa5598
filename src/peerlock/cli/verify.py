"""`peerlock verify`: a real group under real faults."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from peerlock.cli.app import app, check_output, console, print_json
from peerlock.cli.progress import bar
from peerlock.errors import UsageError


@app.command()
def verify(
    registry: Annotated[
        str, typer.Option(help="The registry, which decides the members: embedded (voters), etcd or host.")
    ] = "embedded",
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=2, max=20, help="Processes that share the lock.")] = 5,
    voters: Annotated[int, typer.Option(help="How many of them vote, with embedded: 3 or 5.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="For how long there are faults.")] = 60.0,
    faults: Annotated[str, typer.Option(help="Which, separated by commas; 'list' explains them.")] = "all",
    seed: Annotated[int | None, typer.Option(help="What happens when; a new one each time, and printed.")] = None,
    lease: Annotated[float, typer.Option("--lease", min=0.5, max=60, help="Seconds of a lease.")] = 2.0,
    no_guard: Annotated[bool, typer.Option("--no-guard", help="The file takes every write, stale or not.")] = False,
    planted: Annotated[str | None, typer.Option(help="Plant a bug: 'lease not checked'.")] = None,
    proxy: Annotated[bool, typer.Option("--proxy", help="No network namespaces, even where they are allowed.")] = False,
    plot: Annotated[Path | None, typer.Option(help="A picture of it: .png, .svg or .pdf.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep what the processes wrote, in this directory.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Start a group of real processes, do to it what machines and networks do, and check what it did.

    Each process takes the lock and changes a file under it. They are killed,
    stopped, cut off from each other; their clocks go wrong. Nobody may ever hold
    the lock beside another, no stale write may be accepted, no update lost; and
    ten seconds after each healing everybody must have been in.

    `--registry host --faults syscalls` is another kind of test: strace makes single
    system calls of the processes late, lets them fail, or kills or stops the process
    there. Within 20 s after the faults each process must have been in.

    With root each process has a host of its own, a network namespace; without,
    they talk through a proxy on loopback. Exit code 1: something was found.
    """
    from peerlock.mutants.nodes import PLANTED_CORES
    from peerlock.verify.plan import ALONE, FAULTS, Plan
    from peerlock.verify.plot import sketch, timeline
    from peerlock.verify.run import verify as run

    if faults == "list":
        for name, what in (FAULTS | ALONE).items():
            print(f"{name:12} {what}")
        return
    if planted is not None and planted not in PLANTED_CORES:
        raise UsageError(
            f"The bug that can be planted into real processes is {next(iter(PLANTED_CORES))!r}; got {planted!r}."
        )
    if plot is not None:
        check_output(plot, ".png", ".svg", ".pdf")
    chosen = tuple(FAULTS) if faults == "all" else tuple(part.strip() for part in faults.split(",") if part.strip())
    plan = Plan(
        registry=registry, nodes=nodes, seconds=seconds, faults=chosen, lease_s=lease, voters=voters,
        seed=time.time_ns() % 1_000_000 if seed is None else seed,
        guard=not no_guard, planted=planted or "", namespaces=False if proxy else None, keep=str(keep) if keep else None,
    )  # fmt: skip
    with bar("seconds", math.ceil(seconds)) as advance:
        done = 0

        def progress(so_far: float, _: str) -> None:
            nonlocal done
            step = min(math.ceil(seconds), int(so_far)) - done
            if step > 0:
                done += step
                advance(step)

        verdict, held, happened = run(plan, progress)
    if plot is not None:
        timeline(held, happened, plot, f"{registry}, {nodes} nodes, lease {lease:g} s, seed {plan.seed}")
    if json:
        print_json(msgspec.to_builtins(verdict))
    else:
        table = Table("fault", "times", title=f"{registry}, {nodes} processes, {verdict.hosts}, seed {plan.seed}")
        for name, count in verdict.faults.items():
            table.add_row(name, str(count))
        console().print(table)
        for line in sketch(held, happened):
            console().print(line, highlight=False, markup=False)
        console().print(
            f"{verdict.grants:,} holds, {verdict.owner_changes:,} owner changes, {verdict.losses} losses announced.\n"
            f"overlaps {verdict.overlaps}, stale writes accepted {verdict.stale_writes_accepted} and refused "
            f"{verdict.stale_writes_refused}, lost updates {verdict.lost_updates}, "
            f"fences out of order {verdict.fences_out_of_order}; "
            f"everybody in after at most {verdict.recovery_s} s.",
            highlight=False,
        )
        if verdict.phases:
            where = ", ".join(f"{name} {count}" for name, count in verdict.phases.items())
            again = (
                f"peerlock verify --registry host --faults syscalls -n {nodes} --seconds {seconds:g} --seed {plan.seed}"
            )
            console().print(
                f"Faults by what the process was about: {where}.\nThe same faults again: {again}", highlight=False
            )
        for problem in verdict.problems:
            console().print(problem, highlight=False, markup=False)
        console().print("Nothing was found." if verdict.ok else "It did not hold.")
    if not verdict.ok:
        raise typer.Exit(1)
