"""A guard against getting slower: a few ratios, measured now, beside the stored ones.

python scripts/bench_quick.py [--update]

Each ratio has something of the same run below the line, so a slower machine changes both. What is left is noise, of other
work on the machine above all: only a ratio that is worse than the stored one by more than MARGIN fails, and what fails is
measured twice more first. `--update` stores what was measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.drivers import ROWS, Row, Wire
from benchmarks.peers.figures import contended
from benchmarks.peers.floor import idle_us, two_cores
from benchmarks.peers.scenes import percentile, play

MARGIN = 1.6
STORED = Path(__file__).with_name("bench_quick.json")
OURS = {row.name: row for row in ROWS if row.ours}


def entry(name: str) -> float:
    told = play(OURS[name], "uncontended", 3, 1.0)[0]
    return float(told["us"] / told["asyncio_lock_us"])


def changes(name: str) -> float:
    """Time for a change of the owner, in bare messages."""
    wire = play(Row("wire", Wire, loop=OURS[name].loop), "hot wire", 2, 0.5, cores=two_cores())[0]["us"]
    return 1e6 / contended(play(OURS[name], "contended", 3, 1.5)).owner_changes_a_second / float(wire)


def parked(name: str) -> float:
    """Hand-over to who sleeps, in bare messages to who sleeps; each on a core of its own."""
    wire = idle_us(OURS[name].loop, 0.7, two_cores())
    ours = [t for told in play(OURS[name], "parked", 2, 1.0, cores=two_cores()) for t in told["times"]]
    if len(ours) < 10:
        raise SystemExit("The lock was hardly ever handed over to who waited: nothing can be said. Run it again.")
    return percentile(ours, 0.5) * 1e6 / wire


RATIOS: dict[str, Callable[[], float]] = {
    "entry nobody competes for, over asyncio.Lock (uvloop)": lambda: entry("peerlock"),
    "entry nobody competes for, over asyncio.Lock (threads)": lambda: entry("peerlock, threads"),
    "owner change, 3 processes, over a bare message (uvloop)": lambda: changes("peerlock"),
    "owner change, 3 processes, over a bare message (asyncio)": lambda: changes("peerlock, asyncio"),
    "hand-over to a parked waiter, over a bare message (uvloop)": lambda: parked("peerlock"),
    "hand-over to a parked waiter, over a bare message (asyncio)": lambda: parked("peerlock, asyncio"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    update = parser.parse_args().update
    stored: dict[str, float] = json.loads(STORED.read_text()) if STORED.exists() else {}
    found, failed = {}, []
    for name, measure in RATIOS.items():
        values = [measure() for _ in range(3 if update else 1)]
        while not update and statistics.median(values) > MARGIN * stored[name] and len(values) < 3:
            values.append(measure())
        found[name] = round(statistics.median(values), 3)
        slower = not update and found[name] > MARGIN * stored[name]
        failed += [name] if slower else []
        print(
            f"{name:60} {found[name]:8.2f}   stored {stored.get(name, found[name]):8.2f}{'   SLOWER' if slower else ''}",
            flush=True,
        )
    if update:
        STORED.write_text(json.dumps(found, indent=2) + "\n")
    for name in failed:
        print(f"{name}: more than {MARGIN} times the stored one. If that is meant: --update.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
