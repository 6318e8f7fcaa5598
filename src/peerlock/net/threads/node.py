"""A node whose users are threads."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable

from peerlock.errors import NodeClosed, PeerlockError, UsageError
from peerlock.net.control.status import NodeStatus, check_wait
from peerlock.net.files import check_name, lock_names
from peerlock.net.registries.base import Registry
from peerlock.net.shell import log
from peerlock.net.threads.hold import Abandoned, Hold
from peerlock.net.threads.lock import Lock, LockAll, RWLock
from peerlock.net.threads.shell import ThreadShell
from peerlock.node.locks.ticket import FAILED, WAITING, Limits
from peerlock.node.wire_algorithms import DEFAULT, DEFAULT_RW, wire_algorithm

FAREWELL_S = 2.0  # for the group to know that this node is gone


class Node(ThreadShell):
    """A member of a group. Made by `peerlock.sync.join`."""

    def __init__(
        self, registry: Registry, group: str, *, algorithm: str = DEFAULT, limits: Limits | None = None
    ) -> None:
        self.yield_at = 0.0  # when an acquire that does not have to wait must let the reader have its turn
        self.waiting: set[Hold] = set()  # their threads wait
        self.abandoned: deque[Abandoned] = deque()  # bodies that ended without their `__exit__`
        super().__init__(registry, group, algorithm, limits)

    # -- for users ---------------------------------------------------------------------------------------

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return Lock(self, check_name("lock", name), *self.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self, check_name("lock", name), wire_algorithm(DEFAULT_RW))

    def lock_all(self, names: Iterable[str]) -> LockAll:
        """Several locks, taken in one global order, so that two that want the same never wait for each other."""
        return LockAll([self.lock(name) for name in lock_names(names)])

    def status(self, wait_s: float = 1.0) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        wait_s = check_wait(wait_s)
        done, found = threading.Event(), list[NodeStatus]()

        def take(status: NodeStatus) -> None:
            found.append(status)
            done.set()

        self.alive()
        if self.is_in_core():
            raise UsageError(
                "The status was asked for in the middle of the node's work, by a signal handler, a finalizer or on_loss: let a "
                "thread of its own ask."
            )
        with self.mutex:
            self.usable()
            self.ask_status(take, wait_s)
        while not done.wait(wait_s):
            self.usable()  # the node may have been closed meanwhile
        return found[0]

    def leave(self) -> None:
        """Leave the group. What is still held is lost; who waits gets `NodeClosed`."""
        if self.forked:
            return
        if self.is_in_core() and threading.current_thread() is not self.reader:
            self.post(
                self.leave
            )  # a signal's handler in the middle of the node's work: the reader thread does it, soon
            return
        with self.mutex:
            if self.closing:
                return
        try:
            with self.mutex:
                self.say_farewell()
                for link in list(self.up):
                    link.close()
            self.wake()
            if threading.current_thread() is not self.reader and self.reader.ident is not None:
                self.reader.join()
            self.registry.left(FAREWELL_S)
        finally:  # also if a signal's handler raises meanwhile
            self.closing = True
            self.wake()
            self.registry.close()

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there are many."""
        with self.mutex:
            self.usable()
            self.core.full()

    # -- the shell -----------------------------------------------------------------------------------------

    def tidy(self) -> None:
        while self.abandoned:
            hold = getattr(self.abandoned.popleft(), "hold", None)  # none if the lock was not granted
            if hold is not None:
                hold._put_back()

    def upset(self, problem: BaseException) -> None:
        """A thread was interrupted in the middle of the core, with the mutex held: nobody knows how far it came."""
        if isinstance(problem, PeerlockError):
            return  # that is an answer
        core, table = self.core, self.core.table
        log.warning(
            "group %s: %s was interrupted in the middle of its work (%s): it joins again",
            self.group, self.name, type(problem).__name__,
        )  # fmt: skip
        why = "a signal's handler raised in the middle of the node's work"
        table.wedge()
        lost = table.lose(why)
        tickets = {order for link in self.up if link.client is not None for order in link.client.tickets.values()}
        for local_lock in table.locks.values():
            lost += local_lock.lose(f"The lock {local_lock.name} is lost: {why}.")  # whatever it says of itself
            local_lock.queue = local_lock.want = None
            local_lock.drop()  # code that still has this object can do nothing with it
        table.locks, table.dirty, table.withheld = {}, {}, {}
        core.count(())
        core.alarmed = core.renewing = table.withheld_timer_set = False
        waiting, self.waiting = self.waiting, set()
        for client in self.clients:
            client.end_process_groups()  # what works under a lock of ours ends before the lock is another's
        self.clients.clear()
        for ticket in lost:
            ticket.woken()
        for hold in waiting:
            if hold.state == WAITING:
                hold.local_lock = None
                hold.woken()
        for order in tickets:
            if order.state == WAITING:
                order.local_lock, order.state = None, FAILED
                order.error = NodeClosed(f"The node {self.name} joins again: {why}. The lock was never held.")
                order.woken()
        self.rejoin()

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not the reader had its turn."""
        table = self.core.table
        if self.forked:
            return
        if table.may_hold and self.now() >= table.until:
            inner = self.is_in_core()  # this very thread is in the middle of the core
            with self.mutex:
                if table.may_hold and self.now() >= table.until and not inner:
                    try:
                        self.core.lapse(self.now())
                        self.core.flush()
                    except BaseException as problem:
                        self.upset(problem)
                        raise
        if table.may_hold and not self.is_in_core() and not self.stands():
            with self.mutex:
                self.on_group_lost()

    def __repr__(self) -> str:
        return f"<node {self.name} of the group {self.group}, epoch {self.epoch}>"

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *what: object) -> None:
        self.leave()


def started(node: Node, timeout: float | None = None) -> Node:
    """Join, and wait for the first view."""
    there = threading.Event()
    node.on_started = there.set
    try:
        with node.mutex:
            node.enter_group()
        node.reader.start()
        if not there.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            raise node.not_in_time(timeout or 0.0)
        if node.failure is not None:
            raise node.failure
        node.usable()
    except BaseException:
        with contextlib.suppress(PeerlockError):
            if node.reader.ident is None:
                node.reader.start()
            node.leave()
        raise
    node.on_started = None
    return node
