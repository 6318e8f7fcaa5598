"""A thread that reads, for a shell whose callers are threads.

There is one per node. It waits for sockets and timers without the node's mutex, and runs the core
under it for what has come. Everything but the waiting happens under the mutex.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeAlias

from peerlock.contract import Mode
from peerlock.errors import PeerlockError
from peerlock.net.base_shell import BaseShell, C, log
from peerlock.net.threads.lock import Lock
from peerlock.node.locks.ticket import WAITING
from peerlock.node.wire_algorithms import WireAlgorithm

if TYPE_CHECKING:
    from peerlock.net.threads.hold import Abandoned, Hold


class OnThreads(BaseShell[C]):
    """A shell whose callers are threads."""

    def use_threads(self, clock: Callable[[], float], group: str) -> None:
        """Before anything else is made."""
        self.new_mutex()
        self.now = clock  # type: ignore[method-assign]
        self.inbox: deque[Callable[[], object]] = deque()  # from other threads
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Callable[[], object]]] = []
        self.number = 0
        self.yield_at = 0.0  # when an acquire that does not have to wait must let the reader have its turn
        self.waiting: set[Hold] = set()  # their threads wait
        self.abandoned: deque[Abandoned] = deque()  # bodies that ended without their `__exit__`
        self.wake_receiver, self.wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self.wake_sender.setblocking(False)
        self.selector.register(self.wake_receiver, selectors.EVENT_READ, None)
        self.reader = threading.Thread(target=self._read, name=f"peerlock {group}", daemon=True)

    def make_lock(self, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> Lock:
        return Lock(self, name, algorithm, mode, priority)

    # -- the reader --------------------------------------------------------------------------------------

    def post(self, act: Callable[[], object]) -> None:
        self.inbox.append(act)
        self.wake()

    def new_mutex(self) -> None:
        self.mutex = threading.RLock()
        # Has this very thread the mutex? Then a handler or a finalizer runs in the middle of the
        # node's work.
        self.is_in_core: Callable[[], bool] = self.mutex._is_owned  # type: ignore[attr-defined]  # as `threading.Condition` does

    def after_fork(self) -> None:
        self.new_mutex()  # the thread that had the old one is not here
        super().after_fork()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        with self.mutex:
            self.number += 1
            heappush(self.timers, (self.now() + seconds, self.number, act))
            if self.timers[0][1] == self.number:
                self.wake()

    def soon(self, act: Callable[[], object]) -> None:
        self.after(0.0, act)

    def wake(self) -> None:
        """Wake the reader."""
        if threading.current_thread() is not self.reader:
            with contextlib.suppress(OSError):
                self.wake_sender.send(b"!")

    def _read(self) -> None:
        try:
            self._serve()
        except BaseException:
            # A defect of ours. No caller may wait for a thread that is gone.
            log.exception("group %s: the reader of %s has ended", self.group, self.name)
            with self.mutex:
                self.closing = True
                try:
                    self.core.close(self.now())
                    self.carry_out()
                finally:
                    self.broken_down()

    def _serve(self) -> None:
        while True:
            with self.mutex:
                if self.closing:
                    self._put_away()
                    return
                wait = max(0.0, self.timers[0][0] - self.now()) if self.timers else None
            events = self.selector.select(wait)
            with self.mutex:
                self._handle(events)

    def _handle(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, mask in events:
            self._shielded(lambda key=key, mask=mask: self._one(key, mask), key.data)  # type: ignore[misc]
        while self.inbox:
            self._shielded(self.inbox.popleft())
        while self.timers and self.timers[0][0] <= self.now():
            self._shielded(heappop(self.timers)[2])
        self._give_back_what_was_left()
        self.carry_out()

    def _give_back_what_was_left(self) -> None:
        while self.abandoned:
            hold = getattr(self.abandoned.popleft(), "hold", None)  # none if the lock was not granted
            if hold is not None:
                hold._put_back()

    def _shielded(self, act: Callable[[], object], link: Any = None) -> None:
        """What goes wrong with one link, or with one thing that was to be done, must not end the
        reader.
        """
        try:
            act()
        except (OSError, ValueError, PeerlockError) as problem:
            self.complain(f"{type(problem).__name__}: {problem}")
            self.failed(link)

    def _one(self, key: selectors.SelectorKey, mask: int) -> None:
        if key.fileobj is self.wake_receiver:
            with contextlib.suppress(OSError):
                self.wake_receiver.recv(4096)
        else:
            self.ready(key, mask)

    def ready(self, key: selectors.SelectorKey, mask: int) -> None:
        """A socket can be read, or written."""
        raise NotImplementedError

    def failed(self, data: Any) -> None:
        """What came of what was registered with that made no sense."""

    def broken_down(self) -> None:
        """The reader has ended: nothing works any more."""
        raise NotImplementedError

    # -- the end, and interruptions ----------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the group. What is still held is lost; waiters get `NodeClosed`."""
        if self.forked:
            return
        if self.is_in_core() and threading.current_thread() is not self.reader:
            # A signal's handler in the middle of the node's work: the reader thread does it, soon.
            self.post(self.leave)
            return
        with self.mutex:
            if self.closing:
                return
        try:
            with self.mutex:
                self.say_farewell()
                self.fall_silent()
            self.wake()
            if threading.current_thread() is not self.reader and self.reader.ident is not None:
                self.reader.join()
            self.left()
        finally:  # also if a signal's handler raises meanwhile
            self.closing = True
            self.wake()
            self.close_registry()

    def fall_silent(self) -> None:
        """No peer is spoken to any more."""

    def left(self) -> None:
        """The reader has ended. What must be waited for, is."""

    def close_registry(self) -> None:
        """Nothing is used any more."""

    def upset(self, problem: BaseException) -> None:
        """A thread was interrupted in the middle of the core, with the mutex held: it is not known
        how far it came.
        """
        if isinstance(problem, PeerlockError):
            return  # that is an answer
        log.warning(
            "group %s: %s was interrupted in the middle of its work (%s): it joins again",
            self.group, self.name, type(problem).__name__,
        )  # fmt: skip
        self.begin_again("a signal's handler raised in the middle of the node's work")

    def begin_again(self, why: str) -> None:
        """Nothing that is known here can be relied upon."""
        raise NotImplementedError

    def wake_the_waiting(self) -> None:
        """They ask again."""
        waiting, self.waiting = self.waiting, set()
        for hold in waiting:
            if hold.state == WAITING:
                hold.local_lock = None
            hold.woken()

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not the reader had its turn."""
        raise NotImplementedError

    def _put_away(self) -> None:
        self.put_away_links()
        while self.timers:
            heappop(self.timers)
        for made in (self.wake_receiver, self.wake_sender):
            made.close()
        self.selector.close()

    def put_away_links(self) -> None:
        raise NotImplementedError


ThreadsShell: TypeAlias = OnThreads[Any]  # of a member, or of an attached process
