"""A file that refuses a late holder: `GuardedFile` remembers the largest fence that it has seen.

Try it: python examples/guards/file.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import peerlock
from peerlock.errors import StaleFence
from peerlock.guards import GuardedFile


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        report = GuardedFile(Path(directory) / "report.txt")
        async with peerlock.join("report-example") as node:
            async with node.lock("report") as hold:
                late = hold.fence
                report.write(hold.fence, b"first")
            async with node.lock("report") as hold:
                report.write(hold.fence, report.take(hold.fence) + b", second")
            try:
                report.write(late, b"too late")  # a process that was stopped before its write, and goes on now
            except StaleFence as problem:
                print(problem)
        print("contents:", report.read()[1].decode())


if __name__ == "__main__":
    asyncio.run(main())
