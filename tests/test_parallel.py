"""Work for several processes: results in order, and a process that is killed is an error instead of a wait for ever."""

from __future__ import annotations

import itertools
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

import peerlock
from peerlock.parallel import spread


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
    program = "import time; from peerlock.parallel import spread\nlist(spread(time.sleep, [60, 60], 2))"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as process:
        wait_for(lambda: sum("spawn_main" in words for words in alive(process.pid)) == 2)
        time.sleep(0.5)  # they have begun to work
        process.kill()
    wait_for(lambda: not alive(process.pid))


PROGRAM = """
import math, os
from peerlock.parallel import spread

if __name__ == "__main__":
    before = dict(os.environ)
    assert list(spread(math.factorial, [3, 4], 2)) == [6, 24]
    assert os.environ == before
"""


@pytest.mark.parametrize("said", [{}, {"PYTHONSAFEPATH": ""}], ids=["not said", "said to be off"])
def test_nothing_is_imported_from_the_current_directory(tmp_path: Path, said: dict[str, str]) -> None:
    """multiprocessing starts `python -c`, which looks there first. A stranger's files may lie there."""
    seen, program = tmp_path / "seen", tmp_path / "bin" / "program.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    (tmp_path / "multiprocessing.py").write_text(f"open({str(seen)!r}, 'w')\n")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **said},
    )  # fmt: skip
    assert not seen.exists()
    assert done.returncode == 0, done.stderr


def test_every_python_process_of_the_package_is_started_without_the_current_directory() -> None:
    package = Path(peerlock.__file__).parent
    starts = [
        (path.name, line.strip(), following)
        for path in package.rglob("*.py")
        for line, following in itertools.pairwise(path.read_text().splitlines())
        if "sys.executable" in line
    ]
    assert len(starts) >= 5
    assert [start for start in starts if '"-P"' not in start[1] + start[2]] == []


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
