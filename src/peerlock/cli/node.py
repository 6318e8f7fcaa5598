"""`peerlock node`: run a member of a group, or a voter."""

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
from peerlock.net.settings import Settings, algorithm_and_limits, gather, kind_of, registry_for


@app.command()
def node(
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of this node. A fixed list and a voter need one.")
    ] = None,
    assume_dead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Do not wait for this node of the fixed list: it is dead. Make sure first that its process has ended. "
            "If it still runs, two nodes may hold a lock at once. May be repeated.",
        ),
    ] = None,
    voter: Annotated[bool, typer.Option("--voter", help="Run a voter only, not a member.")] = False,
    first_start: Annotated[
        bool,
        typer.Option(
            "--first-start", help="First start of this voter: begin without a record. Leave it out afterwards."
        ),
    ] = False,
    state: Annotated[
        str | None, typer.Option(metavar="FILE", help="File that this node must keep across restarts.")
    ] = None,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve Prometheus metrics at this port of loopback.")
    ] = None,
) -> None:
    """Keep a node of a group running on this host (a resident node). Ends with Ctrl-C or TERM.

    On one host, all processes of this user are attached to this node: they use
    the group's locks through it. Without it the first of them starts such a node,
    which ends when it is not used any more. In other groups, peerlock run takes
    locks through this node. peerlock status asks it. If the settings list its
    name as a voter, it is a voter too.

    With --voter, run a voter only. Voters decide which nodes are members of the
    group. A voter that is no member holds no locks.
    """
    settings = gather(
        config, dir=directory, name=name, assume_dead=tuple(assume_dead) if assume_dead else None,
        first_start=first_start or None, state=state,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    if voter:
        asyncio.run(_vote(group, settings))
    elif kind_of(settings) in ("", "dir"):
        asyncio.run(_share(group, settings, metrics))
    else:
        asyncio.run(_stay(group, settings, metrics))


async def _vote(group: str, settings: Settings) -> None:
    from peerlock.net.voters.server import VoterProcess, voter_server_for

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    voter_server = voter_server_for(group, settings)
    print(f"{voter_server.name} votes for the group {group} at {voter_server.where}", flush=True)
    await VoterProcess(voter_server).run(ended)


async def _share(group: str, settings: Settings, metrics: int | None) -> None:
    """On one host: the node that the processes of this user are attached to."""
    from peerlock.net.aio.node import Node
    from peerlock.net.attached.directory import AttachedDirectory
    from peerlock.net.attached.host_node import ends_when_told, hosting, take_the_place

    algorithm, limits = algorithm_and_limits(settings)
    ended = ends_when_told()
    directory = AttachedDirectory(group, settings.dir)
    directory.make()
    lock = await take_the_place(directory, group)
    async with hosting(
        directory, lock, group, settings.dir, name=settings.name, service=True, algorithm=algorithm, limits=limits
    ) as host:
        here = Node(host.shell)
        if metrics is not None:
            from peerlock.prometheus import serve

            serve(here, metrics)
        print(f"{here.name} is a member of {group}, epoch {here.epoch}: {', '.join(here.members)}", flush=True)
        await ended.wait()


async def _stay(group: str, settings: Settings, metrics: int | None) -> None:
    from peerlock.net.aio.node import Joining
    from peerlock.net.aio.shell import AioShell

    algorithm, limits = algorithm_and_limits(settings)
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
