"""`peerlock status`: the members of a group, its locks, their holders and their waiters."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group as Rows
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peerlock.cli.app import AsJson, app, console, print_json
from peerlock.cli.group_options import Config, Directory, GroupName
from peerlock.errors import PeerlockError
from peerlock.net.control.client import look
from peerlock.net.control.status import NodeStatus
from peerlock.net.settings import gather


@app.command()
def status(
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="State file of the node to ask, if its program joined with state=FILE."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it twice per second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the members of a group, its locks with their holders and waiters, and what the group
    waits for.

    The command asks a node of this host, which asks the other members. The
    output names the members that do not answer. What they hold is unknown.

    Exit code 0: a node of this host has answered, even if other members have
    not (see "complete" in --json). 2: no node has answered.
    """
    settings = gather(config, needs_tls=False, dir=directory, state=state)
    if as_json:
        print_json(look(group, settings))
        return
    if not watch:
        console().print(_shown(look(group, settings)))
        return
    with Live(console=console(), refresh_per_second=4, transient=False) as live:
        while True:
            try:
                live.update(_shown(look(group, settings)))
            except PeerlockError as problem:
                live.update(Text(str(problem)))
            time.sleep(0.5)


KINDS = {"host": "one host", "static": "a fixed list", "embedded": "voters", "etcd": "etcd"}


def _shown(status: NodeStatus) -> Rows:
    kind = KINDS.get(status.kind, status.kind)
    head = Text(f"group {status.group} ({kind}), epoch {status.epoch}, as {status.node} sees it", style="bold")
    rows: list[RenderableType] = [head, Text(f"members: {', '.join(status.members)}")]
    if status.silent:
        rows.append(Text(f"no answer from: {', '.join(status.silent)}", style="yellow"))
    if status.older:
        rows.append(Text(f"not upgraded yet: {', '.join(status.older)}", style="yellow"))
    if status.waits_for:
        rows.append(Text(f"waiting for: {', '.join(status.waits_for)}", style="red"))
    if status.changing:
        rows.append(Text("the group is changing its view: nothing is granted until it has", style="yellow"))
    if status.outside:
        rows.append(Text(f"on this host, and not in the view: {', '.join(status.outside)}", style="yellow"))
    if not status.complete:
        rows.append(Text(f"unknown: {_unknown(status)}", style="red"))
    elif not status.locks:
        rows.append(Text("no lock is held or waited for"))
    if not status.locks:
        return Rows(*rows)
    table = Table("lock", "holder", "fence", "for", "waiting, longest first", "algorithm")
    for lock in status.locks:
        holders = (
            "\n".join(f"{holder.node}{' (read)' if holder.mode == 'read' else ''}" for holder in lock.holders) or "-"
        )
        waiters = ", ".join(f"{waiter.node} {waiter.seconds:.1f} s" for waiter in lock.waiters) or "-"
        fences = "\n".join(str(holder.fence) for holder in lock.holders) or "-"
        seconds = "\n".join(f"{holder.seconds:.1f} s" for holder in lock.holders) or "-"
        table.add_row(lock.name, holders, fences, seconds, waiters, lock.algorithm)
    return Rows(*rows, table)


def _unknown(status: NodeStatus) -> str:
    more = "whether more is held or waited for" if status.locks else "whether a lock is held or waited for"
    if status.silent:
        return f"{more} by {', '.join(status.silent)}"
    if status.waits_for or status.changing:
        return f"{more}, until the group has its next view"
    return f"{more}. {status.node} has no lease, and the group may have gone on without it"
