"""The command line: one file per command."""

from __future__ import annotations

import sys


def main() -> None:
    """`peerlock`: exit code 2 and one sentence for every mistake that a user can correct."""
    try:
        from peerlock.cli.app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("peerlock"):
            raise
        print(f"The command line needs {missing.name}: pip install 'peerlock[cli]'.", file=sys.stderr)
        sys.exit(2)
    sys.exit(run())
