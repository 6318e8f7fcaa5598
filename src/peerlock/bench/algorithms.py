"""The algorithms on the wire beside each other: five real processes that want one lock, or one that wants it alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from peerlock.bench.crowd import Crowd
from peerlock.node.wire_algorithms import ON_THE_WIRE

PEOPLE, HOLD_US, THINK_US = 5, 200, 30_000


class Line(Struct, frozen=True):
    algorithm: str
    entries_a_second: float
    messages_an_entry: float
    hand_over_us: float
    hand_over_99_us: float
    alone_a_second: float  # one process that wants it, four that do not
    now_and_then_us: float  # from asking to entering, when each wants it now and then
    now_and_then_messages: float


def lines(seconds: float) -> Iterator[Line]:
    for algorithm in ON_THE_WIRE:
        with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
            crowd = Crowd(Path(place), "bench", algorithm, PEOPLE, hold_us=HOLD_US)
            time.sleep(1.0)
            before, began = crowd.board[0], time.monotonic()
            time.sleep(seconds)
            rate = (crowd.board[0] - before) / (time.monotonic() - began)
            account = crowd.end()
        with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
            crowd = Crowd(Path(place), "bench", algorithm, PEOPLE, idle=PEOPLE - 1)
            time.sleep(1.0)
            before, began = crowd.board[0], time.monotonic()
            time.sleep(seconds)
            alone = (crowd.board[0] - before) / (time.monotonic() - began)
            crowd.end()
        with tempfile.TemporaryDirectory(prefix="peerlock-bench-") as place:
            crowd = Crowd(Path(place), "bench", algorithm, PEOPLE, think_us=THINK_US)
            time.sleep(1.0 + seconds)
            sparse = crowd.end()
        middle, late = account.hand_over_us
        yield Line(
            algorithm, rate, account.messages / max(1, account.entries), middle, late, alone, sparse.wait_us,
            sparse.messages / max(1, sparse.entries),
        )  # fmt: skip
