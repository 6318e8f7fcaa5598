"""`peerlock algorithms`: the catalogue."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from peerlock.algorithms import CATALOGUE
from peerlock.cli.app import app, console, print_json


@app.command()
def algorithms(json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False) -> None:
    """List every algorithm: its paper, what it needs and what it is claimed to cost."""
    if json:
        print_json(
            [
                {
                    "name": entry.name,
                    "paper": entry.paper,
                    "year": entry.year,
                    "needs": str(entry.needs),
                    "forms": list(entry.forms),
                    "claimed": entry.claimed.words if entry.claimed else None,
                    "options": list(entry.options),
                }
                for entry in CATALOGUE.values()
            ]
        )
        return
    table = Table(Column("name", no_wrap=True), "year", "needs", "messages an entry, as claimed", "forms", "options")
    for entry in CATALOGUE.values():
        claimed = entry.claimed.words if entry.claimed else "-"
        table.add_row(
            entry.name,
            str(entry.year),
            str(entry.needs),
            claimed,
            ", ".join(entry.forms),
            ", ".join(entry.options) or "-",
        )
    console().print(table)
    console().print("Run one: peerlock sim NAME -n 5. The paper of each: peerlock algorithms --json.")
