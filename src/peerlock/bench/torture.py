"""`make torture`: ten real processes with one lock, killed, stopped and started again, seed after seed."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from peerlock.bench.crowd import Account, Crowd
from peerlock.node.wire_algorithms import DEFAULT


def torture(algorithm: str, people: int, seconds: float, seed: int) -> Account:
    with tempfile.TemporaryDirectory(prefix="peerlock-torture-") as place:
        crowd = Crowd(Path(place), "torture", algorithm, people, hold_us=50)
        time.sleep(1.0)
        crowd.trouble(seed, seconds)
        return crowd.end()


def wrong(account: Account) -> list[str]:
    """What must not be."""
    extra = account.counter - account.entries
    found = {
        "lost updates": account.lost_updates,
        "overlaps": account.overlaps,
        "fences out of order": account.fences_out_of_order,
        "never got in": account.starved,
        "more in the counter than was counted": max(0, extra - account.killed_inside),
    }
    return [f"{what}: {count}" for what, count in found.items() if count]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithm", default=DEFAULT)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", default="1")
    said = parser.parse_args()
    bad = False
    for seed in map(int, said.seeds.split(",")):
        account = torture(said.algorithm, said.people, said.seconds, seed)
        problems = wrong(account)
        bad = bad or bool(problems)
        print(f"seed {seed}: {', '.join(problems) or 'nothing wrong'}; {account}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
