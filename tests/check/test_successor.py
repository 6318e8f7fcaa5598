"""Requests that are sent to the successor alone (`Grant.successor`, `node/locks/local_lock.py`), in every interleaving.

`Discreet` does to Suzuki's and Kasami's algorithm what a local lock does. After a node has passed the privilege on, its next
request goes to the successor alone; to the other nodes when a timer fires; and to none of them once it was granted. A timer
fires at any time after it was set, at once as well, so the runs in which all nodes are told are among these. A local lock is
more careful: it looks at the clock, and at the number of members.
"""

from __future__ import annotations

from typing import Any

import pytest

from peerlock.algorithms.suzuki_kasami_a import SuzukiKasamiA
from peerlock.check.model import Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.contract import Ask, Effects, Grant, Members, Mode, NodeId, Out, Wire
from peerlock.user_algorithm import wrap


class Discreet(SuzukiKasamiA):
    successor: NodeId = 0
    late: tuple[tuple[NodeId, Wire], ...] = ()

    def request(self, mode: Mode, out: Out[Any]) -> None:
        effects = Effects()
        super().request(mode, effects)
        self.carry_out(effects, out)

    def release(self, out: Out[Any]) -> None:
        effects = Effects()
        super().release(effects)
        self.carry_out(effects, out)

    def receive(self, source: NodeId, message: Any, out: Out[Any]) -> None:
        effects = Effects()
        super().receive(source, message, effects)
        self.carry_out(effects, out)

    def carry_out(self, effects: Effects, out: Out[Any]) -> None:
        for to, message in effects.sent:
            if isinstance(message, Grant):
                self.successor = message.successor() or 0
            elif isinstance(message, Ask) and self.successor not in (0, to):
                self.late = (*self.late, (to, message))
                continue
            out.send(to, message)
        if self.late:
            out.timer("late", 1.0)
        if effects.entered:
            self.late = ()
            out.enter()
        if effects.ended:
            out.idle()

    def on_timeout(self, name: str, out: Out[Any]) -> None:
        late, self.late = self.late, ()
        for to, message in late:
            out.send(to, message)


class TellsNobodyElse(Discreet):
    """The others never hear of it."""

    def on_timeout(self, name: str, out: Out[Any]) -> None:
        pass


def explored(algorithm: type[Discreet], entries: tuple[int, ...]) -> Outcome:
    everybody = tuple(range(1, len(entries) + 1))
    model = Model(wrap(algorithm), dict.fromkeys(everybody, Members(everybody, 1)), entries)
    return Search(model, Checks(standard(model))).run()


@pytest.mark.parametrize(
    ("entries", "states"), [((2, 2, 2), 117_547), ((3, 2, 1), 31_792), ((1, 1, 2, 1), 1_393_063)], ids=str
)
def test_the_successor_alone_is_enough(entries: tuple[int, ...], states: int) -> None:
    outcome = explored(Discreet, entries)
    assert outcome.finished, outcome
    assert outcome.violated is None, outcome
    assert outcome.states == states


def test_and_the_others_must_hear_of_it_if_it_was_too_late_for_the_successor() -> None:
    assert explored(TellsNobodyElse, (2, 2, 2)).violated == "no deadlock"
