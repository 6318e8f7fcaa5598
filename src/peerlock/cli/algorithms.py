"""`peerlock algorithms`: the catalogue."""

from __future__ import annotations

from rich.table import Column, Table

from peerlock.algorithms import CATALOGUE
from peerlock.cli.app import AsJsonList, app, console, print_json


@app.command()
def algorithms(json: AsJsonList = False) -> None:
    """List the algorithms, with the network that each needs and the messages per entry that its
    paper claims.
    """
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
    table = Table(Column("name", no_wrap=True), "year", "needs", "messages per entry, as claimed", "forms", "options")
    for entry in CATALOGUE.values():
        claimed = entry.claimed.words if entry.claimed else "-"
        forms, options = ", ".join(entry.forms), ", ".join(entry.options) or "-"
        table.add_row(entry.name, str(entry.year), str(entry.needs), claimed, forms, options)
    console().print(table)
    console().print("Run one: peerlock sim NAME -n 5. Their papers: peerlock algorithms --json.")
