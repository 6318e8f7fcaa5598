"""What a log says of a command that takes long, and that it says nothing of one that does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from peerlock.cli import main, progress


def test_a_log_has_a_line_for_every_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [1000.0]
    monkeypatch.setattr("peerlock.cli.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress.bar("seeds", 300) as advance:
        for _ in range(300):
            now[0] += 0.7
            advance(1)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "seeds: 86 of 300, 2 min left at this pace (1 min so far)",
        "seeds: 172 of 300, 1 min left at this pace (2 min so far)",
        "seeds: 258 of 300, 0 min left at this pace (3 min so far)",
    ]


def test_a_step_has_its_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr("peerlock.cli.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    with progress.stepping(3) as step:
        for name in ("redis", "etcd", "ours"):
            step(name)
            now[0] += 90
    assert capsys.readouterr().err.splitlines() == [
        "etcd: 1 of 3, 3 min left at this pace (2 min so far)",
        "ours: 2 of 3, 2 min left at this pace (3 min so far)",
    ]


def test_what_is_done_within_a_minute_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.progress(range(5), "groups", 5)) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_a_long_simulation_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peerlock.cli.progress.LINE_EVERY_S", 0.0)
    monkeypatch.setattr("sys.argv", ["peerlock", "sim", "suzuki-kasami-a", "--nodes", "3", "--entries", "4"])
    with pytest.raises(SystemExit, match="0"):
        main()
    told = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told[:2] == ["suzuki-kasami-a: 1 of 12", "suzuki-kasami-a: 2 of 12"]
