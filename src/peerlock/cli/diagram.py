"""`peerlock diagram`: a trace as a space-time diagram."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peerlock.cli.app import app, check_output, save
from peerlock.observe import diagram as diagrams
from peerlock.trace import read


@app.command()
def diagram(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, from peerlock sim --trace.")],
    svg: Annotated[Path | None, typer.Option(help="Write an SVG file, not text.")] = None,
    most: Annotated[
        int | None, typer.Option(help="Draw so many events at most (SVG: messages). Default: 60 (400).", min=1)
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Show the trace in the lab, in a browser.")] = False,
) -> None:
    """Draw a trace as a space-time diagram: as text, as SVG, or in the lab."""
    check_output(svg, ".svg")
    events = read(trace)
    if open_:
        from peerlock.cli.lab import watch

        watch(events)
    elif svg is None:
        print(diagrams.text(events, most or 60), end="")
    else:
        save(svg, diagrams.svg(events, most or 400))
