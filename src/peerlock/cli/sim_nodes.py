"""`peerlock sim-nodes`: whole nodes, simulated, with faults."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from peerlock.cli.app import app, console, numbers, print_json
from peerlock.cli.progress import bar
from peerlock.errors import UsageError
from peerlock.parallel import spread


@app.command("sim-nodes")
def sim_nodes(
    seeds: Annotated[str, typer.Option(help="Which seeds: 7, 1..10000 or 1,2,5.")] = "1..1000",
    algorithm: Annotated[
        str | None, typer.Option("-a", "--algorithm", help="One algorithm; else all that are allowed, in turn.")
    ] = None,
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=2, max=20, help="Nodes at the start.")] = 4,
    grants: Annotated[int, typer.Option(min=1, help="Grants before the faults stop, at least.")] = 200,
    registry: Annotated[
        str,
        typer.Option(
            help="host (one machine), voters or store (many, with leases), leases (voters and store in turn)."
        ),
    ] = "host",
    planted: Annotated[str | None, typer.Option(help="Plant a bug; 'list' names them.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes; as many as there are cores.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Simulate whole nodes, with crashes, restarts, pauses, joins, leaves, broken and slow links: one run a seed.

    What runs are the objects that ship. There must never be two holders, fences
    must increase, and everybody must get in when the faults have stopped.

    With leases there are many hosts: clocks differ and jump, hosts are cut off
    from each other, voters are killed at any moment, a store is away, loops hang.

    A failure names its seed and the command that shows it again; exit code 1.
    """
    from peerlock.mutants.nodes import PLANTED, PLANTED_LEASED
    from peerlock.node.wire_algorithms import ON_THE_WIRE, wire_algorithm
    from peerlock.sim.cluster.process import HARMLESS

    bugs: dict[str, Any] = {**PLANTED, **PLANTED_LEASED}
    if planted == "list":
        print("\n".join(bugs))
        return
    if planted is not None and planted not in bugs:
        raise UsageError(f"No bug is called {planted!r}; there are: {', '.join(bugs)}.")
    if registry not in ("host", "voters", "store", "leases"):
        raise UsageError(f"--registry is host, voters, store or leases; got {registry!r}.")
    if planted is not None:
        registry = PLANTED_LEASED[planted][0] if planted in PLANTED_LEASED else "host"
    if algorithm is not None:
        wire_algorithm(algorithm)
    wanted = numbers(seeds, "seed")
    kinds = {"leases": ("voters", "store")}.get(registry, (registry,))
    jobs = [
        (
            seed,
            algorithm or ON_THE_WIRE[seed // len(kinds) % len(ON_THE_WIRE)],
            nodes,
            grants,
            planted or "",
            kinds[seed % len(kinds)],
        )
        for seed in wanted
    ]
    began, faults, total, failures = time.monotonic(), Counter[str](), Counter[str](), list[dict[str, Any]]()
    least = min(grants, 10**9)
    with bar("seeds", len(jobs)) as advance:
        for found in _runs(jobs, processes or os.cpu_count() or 1):
            advance(1)
            if "problem" in found:
                failures.append(found)
                if planted is not None:
                    break
                print(f"peerlock: seed {found['seed']}: {found['problem']}", file=sys.stderr, flush=True)
            else:
                faults.update(found["faults"])
                total.update({key: found[key] for key in ("grants", "epochs", "messages")})
                least = min(least, sum(count for fault, count in found["faults"].items() if fault not in HARMLESS))
    result = {
        "seeds": len(wanted), "grants": total["grants"], "epochs": total["epochs"], "messages": total["messages"],
        "faults": dict(sorted(faults.items())), "least_faults_a_seed": least,
        "failures": failures, "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    if json:
        print_json(result)
    else:
        _show(result, faults)
    for failure in failures[:5]:
        again = f"peerlock sim-nodes --seeds {failure['seed']} -a {failure['algorithm']} -n {nodes} --grants {grants}"
        again += f" --registry {failure['registry']}" if failure["registry"] != "host" else ""
        again += f" --planted '{planted}'" if planted else ""
        if not json:
            print(f"seed {failure['seed']}: {failure['problem']}\n  again: {again}")
    if failures:
        raise typer.Exit(1)


def _runs(jobs: list[Any], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1 or len(jobs) < 20:
        yield from map(_one, jobs)
        return
    yield from spread(_one, jobs, processes, chunk=8)


def _one(job: tuple[int, str, int, int, str, str]) -> dict[str, Any]:
    from peerlock.mutants.nodes import PLANTED, PLANTED_LEASED
    from peerlock.sim.cluster import leased_process as leased
    from peerlock.sim.cluster.process import Plan, run

    seed, algorithm, nodes, grants, planted, registry = job
    what: dict[str, Any] = {
        "algorithm": algorithm, "nodes": nodes, "most": nodes + 2, "grants": grants, "readers": algorithm.endswith("-rw"),
    }  # fmt: skip
    try:
        if registry == "host":
            if planted:
                what["core"] = PLANTED[planted]
            found = run(seed, Plan(**what))
        else:
            parts = PLANTED_LEASED[planted][1] if planted else {}
            found = leased.run(seed, leased.LeasedPlan(**what, registry=registry, **parts))
    except Exception as problem:  # an assertion of the node is a finding, too
        return {
            "seed": seed, "algorithm": algorithm, "registry": registry, "problem": f"{type(problem).__name__}: {problem}",
        }  # fmt: skip
    return {
        "seed": seed, "algorithm": algorithm, "grants": found.grants, "faults": dict(found.faults),
        "epochs": found.epochs, "messages": found.messages,
    }  # fmt: skip


def _show(result: dict[str, Any], faults: Counter[str]) -> None:
    from peerlock.sim.cluster import leased_process as leased
    from peerlock.sim.cluster import process as nodes

    table = Table("fault", "times", title=f"{result['seeds']:,} seeds in {result['seconds']:,} s")
    for fault in dict.fromkeys((*nodes.FAULTS, *leased.FAULTS)):
        if fault in nodes.FAULTS or faults[fault]:
            table.add_row(fault, f"{faults[fault]:,}")
    console().print(table)
    console().print(
        f"{result['grants']:,} grants, {result['epochs']:,} epochs, {result['messages']:,} messages; at least "
        f"{result['least_faults_a_seed']} faults a seed; {len(result['failures'])} failures."
    )
