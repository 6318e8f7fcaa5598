"""`make demo`: five processes share one lock without a server, and one is killed while it holds the lock.

Each process reads a number from a file, adds one and writes it back, as often as it can. Without a
lock, two processes would read the same number, and an update would be lost. The lock is a classic
algorithm that the five processes run among themselves. ALGORITHM=NAME chooses another one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from peerlock.algorithms import CATALOGUE, Size
from peerlock.bench.crowd import ENTRIES, EPOCH, HOLDS, MESSAGES, STATE, WAITS, Account, Crowd
from peerlock.errors import PeerlockError
from peerlock.node.wire_algorithms import ON_THE_WIRE, wire_algorithm

PROCESSES, HOLD_US = 5, 300


def formula(algorithm: str, n: int) -> str:
    claimed = CATALOGUE[algorithm].claimed
    bounds = claimed.bounds(Size(n=n, e=n * (n - 1) // 2, d=1)) if claimed else None
    if claimed is None or bounds is None:
        return "-"
    least, most = bounds
    return f"{claimed.words.split(',')[0]}: {least if least == most else f'{least} to {most}'}"


def shown(crowd: Crowd, left: float) -> Table:
    board = crowd.board
    table = Table(title=f"{crowd.algorithm}: {left:4.1f} s left, the number is {board[0]:,}")
    for column in ("process", "pid", "state", "entries", "messages per entry", "epoch"):
        table.add_column(column, justify="right" if column in ("entries", "messages per entry", "epoch") else "left")
    for one in crowd.processes:
        entries = board.row(one.number, ENTRIES)
        state = board.row(one.number, STATE)
        dead = one.process.poll() is not None
        words = "[red]killed[/]" if dead else "[green]holds[/]" if state == HOLDS else "waits" if state == WAITS else ""
        each = f"{board.row(one.number, MESSAGES) / entries:.2f}" if entries else ""
        table.add_row(
            str(one.number + 1),
            str(one.process.pid),
            words,
            f"{entries:,}",
            each,
            str(board.row(one.number, EPOCH)),
        )
    return table


def totals(crowd: Crowd) -> tuple[int, int]:
    rows = range(crowd.next)
    return sum(crowd.board.row(row, ENTRIES) for row in rows), sum(crowd.board.row(row, MESSAGES) for row in rows)


def show(algorithm: str, seconds: float, console: Console) -> tuple[Account, tuple[int, int]]:
    """The account at the end, and the entries and messages before the kill."""
    with tempfile.TemporaryDirectory(prefix="peerlock-demo-") as place:
        crowd = Crowd(Path(place), "demo", algorithm, PROCESSES, hold_us=HOLD_US)
        began, before = time.monotonic(), (0, 0)
        with Live(shown(crowd, seconds), console=console, refresh_per_second=8) as live:
            while (passed := time.monotonic() - began) < seconds:
                time.sleep(0.05)
                live.update(shown(crowd, seconds - passed))
                holders = [one for one in crowd.processes if crowd.board.row(one.number, STATE) == HOLDS]
                if not before[0] and passed > seconds / 2 and holders:
                    before = totals(crowd)
                    crowd.kill(holders[0])
            live.update(shown(crowd, 0.0))
        crowd.processes = [one for one in crowd.processes if one.process.poll() is None]
        return crowd.end(), before


def main() -> int:
    chosen = os.environ.get("ALGORITHM")
    seconds = float(os.environ.get("DEMO_SECONDS", "10"))
    algorithms = [chosen] if chosen else ["suzuki-kasami-a", "ricart-agrawala"]
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    bad = 0
    for algorithm in algorithms:
        try:
            wire_algorithm(algorithm)
        except PeerlockError as problem:
            print(f"{problem} Allowed are: {', '.join(ON_THE_WIRE)}.", file=sys.stderr)
            return 2
        console.print(
            f"\nFive processes share one lock ({algorithm}) and a number in a file; there is no server.\n"
            f"After {seconds / 2:g} s the process that holds the lock is killed with SIGKILL.\n"
        )
        account, (entries, messages) = show(algorithm, seconds, console)
        console.print(
            f"\nentries {account.entries:,}   [bold]lost updates {account.lost_updates}   overlaps {account.overlaps}[/]   "
            f"fences out of order {account.fences_out_of_order}   killed while holding {account.faults['kill']}"
        )
        console.print(
            f"hand-over from process to process: {account.hand_over_us[0]:,.0f} us, "
            f"99 % within {account.hand_over_us[1]:,.0f} us"
        )
        for n, words, count, sent in (
            (PROCESSES, "before", entries, messages),
            (PROCESSES - 1, "after", account.entries - entries, account.messages - messages),
        ):
            each = f"{sent / count:.2f}" if count else "-"
            console.print(f"messages per entry {words} the kill, {n} nodes: {each}; the paper: {formula(algorithm, n)}")
        bad += account.lost_updates + account.overlaps + account.fences_out_of_order + account.starved
    if not chosen:
        console.print(
            f"\nAnother algorithm: ALGORITHM={ON_THE_WIRE[-1]} make demo. The papers side by side: make demo-papers."
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
