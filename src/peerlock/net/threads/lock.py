"""The lock for threads.

    with peerlock.sync.join("shop") as node:
        with node.lock("orders") as hold:
            ...

The core runs under one mutex per node. The thread that asks or releases runs the core itself and
writes what is to be sent. One reader thread per node (`shell.py`) waits for sockets and timers,
runs the core for what comes, and wakes the threads that were granted a lock. Nothing passes through
another thread's queue.

A thread that waits sleeps on a lock of its own ticket, which is released with the grant. If a
signal handler interrupts the wait by raising, the thread gives the ticket up, or the lock back.

**The core is never re-entered.** A signal handler, a finalizer or `on_loss` may run in the middle
of it, in the thread that has the mutex. What they release is released by the reader thread, soon.
What they ask for is refused with a sentence.

**Interrupted in the middle of the core.** A signal handler may raise between any two steps of
Python in the main thread. A core that was left half way cannot go on: a message may be neither sent
nor kept. So the node throws it away (`upset`). All holds of this node are lost, and their holders
are told; the node joins again as a new incarnation; threads that wait ask again. That takes
milliseconds (with leases: one lease), and is rare: the core's part of an entry is a few
microseconds.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from peerlock.contract import Mode
from peerlock.errors import AlreadyHeld, LockTimeout, NodeClosed, PeerlockError, UsageError
from peerlock.net.hold import already_held, not_in_time, other_algorithm, seconds
from peerlock.net.threads.hold import Abandoned, Bodies, ExitOfBody, Hold, MainThread, watch_over
from peerlock.net.yielding import YIELD_S
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.ticket import HELD, LOST, WAITING
from peerlock.node.wire_algorithms import WireAlgorithm

if TYPE_CHECKING:
    from peerlock.net.threads.on_threads import ThreadsShell


class Lock:
    """A named lock of a group. Many threads may use one object; each `acquire` gives a hold of its
    own.
    """

    def __init__(self, shell: ThreadsShell, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> None:
        self.name = name
        self.mode: Mode = mode
        self._shell, self._wire_algorithm, self._priority = shell, algorithm, priority
        self._bodies = Bodies(shell, name)
        self._next_watch: Abandoned | None = None  # over the block that is about to begin, in the main thread
        self._abandoned = shell.abandoned.append

    def acquire(self, *, timeout: float | None = None) -> Hold:
        """Wait for the lock. `LockTimeout` if it is not granted within `timeout` seconds."""
        timeout = seconds("timeout", timeout)
        hold = self._asker()
        try:
            self._acquire(hold, timeout)
        except BaseException:
            hold.give_up()
            raise
        return hold

    def _asker(self) -> Hold:
        hold = Hold()
        hold.mode, hold._lock = self.mode, self._bodies
        return hold

    def _acquire(self, hold: Hold, timeout: float | None) -> None:
        shell = self._shell
        if shell.forked:
            shell.alive()  # before the mutex: in a forked child no thread may ever release it
        end = None if timeout is None else shell.now() + max(0.0, timeout)
        if shell.core.table.now > shell.yield_at:
            # A thread that does nothing but lock would leave the reader no turn before the
            # interpreter's switch interval.
            shell.yield_at = shell.core.table.now + YIELD_S
            time.sleep(0)
        self._ask(hold)
        while hold.state != HELD and not self._wait(hold, timeout, end):
            self._ask(hold)  # the node has joined again, and what was asked before is forgotten
        if shell.waiting:
            shell.waiting.discard(hold)  # it was granted before this thread could wait
        if shell.core.table.now > shell.membership.look_at:
            shell.check_lease()
            if hold.state != HELD:
                raise hold.loss()

    def _ask(self, hold: Hold) -> None:
        """The lock is held afterwards, or the thread has to wait for `_wake`."""
        shell = self._shell
        if shell.is_in_core():
            raise UsageError(
                f"The lock {self.name} was asked for in the middle of the node's work, by a signal handler, a finalizer or "
                "on_loss: let a thread of its own ask."
            )
        with shell.mutex:
            core = shell.core
            table = core.table
            try:
                if shell.closing:
                    shell.usable()
                local_lock = table.locks.get(self.name)
                if local_lock is None or local_lock.wire_algorithm is not self._wire_algorithm:
                    local_lock = table.local_lock(self.name, self._wire_algorithm)
                    if local_lock.wire_algorithm is not self._wire_algorithm:
                        raise other_algorithm(local_lock, self._wire_algorithm)
                if self._priority:
                    local_lock.priority = self._priority
                if local_lock.has:
                    self._not_by_the_holder(local_lock)
                hold._owner = threading.get_ident()
                core.acquire(local_lock, hold, shell.now())
                if table.dirty or table.effects:
                    shell.carry_out()
                if hold.state == WAITING:
                    self._not_by_a_waiter(hold)
                    wake = threading.Lock()
                    wake.acquire()
                    hold._wake = wake
                    shell.waiting.add(hold)
                    if shell.abandoned:
                        shell.wake()
            except PeerlockError:
                raise
            except BaseException as problem:
                shell.upset(problem)
                hold.local_lock = None
                raise

    def _not_by_the_holder(self, local_lock: LocalLock) -> None:
        """A thread that holds the lock in its body would wait for itself."""
        me = threading.get_ident()
        for other in (local_lock.holder, *(local_lock.sharers or ())):
            if isinstance(other, Hold) and me in (other._thread, other._owner) and not other.is_abandoned:
                raise already_held("thread", self.name)

    def _not_by_a_waiter(self, hold: Hold) -> None:
        """This thread waits for the lock already, and a signal's handler asks for it: it would wait
        for itself.
        """
        me = hold._owner, self.name, WAITING
        if any((other._owner, other.name, other.state) == me for other in self._shell.waiting):
            raise AlreadyHeld(
                f"This thread waits for the lock {self.name}, and a signal handler in it asks for the same lock, which would "
                "never be granted: let a thread of its own ask."
            )

    def _wait(self, hold: Hold, timeout: float | None, end: float | None) -> bool:
        """True: it is held. False: it must be asked for again."""
        left = -1 if end is None else max(0.0, min(end - self._shell.now(), threading.TIMEOUT_MAX))
        granted = hold._wake.acquire(timeout=left)
        hold._wake = None
        if not granted and not hold.give_up(keep=True):
            raise not_in_time(self.name, timeout or 0.0)
        self._shell.waiting.discard(hold)
        if hold.state == WAITING:
            return False
        if hold.state != HELD:
            raise hold.error or NodeClosed(f"The node has left the group {self._shell.group}. The lock was never held.")
        return True

    def try_acquire(self, *, patience_s: float = 0.0) -> Hold | None:
        """The lock if it is granted within `patience_s` seconds, else None.

        No node answers that a lock is busy, so this one asks and gives up. With 0 it is granted
        only if that takes no message: another node that had it last may have it still.
        """
        patience = seconds("patience_s", patience_s)
        if patience is None:
            raise UsageError("patience_s must be a number of seconds; to wait without an end, use acquire().")
        try:
            return self.acquire(timeout=patience)
        except LockTimeout:
            return None

    def __enter__(self) -> Hold:
        hold = Hold()
        hold.mode, hold._lock = self.mode, self._bodies
        try:
            self._acquire(hold, None)
            hold._thread = me = threading.get_ident()
            bodies = self._bodies.by_thread.setdefault(me, [])
            if bodies:
                bodies[:] = [other for other in bodies if other is None or not other.is_abandoned]
            bodies.append(hold)
            if me == MainThread.ident:
                hold._watch = watch = watch_over(self)
                watch.hold = hold
        except BaseException:
            hold.detach()
            hold.give_up()
            raise
        return hold

    if TYPE_CHECKING:

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    else:
        __exit__ = ExitOfBody()

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        ended: list[Hold | None] = []
        try:
            bodies = self._bodies.by_thread.get(threading.get_ident())
            if not bodies:
                raise self._of_another_thread()
            hold = bodies[-1]
            ended.append(hold)
            bodies.pop()
            if hold is None:  # detached, or released in the body
                return
            hold._thread = hold._watch = None
            if hold.state == LOST:
                raise hold.loss() from error
            hold.release()
        except PeerlockError:
            raise
        except BaseException:  # a signal's handler has raised: the body has ended all the same
            if not ended:
                self._exit(kind, error, trace)
            elif ended[0] is not None:
                ended[0].detach()
                ended[0].give_up()
            raise

    def _of_another_thread(self) -> UsageError:
        return UsageError(
            f"The body of the lock {self.name} ends in another thread than it began in. To hand a lock over, use acquire, "
            "or detach the hold."
        )

    def __repr__(self) -> str:
        return f"<lock {self.name} of {self._shell!r}>"


class LockAll:
    """Several locks at once. Each hold is known before it is asked for, so an interrupted `with`
    gives all of them back.
    """

    def __init__(self, locks: list[Lock]) -> None:
        self._locks = locks
        self._holds: list[Hold] = []
        self._next_watch: Abandoned | None = None
        self._abandoned = locks[0]._abandoned if locks else list[Abandoned]().append

    def __enter__(self) -> tuple[Hold, ...]:
        try:
            for lock in self._locks:
                hold = lock._asker()
                self._holds.append(hold)
                lock._acquire(hold, None)
            body = watch_over(self)() if threading.get_ident() == MainThread.ident else None
            for hold in self._holds if body is not None else ():
                hold._watch = watch = Abandoned(body, self._abandoned)
                watch.hold = hold
            return tuple(self._holds)
        except BaseException:
            self._give_back()
            raise

    if TYPE_CHECKING:

        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...

    else:
        __exit__ = ExitOfBody()

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            lost = self._give_back()
        except BaseException:
            self._give_back()  # a signal's handler has raised: what is left
            raise
        if lost is not None:
            raise lost.loss() from error

    def _give_back(self) -> Hold | None:
        """The first lock that was lost before, if any was."""
        lost = None
        while self._holds:
            hold = self._holds[-1]
            if hold.state == LOST:
                lost = hold
            hold.give_up()
            hold._watch = None
            self._holds.pop()
        return lost


class RWLock:
    """A lock for readers, who share it, and writers, who do not."""

    def __init__(self, shell: ThreadsShell, name: str, algorithm: WireAlgorithm) -> None:
        self._shell, self.name, self._algorithm = shell, name, algorithm

    def read(self) -> Lock:
        return self._shell.make_lock(self.name, self._algorithm, "read")

    def write(self) -> Lock:
        return self._shell.make_lock(self.name, self._algorithm, "write")
