"""`peerlock kick`: the operator declares that a node of a fixed list is dead."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, Directory, GroupName, reached_node
from peerlock.net.settings import gather


@app.command()
def kick(
    name: Annotated[str, typer.Argument(metavar="NODE", help="Name of the dead node.")],
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
) -> None:
    """Declare a node of a fixed list dead, so that the group goes on without it.

    A fixed list is a group whose settings name all its nodes.

    Make sure first that the process has ended. If it still runs, two nodes may
    hold a lock at once.
    """
    settings = gather(config, needs_tls=False, dir=directory)
    with contextlib.closing(reached_node(group, settings)) as caller:
        print(caller.call("kick", name=name))
