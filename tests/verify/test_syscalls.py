"""`peerlock verify --faults syscalls`: its faults follow from the seed, and it finds what there is to find."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peerlock.verify import syscalls
from peerlock.verify.attacks import CALLS, KINDS, attacks
from peerlock.verify.log import Line, line
from peerlock.verify.plan import Plan
from peerlock.verify.syscall_worker import ROUND, Log
from peerlock.verify.syscalls import APART, Chaos, chaos, judge_round


def plan(**more: Any) -> Plan:
    return Plan(registry="host", faults=("syscalls",), **more)


def test_the_seed_decides_the_faults() -> None:
    deck = len(CALLS) * len(KINDS)
    first, again, other = (list(itertools.islice(attacks(seed, 2), deck)) for seed in (3, 3, 4))
    assert first == again != other
    assert first != list(itertools.islice(attacks(3, 1), deck))
    assert {(attack.call, attack.kind) for attack in first} == {(call, kind) for call in CALLS for kind in KINDS}


def test_two_holders_are_found_and_faults_are_counted(tmp_path: Path) -> None:
    """Each process has a group of its own, so nothing keeps them apart: that must be found."""
    found, held, happened = chaos(plan(seconds=4, seed=1, planted=APART), lambda _: None, tmp_path)
    assert found.overlaps
    assert not found.ok
    assert found.grants == len(held) > 100
    assert sum(found.faults.values()) == sum(found.phases.values()) > 0
    assert len(happened) >= len(found.faults)
    assert not list(tmp_path.glob("stuck-*")), "nothing holds up a process that is alone"


def test_a_process_that_does_not_get_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "PATIENCE_S", 1.0)
    run = Chaos(plan(nodes=2), tmp_path, lambda _: None)
    try:
        run.slots = [run.start(0), run.start(1)]
        run.ready(run.slots)
        run.round = run.board[ROUND] = 1
        assert run.all_granted(run.slots, "at first")
        run.slots[1].popen.send_signal(signal.SIGSTOP)
        assert not run.all_granted(run.slots[1:], "while it is stopped")
        assert "w1.2 (threads, without faults of its own) was not granted the lock within 1 s" in run.problems[0]
        assert (tmp_path / "stuck-r1" / "ls").read_text()
    finally:
        run.close()


class Written:
    """A process that has written this, and is gone."""

    def __init__(self, name: str, *events: tuple[float, str, dict[str, Any]]) -> None:
        self.name = name
        self.popen = type("Popen", (), {"pid": 1})
        self.lines = [Line(t, 1, what, 1, **more) for t, what, more in events]


def judged(*processes: Any) -> int:
    return judge_round(list(processes), 1, 0)[0].overlaps


def test_a_killed_holder_believed_up_to_its_last_word() -> None:
    killed = Written("a", (1.0, "granted", {"fence": 1}), (2.0, "checked", {"fence": 1, "since": 1.9}))
    assert not judged(killed, Written("b", (2.1, "granted", {"fence": 2}), (2.2, "released", {"fence": 2})))
    assert judged(killed, Written("b", (1.5, "granted", {"fence": 2}), (1.6, "released", {"fence": 2})))


def test_a_holder_that_hears_of_its_loss_believed_up_to_its_last_check() -> None:
    lost = Written("a", (1.0, "granted", {"fence": 1}), (2.0, "checked", {"fence": 1, "since": 1.9}), (9.0, "lost", {}))
    assert not judged(lost, Written("b", (3.0, "granted", {"fence": 2}), (3.1, "released", {"fence": 2})))
    assert judged(lost, Written("b", (1.5, "granted", {"fence": 2}), (1.6, "released", {"fence": 2})))


def test_half_a_line_is_no_line(tmp_path: Path) -> None:
    log, reader = Log(tmp_path / "log", create=True), Log(tmp_path / "log")
    written = line(1.0, 7, "joins", {})
    log.append(written)
    log.map[8 + len(written) : 8 + len(written) + 3] = b'{"w'  # killed in the middle of the next one
    assert reader.news() == [Line(1.0, 7, "joins")]
    assert reader.news() == []


@pytest.mark.parametrize("words", [("--registry", "embedded", "--faults", "syscalls"), ("--faults", "kill,syscalls")])
def test_these_faults_come_alone(words: tuple[str, ...]) -> None:
    from peerlock.cli import app
    from peerlock.cli import verify as command

    _ = command
    done = CliRunner().invoke(app.app, ["verify", *words])
    assert "--registry host --faults syscalls" in str(done.exception)


@pytest.mark.slow
def test_a_minute_of_faults_between_system_calls(tmp_path: Path) -> None:
    from peerlock.cli import app
    from peerlock.cli import verify as command

    _ = command
    words = [
        "--registry",
        "host",
        "--faults",
        "syscalls",
        "--seconds",
        "60",
        "--seed",
        "1",
        "--keep",
        str(tmp_path / "kept"),
    ]
    done = CliRunner().invoke(app.app, ["verify", "--json", *words])
    found = json.loads(done.stdout)
    assert done.exit_code == 0, "\n".join(found["problems"])
    assert found["grants"] > 500
    assert {"joining", "member", "leaving"} <= set(found["phases"])
    assert sum("killed" in fault for fault in found["faults"]) > 3
