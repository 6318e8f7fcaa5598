"""The lock for asyncio.

    async with peerlock.join("shop") as node:
        async with node.lock("orders") as hold:
            ...

The core runs inline: in the callback that reads a socket, and in the task that asks for a lock. A
waiter is one bare future, resolved right there. Each peer that an event has something for gets one
write.

**The owner of a lock** is the `Hold`. `async with` keeps the hold by task, so many tasks can use
one `Lock` object. A task that asks for a lock that it has gets `AlreadyHeld` instead of waiting for
itself, until it has released or detached the hold. A call of `acquire` counts for the task that
made the call, whichever task awaits it (`asyncio.wait_for`).

**The core is never re-entered.** A finalizer (`__del__`) may run in the middle of it. What it
releases is released one turn of the loop later, and so is what another thread releases.

**Cancellation.** A waiter that is cancelled leaves the queue. A waiter that is cancelled after it
was granted and before it could run gives the lock back. There is no other await between a grant and
the return of its hold.

**Loss.** When a lock is lost, the task in its body is cancelled, and the end of the body turns that
into `LockLost`, as `asyncio.timeout` does.

**Turns.** An acquire that never waits lets the loop have its turn from time to time: `yielding.py`
says when, and why. What a release has to say goes out before it returns.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from math import inf
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any

from peerlock.contract import Mode
from peerlock.errors import LockTimeout, NodeClosed, UsageError
from peerlock.net.aio.hold import Hold, running
from peerlock.net.hold import already_held, not_in_time, other_algorithm, seconds
from peerlock.net.yielding import SOON_S, YIELD_S
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.ticket import DONE, HELD, LOST, WAITING
from peerlock.node.wire_algorithms import DEFAULT, WireAlgorithm, wire_algorithm

if TYPE_CHECKING:
    from peerlock.net.aio.shell import LoopShell
    from peerlock.node.locks.deadline import Deadline
    from peerlock.node.locks.table import LockTable

NO_LOCK = LocalLock("", wire_algorithm(DEFAULT), None)  # type: ignore[arg-type]  # never free


_thread = threading.get_ident  # costs a fifth of that

# Before Python 3.12 `asyncio.current_task` is a Python function that costs as much as half an
# entry.
_tasks: Any = getattr(asyncio.tasks, "_current_tasks", None) if sys.version_info < (3, 12) else None


def waits_for(task: Any, other: Any) -> bool:
    """Are these one task, or is `other` the one in which `asyncio.wait_for`, before Python 3.12,
    runs what it was given?
    """
    if task is other:
        return True
    inner: Any = task.get_coro()
    while isinstance(getattr(inner, "cr_await", None), CoroutineType):
        inner = inner.cr_await
    frame = getattr(inner, "cr_frame", None)
    return frame is not None and frame.f_code is asyncio.wait_for.__code__ and frame.f_locals.get("fut") is other


class Lock:
    """A named lock of a group. Many tasks may use one object; each `acquire` gives a hold of its
    own.
    """

    __slots__ = (
        "_bodies",
        "_deadline",
        "_done",
        "_hold",
        "_local_lock",
        "_loop",
        "_pace",
        "_priority",
        "_shell",
        "_table",
        "_thread",
        "_time",
        "_wire_algorithm",
        "mode",
        "name",
    )

    def __init__(self, shell: LoopShell, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> None:
        self.name = name
        self.mode: Mode = mode
        self._shell, self._wire_algorithm, self._priority = shell, algorithm, priority
        self._table: LockTable = shell.core.table
        self._deadline: Deadline = shell.core.deadline
        self._loop, self._time, self._pace, self._thread = shell.loop, shell.time, shell.pace, shell.thread
        self._local_lock = NO_LOCK
        self._done = shell.done
        # Of the bodies of `async with` that run: the hold of the last one that began; and by task,
        # the last one last, those of all others, and of those that have no hold any more: it was
        # detached or released (None), or lost.
        self._hold: Hold | None = None
        self._bodies: dict[Any, list[Hold | None]] = {}

    def _ask(self, hold: Hold, now: float, owner: Any) -> None:
        """The hold is held afterwards, or waits."""
        hold.mode, hold._lock = self.mode, self
        shell = self._shell
        local_lock = self._find_local_lock()
        if local_lock.holder is not None:
            self._not_by_the_holder(local_lock, owner)
        hold._owner = owner
        shell.at_work = True
        try:
            shell.core.acquire(local_lock, hold, now)
            if self._table.dirty or self._table.effects:
                shell.carry_out()
        finally:
            shell.at_work = False

    def _release(self, hold: Hold) -> None:
        shell = self._shell
        if shell.forked:
            shell.alive()
        shell.at_work = True
        try:
            shell.core.release(hold, self._time())
            if self._table.dirty or self._table.effects:
                shell.carry_out()
        finally:
            shell.at_work = False
        if hold.state == LOST:
            raise hold.loss()  # the lease was over, and that had not been noticed

    def _body_lost(self, hold: Hold, why: int = DONE) -> None:
        """A body goes on without its hold: at its end there is nothing to release, or a loss to
        tell of.
        """
        if hold._task is not None:
            if self._hold is hold:
                self._hold = None
                self._bodies.setdefault(hold._task, []).append(hold if why == LOST else None)
            else:
                bodies = self._bodies.setdefault(hold._task, [])
                bodies[:] = [None if other is hold and why != LOST else other for other in bodies]
            hold._task = None

    def _find_local_lock(self) -> LocalLock:
        shell, local_lock = self._shell, self._local_lock
        if shell.closing or shell.forked or asyncio.get_running_loop() is not self._loop:
            shell.usable()
        if self._table.locks.get(self.name) is not local_lock or local_lock.wire_algorithm is not self._wire_algorithm:
            local_lock = self._table.local_lock(self.name, self._wire_algorithm)
            if local_lock.wire_algorithm is not self._wire_algorithm:
                raise other_algorithm(local_lock, self._wire_algorithm)
            self._local_lock = local_lock
        if self._priority:
            local_lock.priority = self._priority
        return local_lock

    def acquire(self, *, timeout: float | None = None) -> Coroutine[Any, Any, Hold]:
        """Wait for the lock. `LockTimeout` if it is not granted within `timeout` seconds."""
        return self._acquire(seconds("timeout", timeout), self._this_task() if running() is self._loop else None)

    async def _acquire(self, timeout: float | None, owner: Any) -> Hold:
        hold = Hold()
        try:
            now = self._time()
            self._ask(hold, now, owner)
            if hold.state == HELD:
                if not self._local_lock.free or now > self._pace.yield_at:
                    await self._let_others(hold, now)
                return hold
            if timeout is not None:
                await self._wait(hold, timeout)
                return hold
            self._pace.step = SOON_S
            # `_wait` without its timer, written out: that saves each contended grant a coroutine.
            future = hold._future = self._loop.create_future()
            try:
                await future
            finally:
                hold._future = None
            self._still(hold)
            return hold
        except BaseException:
            self._give_up(hold)
            raise

    async def try_acquire(self, *, patience_s: float = 0.0) -> Hold | None:
        """The lock if it is granted within `patience_s` seconds, else None.

        No node answers that a lock is busy, so this one asks and gives up. With 0 it is granted
        only if that takes no message: another node that had it last may have it still.
        """
        patience = seconds("patience_s", patience_s)
        if patience is None:
            raise UsageError("patience_s must be a number of seconds; to wait without an end, use acquire().")
        try:
            return await self._acquire(patience, self._this_task())
        except LockTimeout:
            return None

    async def _let_others(self, hold: Hold, now: float) -> None:
        pace = self._pace
        pace.yield_at = now + pace.step
        if pace.step < YIELD_S:
            pace.step *= 2
            os.sched_yield()
        await asyncio.sleep(0)
        self._still(hold)

    def _still(self, hold: Hold) -> None:
        """A grant may be lost before the task that waited for it has its turn. By then the lease may
        be over, or the directory of the group gone.
        """
        if hold.state == HELD:
            now = self._time()
            if self._deadline.expired(now) or now > self._shell.membership.look_at:
                self._shell.check_lease()
        if hold.state != HELD:
            raise hold.error or NodeClosed(
                f"The node has left the group {self._shell.group}. The lock {self.name} is not held."
            )

    def _not_by_the_holder(self, local_lock: LocalLock, owner: Any) -> None:
        """A task that has the lock would wait for itself."""
        if owner is None:
            return
        for other in (local_lock.holder, *(local_lock.sharers or ())):
            if not isinstance(other, Hold) or owner not in (other._task, other._owner):
                continue
            if waits_for(owner, self._this_task()):
                raise already_held("task", self.name)

    async def _wait(self, hold: Hold, timeout: float) -> None:
        loop = self._loop
        future = hold._future = loop.create_future()
        timer = None
        try:
            if timeout < inf:
                timer = loop.call_later(max(0.0, timeout), self._expire, hold, timeout)
            await future
        finally:
            hold._future = None
            if timer is not None:
                timer.cancel()
        self._still(hold)

    def _give_up(self, hold: Hold) -> None:
        shell = self._shell
        if hold.state == HELD:
            hold.release()
        elif hold.state == WAITING and hold.local_lock is not None:
            shell.at_work = True
            try:
                shell.core.cancel(hold, self._time())
                shell.carry_out()
            finally:
                shell.at_work = False

    def _expire(self, hold: Hold, timeout: float) -> None:
        if hold.state == WAITING:
            self._give_up(hold)
            if hold._future is not None and not hold._future.done():
                hold._future.set_exception(not_in_time(self.name, timeout))

    async def __aenter__(self) -> Hold:
        # Written for the interpreter: what looks odd here is what it does fast
        # (docs/guide/performance.md).
        if _thread() != self._thread:
            self._shell.usable()
        try:
            task = _tasks[self._loop]
        except (KeyError, TypeError):
            task = self._this_task()
        time, local_lock, table = self._time, self._local_lock, self._table
        now = time()
        if (
            local_lock.free
            and local_lock.want is None
            and table.open
            and local_lock.mode == self.mode
            and now < self._deadline.until
        ):
            # What `LocalLock.acquire` does with a free lock, without the calls.
            local_lock.holder = hold = Hold()
            hold.mode = local_lock.want = local_lock.mode
            hold._lock = self
            hold.local_lock = local_lock
            hold.state = HELD
            hold.since = now
            local_lock.has = True
            local_lock.clock = clock = local_lock.clock + 1
            hold.fence = table.first_fence + clock
            table.grants += 1
            if now > self._pace.yield_at:
                try:
                    await self._let_others(hold, now)
                except BaseException:
                    self._give_up(hold)
                    raise
        else:
            hold = await self._acquire(None, task)
        if self._hold is not None:
            self._bodies.setdefault(self._hold._task, []).append(self._hold)
        hold._task = task
        hold._cancels = task.cancelling()
        self._hold = hold
        return hold

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:

        def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> Any:
            hold = self._hold
            if hold is not None and not self._bodies:
                self._hold = None  # of the only body that runs
            else:
                hold = self._hold_of_this_body()
                if hold is None:
                    return self._done
            if hold.state == HELD:
                time, table, local_lock = self._time, self._table, hold.local_lock
                now = time()
                if local_lock.free and table.open and now < self._deadline.until:
                    # What `LocalLock.release` does with a free lock: nobody waits here, and nobody
                    # shares it.
                    hold.state = DONE
                    local_lock.holder = local_lock.want = None
                    local_lock.has = False
                    table.hold_s += now - hold.since
                else:
                    hold._task = None
                    self._release(hold)
                return self._done
            return self._after_a_loss(hold, kind, error)

    async def _after_a_loss(self, hold: Hold, kind: type[BaseException] | None, error: BaseException | None) -> None:
        task = self._this_task()
        if hold.state == LOST:
            if hold._cancelled:
                if task.uncancel() > hold._cancels and kind is asyncio.CancelledError:
                    return  # the task was cancelled for another reason as well, since the body began: that goes on
                if kind is not asyncio.CancelledError:
                    try:
                        await asyncio.sleep(0)  # ours was not delivered yet, and must not hit what comes after
                    except asyncio.CancelledError:
                        if task.cancelling() > hold._cancels:
                            raise  # there was another reason as well
            raise hold.loss() from error

    def _this_task(self) -> Any:
        """Of the loop that the node belongs to: in any other one no task would answer for it."""
        if asyncio.get_running_loop() is not self._loop:
            self._shell.usable()
        return asyncio.current_task()

    def _hold_of_this_body(self) -> Hold | None:
        task, hold = self._this_task(), self._hold
        if hold is not None and hold._task is task:
            self._hold = None
            return hold
        bodies = self._bodies.get(task)
        if not bodies:
            raise UsageError(
                f"The body of the lock {self.name} ends in another task than it began in. To hand a lock over, use acquire, or "
                "detach the hold."
            )
        hold = bodies.pop()
        if not bodies:
            del self._bodies[task]
        return hold

    def __repr__(self) -> str:
        return f"<lock {self.name} of {self._shell!r}>"


class RWLock:
    """A lock for readers, who share it, and writers, who do not."""

    __slots__ = ("_algorithm", "_shell", "name")

    def __init__(self, shell: LoopShell, name: str, algorithm: WireAlgorithm) -> None:
        self._shell, self.name, self._algorithm = shell, name, algorithm

    def read(self) -> Lock:
        return self._shell.make_lock(self.name, self._algorithm, "read")

    def write(self) -> Lock:
        return self._shell.make_lock(self.name, self._algorithm, "write")
