"""`peerlock replay`: repeat the run of a trace, and compare."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.errors import TraceError
from peerlock.sim.experiment import from_trace
from peerlock.trace import Writer, read


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, from peerlock sim --trace.")],
) -> None:
    """Repeat the run of a trace, and check that the same happens, byte for byte.

    For a trace of a running group (peerlock trace): give each node the same
    inputs again, and check that it does the same.
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
