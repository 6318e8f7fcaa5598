"""The lock for threads.

    with peerlock.sync.join("shop") as node:
        with node.lock("orders") as hold:
            ...

The core runs under one mutex per node. The thread that asks or releases runs the core itself and writes what is to be sent.
One reader thread per node (`shell.py`) waits for sockets and timers, runs the core for what comes, and wakes the threads
that were granted a lock. Nothing passes through another thread's queue.

A thread that waits sleeps on a lock of its own ticket, which is released with the grant. If a signal handler interrupts the
wait by raising, the thread gives the ticket up, or the lock back.

**The core is never re-entered.** A signal handler, a finalizer or `on_loss` may run in the middle of it, in the thread that
has the mutex. What they release is released by the reader thread, soon. What they ask for is refused with a sentence.

**Interrupted in the middle of the core.** A signal handler may raise between any two steps of Python in the main thread. A
core that was left half way cannot go on: a message may be neither sent nor kept. So the node throws it away (`upset`). All
holds of this node are lost, and their holders are told; the node joins again as a new incarnation; threads that wait ask
again. That takes milliseconds (with leases: one lease), and is rare: the core's part of an entry is a few microseconds.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlock.contract import Mode
from peerlock.errors import AlreadyHeld, LockTimeout, NodeClosed, PeerlockError, UsageError, shown
from peerlock.net.hold import BaseHold, already_held, not_in_time, other_algorithm, seconds
from peerlock.net.shell import log
from peerlock.net.yielding import YIELD_S
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.ticket import DONE, HELD, LOST, WAITING
from peerlock.node.wire_algorithms import WireAlgorithm

if TYPE_CHECKING:
    from peerlock.net.threads.node import Node


class Hold(BaseHold):
    """A lock that was granted, until `release`, or until it is lost."""

    _lock: Bodies
    _wake: Any = None  # the waiting thread sleeps on it
    _event: threading.Event | None = None
    _thread: int | None = None  # whose body it is
    _owner: int | None = None  # the thread that asked: it would wait for itself
    _released = False  # it is about to be
    _watch: Abandoned | None = None  # while its body runs
    _on_loss: Callable[[], object] | None = None

    @property
    def on_loss(self) -> Callable[[], object] | None:
        """The reader thread calls it when the lock is lost."""
        return self._on_loss

    @on_loss.setter
    def on_loss(self, act: Callable[[], object] | None) -> None:
        if act is not None and not callable(act):
            raise UsageError(f"on_loss must be a function without arguments, or None; got {shown(act)}.")
        self._on_loss = act

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost."""
        self._lock._node.alive()
        with self._lock._node.mutex:
            if self._event is None:
                self._event = threading.Event()
                if self.state == LOST:
                    self._event.set()
            return self._event

    @property
    def is_abandoned(self) -> bool:
        """Its body has ended without `__exit__`, and the reader thread is about to give it back."""
        return self._watch is not None and self._watch() is None

    def detach(self) -> Hold:
        """The hold outlives the body that it was taken in, and belongs to no thread: whoever has it releases it."""
        self._owner = self._watch = None
        if self._thread is not None and self.state != LOST:
            bodies = self._lock.by_thread.get(self._thread, [])
            bodies[:] = [None if other is self else other for other in bodies]
            self._thread = None
        return self

    def release(self) -> None:
        """Give the lock back. `LockLost` if it was lost before."""
        node = self._lock._node
        if node.forked:
            node.alive()
        if self._thread is not None:
            self.detach()
        if self.state == HELD and node.is_in_core():
            if self._released:
                raise self.released_before()
            self._released = True
            node.post(self._release_now)
            return
        with node.mutex:
            held, local_lock = self.state == HELD, self.local_lock
            if held and local_lock is not None:
                try:
                    local_lock.release(self, node.now())
                    if local_lock.table.dirty:
                        node.core.flush()
                except BaseException as problem:
                    node.upset(problem)
                    raise
        if self.state == DONE and held:
            return
        if self.state == LOST:
            raise self.loss()
        raise self.released_before()

    def _release_now(self) -> None:
        """In the reader thread, between two events."""
        if self.state == HELD and self.local_lock is not None:
            self.local_lock.release(self, self._lock._node.now())

    def give_up(self, keep: bool = False) -> bool:
        """Stop waiting. True: it was granted at the last moment, and is kept if `keep`."""
        node = self._lock._node
        if node.forked:
            return False
        if node.is_in_core():  # a finalizer, or a handler, in the middle of something
            if not keep:
                node.post(self._put_back)
            return self.state == HELD
        with node.mutex:
            node.waiting.discard(self)
            if self.local_lock is None:
                return False
            core = node.core
            try:
                if self.state == WAITING:
                    self.local_lock.cancel(self, node.now())
                    core.flush()
                    return False
                if self.state == HELD and not keep:
                    self.local_lock.release(self, node.now())
                    core.flush()
            except BaseException as problem:
                node.upset(problem)
                raise
            return True

    def _put_back(self) -> None:
        if self.state == WAITING and self.local_lock is not None:
            self.local_lock.cancel(self, self._lock._node.now())
        else:
            self._release_now()

    def __enter__(self) -> Hold:
        try:
            self.check()
        except BaseException:
            self.give_up()
            raise
        return self

    def __exit__(self, *what: object) -> None:
        try:
            if self.state == HELD:
                self.release()
            elif self.state == LOST:
                raise self.loss()
        except PeerlockError:
            raise
        except BaseException:  # a signal's handler has raised: the body has ended all the same
            self.give_up()
            raise

    def woken(self) -> None:
        wake = self._wake  # whoever asked may be about to forget it
        if wake is not None and wake.locked():
            wake.release()
        if self.state == LOST:
            if self._event is not None:
                self._event.set()
            if self.on_loss is not None:
                try:
                    self.on_loss()
                except BaseException:  # also sys.exit: in this thread it would end the node, and not the program
                    log.exception("the lock %s is lost, and so is what was to be done about it", self.name)


class Bodies:
    """The holds of one `Lock` object whose bodies run. Holds refer to it and not to the `Lock`, which they would keep alive."""

    __slots__ = ("_node", "by_thread", "name")

    def __init__(self, node: Node, name: str) -> None:
        self._node, self.name = node, name
        self.by_thread: dict[int, list[Hold | None]] = {}  # the last one last; None: it was detached or released


class Body:
    """One execution of a `with` block. The interpreter keeps it alive while the block runs, by its `exit`.

    A `with` statement looks up `__exit__` first, then calls `__enter__`, and forgets both when the block has ended in
    whatever way. So `__exit__` is a descriptor that makes a `Body` for each block.
    """

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Lock | LockAll) -> None:
        self.owner = owner

    def exit(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.owner._exit(kind, error)


class ExitOfBody:
    """The descriptor `__exit__` of a class with a method `_exit`."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return lambda owner, kind, error, trace: owner._exit(kind, error)  # as contextlib.ExitStack calls it
        body = Body(owner)
        owner._next_body[threading.get_ident()] = weakref.ref(body)
        return body.exit


def body_of(owner: Lock | LockAll) -> Body | Lock | LockAll:
    """What lives as long as the block that begins. Without a `with` statement: the lock object itself."""
    found = owner._next_body.pop(threading.get_ident(), None)
    return (found and found()) or owner


class Abandoned(weakref.ref[Any]):
    """A watch over the body of a `with` block: Python also runs signal handlers at the first instruction of `__exit__`.

    If a handler raises there, nothing of `__exit__` has run and the hold is left behind. The `Body` then dies with the
    exception, and the reader thread gives the lock back. The callback is a function in C, since a finalizer in Python could
    be interrupted in the same way.
    """

    __slots__ = ("hold",)
    hold: Hold

    def __new__(cls, body: Body | Lock | LockAll, hold: Hold) -> Abandoned:
        watch = super().__new__(cls, body, hold._lock._node.abandoned.append)
        watch.hold = hold
        return watch

    def __init__(self, body: Body | Lock | LockAll, hold: Hold) -> None:
        """`__new__` has done it."""


class Lock:
    """A named lock of a group. Many threads may use one object; each `acquire` gives a hold of its own."""

    def __init__(self, node: Node, name: str, algorithm: WireAlgorithm, mode: Mode, priority: int = 0) -> None:
        self.name = name
        self.mode: Mode = mode
        self._node, self._wire_algorithm, self._priority = node, algorithm, priority
        self._bodies = Bodies(node, name)
        self._next_body: dict[int, weakref.ref[Body]] = {}  # by thread: the block that is about to begin

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
        node = self._node
        if node.forked:
            node.alive()  # before the mutex: in a forked child nobody may ever release it
        end = None if timeout is None else node.now() + max(0.0, timeout)
        if node.core.now > node.yield_at:
            # A thread that does nothing but lock would leave the reader no turn before the interpreter's switch interval.
            node.yield_at = node.core.now + YIELD_S
            time.sleep(0)
        self._ask(hold)
        while hold.state != HELD and not self._wait(hold, timeout, end):
            self._ask(hold)  # the node has joined again, and what was asked before is forgotten
        if node.waiting:
            node.waiting.discard(hold)  # it was granted before this thread could wait

    def _ask(self, hold: Hold) -> None:
        """The lock is held afterwards, or the thread has to wait for `_wake`."""
        node = self._node
        if node.is_in_core():
            raise UsageError(
                f"The lock {self.name} was asked for in the middle of the node's work, by a signal handler, a finalizer or "
                "on_loss: let a thread of its own ask."
            )
        with node.mutex:
            core = node.core
            try:
                if node.closing:
                    node.usable()
                core.now = now = node.now()
                local_lock = core.table.locks.get(self.name)
                if local_lock is None or local_lock.wire_algorithm is not self._wire_algorithm:
                    local_lock = core.table.local_lock(self.name, self._wire_algorithm)
                    if local_lock.wire_algorithm is not self._wire_algorithm:
                        raise other_algorithm(local_lock, self._wire_algorithm)
                if self._priority:
                    local_lock.priority = self._priority
                if local_lock.has:
                    self._not_by_the_holder(local_lock)
                hold._owner = threading.get_ident()
                local_lock.acquire(hold, now)
                if core.table.dirty:
                    core.flush()
                if hold.state == WAITING:
                    self._not_by_a_waiter(hold)
                    wake = threading.Lock()
                    wake.acquire()
                    hold._wake = wake
                    node.waiting.add(hold)
                    if node.abandoned:
                        node.wake()
            except PeerlockError:
                raise
            except BaseException as problem:
                node.upset(problem)
                hold.local_lock = None
                raise

    def _not_by_the_holder(self, local_lock: LocalLock) -> None:
        """Whoever holds it in its body would wait for itself."""
        me = threading.get_ident()
        for other in (local_lock.holder, *(local_lock.sharers or ())):
            if isinstance(other, Hold) and me in (other._thread, other._owner) and not other.is_abandoned:
                raise already_held("thread", self.name)

    def _not_by_a_waiter(self, hold: Hold) -> None:
        """This thread waits for the lock already, and a signal's handler asks for it: it would wait for itself."""
        me = hold._owner, self.name, WAITING
        if any((other._owner, other.name, other.state) == me for other in self._node.waiting):
            raise AlreadyHeld(
                f"This thread waits for the lock {self.name}, and a signal handler in it asks for the same lock, which would "
                "never be granted: let a thread of its own ask."
            )

    def _wait(self, hold: Hold, timeout: float | None, end: float | None) -> bool:
        """True: it is held. False: it must be asked for again."""
        left = -1 if end is None else max(0.0, min(end - self._node.now(), threading.TIMEOUT_MAX))
        granted = hold._wake.acquire(timeout=left)
        hold._wake = None
        if not granted and not hold.give_up(keep=True):
            raise not_in_time(self.name, timeout or 0.0)
        self._node.waiting.discard(hold)
        if hold.state == WAITING:
            return False
        if hold.state != HELD:
            raise hold.error or NodeClosed(f"The node has left the group {self._node.group}. The lock was never held.")
        return True

    def try_acquire(self, *, patience_s: float = 0.0) -> Hold | None:
        """The lock if it is granted within `patience_s` seconds, else None: nobody answers "busy", so it asks and gives up."""
        patience = seconds("patience_s", patience_s)
        if patience is None:
            raise UsageError("patience_s must be a number of seconds; to wait without an end, use acquire().")
        try:
            return self.acquire(timeout=patience)
        except LockTimeout:
            return None

    def __enter__(self) -> Hold:
        hold = self._asker()
        try:
            self._acquire(hold, None)
            hold._thread = me = threading.get_ident()
            bodies = hold._lock.by_thread.setdefault(me, [])
            if bodies:
                bodies[:] = [other for other in bodies if other is None or not other.is_abandoned]
            bodies.append(hold)
            hold._watch = Abandoned(body_of(self), hold)
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

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        ended: list[Hold | None] = []
        try:
            self._end_body(ended, error)
        except PeerlockError:
            raise
        except BaseException:  # a signal's handler has raised: the body has ended all the same
            if not ended:
                self._end_body(ended, error)
            elif ended[0] is not None:
                ended[0].detach()
                ended[0].give_up()
            raise

    def _end_body(self, ended: list[Hold | None], error: BaseException | None) -> None:
        me = threading.get_ident()
        by_thread = self._bodies.by_thread
        bodies = by_thread.get(me)
        if not bodies:
            raise UsageError(
                f"The body of the lock {self.name} ends in another thread than it began in. To hand a lock over, use acquire, "
                "or detach the hold."
            )
        hold = bodies[-1]
        ended.append(hold)
        bodies.pop()
        if not bodies:
            by_thread.pop(me, None)
        if hold is None:  # detached, or released in the body
            return
        hold._thread = hold._watch = None
        if hold.state == LOST:
            raise hold.loss() from error
        hold.release()

    def __repr__(self) -> str:
        return f"<lock {self.name} of {self._node!r}>"


class LockAll:
    """Several locks at once. Each hold is known before it is asked for, so an interrupted `with` gives all of them back."""

    def __init__(self, locks: list[Lock]) -> None:
        self._locks = locks
        self._holds: list[Hold] = []
        self._next_body: dict[int, weakref.ref[Body]] = {}

    def __enter__(self) -> tuple[Hold, ...]:
        try:
            for lock in self._locks:
                hold = lock._asker()
                self._holds.append(hold)
                lock._acquire(hold, None)
            body = body_of(self)
            for hold in self._holds:
                hold._watch = Abandoned(body, hold)
            return tuple(self._holds)
        except BaseException:
            self._give_back()
            raise

    if TYPE_CHECKING:

        def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None: ...

    else:
        __exit__ = ExitOfBody()

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
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

    def __init__(self, node: Node, name: str, algorithm: WireAlgorithm) -> None:
        self._node, self.name, self._algorithm = node, name, algorithm

    def read(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "read")

    def write(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "write")
