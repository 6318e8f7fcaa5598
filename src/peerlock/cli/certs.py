"""`peerlock certs`: a certificate authority, and certificates for the nodes of a fixed list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peerlock.cli.app import app
from peerlock.net.transport.certificates import make_certificates


@app.command()
def certs(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the nodes, as they join.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory for the files.")] = Path("certs"),
    days: Annotated[int, typer.Option(min=1, max=36500, help="How long the certificates are valid.")] = 825,
) -> None:
    """Make a certificate authority and one certificate per node: ca.pem, NAME.pem, NAME.key.

    If the directory has an authority already, it signs the new certificates.

    Give every node ca.pem, its own NAME.pem and its own NAME.key. Keep ca.key
    away from the nodes: with it, a node could pretend to be any other.
    """
    make_certificates(names, out, days)
    made = ", ".join(f"{name}.pem and {name}.key" for name in names)
    print(f"{out}: {made}, signed by ca.pem. Keep ca.key away from the nodes.")
