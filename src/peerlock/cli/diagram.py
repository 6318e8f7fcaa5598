"""`peerlock diagram` and `peerlock replay`: what to do with a trace."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from peerlock.cli.app import app, check_output, save
from peerlock.errors import TraceError
from peerlock.observe import diagram as diagrams
from peerlock.sim.experiment import from_trace
from peerlock.trace import Writer, read


@app.command()
def diagram(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, from peerlock sim --trace.")],
    svg: Annotated[Path | None, typer.Option(help="Write an SVG file instead.")] = None,
    most: Annotated[int | None, typer.Option(help="How many events (SVG: messages) to draw; 60 (400).", min=1)] = None,
    open_: Annotated[bool, typer.Option("--open", help="Watch it in the lab, in a browser.")] = False,
) -> None:
    """Draw a trace as a space-time diagram: here, or as SVG; or watch it in the lab."""
    check_output(svg, ".svg")
    events = read(trace)
    if open_:
        from peerlock.cli.lab import watch

        watch(events)
    elif svg is None:
        print(diagrams.text(events, most or 60), end="")
    else:
        save(svg, diagrams.svg(events, most or 400))


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, from peerlock sim --trace.")],
) -> None:
    """Run again what a trace tells of, and see whether the same happens, byte for byte.

    A trace of a running group (peerlock trace) is computed again: what each node
    was told must make it do what it did.
    """
    events = read(trace)
    if (events[0].about or {}).get("kind") == "recorded":
        from peerlock.sim.replay import replay as computed_again

        print(f"Computed again: the same {computed_again(events):,} events.")
        return
    again = io.BytesIO()
    experiment = from_trace(events[0].about or {})
    experiment.prepare().run(recorders=[Writer(again)])
    before, after = trace.read_bytes().splitlines(), again.getvalue().splitlines()
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            raise TraceError(f"{trace} does not replay: line {number} was {old.decode()} and is now {new.decode()}.")
    if len(before) != len(after):
        raise TraceError(f"{trace} does not replay: it has {len(before)} lines, the run gave {len(after)}.")
    print(f"The same {len(after) - 1:,} events, byte for byte.")
