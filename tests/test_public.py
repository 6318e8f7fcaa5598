"""What a user's program can name, and that a type checker knows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import peerlock
import peerlock.sync

PROGRAM = """
import asyncio

import peerlock
import peerlock.sync


async def work(node: peerlock.Node) -> None:
    async with node.lock("orders") as hold:
        use(hold)


def use(hold: peerlock.Hold) -> int:
    return hold.fence


def threads() -> None:
    node: peerlock.sync.Node = peerlock.sync.join("shop", name="a", timeout=3.0)
    with node, node.lock("x") as hold:
        held: peerlock.sync.Hold = hold
        print(held.fence, peerlock.__version__)


async def main() -> None:
    async with peerlock.join("shop") as node:
        await work(node)


asyncio.run(main())
"""


def test_a_users_program_is_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_every_public_name_is_there() -> None:
    for module in (peerlock, peerlock.sync):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(peerlock.__all__) <= set(dir(peerlock))
