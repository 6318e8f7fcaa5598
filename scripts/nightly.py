"""Simulate whole nodes with leases, seed after seed, for so many minutes; a failure ends it with exit code 1.

python scripts/nightly.py --minutes 60 [--first SEED]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

PIECE = 2000  # seeds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first", type=int, default=time.time_ns() // 10**9)
    said = parser.parse_args()
    end, first = time.monotonic() + 60 * said.minutes, said.first
    while time.monotonic() < end:
        seeds = f"{first}..{first + PIECE - 1}"
        print(f"seeds {seeds}", flush=True)
        words = ["sim-nodes", "--registry", "leases", "--seeds", seeds]
        if subprocess.run([sys.executable, "-m", "peerlock", *words], check=False).returncode:
            return 1
        first += PIECE
    return 0


if __name__ == "__main__":
    sys.exit(main())
