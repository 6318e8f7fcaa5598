"""`peerlock check`: every interleaving."""

from __future__ import annotations

import json as json_
import resource
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from peerlock.check import counterexample
from peerlock.check.model import ANY, Model
from peerlock.check.properties import Predicate, Property, State, finding, standard
from peerlock.check.run import Configuration, Result, run
from peerlock.check.search import Outcome, Search
from peerlock.cli.app import AsJson, app, check_output, console, options, print_json, save
from peerlock.cli.progress import Lines
from peerlock.cli.sim import NAME, _inside
from peerlock.errors import UsageError
from peerlock.observe import diagram as diagrams
from peerlock.observe import shiviz as shiviz_log
from peerlock.sim import topology as topologies
from peerlock.sim.transcript import play
from peerlock.user_algorithm import Option, find, load

EXIT = {"holds": 0, "violated": 1, "unfinished": 3}


AsPrinted = Annotated[bool, typer.Option("--as-printed", help="The paper's text, with its errors.")]
Nodes = Annotated[
    int | None, typer.Option("-n", "--nodes", help="Number of nodes. Default: 3, or that of the topology.")
]
Entries = Annotated[str, typer.Option(help="How often each node enters: 2, or 3,3,1 for each node, or any.")]
Topologies = Annotated[str | None, typer.Option("--topology", help=f"One of: {topologies.SYNTAX}.")]
Fifo = Annotated[bool, typer.Option("--fifo", help="Messages between two nodes arrive in the order sent.")]
L = Annotated[int | None, typer.Option("--l", help="suzuki-kasami-b counts requests modulo L.")]
DelayBound = Annotated[
    int | None,
    typer.Option(
        help="A message takes at most this many ticks, and timers fire on time. Without it, both happen at any time.",
        min=1,
    ),
]
Crashes = Annotated[int, typer.Option(help="At most this many nodes crash, at any time.", min=0)]
InsideOption = Annotated[
    list[str] | None,
    typer.Option(help="A node that is in the critical section at the start: 2, or 2:read. May be repeated."),
]
Home = Annotated[int, typer.Option(help="The node with the token if none is in the critical section.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Set an option of the algorithm, as in own_counts=true.")]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        help="Check only this property, or your own: ./mine.py:holds, a function of the state. A wrong name lists "
        "all properties. May be repeated.",
    ),
]
CostsOption = Annotated[bool, typer.Option("--costs", help="Also count the messages per entry, in all interleavings.")]
PassedOver = Annotated[
    int | None,
    typer.Option(help="Also count how often others enter before this node, after every node has its request."),
]
Liveness = Annotated[
    bool | None,
    typer.Option(
        help="Also look for a node that waits for ever although every message arrives. Default: with --entries any."
    ),
]
Reduce = Annotated[
    bool,
    typer.Option(
        "--reduce/--no-reduce",
        help="Explore fewer states: one of several that differ only in the names of nodes, or in the order of "
        "deliveries. Not with --costs, --passed-over, --crashes or --liveness.",
    ),
]
MaxStates = Annotated[int | None, typer.Option(help="Stop after this number of states.", min=1)]
MaxSeconds = Annotated[float | None, typer.Option(help="Stop after this number of seconds.", min=0)]
TranscriptFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE.txt", help="Write the counterexample as a transcript for peerlock play."),
]
DiagramFile = Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the counterexample.")]
ItfFile = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="Write the counterexample as ITF, for other tools.")
]
ShivizFile = Annotated[
    Path | None, typer.Option(metavar="FILE.log", help="Write the counterexample as a log for ShiViz.")
]
Open = Annotated[bool, typer.Option("--open", help="Watch the counterexample in the lab, in a browser.")]


@app.command()
def check(
    name: Annotated[str, NAME],
    nodes: Nodes = None,
    entries: Entries = "1",
    topology: Topologies = None,
    as_printed: AsPrinted = False,
    fifo: Fifo = False,
    l: L = None,
    delay_bound: DelayBound = None,
    crashes: Crashes = 0,
    inside: InsideOption = None,
    home: Home = 1,
    set_: Set = None,
    property_: PropertyOption = None,
    costs: CostsOption = False,
    passed_over: PassedOver = None,
    liveness: Liveness = None,
    reduce: Reduce = False,
    max_states: MaxStates = None,
    max_seconds: MaxSeconds = None,
    transcript: TranscriptFile = None,
    diagram: DiagramFile = None,
    itf: ItfFile = None,
    shiviz: ShivizFile = None,
    open_: Open = False,
    json: AsJson = False,
) -> None:
    """Explore every reachable state of a small group and say whether the properties hold.

    For example: peerlock check ricart-agrawala -n 3 --entries 2

    The properties are mutual exclusion, no deadlock, no failed assertion, and
    the invariants of the paper.

    Exit code 0: all hold. 1: one is violated. 2: wrong usage. 3: not finished
    (a limit, or Ctrl-C).
    """
    setup = _Setup(name, nodes, topology, as_printed, options(set_ or [], l), home, inside or [], passed_over)
    files = {".txt": transcript, ".svg": diagram, ".json": itf, ".log": shiviz}
    for ending, path in files.items():
        check_output(path, ending)
    bounds = _entries(entries, setup.network.n)
    configuration = Configuration(
        setup.spec, setup.network.shapes(setup.spec.needs, home, float(delay_bound or 1)), bounds, setup.inside,
        fifo=fifo, crashes=crashes, delay_bound=delay_bound, properties=partial(_properties, texts=property_ or []),
        costs=costs, size=setup.size if costs else None, passed_over=passed_over or 0,
        liveness=ANY in bounds if liveness is None else liveness, reduce=reduce,
        max_states=max_states, max_seconds=max_seconds,
    )  # fmt: skip
    with redirect_stdout(sys.stderr):  # what a user's own class prints is not part of the answer
        found = run(configuration, partial(_run, max_states=max_states, max_seconds=max_seconds), note=_note)
    report = _Report(setup, found)
    report.save(transcript, diagram, itf, shiviz)
    report.show(json)
    if open_ and found.way:
        from peerlock.cli.lab import watch

        watch(found.events(), report.title, [name])
    sys.exit(EXIT[found.verdict])


class _Setup:
    """The algorithm, its network and its start, as they were asked for."""

    def __init__(
        self, name: str, nodes: int | None, topology: str | None, as_printed: bool,
        settings: dict[str, Option], home: int, inside: list[str], passed_over: int | None,
    ) -> None:  # fmt: skip
        self.as_printed, self.settings, self.home = as_printed, settings, home
        self.spec = find(name, as_printed=as_printed, **settings)
        wanted = topology or topologies.default_for(self.spec.needs)
        self.network = topologies.parse(wanted, nodes if nodes is not None or topology else 3)
        self.inside = dict(_inside(text) for text in inside)
        for node in (*self.inside, home, *([] if passed_over is None else [passed_over])):
            if node not in self.network.nodes:
                raise UsageError(f"There is no node {node}: the nodes are 1 to {self.network.n}.")
        l = settings.get("l", 2)
        self.size = self.network.size(l if isinstance(l, int) else 2)

    def lines(self) -> list[str]:
        """The first lines of a transcript."""
        values = [
            f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
            for key, value in self.settings.items()
        ]
        lines = [" ".join(["algorithm", self.spec.name, *(["as_printed"] if self.as_printed else []), *values])]
        lines.append(f"topology {self.network.text} {self.network.n}")
        lines += [f"home {self.home}"] if self.home != 1 else []
        return lines + [f"inside {node} {mode}" for node, mode in self.inside.items()]


class _Report:
    """What was found, for people and for programs."""

    def __init__(self, setup: _Setup, found: Result) -> None:
        self.setup, self.found = setup, found
        printed = " as printed" if setup.as_printed else ""
        self.title = f"{setup.spec.name}{printed}, {setup.network.n} nodes: {finding(found.violated or '')}"
        bounds = found.configuration.entries
        one = bounds[0] if len(set(bounds)) == 1 else list(bounds)
        self.entries = "any" if one == ANY else one

    @property
    def script(self) -> str:
        return counterexample.transcript(self.found.model, self.found.way, self.setup.lines(), self.title)

    def save(self, transcript: Path | None, diagram: Path | None, itf: Path | None, shiviz: Path | None) -> None:
        found = self.found
        if not found.way:
            return
        if transcript:
            save(transcript, _played(self.script))
        if diagram:
            save(diagram, diagrams.svg(found.events()))
        if itf:
            save(itf, json_.dumps(counterexample.itf(found.model, found.way, self.title), indent=1))
        if shiviz:
            save(shiviz, shiviz_log.log(found.events()))

    def show(self, json: bool) -> None:
        found, out = self.found, self.found.outcome
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if not json:
            _show(self, peak_mb)
            return
        asked = found.configuration
        print_json({
            "algorithm": self.setup.spec.name, "form": self.setup.spec.form, "nodes": self.setup.network.n,
            "entries": self.entries, "network": "fifo" if asked.fifo else "any order", "verdict": found.verdict,
            "properties": found.verdicts, "property": found.violated, "states": out.states,
            "transitions": out.transitions, "depth": out.depth, "seconds": round(out.seconds, 3), "peak_mb": peak_mb,
            "exact": out.exact, "collision_bound": out.collision_bound, "reduction": found.reduction,
            "reduction_checked": found.reduction_checked, "shortest": found.shortest,
            "trace": counterexample.steps(found.model, found.way), "loop_from": found.loop_from,
            **({"messages_per_entry": sorted(found.costs)} if asked.costs else {}),
            **({"passed_over": found.passed_over} if asked.passed_over else {}),
        })  # fmt: skip


def _note(words: str) -> None:
    print(f"peerlock: note: {words.rstrip('.')}.", file=sys.stderr)


def _entries(text: str, n: int) -> list[int]:
    if text == "any":
        return [ANY] * n
    try:
        bounds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{text!r} is not a number of entries: write 2, any, or one number per node: 3,3,1.") from None
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


def _show(report: _Report, peak_mb: int) -> None:
    found, setup = report.found, report.setup
    outcome, asked = found.outcome, found.configuration
    out = console()
    form = "" if setup.spec.form == "standard" else f", {setup.spec.form.replace('_', ' ')}"
    order = "fifo" if asked.fifo else "any order"
    table = Table(
        "property", "verdict",
        title=f"{setup.spec.name}{form}: {setup.network.n} nodes, entries {report.entries}, {order}",
    )  # fmt: skip
    colour = {"holds": "green", "violated": "bold red", "unfinished": "yellow"}
    for name, verdict in found.verdicts.items():
        table.add_row(name, f"[{colour[verdict]}]{verdict}[/]")
    out.print(table)
    out.print(
        f"{outcome.states:,} states, {outcome.transitions:,} transitions, depth {outcome.depth}, "
        f"{outcome.seconds:.1f} s, {peak_mb} MB"
    )
    if found.reduction:
        every = "every step was checked to allow it"
        checked = every if found.reduction_checked else "not checked: it did not come to that"
        out.print(f"Reduced by {found.reduction}; {checked}.")
    if not outcome.exact:
        out.print(
            f"States are told apart by 64-bit keys; two were confused with a chance below {outcome.collision_bound:.1e}."
        )
    if asked.costs:
        out.print(f"Messages per entry: {', '.join(map(str, sorted(found.costs)))}.")
    if asked.passed_over:
        out.print(f"Passed over once every node has its request: at most {found.passed_over} times.")
    if found.way:
        _show_way(report)


def _show_way(report: _Report) -> None:
    found, out = report.found, console()
    steps = len(found.way)
    if not found.shortest:
        out.print("The reduction found this way to it; a shorter one may exist.")
    out.print(f"\n{report.title}, in {steps} steps:\n")
    if found.loop_from is not None:
        out.print(f"The last {steps - found.loop_from} steps repeat for ever.\n")
    print("".join(line + "\n" for line in _played(report.script).splitlines()[1:]))
    print(diagrams.text(found.events(), most=200))
