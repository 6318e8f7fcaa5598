"""A row of an SQL table that refuses a late holder: one condition in the statement is enough.

    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence BIGINT NOT NULL)

Every row has the fence of who changed it last. The database compares and writes in one step, so nobody can come in between. It works with any
database that counts the rows it has changed: here with SQLite, in the tests with PostgreSQL, too.

    python examples/guards/sql.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import peerlock
from peerlock.errors import StaleFence

TABLE = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence BIGINT NOT NULL)"


def set_balance(connection: Any, account: int, balance: int, fence: int, mark: str = "?") -> None:
    """`mark` is how the driver writes a parameter: ? for sqlite3, %s for psycopg."""
    statement = f"UPDATE account SET balance = {mark}, fence = {mark} WHERE id = {mark} AND fence <= {mark}"
    cursor = connection.execute(statement, (balance, fence, account, fence))
    connection.commit()
    if cursor.rowcount != 1:
        raise StaleFence(f"Account {account} was changed by a later holder than {fence}. Nothing was written.")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        connection = sqlite3.connect(Path(directory) / "bank.db")
        connection.execute(TABLE)
        connection.execute("INSERT INTO account VALUES (1, 100, 0)")
        async with peerlock.join("bank-example") as node:
            async with node.lock("account 1") as hold:
                late = hold.fence
                set_balance(connection, 1, 90, hold.fence)
            async with node.lock("account 1") as hold:
                set_balance(connection, 1, 80, hold.fence)
            try:
                set_balance(connection, 1, 0, late)  # somebody who was stopped before its write, and goes on now
            except StaleFence as problem:
                print(problem)
        print("balance:", connection.execute("SELECT balance FROM account").fetchone()[0])
        connection.close()


if __name__ == "__main__":
    asyncio.run(main())
