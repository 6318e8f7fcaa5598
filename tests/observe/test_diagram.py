"""Diagrams: what they show, and what they leave out they say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from peerlock.algorithms import CATALOGUE
from peerlock.observe import diagram
from peerlock.sim.experiment import Experiment
from peerlock.trace import Event, Keeper

EXPECTED = """\
suzuki-kasami-a, 2 nodes, seed 1
     time  1             2
     0.00  │             ┊ asks
     1.00  │◀ REQUEST 0 ─┊
     2.00  │─ PRIVILEGE ▶┊
     2.00  │             █ ENTERS
     2.10  │             │ leaves
"""


def events_of(name: str, **settings: Any) -> list[Event]:
    keeper = Keeper()
    Experiment(algorithm=name, **settings).prepare().run(recorders=[keeper])
    return keeper.events


def test_in_the_terminal() -> None:
    events = events_of("suzuki-kasami-a", nodes=2, load="nodes:2", entries=1, delay="constant:1")
    assert diagram.text(events) == EXPECTED


def test_what_is_left_out_is_counted() -> None:
    events = events_of("suzuki-kasami-a", nodes=4)
    assert "more events" in diagram.text(events, most=10)
    assert "later messages are not drawn" in diagram.svg(events, most=10)
    assert "not drawn" not in diagram.svg(events, most=10_000)


@pytest.mark.parametrize("name", CATALOGUE)
def test_svg_of_every_algorithm(name: str) -> None:
    events = events_of(name, nodes=4, entries=2, faults=("pause:2@1..4", "crash:3@9"))
    root = ET.fromstring(diagram.svg(events, most=10_000))
    drawn = sum(1 for element in root.iter() if element.get("class", "").startswith("arrow"))
    sent = sum(
        len(event.to) if isinstance(event.to, list) else 1 for event in events if event.event in ("sent", "broadcast")
    )
    assert drawn == sent
    assert any(element.get("class") == "dead" for element in root.iter())
    assert diagram.text(events)


def test_labels_of_real_networks_are_shown_and_escaped() -> None:
    events = events_of("helary-plouzeau-raynal", nodes=3, topology="line", entries=1)
    assert events[0].about is not None
    events[0].about = {**events[0].about, "labels": {"1": "<Rennes>", "2": "Nuenen", "3": "Osaka"}}
    assert "1 &lt;Rennes&gt;" in diagram.svg(events)
    assert "Nuenen" in diagram.text(events)


def test_a_violation_can_be_seen() -> None:
    events = events_of("ricart-agrawala-implicit", nodes=2, delay_bound=0.1, entries=1, hold="constant:5")
    assert "█             █" in diagram.text(events)
