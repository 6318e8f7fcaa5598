"""`peerlock node`: keep a member of a group, or a voter, running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, Directory, GroupName
from peerlock.net.settings import Settings, gather, prepared, registry_for


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


async def _stay(group: str, settings: Settings, metrics: int | None) -> None:
    from peerlock.net.aio.node import Joining
    from peerlock.net.aio.shell import AioShell

    algorithm, limits = prepared(settings)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    joining = Joining(lambda: AioShell(registry_for(group, settings, resident=True), group, algorithm, limits))
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
