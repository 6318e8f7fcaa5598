"""A lock that a thread holds, and the `with` block that it is held in."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from peerlock.errors import PeerlockError, UsageError, shown
from peerlock.net.base_shell import log
from peerlock.net.hold import BaseHold
from peerlock.node.locks.ticket import DONE, HELD, LOST, WAITING

if TYPE_CHECKING:
    from peerlock.net.threads.lock import Lock, LockAll
    from peerlock.net.threads.on_threads import ThreadsShell


class MainThread:
    """The thread in which Python runs signal handlers."""

    ident = threading.main_thread().ident

    @classmethod
    def after_fork(cls) -> None:
        cls.ident = threading.get_ident()


os.register_at_fork(after_in_child=MainThread.after_fork)


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
        self._lock._shell.alive()
        with self._lock._shell.mutex:
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
        """The hold outlives the body that it was taken in, and belongs to no thread: any code that
        has it may release it.
        """
        self._owner = self._watch = None
        if self._thread is not None and self.state != LOST:
            bodies = self._lock.by_thread.get(self._thread, [])
            bodies[:] = [None if other is self else other for other in bodies]
            self._thread = None
        return self

    def release(self) -> None:
        """Give the lock back. `LockLost` if it was lost before."""
        shell = self._lock._shell
        if shell.forked:
            shell.alive()
        if self._thread is not None:
            self.detach()
        if self.state == HELD and shell.is_in_core():
            if self._released:
                raise self.released_before()
            self._released = True
            shell.post(self._release_now)
            return
        with shell.mutex:
            held = self.state == HELD
            if held:
                try:
                    core = shell.core
                    core.release(self, shell.now())
                    if core.table.dirty or core.effects:
                        shell.carry_out()
                except BaseException as problem:
                    shell.upset(problem)
                    raise
        if self.state == DONE and held:
            return
        if self.state == LOST:
            raise self.loss()
        raise self.released_before()

    def _release_now(self) -> None:
        """In the reader thread, between two events."""
        if self.state == HELD:
            shell = self._lock._shell
            shell.core.release(self, shell.now())

    def give_up(self, keep: bool = False) -> bool:
        """Stop waiting. True: it was granted at the last moment, and is kept if `keep`."""
        shell = self._lock._shell
        if shell.forked:
            return False
        if shell.is_in_core():  # a finalizer, or a handler, in the middle of something
            if not keep:
                shell.post(self._put_back)
            return self.state == HELD
        with shell.mutex:
            shell.waiting.discard(self)
            if self.local_lock is None:
                return False
            try:
                if self.state == WAITING:
                    shell.core.cancel(self, shell.now())
                    shell.carry_out()
                    return False
                if self.state == HELD and not keep:
                    shell.core.release(self, shell.now())
                    shell.carry_out()
            except BaseException as problem:
                shell.upset(problem)
                raise
            return True

    def _put_back(self) -> None:
        if self.state == WAITING and self.local_lock is not None:
            shell = self._lock._shell
            shell.core.cancel(self, shell.now())
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
        wake = self._wake  # the thread that asked may be about to forget it
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
    """The holds of one `Lock` object whose bodies run. Holds refer to it and not to the `Lock`,
    which they would keep alive.
    """

    __slots__ = ("_shell", "by_thread", "name")

    def __init__(self, shell: ThreadsShell, name: str) -> None:
        self._shell, self.name = shell, name
        self.by_thread: dict[int, list[Hold | None]] = {}  # the last one last; None: it was detached or released


class ExitOfBody:
    """The descriptor `__exit__` of a class with a method `_exit`.

    A `with` statement looks up `__exit__` first, then calls `__enter__`, and forgets both when the
    block has ended in whatever way. So each block of the main thread gets an `__exit__` of its own,
    which the interpreter keeps alive while the block runs.
    """

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return kind._exit  # as contextlib.ExitStack calls it
        if threading.get_ident() != MainThread.ident:
            return owner._exit
        body = partial(owner._exit)
        owner._next_watch = Abandoned(body, owner._abandoned)
        return body


class Abandoned(weakref.ref[Any]):
    """A watch over the body of a `with` block in the main thread, where Python runs signal handlers:
    also at the first instruction of `__exit__`.

    If a handler raises there, nothing of `__exit__` has run and the hold is left behind. The
    `__exit__` of this block then dies with the exception, and the reader thread gives the lock back.
    The callback is a function in C, since a finalizer in Python could be interrupted in the same way.
    """

    __slots__ = ("hold",)
    hold: Hold  # missing until `__enter__` has it


def watch_over(owner: Lock | LockAll) -> Abandoned:
    """The watch over the block that begins. Without a `with` statement: over the lock object
    itself.
    """
    watch, owner._next_watch = owner._next_watch, None
    return Abandoned(owner, owner._abandoned) if watch is None or watch() is None else watch
