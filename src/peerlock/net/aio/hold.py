"""A lock that a task holds."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlock.errors import LockLost, NodeClosed
from peerlock.net.hold import BaseHold
from peerlock.node.locks.ticket import HELD, LOST

if TYPE_CHECKING:
    from peerlock.net.aio.lock import Lock

running = asyncio._get_running_loop  # None if there is none in this thread


class Hold(BaseHold):
    """A lock that was granted, until `release`, or until it is lost."""

    _future: asyncio.Future[None] | None = None
    _lost: asyncio.Event | None = None
    _task: asyncio.Task[Any] | None = None  # whose body ends with the lock
    _owner: asyncio.Task[Any] | None = None  # the task that called `acquire`: it would wait for itself
    _cancels = 0  # requests to cancel that task, when the body began
    _cancelled = False  # it was cancelled, for the loss
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
        if self._task is not None and self._lock._shell.is_over() and self._task is asyncio.current_task():
            # This very body learns of it by the exception, and need not be cancelled as well.
            self._lock._body_lost(self, LOST)
        super().check()

    def detach(self) -> Hold:
        """The hold outlives the body that it was taken in, and belongs to no task: any code that
        has it may release it.
        """
        if self.state == HELD:
            self._owner = None
            self._lock._body_lost(self)
        return self

    def release(self) -> None:
        """Give the lock back. `LockLost` if it was lost before. In another thread, or in a
        finalizer: soon.
        """
        if self.state == HELD:
            lock = self._lock
            if lock._shell.at_work or (running() is not lock._loop and lock._loop.is_running()):
                if not self._released:
                    self._released = True
                    lock._loop.call_soon_threadsafe(self._release_now)
                    return
                raise self.released_before()
            if self._task is not None:
                lock._shell.alive()
                lock._body_lost(self)
            lock._release(self)
            return
        if self.state == LOST:
            raise self.error or LockLost(f"The lock {self.name} is lost.")
        raise self.released_before()

    _released = False  # it is about to be

    def _release_now(self) -> None:
        """A callback of the loop: nothing else is under way."""
        if self.state == HELD:
            self._lock._shell.at_work = False  # an exception may have come before that was said
            self.release()

    async def __aenter__(self) -> Hold:
        self.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state == HELD:
            self.release()
        elif self.state == LOST and kind is not asyncio.CancelledError:  # nothing but another reason cancels this body
            raise self.loss() from error

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
                self._cancelled = True
                task.cancel(f"the lock {self.name} is lost")


def _lay_out() -> None:
    """The interpreter lays instances out in the order in which the first ones got their attributes.
    In the order of `Lock.__aenter__` an entry takes a fifth less time.
    """
    hold: Any = Hold()
    for name in ("mode", "_lock", "local_lock", "state", "since", "fence", "_task", "_cancels"):
        setattr(hold, name, None)


_lay_out()
