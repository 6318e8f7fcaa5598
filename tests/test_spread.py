"""Work for several processes: results in order, and a process that is killed is an error instead of a wait for ever."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
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


def test_nobody_is_left_behind() -> None:
    program = "import time; from peerlock.spread import spread\nlist(spread(time.sleep, [60, 60], 2))"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        wait_for(lambda: sum("spawn_main" in words for words in alive(process.pid)) == 2)
        time.sleep(0.5)  # they have begun to work
        process.kill()
    wait_for(lambda: not alive(process.pid))


def alive(session: int) -> list[str]:
    """What runs in that session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == session and words[0] != "Z":
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def wait_for(true: Any) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
