"""What a notebook shows."""

from __future__ import annotations

from pathlib import Path

from peerlock.lab.film import Plan, shoot
from peerlock.observe.notebook import read
from peerlock.sim.experiment import Experiment
from peerlock.trace import Writer


def test_films_and_traces_show_themselves(tmp_path: Path) -> None:
    experiment = Experiment(algorithm="suzuki-kasami-a", nodes=3, entries=1)
    film = shoot(Plan(experiment))
    assert film._repr_svg_().startswith("<svg")
    path = tmp_path / "run.jsonl"
    with path.open("wb") as stream:
        experiment.prepare().run(recorders=[Writer(stream)])
    assert read(path)._repr_svg_().startswith("<svg")
