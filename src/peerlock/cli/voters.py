"""`peerlock voters`: the voters of a group."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, GroupName
from peerlock.errors import UsageError
from peerlock.net.settings import gather

voters_app = typer.Typer(help="Replace a voter of a group.", no_args_is_help=True)
app.add_typer(voters_app, name="voters")


@voters_app.command("replace")
def replace_voter(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Name of the voter to remove.")],
    new: Annotated[str, typer.Argument(metavar="NEW=HOST:PORT", help="Name and address of the new voter.")],
    group: GroupName = "default",
    config: Config = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Act as this node; with TLS, use its certificate.")
    ] = None,
) -> None:
    """Replace a voter by a new one. A majority of the present voters must be running.

    First start the new voter on its host, with settings that list it:
    peerlock node --voter --name NEW --first-start -g GROUP --config NEW-FILE

    Afterwards change the list of voters in the settings of every node. Running
    nodes learn the new list from the group.
    """
    from peerlock.net.transport.endpoint import parse_address
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
