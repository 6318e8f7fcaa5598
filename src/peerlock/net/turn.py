"""What a task of asyncio awaits until its lock is granted.

A future of asyncio's own wakes its task by way of the loop: a handle is made, and run when everything else that is
ready has been looked at. A grant that a socket has brought needs no such detour. Nothing else runs then, and once the
core is done with what has come the task can go on right there, which saves the hand-over a part of its time
(docs/guide/performance.md). Grants from elsewhere (another task's release, a timer) go by way of the loop as usual.

asyncio takes for a future whatever has the attribute `_asyncio_future_blocking` (see `asyncio.isfuture`), and asks of
it what is in here. One task awaits a turn, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Turn:
    __slots__ = ("_asyncio_future_blocking", "_context", "_loop", "_problem", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._resume: Callable[[Turn], object] | None = None  # the task's next step; None: nobody waits, or no longer
        self._context: Context | None = None
        self._problem: BaseException | None = None

    # -- for the task ------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Turn, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, resume: Callable[[Turn], object], *, context: Context | None = None) -> None:
        self._resume, self._context = resume, context

    def result(self) -> None:
        if self._problem is not None:
            raise self._problem

    def cancel(self, msg: Any = None) -> bool:
        if self._resume is None:
            return False
        self.comes(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True

    # -- for whoever grants ------------------------------------------------------------------------------

    def comes(self, problem: BaseException | None = None) -> None:
        """The task goes on, with a grant or a problem, when the loop comes to it."""
        resume, self._resume = self._resume, None
        if resume is not None:
            self._problem = problem
            self._loop.call_soon(resume, self, context=self._context)

    def has_come(self) -> None:
        """The task goes on here and now, unless somebody runs the loop in the middle of another one."""
        if asyncio.current_task(self._loop) is not None:
            self.comes()
            return
        resume, self._resume = self._resume, None
        if resume is not None:
            assert self._context is not None
            try:
                self._context.run(resume, self)
            except BaseException as problem:
                # sys.exit, or Ctrl-C: that is meant for the loop, and whoever reads sockets has others to tell.
                self._loop.call_soon(_raise, problem)


def _raise(problem: BaseException) -> None:
    raise problem
