"""Prefork servers, and ten processes that are killed, stopped and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.torture import torture, wrong
from ports import free_port

ROOT = Path(__file__).parents[2]


def test_gunicorn_workers_share_a_lock(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    port = free_port()
    server = subprocess.Popen(
        [
            sys.executable, "-m", "gunicorn", "--workers", "3", "--bind", f"127.0.0.1:{port}", "--no-control-socket",
            "--config", "examples/gunicorn_app.py", "examples.gunicorn_app:application",
        ],
        cwd=ROOT, env={**os.environ, "COUNTER": str(tmp_path / "counter"), "PEERLOCK_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        address = f"http://127.0.0.1:{port}/"
        for _ in range(100):
            try:
                urllib.request.urlopen(address, timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        answers: list[list[bytes]] = []
        with ThreadPoolExecutor(8) as pool:
            for _ in range(40):  # until more than one worker is up, and has its share
                answers += pool.map(lambda _: urllib.request.urlopen(address, timeout=20).read().split(), range(60))
                if len({pid for _, pid in answers}) > 1:
                    break
        assert sorted(int(value) for value, _ in answers) == list(range(2, 2 + len(answers))), "no update is lost"
        assert len({pid for _, pid in answers}) > 1, "and more than one worker was at it"
    finally:
        server.terminate()
        _, said = server.communicate(timeout=20)
    assert b"Traceback" not in said


@pytest.mark.parametrize("algorithm", ["suzuki-kasami-a", "carvalho-roucairol"])
def test_processes_that_are_killed_stopped_and_started_again(algorithm: str) -> None:
    """`make torture` does this for a minute and several seeds."""
    account = torture(algorithm, 6, 8.0, seed=1)
    assert wrong(account) == [], account
    assert account.entries > 100
    assert set(account.faults) == {"kill", "restart", "stop"}
