"""The core, told one thing after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from peerlock.node.core import Core
from peerlock.node.effects import RequestEpoch, Suspect, Wake, Write
from peerlock.node.failure_detector import PATIENCE_S, SILENCE_S
from peerlock.node.locks.table import CLOCK_CHECK_GRANTS, NEAR_THE_END, TICK_S
from peerlock.node.locks.ticket import HELD, LOST, Ticket
from peerlock.node.peer import Peer
from peerlock.node.wire import Report
from peerlock.node.wire_algorithms import DEFAULT, wire_algorithm

E = TypeVar("E")
A, B, C = Peer("a", 1), Peer("b", 2), Peer("c", 3)


def in_a_group(leases: bool = False) -> Core:
    """The core of B in a view of three, with links to both others."""
    core = Core(B, "g", leases=leases)
    core.learn(1, (A, B, C), 0.0)
    for peer in (A, C):
        core.links.linked(peer, 0, 0.0)
        core.receive(peer, Report(1, 1, 1, (A, B, C), ()), 0.0)
    assert core.view_change.epoch == 1
    core.take_writes()
    core.effects.clear()
    return core


def asked_for(core: Core, kind: type[E]) -> list[E]:
    """The effects of that kind. All are carried out."""
    found: list[E] = [effect for effect in core.effects if isinstance(effect, kind)]
    core.effects.clear()
    return found


def ticks(core: Core, begin: float, seconds: float) -> None:
    for at in range(int(seconds / TICK_S) + 1):
        core.tick(begin + at * TICK_S)


def test_what_cannot_be_said_is_noticed_though_nobody_waits_here() -> None:
    """A third node may wait for a token that has to go from here to there."""
    core = in_a_group()
    core.links.unlinked(C, 1.0)
    ticks(core, 1.0, PATIENCE_S + SILENCE_S + 1.0)
    assert not asked_for(core, Suspect), "nothing is to be said: it may be down for as long as it likes"
    core.links.post(core.links.session(C), Report(2, 0, 1, (A, B, C), ()))
    ticks(core, 100.0, PATIENCE_S + SILENCE_S + 1.0)
    assert C in asked_for(core, Suspect)[-1].peers


def test_who_was_left_behind_is_told_whoever_dials() -> None:
    core = in_a_group()
    core.learn(2, (A, B), 1.0)
    core.links.session(C)  # a new one: what was said in the old epoch is forgotten
    core.links.sessions[C].seq = 0
    core.links.answered(C, 47, 1.0)
    assert [effect.peer for effect in asked_for(core, Write)] == [C], (
        "no complaint about 47 messages that were never sent, but the view"
    )


def test_a_member_that_was_left_behind_dials_twice() -> None:
    """Its first link has made a session here, which is not the one that it speaks of on the second one."""
    core = in_a_group()
    core.learn(2, (A, B), 1.0)
    core.links.linked(C, 0, 2.0)
    core.links.linked(C, 2, 2.0)
    assert [effect.peer for effect in asked_for(core, Write)] == [C]
    core.receive(C, Report(1, 2, 1, (A, B, C), ()), 2.0)  # no complaint about two messages that were never sent


def test_a_late_word_of_an_older_lease_does_not_shorten_a_newer_one() -> None:
    """The beats go on in a thread of their own while this one is busy; then it hears of all of them, one after the other."""
    core = in_a_group(leases=True)
    core.leased(10.0, 5.0)
    core.deadline.extend(14.0, 9.0)
    core.leased(12.0, 9.5)
    assert core.deadline.until == 14.0
    core.leased(20.0, 15.0)  # there was a time in between
    assert core.deadline.until == 20.0


def test_a_clock_that_runs_out_is_noticed_though_nobody_ever_waits() -> None:
    """With leases there is no tick while nobody waits; the renewals see to it."""
    core = Core(A, "g", leases=True)
    core.learn(7, (A,), 0.0)
    core.leased(5.0, 0.0)

    def enter(now: float) -> int:
        ticket, local_lock = Ticket(), core.table.local_lock("x", wire_algorithm(DEFAULT))
        core.acquire(local_lock, ticket, now)
        assert ticket.state == HELD
        core.release(ticket, now)
        return ticket.fence

    enter(0.0)
    core.table.locks["x"].clock = NEAR_THE_END + 1
    core.table.grants += CLOCK_CHECK_GRANTS  # as many later
    core.leased(6.0, 1.0)
    assert len(asked_for(core, RequestEpoch)) == 1
    last = enter(1.0)
    core.learn(8, (A,), 1.0)
    core.leased(7.0, 2.0)
    assert enter(2.0) > last


def test_all_that_is_lost_is_lost_before_anybody_is_told() -> None:
    """Who is told may take its time. Meanwhile no other hold may seem to run."""
    core = in_a_group(leases=True)
    core.leased(5.0, 0.0)
    seen = list[list[int]]()

    class Hold(Ticket):
        def woken(self) -> None:
            if self.state == LOST:
                seen.append([ticket.state for ticket in holds])

    ends: list[Callable[[], None]] = [lambda: core.lapse(5.0), lambda: core.close(6.0)]
    for end in ends:
        core.leased(core.table.now + 5.0, core.table.now)
        holds = [Hold(), Hold()]
        for name, hold in zip("xy", holds, strict=True):
            local_lock = core.table.local_lock(name, wire_algorithm("dijkstra-ring"))
            hold.local_lock, local_lock.want, local_lock.has, local_lock.holder, hold.state = (
                local_lock,
                "write",
                True,
                hold,
                HELD,
            )
        end()
        for effect in asked_for(core, Wake):
            effect.ticket.woken()
        assert seen == [[LOST, LOST], [LOST, LOST]]
        seen.clear()


def test_the_core_is_never_re_entered() -> None:
    core = in_a_group()

    class Curious(Ticket):
        @property  # the core asks for the mode in the middle of an input
        def mode(self) -> str:  # type: ignore[override]
            core.tick(2.0)
            return "write"

    local_lock = core.table.local_lock("x", wire_algorithm(DEFAULT))
    with pytest.raises(AssertionError, match="tick was called in the middle of another input"):
        core.acquire(local_lock, Curious(), 2.0)
    assert not core.handling


def test_an_interrupted_core_forgets_what_it_wanted_and_wakes_its_holders() -> None:
    core = in_a_group()
    core.holding_allowed(0.0)
    ticket = Ticket()
    core.acquire(core.table.local_lock("x", wire_algorithm("dijkstra-ring")), ticket, 1.0)
    core.links.unlinked(C, 1.0)
    core.handling = True  # as an exception of a signal's handler may leave it
    core.abandon("for this test")
    assert {type(effect) for effect in core.effects} <= {Wake}
    assert not core.table.locks
    core.tick(5.0)
