"""Waiters spin for a moment where that pays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

import peerlock
from peerlock.net.aio.spin import AWAKE_S, FEW, MANY, SHORT_S, SpinPolicy
from peerlock.node.effects import MaySpin
from places import until


class Loop:
    """One turn takes a tenth of the time for which a waiter spins."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: list[Callable[[], None]] = []
        self.turns = 0

    def call_soon(self, act: Callable[[], None]) -> None:
        self.ready.append(act)

    def clock(self) -> float:
        return self.now

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Until it would fall asleep."""
        while self.ready and not until():
            self.now += AWAKE_S / 10
            self.turns += 1
            ready, self.ready = self.ready, []
            for act in ready:
                act()


class Waiting:
    """What the spin policy asks a lock, at which somebody has waited since 0."""

    def __init__(self, waited: float = 0.0) -> None:
        self.at, self.waited = "asked", waited

    def due_at(self) -> float:
        return self.waited


def waiting(waited: float = 0.0) -> Any:
    return Waiting(waited)


def test_it_falls_asleep_after_a_moment() -> None:
    loop = Loop()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    awake(MaySpin(waiting()))
    loop.run()
    assert 9 <= loop.turns <= 11


def test_what_is_heard_meanwhile_prolongs_it_and_adds_no_second_one() -> None:
    loop, local_lock = Loop(), waiting()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    awake(MaySpin(local_lock))
    loop.run(until=lambda: loop.turns >= 5)
    awake(MaySpin(local_lock))
    assert len(loop.ready) == 1
    loop.run()
    assert 14 <= loop.turns <= 16


def test_who_is_granted_the_lock_has_other_things_to_do() -> None:
    loop, local_lock = Loop(), waiting()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    awake(MaySpin(local_lock))
    loop.run(until=lambda: loop.turns >= 3)
    local_lock.at = "inside"
    loop.run()
    assert loop.turns == 4


def stays(awake: SpinPolicy, loop: Loop, local_lock: Any) -> bool:
    awake(MaySpin(local_lock))
    staying = bool(loop.ready)
    loop.run()
    return staying


def test_who_is_not_likely_to_have_it_soon_sleeps() -> None:
    loop = Loop()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    assert not stays(awake, loop, waiting(2 * AWAKE_S))
    assert not awake.in_vain, "it has not been tried"
    assert stays(awake, loop, waiting(AWAKE_S))
    loop.now = AWAKE_S
    assert stays(awake, loop, waiting(2 * AWAKE_S)), "by then it is"


def test_where_waits_are_long_and_at_first_everybody_sleeps() -> None:
    loop = Loop()
    loop.now = 1.0
    awake = SpinPolicy(loop.call_soon, loop.clock)
    assert stays(awake, loop, waiting(SHORT_S))
    assert not stays(awake, loop, waiting(2 * SHORT_S))
    assert not stays(awake, loop, waiting(inf))


def test_what_is_in_vain_is_tried_less_and_less_often_and_never_given_up() -> None:
    loop = Loop()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    tried = [at for at in range(1000) if stays(awake, loop, waiting())]
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps[:4] == [1, 4, 16, 64]
    assert set(gaps[3:]) == {2 ** (MANY - FEW)}


def test_who_was_interrupted_can_stay_awake_again() -> None:
    loop, local_lock = Loop(), waiting()

    def raises() -> float:
        raise KeyboardInterrupt

    awake = SpinPolicy(loop.call_soon, loop.clock)
    awake(MaySpin(local_lock))
    awake.clock = raises
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    awake.clock, loop.ready = loop.clock, []
    assert stays(awake, loop, local_lock)


def passed_over(awake: SpinPolicy, loop: Loop, pays: bool) -> int:
    """How many occasions are, before the next one; then that one pays, or is in vain."""
    local_lock, passed = waiting(), -1
    while not loop.ready:
        awake(MaySpin(local_lock))
        passed += 1
    if pays:
        local_lock.at = "inside"
    loop.run()
    return passed


def test_where_it_pays_again_it_is_soon_as_before() -> None:
    loop = Loop()
    awake = SpinPolicy(loop.call_soon, loop.clock)
    for _ in range(10):
        passed_over(awake, loop, pays=False)
    passed = [passed_over(awake, loop, pays=True) for _ in range(20)]
    assert passed[-10:] == [0] * 10
    assert sum(passed) < 200


def test_what_is_in_vain_every_third_time_is_worth_it_and_every_other_time_is_not() -> None:
    def passed(pattern: str) -> int:
        loop = Loop()
        awake = SpinPolicy(loop.call_soon, loop.clock)
        return sum(passed_over(awake, loop, each == "+") for each in pattern * 100)

    assert passed("++-") == 0
    assert passed("+-") > 1000


def test_a_node_that_waits_stays_awake_if_waits_are_short_here_and_sleeps_if_they_are_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        tmp_path.chmod(0o700)
        async with (
            peerlock.join("g", dir=tmp_path, name="anna") as anna,
            peerlock.join("g", dir=tmp_path, name="ben") as ben,
        ):
            awake = ben._shell.spin
            assert awake is not None
            local_lock = None
            for waited, stays in ((inf, False), (0.0, True), (1.0, False)):
                hold = await anna.lock("orders").acquire()
                if local_lock is not None:
                    assert local_lock.waited < inf, "as long as the last time"
                    local_lock.waited = waited
                waiter = asyncio.create_task(ben.lock("orders").acquire())
                await asyncio.sleep(0)
                assert ben._shell.core.table.waiting()
                assert (awake.local_lock is not None) == stays
                await until(lambda: awake.local_lock is None)
                hold.release()
                (await waiter).release()
                local_lock = ben._shell.core.table.locks["orders"]

    asyncio.run(scenario())


def test_a_node_can_do_without(tmp_path: Path) -> None:
    async def scenario() -> None:
        tmp_path.chmod(0o700)
        async with peerlock.join("g", dir=tmp_path, spin=False) as node:
            assert node._shell.spin is None

    asyncio.run(scenario())
