"""`peerlock kick`: a node of a fixed list is dead, by the operator's word."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, Directory, GroupName, reached_node
from peerlock.net.settings import gather


@app.command()
def kick(
    name: Annotated[str, typer.Argument(metavar="NODE", help="The node that is dead.")],
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
) -> None:
    """Say that a node of a fixed list is dead, so that the group goes on without it. You must be right."""
    settings = gather(config, needs_tls=False, dir=directory)
    with contextlib.closing(reached_node(group, settings)) as caller:
        print(caller.call("kick", name=name))
