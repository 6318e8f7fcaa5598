"""Waiters spin for a moment before they sleep.

Waking a process that sleeps takes the kernel longer than all the rest of a hand-over: a core that
has nothing to do sleeps as well, and has to be woken first. So a node that begins to wait for a
lock, or hears something about a lock that it waits for, does not sleep at once. For a third of a
millisecond its loop goes round and looks at its sockets. Each time it gives the processor away
(`sched_yield`): if another process has something to do, that is likely to be what is waited for.

**When it spins.** Spinning pays only for short waits, and a waiter cannot know how long it will
wait. Its guess is that its node will wait as long as it did the last time. A waiter that is not
likely to have the lock within that third of a millisecond sleeps. So does every waiter where waits
are longer than two or three of them: there a sleep at the end makes little difference, and the
guess is bad. Of ten processes that share two cores, the next one or two spin, woken by the news
that they come next. A lock that is held for long costs its waiters nothing.

**When it stops.** A guess can be wrong, so the wrong ones are counted. If more than one in three is
wrong, more and more occasions are passed over, in the end all but one of 64, until those that are
left pay again.

The loop's other tasks have their turns. On a busy machine, giving the processor away can mean to be
without it for as long as the kernel lets others run. Then the spin was of no use, and soon happens
rarely.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from peerlock.node.effects import MaySpin
from peerlock.node.locks.local_lock import LocalLock

AWAKE_S = 0.0003
SHORT_S = 0.0008  # waits that are longer end in sleep
FEW, MANY = 2, 8  # times in vain: until then no occasion is passed over; then so many are that more make no difference


class SpinPolicy:
    """One per node. It is called when a task waits for a lock and something is going on."""

    __slots__ = ("call_soon", "clock", "in_vain", "local_lock", "pass_over", "until")

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any], clock: Callable[[], float]) -> None:
        self.call_soon, self.clock = call_soon, clock
        self.local_lock: LocalLock | None = None  # for which it spins
        self.until = 0.0
        self.in_vain = 0  # times, of late: two for each that was, one less for each that paid
        self.pass_over = 0  # so many occasions

    def __call__(self, effect: MaySpin) -> None:
        local_lock = effect.local_lock
        if local_lock.waited > SHORT_S and not effect.soon:
            return
        until = self.clock() + AWAKE_S
        if local_lock.due_at() > until and not effect.soon:
            return
        if self.pass_over:
            self.pass_over -= 1
            return
        self.until = until
        if self.local_lock is None:
            self.call_soon(self.turn)
        self.local_lock = local_lock

    def turn(self) -> None:
        # Cleared first: if a signal's handler raises in here, nothing spins any more.
        local_lock, self.local_lock = self.local_lock, None
        assert local_lock is not None
        if local_lock.at == "asked" and self.clock() < self.until:
            os.sched_yield()
            self.call_soon(self.turn)
            self.local_lock = local_lock
            return
        self.in_vain = min(self.in_vain + 2, MANY) if local_lock.at == "asked" else max(self.in_vain - 1, 0)
        if self.in_vain > FEW:
            self.pass_over = (1 << (self.in_vain - FEW)) - 1


__all__ = ["SpinPolicy"]
