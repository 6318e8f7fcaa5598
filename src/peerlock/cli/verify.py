"""`peerlock verify`: a real group under real faults."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from peerlock.cli.app import AsJson, app, check_output, console, print_json
from peerlock.cli.progress import bar
from peerlock.errors import UsageError
from peerlock.mutants.nodes import PLANTED_CORES
from peerlock.verify.history import Outcome
from peerlock.verify.plan import ALONE, FAULTS, Plan
from peerlock.verify.plot import sketch, timeline

Registry = Annotated[
    str,
    typer.Option(
        help="The kind of group: embedded (voters), etcd, static (a fixed list), host (one host) or "
        "attached (one host, processes attached to a host node)."
    ),
]
NoGuard = Annotated[
    bool, typer.Option("--no-guard", help="Do not check fences in the file, to see that stale writes happen.")
]
Planted = Annotated[str | None, typer.Option(help="Put a bug in, to see that it is found: 'lease not checked'.")]


@app.command()
def verify(
    registry: Registry = "embedded",
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=2, max=20, help="Processes that share the lock.")] = 5,
    voters: Annotated[int, typer.Option(help="With embedded: how many of them vote, 3 or 5.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="How long faults happen.")] = 60.0,
    faults: Annotated[str, typer.Option(help="Kinds of faults, separated by commas; 'list' explains them.")] = "all",
    seed: Annotated[int | None, typer.Option(help="Decides the faults. Default: a new one, which is printed.")] = None,
    lease: Annotated[float, typer.Option("--lease", min=0.5, max=60, help="Length of a lease in seconds.")] = 2.0,
    no_guard: NoGuard = False,
    planted: Planted = None,
    proxy: Annotated[bool, typer.Option("--proxy", help="Use the proxy on loopback even with root.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw holds and faults over time: .png, .svg or .pdf.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep the logs of the processes in this directory.")] = None,
    json: AsJson = False,
) -> None:
    """Run a group of real processes while machines and networks fail, and check their locks.

    Each process takes the lock and changes a file under it. Processes are
    killed, stopped and cut off from each other, and their clocks go wrong. Two
    processes must never hold the lock at once, no stale write may be accepted,
    and no update may be lost. From time to time all faults end. Within 10 s
    each process must then be granted the lock. Groups without leases
    (static, host and attached) rely on no clock, so their clocks are left alone.

    --registry host --faults syscalls is another test: strace delays single
    system calls, lets them fail, or stops or kills the process in such a call.

    With root each process has a network namespace of its own, which is removed
    at the end. Without root the processes talk through a proxy on loopback.

    For example: peerlock verify --seconds 3 --faults kill,pause

    Exit code 0: no promise was broken. 1: one was. 2: wrong usage.
    """
    if faults == "list":
        for name, what in (FAULTS | ALONE).items():
            print(f"{name:12} {what}")
        return
    if planted is not None and planted not in PLANTED_CORES:
        raise UsageError(
            f"The bug that can be planted into real processes is {next(iter(PLANTED_CORES))!r}; got {planted!r}."
        )
    check_output(plot, ".png", ".svg", ".pdf")
    chosen = tuple(FAULTS) if faults == "all" else tuple(part.strip() for part in faults.split(",") if part.strip())
    plan = Plan(
        registry, nodes, voters, seconds, chosen, time.time_ns() % 1_000_000 if seed is None else seed, lease,
        guard=not no_guard, planted=planted or "", namespaces=False if proxy else None, keep=str(keep) if keep else None,
    )  # fmt: skip
    found = _carried_out(plan)
    if plot is not None:
        timeline(found.held, found.faults, plot, f"{registry}, {nodes} nodes, lease {lease:g} s, seed {plan.seed}")
    if json:
        print_json(found.verdict)
    else:
        _show(found, plan)
    if not found.verdict.ok:
        raise typer.Exit(1)


def _carried_out(plan: Plan) -> Outcome:
    from peerlock.verify.run import verify

    done, total = 0, math.ceil(plan.seconds)
    with bar("seconds", total) as advance:

        def progress(so_far_s: float) -> None:
            nonlocal done
            done, before = min(total, int(so_far_s)), done
            advance(done - before)

        return verify(plan, progress)


def _show(found: Outcome, plan: Plan) -> None:
    out, verdict = console(), found.verdict
    table = Table("fault", "times", title=f"{plan.registry}, {plan.nodes} processes, {verdict.hosts}, seed {plan.seed}")
    for name, count in verdict.faults.items():
        table.add_row(name, str(count))
    out.print(table)
    lines = [
        *sketch(found.held, found.faults),
        f"{verdict.grants:,} holds, {verdict.owner_changes:,} owner changes, {verdict.losses} losses announced.",
        f"overlaps {verdict.overlaps}, stale writes accepted {verdict.stale_writes_accepted} and refused "
        f"{verdict.stale_writes_refused}, lost updates {verdict.lost_updates}, "
        f"fences out of order {verdict.fences_out_of_order}; "
        f"each process was granted the lock within {verdict.recovery_s} s after a healing.",
    ]
    if verdict.phases:
        again = f"-n {plan.nodes} --seconds {plan.seconds:g} --seed {plan.seed}"
        lines += [
            f"Faults by what the process was doing: {', '.join(f'{name} {n}' for name, n in verdict.phases.items())}.",
            f"The same faults again: peerlock verify --registry host --faults syscalls {again}",
        ]
    for line in [*lines, *verdict.problems, "Nothing was found." if verdict.ok else "It did not hold."]:
        out.print(line, markup=False)
