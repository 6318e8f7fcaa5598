"""The algorithms on the wire beside each other: five real processes with one lock.

Either all want the lock all the time, or one process wants it and the others do not, or each
process wants it now and then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from peerlock.bench.crowd import COUNTER, Account, Crowd
from peerlock.node.wire_algorithms import ON_THE_WIRE

PROCESSES, HOLD_US, THINK_US = 5, 200, 30_000


class Line(Struct, frozen=True):
    algorithm: str
    entries_a_second: float
    messages_an_entry: float
    hand_over_us: float
    hand_over_99_us: float
    alone_a_second: float  # one process wants the lock, four do not
    now_and_then_us: float  # from asking to entering, when each wants it now and then
    now_and_then_messages: float


def lines(seconds: float) -> Iterator[Line]:
    for algorithm in ON_THE_WIRE:
        rate, account = measured(seconds, algorithm, hold_us=HOLD_US)
        alone, _ = measured(seconds, algorithm, idle=PROCESSES - 1)
        _, sparse = measured(seconds, algorithm, think_us=THINK_US)
        middle, late = account.hand_over_us
        yield Line(
            algorithm, rate, account.messages / max(1, account.entries), middle, late, alone, sparse.wait_us,
            sparse.messages / max(1, sparse.entries),
        )  # fmt: skip


def measured(
    seconds: float, algorithm: str, *, hold_us: int = 0, idle: int = 0, think_us: int = 0
) -> tuple[float, Account]:
    """Entries per second, after one second to start, and the account of the whole time."""
    with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
        crowd = Crowd(Path(place), "bench", algorithm, PROCESSES, hold_us=hold_us, idle=idle, think_us=think_us)
        time.sleep(1.0)
        before, began = crowd.board[COUNTER], time.monotonic()
        time.sleep(seconds)
        rate = (crowd.board[COUNTER] - before) / (time.monotonic() - began)
        return rate, crowd.end()
