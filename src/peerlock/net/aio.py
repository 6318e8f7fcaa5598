"""The lock for asyncio.

    async with peerlock.join("shop") as node:
        async with node.lock("orders") as hold:
            ...

The core runs inline: in the callback that reads a socket, and in the task that asks for a lock. A waiter is one bare
future that is resolved right there. Each peer that an event has something for gets one write.

**Who owns a lock** is the `Hold`. `async with` keeps the hold by task, so one `Lock` object can be used by many
tasks; a task that asks for what it has gets an `AlreadyHeld` instead of waiting for itself.

**Cancellation.** A waiter that is cancelled leaves the queue; one that is cancelled after it was granted and before
it could run gives the lock back. There is no await between a grant and the return of its hold but that one.

**Loss.** When a lock is lost the task in its body is cancelled, and the end of the body turns that into `LockLost`,
as `asyncio.timeout` does.

**Turns.** An acquire that never waits lets the loop have its turn from time to time: `pace.py` says when, and why. What
a release has to say goes out before it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlock.contract import Mode
from peerlock.errors import LockLost, LockTimeout, NodeClosed, UsageError
from peerlock.net.holds import AnyHold, already_held, not_in_time, other_algorithm
from peerlock.net.loop import Looped
from peerlock.net.pace import SOON_S, YIELD_S, Pace
from peerlock.net.places import check_name
from peerlock.net.registry import Registry
from peerlock.net.status import NodeStatus
from peerlock.node.desk import DONE, HELD, LOST, WAITING, Desk, Limits
from peerlock.node.wire import DEFAULT, DEFAULT_RW, Spoken, spoken

STATUS_S = 1.0  # for the answers of the other members
FAREWELL_S = 2.0  # for what must still go out when a node leaves

NO_DESK = Desk("", spoken(DEFAULT), None)  # type: ignore[arg-type]  # never free


# Before Python 3.12 `asyncio.current_task` is a Python function that costs as much as half an entry.
_tasks: Any = getattr(asyncio.tasks, "_current_tasks", None) if sys.version_info < (3, 12) else None


class Hold(AnyHold):
    """A lock that was granted, until `release`, or until it is lost."""

    _future: asyncio.Future[None] | None = None
    _lost: asyncio.Event | None = None
    _task: asyncio.Task[Any] | None = None  # whose body ends with the lock
    _cancelled: int | None = None  # it was cancelled, for the loss; so many others had cancelled it before
    _lock: Lock

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lock is lost."""
        if self._lost is None:
            self._lost = asyncio.Event()
            if self.state == LOST:
                self._lost.set()
        return self._lost

    def check(self) -> None:
        """Raises `LockLost` if the lock is not held any more."""
        node = self._lock._node
        if self._task is not None and node.is_over() and self._task is asyncio.current_task():
            self._lock._body_lost(
                self, LOST
            )  # this very body is told by the exception: it need not be cancelled as well
        super().check()

    def detach(self) -> Hold:
        """The hold outlives the body it was taken in: whoever has it releases it."""
        if self.state == HELD:
            self._lock._body_lost(self)
        return self

    def release(self) -> None:
        """Give the lock back. `LockLost` if it was lost before."""
        if self.state == HELD:
            lock = self._lock
            if self._task is not None:
                lock._node.alive()
                lock._body_lost(self)
            lock._release(self)
            return
        if self.state == LOST:
            raise self.error or LockLost(f"The lock {self.name} is lost.")
        raise self.released_before()

    async def __aenter__(self) -> Hold:
        self.check()
        return self

    async def __aexit__(self, *what: object) -> None:
        if self.state == HELD:
            self.release()
        elif self.state == LOST:
            raise self.loss()

    def woken(self) -> None:
        future = self._future
        if future is not None and not future.done():
            if self.state == HELD:
                future.set_result(None)
            else:
                future.set_exception(self.error or NodeClosed("The node is closed."))
        if self.state == LOST:
            if self._lost is not None:
                self._lost.set()
            task = self._task
            if task is not None:
                self._lock._body_lost(self, LOST)
                self._cancelled = task.cancelling()
                task.cancel(f"the lock {self.name} is lost")


class Lock:
    """A named lock of a group. Many tasks may use one object; each `acquire` gives a hold of its own."""

    __slots__ = (
        "_bodies",
        "_desk",
        "_done",
        "_hold",
        "_loop",
        "_node",
        "_pace",
        "_priority",
        "_spoken",
        "_table",
        "_time",
        "mode",
        "name",
    )

    def __init__(self, node: Node, name: str, algorithm: Spoken, mode: Mode, priority: int = 0) -> None:
        self.name = name
        self.mode: Mode = mode
        self._node, self._spoken, self._priority = node, algorithm, priority
        self._table, self._loop, self._time, self._pace = node.core.table, node._loop, node._time, node._pace
        self._desk = NO_DESK
        self._done = node._done
        # Of the bodies of `async with` that run: the hold of the last one that began; and by task, the last one last, those of
        # all others, and of those that have no hold any more: it was detached or released (None), or lost.
        self._hold: Hold | None = None
        self._bodies: dict[Any, list[Hold | None]] = {}

    def _ask(self, now: float) -> Hold:
        """A hold that is held, or waits."""
        hold = Hold()
        hold.mode, hold._lock = self.mode, self
        self._find_desk(now).acquire(hold, now)
        if self._table.dirty:
            self._node.core.flush()
        return hold

    def _release(self, hold: Hold) -> None:
        if self._node.forked:
            self._node.alive()
        desk = hold.desk
        assert desk is not None
        desk.release(hold, self._time())
        if self._table.dirty:
            self._node.core.flush()
        if hold.state == LOST:
            raise hold.loss()  # the lease was over, and nobody had noticed

    def _body_lost(self, hold: Hold, why: int = DONE) -> None:
        """A body goes on without its hold: at its end there is nothing to release, or a loss to tell of."""
        if hold._task is not None:
            if self._hold is hold:
                self._hold = None
                self._bodies.setdefault(hold._task, []).append(hold if why == LOST else None)
            else:
                bodies = self._bodies.setdefault(hold._task, [])
                bodies[:] = [None if other is hold and why != LOST else other for other in bodies]
            hold._task = None

    def _find_desk(self, now: float) -> Desk:
        node, desk = self._node, self._desk
        if node.closing or node.forked or asyncio.get_running_loop() is not self._loop:
            node.usable()
        node.core.now = now
        if self._table.desks.get(self.name) is not desk or desk.spoken is not self._spoken:
            desk = self._table.desk(self.name, self._spoken)
            if desk.spoken is not self._spoken:
                raise other_algorithm(desk, self._spoken)
            self._desk = desk
        if self._priority:
            desk.priority = self._priority
        return desk

    async def acquire(self, *, timeout: float | None = None) -> Hold:
        """Wait for the lock. `LockTimeout` if it is not granted within `timeout` seconds."""
        now = self._time()
        hold = self._ask(now)
        if hold.state == HELD:
            if not self._desk.free or now > self._pace.yield_at:
                await self._let_others(hold, now)
            return hold
        self._not_by_the_holder(hold)
        if timeout is not None:
            await self._wait(hold, timeout)
            return hold
        self._pace.step = SOON_S
        # `_wait` without its timer, written out: it saves every contended grant a coroutine.
        future = hold._future = self._loop.create_future()
        try:
            await future
        except BaseException:
            self._give_up(hold)
            raise
        finally:
            hold._future = None
        if hold.state != HELD:
            self._still(hold)
        return hold

    async def try_acquire(self, *, patience_s: float = 0.0) -> Hold | None:
        """The lock if it is granted within `patience_s` seconds, else None: nobody answers "busy", so it asks and gives up."""
        try:
            return await self.acquire(timeout=patience_s)
        except LockTimeout:
            return None

    async def _let_others(self, hold: Hold, now: float) -> None:
        pace = self._pace
        pace.yield_at = now + pace.step
        if pace.step < YIELD_S:
            pace.step *= 2
            os.sched_yield()
        try:
            await asyncio.sleep(0)
        except BaseException:
            if hold.state == HELD:
                hold.release()
            raise
        self._still(hold)

    def _still(self, hold: Hold) -> None:
        """A grant may be lost before the one who waited for it has its turn."""
        if hold.state != HELD:
            raise hold.error or NodeClosed(
                f"The node has left the group {self._node.group}. The lock {self.name} is not held."
            )

    def _not_by_the_holder(self, hold: Hold) -> None:
        """Whoever holds it in its body would wait for itself."""
        desk = hold.desk
        assert desk is not None
        if desk.holder is None:
            return
        task = asyncio.current_task()
        for other in (desk.holder, *(desk.sharers or ())):
            if isinstance(other, Hold) and task is not None and other._task is task:
                self._give_up(hold)
                raise already_held("task", self.name)

    async def _wait(self, hold: Hold, timeout: float) -> None:
        node = self._node
        future = hold._future = node._loop.create_future()
        timer = node._loop.call_later(max(0.0, timeout), self._expire, hold, timeout)
        try:
            await future
        except BaseException:
            self._give_up(hold)
            raise
        finally:
            hold._future = None
            timer.cancel()
        self._still(hold)

    def _give_up(self, hold: Hold) -> None:
        node = self._node
        if hold.state == HELD:
            hold.release()
        elif hold.state == WAITING and hold.desk is not None:
            hold.desk.cancel(hold, node._time())
            node.core.flush()

    def _expire(self, hold: Hold, timeout: float) -> None:
        if hold.state == WAITING:
            self._give_up(hold)
            if hold._future is not None and not hold._future.done():
                hold._future.set_exception(not_in_time(self.name, timeout))

    async def __aenter__(self) -> Hold:
        # Written for the interpreter: what looks odd here is what it does fast (docs/guide/performance.md).
        try:
            task = _tasks[self._loop]
        except (KeyError, TypeError):
            task = self._this_task()
        time, desk, table = self._time, self._desk, self._table
        now = time()
        if desk.free and desk.want is None and table.open and desk.mode == self.mode and now < table.until:
            # What `Desk.acquire` does with a free desk, without the calls.
            desk.holder = hold = Hold()
            hold.mode = desk.want = desk.mode
            hold._lock = self
            hold.desk = desk
            hold.state = HELD
            hold.since = now
            desk.has = True
            desk.clock = clock = desk.clock + 1
            hold.fence = table.first_fence + clock
            table.grants += 1
            if now > self._pace.yield_at:
                await self._let_others(hold, now)
        else:
            hold = await self.acquire()
        if self._hold is not None:
            self._bodies.setdefault(self._hold._task, []).append(self._hold)
        hold._task = task
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
            try:
                task = _tasks[self._loop]
            except (KeyError, TypeError):
                task = self._this_task()
            if hold is not None and hold._task is task:
                self._hold = None
            else:
                hold = self._hold_of_this_body(task)
                if hold is None:
                    return self._done
            if hold.state == HELD:
                time, table, desk = self._time, self._table, hold.desk
                now = time()
                if desk.free and table.open and now < table.until:
                    # What `Desk.release` does with a free desk: nobody waits here, and nobody shares it.
                    hold.state = DONE
                    desk.holder = desk.want = None
                    desk.has = False
                    table.hold_s += now - hold.since
                else:
                    hold._task = None
                    self._release(hold)
                return self._done
            return self._after_a_loss(hold, task, kind, error)

    async def _after_a_loss(
        self, hold: Hold, task: Any, kind: type[BaseException] | None, error: BaseException | None
    ) -> None:
        if hold.state == LOST:
            if hold._cancelled is not None:
                if task.uncancel() > hold._cancelled and kind is asyncio.CancelledError:
                    return  # somebody else has cancelled the task as well: that goes on
                if kind is not asyncio.CancelledError:
                    try:
                        await asyncio.sleep(0)  # ours was not delivered yet, and must not hit what comes after
                    except asyncio.CancelledError:
                        if task.cancelling() > hold._cancelled:
                            raise  # it was somebody else's as well
            raise hold.loss() from error

    def _this_task(self) -> Any:
        """Of the loop that the node belongs to: in any other one nobody would answer for it."""
        if asyncio.get_running_loop() is not self._loop:
            self._node.usable()
        return asyncio.current_task()

    def _hold_of_this_body(self, task: Any) -> Hold | None:
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
        return f"<lock {self.name} of {self._node!r}>"


class RWLock:
    """A lock for readers, who share it, and writers, who do not."""

    __slots__ = ("_algorithm", "_node", "name")

    def __init__(self, node: Node, name: str, algorithm: Spoken) -> None:
        self._node, self.name, self._algorithm = node, name, algorithm

    def read(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "read")

    def write(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "write")


class Node(Looped):
    """A member of a group. Made by `join`."""

    def __init__(
        self, registry: Registry, group: str, *, algorithm: str = DEFAULT, limits: Limits | None = None
    ) -> None:
        super().__init__(registry, group, algorithm, limits)
        self._pace = Pace()
        self._done = self._loop.create_future()  # what an end of a body gives back that has nothing to wait for
        self._done.set_result(None)

    # -- for users ---------------------------------------------------------------------------------------

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return Lock(self, check_name("lock", name), *self.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self, check_name("lock", name), spoken(DEFAULT_RW))

    @asynccontextmanager
    async def lock_all(self, names: Iterable[str]) -> AsyncIterator[tuple[Hold, ...]]:
        """Several locks, taken in one global order, so that two that want the same never wait for each other."""
        locks = [self.lock(name) for name in sorted(set(names))]
        async with contextlib.AsyncExitStack() as stack:
            yield tuple([await stack.enter_async_context(lock) for lock in locks])

    async def status(self, wait_s: float = STATUS_S) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        self.usable()
        done: asyncio.Future[NodeStatus] = self._loop.create_future()
        self.ask_status(lambda status: None if done.done() else done.set_result(status), wait_s)
        return await done

    async def leave(self) -> None:
        """Leave the group. What is still held is lost, and its body ends; who waits gets `NodeClosed`."""
        if self.closing or self.forked:
            return
        self.say_farewell()
        self.fall_silent()
        try:
            if self.registry.leases:
                await self._loop.run_in_executor(None, self.registry.left, FAREWELL_S)
            await asyncio.sleep(0)
        finally:
            self.registry.close()  # also if nobody waits for the farewell any more

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there are many."""
        self.usable()
        self.core.full()

    def usable(self) -> None:
        super().usable()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "A node belongs to the event loop that it joined in: use it there, or peerlock.sync for threads."
            )

    def __repr__(self) -> str:
        return f"<node {self.name} of the group {self.group}, epoch {self.epoch}>"


class Joining:
    """`await` it, or use it with `async with`: a node that is a member of its group."""

    def __init__(self, make: Callable[[], Node]) -> None:
        self._make = make
        self._node: Node | None = None

    async def _join(self) -> Node:
        node = self._make()
        started = asyncio.Event()
        node.on_started = started.set
        try:
            node.enter_group()
            await started.wait()
            if node.failure is not None:
                raise node.failure
        except BaseException:
            await node.leave()
            raise
        node.on_started = None
        return node

    def __await__(self) -> Generator[Any, None, Node]:
        return self._join().__await__()

    async def __aenter__(self) -> Node:
        self._node = await self._join()
        return self._node

    async def __aexit__(self, *what: object) -> None:
        if self._node is not None:
            await self._node.leave()


__all__ = ["Hold", "Joining", "Lock", "Node", "RWLock"]
