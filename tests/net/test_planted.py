"""Each rule of `net/` that is taken away is noticed by a test. What no test notices is not tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planted.net_mutants import HOST_MUTANTS, MUTANTS, SOURCE, TESTS, Mutant

EVERY = (*MUTANTS, *HOST_MUTANTS)


def test_there_are_enough_and_none_twice() -> None:
    assert len({mutant.rule for mutant in EVERY}) == len(EVERY) >= 10


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.rule)
def test_it_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    mutant.changed(mutant.path.read_text())  # or says that it is out of date
    paths = [str(TESTS / "planted"), str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PEERLOCK_PLANT": mutant.rule, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    tests = [str(TESTS / test) for test in mutant.tests]
    words = ["-p", "no:xdist", "-x", "--timeout", "100", "--basetemp", str(tmp_path / "inner"), *tests]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, f"not noticed: {mutant.rule}\n{done.stdout}{done.stderr}"
