"""The core, told one thing after the other."""

from __future__ import annotations

from typing import Any

from peerlock.node.core import SILENCE_S, TICK_S, Core
from peerlock.node.wire import Peer, Report

A, B, C = Peer("a", 1), Peer("b", 2), Peer("c", 3)


class _Shell:
    def __init__(self) -> None:
        self.suspected: tuple[Peer, ...] = ()

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        self.suspected = peers
        return peers

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *words: None


def in_a_group(shell: Any) -> Core:
    """The core of B in a view of three, with links to both others."""
    core = Core(B, "g", shell, None, 0.0)
    core.learn(1, (A, B, C), 0.0)
    for peer in (A, C):
        core.linked(peer, 0, 0.0)
        core.receive(peer, Report(1, 1, 1, (A, B, C), ()), 0.0)
    assert core.view.epoch == 1
    return core


def ticks(core: Core, begin: float, seconds: float) -> None:
    for at in range(int(seconds / TICK_S) + 1):
        core.tick(begin + at * TICK_S)


def test_what_cannot_be_said_is_noticed_though_nobody_waits_here() -> None:
    """A third node may wait for a token that has to go from here to there."""
    shell = _Shell()
    core = in_a_group(shell)
    core.unlinked(C, 1.0)
    ticks(core, 1.0, core.patience_s + SILENCE_S + 1.0)
    assert not shell.suspected, "nothing is to be said: it may be down for as long as it likes"
    core.post(core.session(C), Report(2, 0, 1, (A, B, C), ()))
    ticks(core, 100.0, core.patience_s + SILENCE_S + 1.0)
    assert C in shell.suspected


def test_who_was_left_behind_is_told_whoever_dials() -> None:
    told = list[bytes]()
    shell: Any = _Shell()
    core = in_a_group(shell)
    shell.write = lambda peer, data: told.append(data)
    core.learn(2, (A, B), 1.0)
    core.session(C)  # a new one: what was said in the old epoch is forgotten
    core.sessions[C].seq = 0
    core.answered(C, 47, 1.0)
    assert len(told) == 1, "no complaint about 47 messages that were never sent, but the view"


def test_a_late_word_of_an_older_lease_does_not_shorten_a_newer_one() -> None:
    """The beats go on in a thread of their own while this one is busy; then it hears of all of them, one after the other."""
    core = in_a_group(_Shell())
    core.leases = True
    core.leased(10.0, 5.0)
    core.table.extend(14.0, 9.0)
    core.leased(12.0, 9.5)
    assert core.table.until == 14.0
    core.leased(20.0, 15.0)  # there was a time in between
    assert core.table.until == 20.0
