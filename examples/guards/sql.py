"""A row of an SQL table that refuses a late holder: one condition in the SQL statement is enough.

    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence BIGINT NOT NULL)

Each row has the fence of its last holder. A holder takes the row first, and then reads it. From that
moment on, the database refuses every earlier holder. The database compares and writes in one step,
so no other statement comes in between. This works with any database that counts the changed rows:
here with SQLite, in the tests with PostgreSQL too.

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


def take(connection: Any, account: int, fence: int, mark: str = "?") -> int:
    """Take the row, and return the balance. `mark` is the driver's parameter: ? for sqlite3, %s for psycopg."""
    statement = f"UPDATE account SET fence = {mark} WHERE id = {mark} AND fence <= {mark}"
    cursor = connection.execute(statement, (fence, account, fence))
    connection.commit()
    _one(cursor, account, fence)
    balance: int = connection.execute(f"SELECT balance FROM account WHERE id = {mark}", (account,)).fetchone()[0]
    connection.commit()
    return balance


def set_balance(connection: Any, account: int, balance: int, fence: int, mark: str = "?") -> None:
    statement = f"UPDATE account SET balance = {mark}, fence = {mark} WHERE id = {mark} AND fence <= {mark}"
    cursor = connection.execute(statement, (balance, fence, account, fence))
    connection.commit()
    _one(cursor, account, fence)


def _one(cursor: Any, account: int, fence: int) -> None:
    if cursor.rowcount != 1:
        raise StaleFence(f"Account {account} was changed by a later holder than {fence}. Nothing was written.")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        connection = sqlite3.connect(Path(directory) / "bank.db")
        connection.execute(TABLE)
        connection.execute("INSERT INTO account VALUES (1, 100, 0)")
        async with peerlock.join("bank-example") as node:
            async with node.lock("account-1") as hold:
                late = hold.fence
                set_balance(connection, 1, take(connection, 1, hold.fence) - 10, hold.fence)
            async with node.lock("account-1") as hold:
                set_balance(connection, 1, take(connection, 1, hold.fence) - 10, hold.fence)
            try:
                set_balance(connection, 1, 0, late)  # a process that was stopped before its write, and goes on now
            except StaleFence as problem:
                print(problem)
        print("balance:", connection.execute("SELECT balance FROM account").fetchone()[0])
        connection.close()


if __name__ == "__main__":
    asyncio.run(main())
