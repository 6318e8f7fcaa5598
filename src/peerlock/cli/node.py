"""`peerlock node`, `status`, `kick`, `trace`: running and looking at a group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group as Rows
from rich.live import Live
from rich.table import Table
from rich.text import Text

from peerlock.cli.app import app, check_output, console, output, print_json
from peerlock.cli.progress import progress
from peerlock.errors import PeerlockError, UsageError
from peerlock.net.control.client import Caller, look, places, reach
from peerlock.net.control.status import NodeStatus
from peerlock.net.settings import Settings, gather, prepared, registry_for

GroupName = Annotated[str, typer.Option("-g", "--group", envvar="PEERLOCK_GROUP", help="The group.")]
Config = Annotated[str | None, typer.Option(help="A TOML file that describes the group.")]
Directory = Annotated[str | None, typer.Option("--dir", help="Directory of a group shared between users.")]


@app.command()
def node(
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
    name: Annotated[str | None, typer.Option(help="Which node of the list this is, or how it is to be called.")] = None,
    assume_dead: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This node of the list is dead, for certain: do not wait for it."),
    ] = None,
    voter: Annotated[bool, typer.Option("--voter", help="Only vote, for a group with voters: be no member.")] = False,
    first_start: Annotated[
        bool, typer.Option("--first-start", help="This voter has never run before: it has no record yet.")
    ] = False,
    state: Annotated[
        str | None, typer.Option(help="Where a voter keeps its record, a node of a list its epochs.")
    ] = None,
    metrics: Annotated[int | None, typer.Option(metavar="PORT", help="Serve Prometheus metrics on loopback.")] = None,
) -> None:
    """Keep a member of a group running, for peerlock run and for looking at the group. Ends with Ctrl-C or TERM.

    With --voter it is no member, and helps to decide who is.
    """
    settings = gather(
        config, dir=directory, name=name, assume_dead=tuple(assume_dead) if assume_dead else None,
        first_start=first_start or None, state=state,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    asyncio.run(_vote(group, settings) if voter else _stay(group, settings, metrics))


async def _vote(group: str, settings: Settings) -> None:
    from peerlock.net.voters.server import VoterProcess, voter_server_for

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    voter_server = voter_server_for(group, settings)
    print(f"{voter_server.name} votes for the group {group} at {voter_server.where}", flush=True)
    await VoterProcess(voter_server).run(ended)


voters_app = typer.Typer(help="The voters of a group.", no_args_is_help=True)
app.add_typer(voters_app, name="voters")


@voters_app.command("replace")
def replace_voter(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The voter that is dead, or is to be taken out.")],
    new: Annotated[str, typer.Argument(metavar="NEW=HOST:PORT", help="The one that takes its place, and where it is.")],
    group: GroupName = "default",
    config: Config = None,
    name: Annotated[str | None, typer.Option(help="As which node; with TLS, whose certificate.")] = None,
) -> None:
    """Put a new voter in the place of another one. A majority of the present voters must be well.

    Start the new one first, on its host: peerlock node --voter --name NEW --first-start. Then
    change the list of voters in the settings of every node: those that run have
    learned it from the group.
    """
    from peerlock.net.registries.static import parse_address
    from peerlock.net.transport.tls import contexts
    from peerlock.net.voters.replacement import replace_voter
    from peerlock.net.voters.server import check_voters
    from peerlock.node.quorum.messages import ReplaceVoter

    settings = gather(config, name=name)
    if settings.voters is None:
        raise UsageError("No voters are known here: give --config, or set PEERLOCK_VOTERS.")
    fresh, equals, address = new.partition("=")
    if not equals:
        raise UsageError(f"The new voter must be NEW=HOST:PORT; got {new!r}.")
    parse_address(fresh, address)
    name = settings.name or "operator"
    tls = contexts(settings.tls, name) if settings.tls else None
    outcome = asyncio.run(
        replace_voter(group, check_voters(settings.voters), ReplaceVoter(old, fresh, address), tls, name)
    )
    if not outcome.ok:
        raise UsageError(outcome.sentence)
    print(outcome.sentence)


async def _stay(group: str, settings: Settings, metrics: int | None) -> None:
    from peerlock.net.aio.node import Joining, Node

    algorithm, limits = prepared(settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    joining = Joining(
        lambda: Node(registry_for(group, settings, resident=True), group, algorithm=algorithm, limits=limits)
    )
    joined = loop.create_task(joining._join())
    stopped = loop.create_task(ended.wait())
    await asyncio.wait([joined, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not joined.done():
        joined.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await joined
        return
    here = await joined
    try:
        if metrics is not None:
            from peerlock.prometheus import serve

            serve(here, metrics)
        print(f"{here.name} is a member of {group}, epoch {here.epoch}: {', '.join(here.members)}", flush=True)
        await stopped
    finally:
        await here.leave()


def _reach(group: str, settings: Settings) -> Caller:
    caller = reach(group, settings)
    if caller is None:
        raise UsageError(f"No node of the group {group} answers on this host: start one with peerlock node.")
    return caller


@app.command()
def status(
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
    state: Annotated[
        str | None, typer.Option(help="The state= that a program on this host has joined with, if it has given one.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it, twice a second, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Who is in a group, who holds which lock, who waits, and for whom.

    A node of this host is asked, and asks the other members. A member that does
    not answer is named, and what it holds is unknown.
    """
    settings = gather(config, needs_tls=False, dir=directory, state=state)
    if as_json:
        print_json(msgspec.to_builtins(look(group, settings)))
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


def _shown(status: NodeStatus) -> Any:
    kind = KINDS.get(status.kind, status.kind)
    head = Text(f"group {status.group} ({kind}), epoch {status.epoch}, as {status.node} sees it", style="bold")
    rows: list[Any] = [head, Text(f"members: {', '.join(status.members)}")]
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


@app.command()
def kick(
    name: Annotated[str, typer.Argument(metavar="NODE", help="The node that is dead.")],
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
) -> None:
    """Say that a node of a fixed list is dead, so that the group goes on without it. You must be right."""
    settings = gather(config, needs_tls=False, dir=directory)
    with contextlib.closing(_reach(group, settings)) as caller:
        print(caller.call("kick", name=name))


@app.command()
def trace(
    lock: Annotated[str, typer.Argument(metavar="LOCK", help="The lock to watch.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The trace file, for peerlock diagram and peerlock replay.")],
    seconds: Annotated[float, typer.Option(min=0.01, max=3600, help="For how long.")] = 1.0,
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
) -> None:
    """Write down what happens to one lock of a running group: its messages, who waits, who enters.

    The group starts a new epoch for it, so that the trace has a beginning. It is
    a trace like those of peerlock sim: draw it, compute it again.
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
