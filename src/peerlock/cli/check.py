"""`peerlock check`: every interleaving."""

from __future__ import annotations

import json as json_
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from peerlock.check import counterexample
from peerlock.check.explore import SHORTEN, explore
from peerlock.check.liveness import Graph, Lasso
from peerlock.check.model import ANY, Model
from peerlock.check.observers import Costs, Overtaking
from peerlock.check.properties import Predicate, Property, State, finding, standard
from peerlock.check.search import Outcome, Search
from peerlock.check.symmetry import groups
from peerlock.cli.app import app, check_output, console, options, print_json, save
from peerlock.cli.progress import Lines
from peerlock.cli.sim import NAME, _inside
from peerlock.errors import UsageError
from peerlock.observe import diagram as diagrams
from peerlock.observe import shiviz as shiviz_log
from peerlock.sim import topology as topologies
from peerlock.sim.topology import Topology
from peerlock.sim.transcript import play
from peerlock.user_algorithm import find, load

EXIT = {"holds": 0, "violated": 1, "unfinished": 3}
MOST_TRANSITIONS = 2_000_000


@app.command()
def check(
    name: Annotated[str, NAME],
    nodes: Annotated[
        int | None, typer.Option("-n", "--nodes", help="How many nodes; 3, or what the topology has.")
    ] = None,
    entries: Annotated[
        str, typer.Option(help="How often each node may enter: 2; one number a node: 3,3,1; or any.")
    ] = "1",
    topology: Annotated[str | None, typer.Option(help=f"One of: {topologies.SYNTAX}.")] = None,
    as_printed: Annotated[bool, typer.Option("--as-printed", help="The paper's text, with its errors.")] = False,
    fifo: Annotated[bool, typer.Option("--fifo", help="Messages between two nodes arrive in the order sent.")] = False,
    l: Annotated[int | None, typer.Option("--l", help="L of suzuki-kasami-b.")] = None,
    delay_bound: Annotated[
        int | None,
        typer.Option(
            help="Time in ticks: a message arrives within so many, a timer fires at its tick. Else: at any time.", min=1
        ),
    ] = None,
    crashes: Annotated[int, typer.Option(help="So many nodes may die, at any time.", min=0)] = 0,
    inside: Annotated[
        list[str] | None, typer.Option(help="A node that is inside at the start: 2, or 2:read. May be repeated.")
    ] = None,
    home: Annotated[int, typer.Option(help="Where the token starts when nobody is inside.")] = 1,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: own_counts=true.")
    ] = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            help="Only this property, or your own: ./mine.py:holds, a function of the state. May be repeated.",
        ),
    ] = None,
    costs: Annotated[bool, typer.Option("--costs", help="Also the messages an entry, over all interleavings.")] = False,
    passed_over: Annotated[
        int | None, typer.Option(help="Also how often this node is passed over once everybody has its request.")
    ] = None,
    liveness: Annotated[
        bool | None,
        typer.Option(help="Also whether a node can wait for ever under fair delivery; by default with --entries any."),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce/--no-reduce", help="Explore states that differ only in the names of nodes once.")
    ] = False,
    max_states: Annotated[int | None, typer.Option(help="Stop after so many states.", min=1)] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after so long.", min=0)] = None,
    transcript: Annotated[
        Path | None, typer.Option(help="Write the counterexample as a transcript for peerlock play.")
    ] = None,
    diagram: Annotated[Path | None, typer.Option(help="Draw the counterexample, FILE.svg.")] = None,
    itf: Annotated[Path | None, typer.Option(help="Write the counterexample as ITF, for other tools.")] = None,
    shiviz: Annotated[Path | None, typer.Option(help="Write the counterexample as a log for ShiViz.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Watch the counterexample in the lab, in a browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Explore every reachable state of a small group and say whether the properties hold. Exit code 0, 1 or 3 (unfinished)."""
    settings = options(set_ or [], l)
    for path, ending in ((transcript, ".txt"), (diagram, ".svg"), (itf, ".json"), (shiviz, ".log")):
        check_output(path, ending)
    spec = find(name, as_printed=as_printed, **settings)
    network = topologies.parse(
        topology or topologies.default_for(spec.needs), nodes if nodes is not None or topology else 3
    )
    held = dict(_inside(text) for text in inside or [])
    for node in (*held, home, *([] if passed_over is None else [passed_over])):
        if node not in network.nodes:
            raise UsageError(f"There is no node {node}: the nodes are 1 to {network.n}.")
    bounds = _entries(entries, network.n)
    shapes = network.shapes(spec.needs, home, float(delay_bound or 1))
    counted, overtaking = Costs(), Overtaking(passed_over or 0)
    observers = [*([counted] if costs else []), *([overtaking] if passed_over else [])]
    if reduce and (observers or crashes or liveness or (ANY in bounds and liveness is None)):
        raise UsageError("--reduce merges states; without it: --crashes, --costs, --passed-over and --liveness.")

    def new_model() -> Model:
        return Model(
            spec, shapes, bounds, held, fifo=fifo, crashes=crashes, delay_bound=delay_bound, observers=observers
        )

    with redirect_stdout(sys.stderr):  # what a user's own class prints is not part of the answer
        explored = explore(
            new_model,
            lambda model: _properties(model, property_ or []),
            lambda search: _run(search, max_states, max_seconds),
            groups(shapes) if reduce else None,
            note=lambda words: print(f"peerlock: note: {words.rstrip('.')}.", file=sys.stderr),
            most=max_states and min(max_states, SHORTEN),
        )
    search, checks, outcome = explored.search, explored.checks, explored.outcome
    model = search.model
    way = search.way_to(outcome.row) if outcome.row is not None else ()
    verdicts = checks.verdicts(outcome.violated, outcome.finished)
    if costs and spec.claimed:
        least, most = spec.claimed.bounds(network.size(settings.get("l", 2))) or (0, 10**9)
        wrong = any(not least <= cost <= most for cost in counted.seen)
        verdicts["messages an entry"] = "violated" if wrong else "holds" if outcome.finished else "unfinished"
    lasso = None
    if liveness or (liveness is None and ANY in bounds):
        verdicts["no starvation"], lasso = _starvation(search)
        if lasso is not None:
            way = (*lasso.stem, *lasso.loop)
    verdict = "violated" if "violated" in verdicts.values() else "holds" if outcome.finished else "unfinished"
    if verdict == "holds" and "unfinished" in verdicts.values():
        verdict = "unfinished"
    first = outcome.violated or next((key for key, value in verdicts.items() if value == "violated"), None)
    result = {
        "algorithm": spec.name,
        "form": spec.form,
        "nodes": network.n,
        "entries": bounds[0] if len(set(bounds)) == 1 else bounds,
        "network": "fifo" if fifo else "any order",
        "verdict": verdict,
        "properties": verdicts,
        "property": first,
        "states": outcome.states,
        "transitions": outcome.transitions,
        "depth": outcome.depth,
        "seconds": round(outcome.seconds, 3),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "exact": outcome.exact,
        "collision_bound": outcome.collision_bound,
        "reduction": explored.reduction,
        "reduction_checked": explored.verified,
        "shortest": explored.shortest,
        "trace": counterexample.steps(model, way),
        "loop_from": len(lasso.stem) if lasso else None,
        **({"messages_per_entry": sorted(counted.seen)} if costs else {}),
        **({"passed_over": overtaking.most} if passed_over else {}),
    }
    result["entries"] = "any" if result["entries"] == ANY else result["entries"]
    title = f"{spec.name}{' as printed' if as_printed else ''}, {network.n} nodes: {finding(first or '')}"
    script = counterexample.transcript(
        model, way, _setting(spec.name, as_printed, settings, network, home, held), title
    )
    about = {"algorithm": spec.name, "form": spec.form}
    if way:
        if transcript:
            save(transcript, _played(script))
        if diagram:
            save(diagram, diagrams.svg(counterexample.events(model, way, about)))
        if itf:
            save(itf, json_.dumps(counterexample.itf(model, way, title), indent=1))
        if shiviz:
            save(shiviz, shiviz_log.log(counterexample.events(model, way, about)))
    if json:
        print_json(result)
    else:
        _show(result, title, script if way else "", counterexample.events(model, way, about) if way else [])
    if open_ and way:
        from peerlock.cli.lab import watch

        watch(counterexample.events(model, way, about), title, [name])
    sys.exit(EXIT[verdict])


def _starvation(search: Search) -> tuple[str, Lasso | None]:
    """Can a node wait for ever? Only the whole graph can tell, and only one of moderate size in good time."""
    if not search.outcome.finished:
        return "unfinished", None
    if search.outcome.transitions > MOST_TRANSITIONS:
        print(
            f"peerlock: note: {search.outcome.transitions:,} transitions are more than the search for starvation is made "
            f"for ({MOST_TRANSITIONS:,}).",
            file=sys.stderr,
        )
        return "unfinished", None
    graph = Graph(search)
    for node in search.model.nodes:
        lasso = graph.starves(node)
        if lasso is not None:
            return "violated", lasso
    return "holds", None


def _entries(text: str, n: int) -> list[int]:
    if text == "any":
        return [ANY] * n
    try:
        bounds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{text!r} is not a number of entries: write 2, any, or one number a node: 3,3,1.") from None
    if len(bounds) == 1:
        bounds *= n
    if len(bounds) != n or min(bounds) < 0:
        raise UsageError(f"{text!r}: give one number for all, or one for each of the {n} nodes, none below 0.")
    return bounds


def _properties(model: Model, texts: list[str]) -> list[Property]:
    known = standard(model)
    if not texts:
        return known
    chosen: list[Property] = []
    for text in texts:
        path, colon, function = text.rpartition(":")
        if colon:
            good: Callable[[State], bool] = load(path, function)
            if not callable(good):
                raise UsageError(f"{text} is not a function of a state.")
            chosen.append(Predicate(model, function, good))
            continue
        found = [prop for prop in known if prop.name == text]
        if not found:
            raise UsageError(f"There is no property {text!r}. There are: {', '.join(prop.name for prop in known)}.")
        chosen += found
    return chosen


def _run(search: Search, max_states: int | None, max_seconds: float | None) -> Outcome:
    err, lines = Console(stderr=True), Lines()
    with err.status("") as status:

        def progress(outcome: Outcome) -> None:
            words = f"{outcome.states:,} states, {outcome.transitions:,} transitions, depth {outcome.depth}"
            if err.is_terminal:
                status.update(f"{words}, {outcome.seconds:.0f} s")
            else:
                lines.tell(lambda: words)

        try:
            return search.run(max_states, max_seconds, progress)
        except KeyboardInterrupt:
            print("peerlock: interrupted; this is what is known so far.", file=sys.stderr)
            return search.outcome


def _played(script: str) -> str:
    with redirect_stdout(sys.stderr):
        return play(script)


def _setting(
    name: str, as_printed: bool, settings: dict[str, Any], network: Topology, home: int, inside: dict[int, Any]
) -> list[str]:
    values = [
        f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for key, value in settings.items()
    ]
    lines = [" ".join(["algorithm", name, *(["as_printed"] if as_printed else []), *values])]
    lines.append(f"topology {network.text} {network.n}")
    lines += [f"home {home}"] if home != 1 else []
    return lines + [f"inside {node} {mode}" for node, mode in inside.items()]


def _show(result: dict[str, Any], title: str, script: str, events: list[Any]) -> None:
    out = console()
    form = "" if result["form"] == "standard" else f", {result['form'].replace('_', ' ')}"
    words = f"{result['algorithm']}{form}: {result['nodes']} nodes, entries {result['entries']}, {result['network']}"
    table = Table("property", "verdict", title=words)
    colour = {"holds": "green", "violated": "bold red", "unfinished": "yellow"}
    for name, verdict in result["properties"].items():
        table.add_row(name, f"[{colour[verdict]}]{verdict}[/]")
    out.print(table)
    out.print(
        f"{result['states']:,} states, {result['transitions']:,} transitions, depth {result['depth']}, "
        f"{result['seconds']:.1f} s, {result['peak_mb']} MB"
    )
    if result["reduction"]:
        checked = (
            "every step was checked to allow it"
            if result["reduction_checked"]
            else "not checked: it did not come to that"
        )
        out.print(f"Reduced by {result['reduction']}; {checked}.")
    if not result["exact"]:
        out.print(
            f"States are told apart by 64-bit keys; two were confused with a chance below {result['collision_bound']:.1e}."
        )
    if "messages_per_entry" in result:
        out.print(f"Messages an entry: {', '.join(map(str, result['messages_per_entry']))}.")
    if "passed_over" in result:
        out.print(f"Passed over once everybody has its request: at most {result['passed_over']} times.")
    if script:
        if not result["shortest"]:
            out.print("The reduction found this way to it; a shorter one may exist.")
        out.print(f"\n{title}, in {len(result['trace'])} steps:\n")
        if result["loop_from"] is not None:
            out.print(f"The last {len(result['trace']) - result['loop_from']} steps repeat for ever.\n")
        print("".join(line + "\n" for line in _played(script).splitlines()[1:]))
        print(diagrams.text(events, most=200))
