"""`peerlock trace`: record one lock of a running group."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from peerlock.cli.app import app, check_output, output
from peerlock.cli.group_options import Config, Directory, GroupName
from peerlock.cli.progress import progress
from peerlock.errors import PeerlockError, UsageError
from peerlock.net.control.client import Caller, places
from peerlock.net.settings import gather


@app.command()
def trace(
    lock: Annotated[str, typer.Argument(metavar="LOCK", help="Name of the lock to record.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The trace file.")],
    seconds: Annotated[float, typer.Option(min=0.01, max=3600, help="How long to record.")] = 1.0,
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
) -> None:
    """Record the messages, waiters and entries of one lock of a running group.

    An entry is one hold, from the grant to the release. The group starts a new
    epoch, with which the trace begins. The trace can be drawn (peerlock
    diagram) and replayed (peerlock replay).
    """
    from peerlock.net.control.tracing import merged

    check_output(out)
    settings = gather(config, needs_tls=False, dir=directory)
    callers = []
    try:
        for place in places(group, settings):
            with contextlib.suppress(PeerlockError):
                callers.append(Caller(place.path, group))
        if not callers:
            raise UsageError(f"No node of the group {group} answers on this host: there is nothing to trace.")
        for caller in callers:
            caller.call("trace", lock=lock)
        callers[0].call("renew")
        for _ in progress(range(max(1, round(seconds * 10))), f"watching {lock}", max(1, round(seconds * 10))):
            time.sleep(min(0.1, seconds))
        members = callers[0].call("status")["members"]
        parts = [caller.call("traced", lock=lock) for caller in callers]
    finally:
        for caller in callers:
            caller.close()
    events = merged(parts)
    encoder = msgspec.json.Encoder(order="deterministic")
    with output(out) as stream:
        for event in events:
            stream.write(encoder.encode(event) + b"\n")
    print(f"{len(events) - 1} events of {lock} at {len(parts)} nodes in {out}. See it: peerlock diagram {out}")
    missing = [name for name in members if name not in {str(caller.node) for caller in callers}]
    if missing:
        print(f"Not in it, because they do not answer on this host: {', '.join(missing)}.")
