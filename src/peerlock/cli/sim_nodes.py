"""`peerlock sim-nodes`: whole nodes, simulated, with faults."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from peerlock.cli.app import app, console, numbers, print_json
from peerlock.cli.progress import bar
from peerlock.errors import UsageError

if TYPE_CHECKING:
    from peerlock.sim.cluster.seeds import Found

Registry = Annotated[
    str,
    typer.Option(
        help="host (one machine), attached (one machine, processes attached to a host node), static (a fixed list), "
        "voters or store (many hosts, with leases), leases (voters and store in turn)."
    ),
]


@app.command("sim-nodes")
def sim_nodes(
    seeds: Annotated[str, typer.Option(help="The seeds: 7, 1..10000 or 1,2,5.")] = "1..1000",
    algorithm: Annotated[
        str | None, typer.Option("-a", "--algorithm", help="The algorithm. Without it: all allowed ones, in turn.")
    ] = None,
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=2, max=20, help="Nodes at the start.")] = 4,
    grants: Annotated[int, typer.Option(min=1, help="Least number of grants before the faults stop.")] = 200,
    registry: Registry = "host",
    planted: Annotated[
        str | None, typer.Option(help="Add a known bug, to see that it is found. 'list' prints their names.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Number of processes. Without it: one per core.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate whole nodes, with crashes, restarts, pauses, joins, leaves, broken and slow links:
    one run per seed.

    The code that runs is the code of the lock as it is installed. There must
    never be two holders, fences must increase, and every waiter must get in
    when the faults have stopped.

    The kinds with leases also simulate several hosts. There, clocks differ and
    jump, hosts lose their connections, voters are killed at any moment, the store
    cannot be reached, and event loops hang.

    A failure names its seed and the command that shows it again. Exit code 0: no
    promise was broken. 1: one was. 2: wrong usage.
    """
    from peerlock.node.wire_algorithms import wire_algorithm
    from peerlock.sim.cluster.planted import PLANTED
    from peerlock.sim.cluster.seeds import KINDS, explore_all, jobs_of

    if planted == "list":
        print("\n".join(PLANTED))
        return
    if planted is not None and planted not in PLANTED:
        raise UsageError(f"No bug is called {planted!r}; there are: {', '.join(PLANTED)}.")
    if registry not in KINDS:
        raise UsageError(f"--registry is one of {', '.join(KINDS)}; got {registry!r}.")
    if algorithm is not None:
        wire_algorithm(algorithm)
    if planted is not None:
        registry = PLANTED[planted].registry
    jobs = jobs_of(numbers(seeds, "seed"), registry, algorithm, nodes=nodes, grants=grants, planted=planted or "")
    began = time.monotonic()
    clean: list[Found] = []
    failures: list[Found] = []
    with bar("seeds", len(jobs)) as advance:
        for found in explore_all(jobs, processes):
            advance(1)
            if not found.problem:
                clean.append(found)
                continue
            failures.append(found)
            if planted is not None:
                break
            print(f"peerlock: seed {found.job.seed}: {found.problem}", file=sys.stderr, flush=True)
    _show(clean, failures, len(jobs), registry, time.monotonic() - began, json)
    if failures:
        raise typer.Exit(1)


def _show(clean: list[Found], failures: list[Found], seeds: int, registry: str, seconds: float, json: bool) -> None:
    from peerlock.sim.cluster.seeds import KINDS
    from peerlock.sim.cluster.world import KINDS as WORLDS

    faults = sum((found.faults for found in clean), Counter[str]())
    grants, epochs, messages = (
        sum(getattr(found, what) for found in clean) for what in ("grants", "epochs", "messages")
    )
    least = min((found.serious for found in clean), default=0)
    if json:
        print_json({
            "seeds": seeds, "grants": grants, "epochs": epochs, "messages": messages, "faults": dict(sorted(faults.items())),
            "least_faults_a_seed": least, "seconds": round(seconds, 1),
            "failures": [
                {"seed": found.job.seed, "algorithm": found.job.algorithm, "registry": found.job.registry,
                 "problem": found.problem}
                for found in failures
            ],
        })  # fmt: skip
        return
    table = Table("fault", "times", title=f"{seeds:,} seeds in {seconds:,.1f} s")
    for fault in dict.fromkeys(fault for kind in KINDS[registry] for fault in WORLDS[kind].nemesis.faults):
        table.add_row(fault, f"{faults[fault]:,}")
    console().print(table)
    console().print(
        f"{grants:,} grants, {epochs:,} epochs, {messages:,} messages; at least {least} faults per seed; "
        f"{len(failures)} failures."
    )
    for found in failures[:5]:
        print(f"seed {found.job.seed}: {found.problem}\n  again: {found.job.again()}")
