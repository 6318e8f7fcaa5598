"""An attached process whose callers are tasks of an event loop."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlock.contract import Mode
from peerlock.net.aio.hold import Hold
from peerlock.net.aio.lock import Lock, _tasks, _thread
from peerlock.net.aio.shell import OnLoop
from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.shell import AttachedShell
from peerlock.net.attached.start import Starter
from peerlock.node.attached.core import AttachedCore
from peerlock.node.locks.ticket import DONE, HELD, Limits
from peerlock.node.wire_algorithms import WireAlgorithm


class AttachedAioShell(OnLoop[AttachedCore], AttachedShell):
    """The shell of an attached process, on an event loop."""

    def __init__(
        self, directory: AttachedDirectory, group: str, name: str | None, algorithm: str, limits: Limits | None,
        start: Starter,
    ) -> None:  # fmt: skip
        self.use_loop(time.monotonic)
        super().__init__(directory, group, name, algorithm, limits, start)
        self.clock = self.time
        self.handlers |= self.may_spin(limits)

    def make_lock(self, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> Lock:
        return AttachedAioLock(self, name, algorithm, mode, priority)

    def watch(self, made: socket.socket, ready: Callable[[], object]) -> None:
        self.loop.add_reader(made, self.run, ready)

    def unwatch(self, made: socket.socket) -> None:
        if made.fileno() >= 0:
            self.loop.remove_reader(made)
            self.loop.remove_writer(made)

    def watch_room(self, made: socket.socket, ready: Callable[[], object] | None) -> None:
        if ready is None:
            self.loop.remove_writer(made)
        else:
            self.loop.add_writer(made, self.run, ready)

    def soon(self, act: Callable[[], object]) -> None:
        self.loop.call_soon(act)

    def check_lease(self) -> None:
        """There is none on one host."""

    async def leave(self) -> None:
        if not self.closing and not self.forked:
            self.leave_now()
            if self.at_end is not None:
                await self.at_end.aclose()

    def leave_now(self) -> None:
        self.run(self.say_farewell)


class AttachedAioLock(Lock):
    """An entry under a number that this process has costs no call of the core: it marks the page,
    looks at it and takes a fence.
    """

    __slots__ = ()

    async def __aenter__(self) -> Hold:
        local_lock: Any = self._local_lock
        if (
            local_lock.free
            and local_lock.want is None
            and self._table.open
            and self.mode == "write"
            and local_lock.clock < local_lock.last_fence
            and _thread() == self._thread
        ):
            try:
                task = _tasks[self._loop]
            except (KeyError, TypeError):
                task = self._this_task()
            page, slot = local_lock.page, local_lock.slot
            page.inside[slot] = local_lock.mark_word
            if page.signals[slot] < local_lock.number:
                local_lock.holder = hold = Hold()
                hold.mode = local_lock.want = "write"
                hold._lock = self
                hold.local_lock = local_lock
                hold.state = HELD
                hold.since = now = self._time()
                local_lock.has = True
                local_lock.clock = hold.fence = local_lock.clock + 1
                self._table.grants += 1
                if now > self._pace.yield_at:
                    try:
                        await self._let_others(hold, now)
                    except BaseException:
                        self._give_up(hold)
                        raise
                if self._hold is not None:
                    self._bodies.setdefault(self._hold._task, []).append(self._hold)
                hold._task = task
                hold._cancels = task.cancelling()
                self._hold = hold
                return hold
            page.inside[slot] = 0
        if local_lock.free:
            local_lock.catch_up()  # what is free to a member is not free here
        return await super().__aenter__()

    if not TYPE_CHECKING:

        def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> Any:
            hold = self._hold
            if hold is not None and not self._bodies and hold.state == HELD:
                local_lock = hold.local_lock
                if local_lock.free and self._table.open:
                    page, slot = local_lock.page, local_lock.slot
                    if page.signals[slot] < local_lock.number:
                        self._hold = local_lock.holder = local_lock.want = None
                        hold.state = DONE
                        local_lock.has = False
                        page.inside[slot] = 0
                        self._table.hold_s += self._time() - hold.since
                        return self._done
            if self._local_lock.free:
                self._local_lock.catch_up()
            return super().__aexit__(kind, error, trace)

    def _release(self, hold: Hold) -> None:
        local_lock: Any = hold.local_lock
        if not local_lock.process_lock.chain and local_lock.is_signalled():
            self._shell.run(self._shell.read_now)  # it says which process is next
        super()._release(hold)


__all__ = ["AttachedAioLock", "AttachedAioShell"]
