"""`make torture`: ten real processes with one lock, killed, stopped and started again, seed after seed."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from math import inf
from pathlib import Path

from peerlock.bench.crowd import ROWS, Account, Crowd, CrowdProcess
from peerlock.node.wire_algorithms import DEFAULT


class TorturedCrowd(Crowd):
    """Its processes are killed, started again, stopped and continued at random."""

    def torture(self, seed: int, seconds: float) -> Account:
        chance, until = random.Random(seed), time.monotonic() + seconds
        stopped: dict[int, float] = {}  # number -> until when
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.05, 0.3))
            for one in self.processes:
                if stopped.get(one.number, inf) < time.monotonic():
                    del stopped[one.number]
                    one.process.send_signal(signal.SIGCONT)
            able = [one for one in self.processes if one.number not in stopped]
            if len(able) < 3:
                continue
            one, what = chance.choice(able), chance.random()
            if what < 0.35 and self.next < ROWS:
                self.kill(one)
                self.restart(one)
            elif what < 0.5:
                self.faults["stop"] += 1
                one.process.send_signal(signal.SIGSTOP)
                stopped[one.number] = time.monotonic() + chance.choice((0.05, 0.5, 4.0))
        for one in self.processes:
            one.process.send_signal(signal.SIGCONT)
        return self.end()

    def restart(self, one: CrowdProcess) -> None:
        self.faults["restart"] += 1
        self.processes[self.processes.index(one)] = self.start()


def torture(algorithm: str, count: int, seconds: float, seed: int) -> Account:
    with tempfile.TemporaryDirectory(prefix="peerlock-torture-") as place:
        crowd = TorturedCrowd(Path(place), "torture", algorithm, count, hold_us=50)
        time.sleep(1.0)
        return crowd.torture(seed, seconds)


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
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", default="1")
    said = parser.parse_args()
    bad = False
    for seed in map(int, said.seeds.split(",")):
        account = torture(said.algorithm, said.processes, said.seconds, seed)
        problems = wrong(account)
        bad = bad or bool(problems)
        print(f"seed {seed}: {', '.join(problems) or 'nothing wrong'}; {account}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
