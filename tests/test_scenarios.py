"""The transcripts of tests/scenarios say what really happens. `pytest --rewrite` writes them anew; review the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerlock.sim.transcript import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").rglob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    happened = play(text)
    if request.config.getoption("--rewrite"):
        path.write_text(happened, encoding="utf-8")
    assert happened == text


def test_every_paper_has_scenarios() -> None:
    papers = {path.parent.name for path in SCENARIOS}
    assert papers == {
        "carvalho-roucairol", "dijkstra", "helary-plouzeau-raynal", "naimi-trehel", "ricart-agrawala", "suzuki-kasami",
    }  # fmt: skip
