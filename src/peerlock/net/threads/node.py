"""A node whose users are threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from peerlock.errors import PeerlockError, UsageError
from peerlock.net.control.status import NodeStatus, check_wait
from peerlock.net.files import check_name, lock_names
from peerlock.net.node import BaseNode
from peerlock.net.threads.lock import Lock, LockAll, RWLock
from peerlock.net.threads.on_threads import ThreadsShell
from peerlock.node.wire_algorithms import DEFAULT_RW, wire_algorithm


class Node(BaseNode[ThreadsShell]):
    """A member of a group, for threads. Made by `peerlock.sync.join`."""

    __slots__ = ()

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return self._shell.make_lock(check_name("lock", name), *self._shell.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self._shell, check_name("lock", name), wire_algorithm(DEFAULT_RW))

    def lock_all(self, names: Iterable[str]) -> LockAll:
        """Several locks, taken in one global order, so that two that want the same never wait for
        each other.
        """
        return LockAll([self.lock(name) for name in lock_names(names)])

    def status(self, wait_s: float = 1.0) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        wait_s, shell = check_wait(wait_s), self._shell
        done, found = threading.Event(), list[NodeStatus]()

        def take(status: NodeStatus) -> None:
            found.append(status)
            done.set()

        shell.alive()
        if shell.is_in_core():
            raise UsageError(
                "The status was asked for in the middle of the node's work, by a signal handler, a finalizer or on_loss: let a "
                "thread of its own ask."
            )
        with shell.mutex:
            shell.usable()
            shell.ask_status(take, wait_s)
        while not done.wait(wait_s):
            shell.usable()  # the node may have been closed meanwhile
        return found[0]

    def leave(self) -> None:
        """Leave the group. What is still held is lost; waiters get `NodeClosed`."""
        self._shell.leave()

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there
        are many.
        """
        shell = self._shell
        with shell.mutex:
            shell.usable()
            shell.collect()
            shell.carry_out()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *what: object) -> None:
        self.leave()


def started(shell: ThreadsShell, timeout: float | None = None) -> Node:
    """Join, and wait for the first view."""
    there, membership = threading.Event(), shell.membership
    membership.on_started = there.set
    try:
        with shell.mutex:
            shell.enter_group()
        shell.reader.start()
        if not there.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            raise shell.not_in_time(timeout or 0.0)
        if membership.failure is not None:
            raise membership.failure
        shell.usable()
    except BaseException:
        with contextlib.suppress(PeerlockError):
            if shell.reader.ident is None:
                shell.reader.start()
            shell.leave()
        raise
    membership.on_started = None
    return Node(shell)
