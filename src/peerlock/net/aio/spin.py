"""Who waits stays awake for a moment.

To wake up a process that sleeps takes the kernel longer than all the rest of a hand-over takes: a core that has nothing
to do sleeps as well, and has to be woken up first. So whoever begins to wait for a lock, or hears something about a lock
that it waits for, does not sleep yet: for a third of a millisecond its loop goes round and looks at its sockets. Each time
it gives the processor away (`sched_yield`), for if anybody else has something to do, that is likely to be what is waited for.

That pays where it is not for long, and a waiter cannot know, so it makes a guess: that its node will wait as long as it did
the last time. Whoever is not likely to have the lock within that third of a millisecond sleeps, and so does everybody where
waits are longer than two or three of them: there the sleep at the end makes little difference, and the guess is a bad one. Of
ten that share two cores it is the next one or two that are awake, woken up by the news that they come next. A lock that is
held for long costs its waiters nothing.

A guess can be wrong, so that is counted as well. Where it is in vain more often than one time in three, more and more occasions
are passed over, in the end all but one of 64, until those that are left pay again.

The loop's other tasks have their turns. On a machine that is busy with something else, giving the processor away can mean to
be without it for as long as the kernel lets others run: then that has been in vain, and soon happens rarely.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from peerlock.node.locks.local_lock import Desk

AWAKE_S = 0.0003
SHORT_S = 0.0008  # waits that are longer end in sleep
FEW, MANY = 2, 8  # times in vain: until then no occasion is passed over; then so many are that more make no difference


class Awake:
    """One a node. It is called when somebody waits at a desk and something is going on."""

    __slots__ = ("call_soon", "clock", "desk", "in_vain", "pass_over", "until")

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any], clock: Callable[[], float]) -> None:
        self.call_soon, self.clock = call_soon, clock
        self.desk: Desk | None = None  # for which it stays awake
        self.until = 0.0
        self.in_vain = 0  # times, of late: two for each that was, one less for each that paid
        self.pass_over = 0  # so many occasions

    def __call__(self, desk: Desk) -> None:
        until = self.clock() + AWAKE_S
        if desk.waited > SHORT_S or desk.due_at() > until:
            return
        if self.pass_over:
            self.pass_over -= 1
            return
        self.until = until
        if self.desk is None:
            self.call_soon(self.turn)
        self.desk = desk

    def turn(self) -> None:
        desk, self.desk = self.desk, None  # if a signal's handler raises in here, it has fallen asleep
        assert desk is not None
        if desk.at == "asked" and self.clock() < self.until:
            os.sched_yield()
            self.call_soon(self.turn)
            self.desk = desk
            return
        self.in_vain = min(self.in_vain + 2, MANY) if desk.at == "asked" else max(self.in_vain - 1, 0)
        if self.in_vain > FEW:
            self.pass_over = (1 << (self.in_vain - FEW)) - 1


__all__ = ["Awake"]
