"""Work for several processes: results in order, and a process that is killed is an error instead of a wait for ever."""

from __future__ import annotations

import math
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from peerlock.spread import spread


def test_in_order_with_new_processes_now_and_then() -> None:
    assert list(spread(math.factorial, range(12), 2, lifetime=2)) == [math.factorial(n) for n in range(12)]
    assert list(spread(math.factorial, [], 2)) == []


def test_a_process_that_is_killed() -> None:
    with pytest.raises(BrokenProcessPool):
        list(spread(signal.raise_signal, [signal.SIGKILL], 2))


def test_who_has_seen_enough_stops() -> None:
    found: Any = spread(os.path.basename, [f"a/{n}" for n in range(100)], 2)
    assert next(found) == "0"
    found.close()
