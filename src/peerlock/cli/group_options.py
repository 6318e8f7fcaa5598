"""The options that name a group, and the way to a node of it."""

from __future__ import annotations

from typing import Annotated

import typer

from peerlock.errors import UsageError
from peerlock.net.control.client import Caller, reach
from peerlock.net.settings import Settings

GroupName = Annotated[str, typer.Option("-g", "--group", envvar="PEERLOCK_GROUP", help="Name of the group.")]
Config = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with the settings of the group (TOML). Also: PEERLOCK_CONFIG."),
]
Directory = Annotated[
    str | None,
    typer.Option("--dir", metavar="DIR", help="Directory of a group that several users share. Also: PEERLOCK_DIR."),
]


def reached_node(group: str, settings: Settings) -> Caller:
    caller = reach(group, settings)
    if caller is None:
        raise UsageError(f"No node of the group {group} answers on this host: start one with peerlock node.")
    return caller
