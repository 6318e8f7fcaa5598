"""A node whose users are tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import asynccontextmanager

from peerlock.net.aio.hold import Hold
from peerlock.net.aio.lock import Lock, RWLock
from peerlock.net.aio.shell import LoopShell
from peerlock.net.control.status import NodeStatus, check_wait
from peerlock.net.files import check_name, lock_names
from peerlock.net.node import BaseNode
from peerlock.node.wire_algorithms import DEFAULT_RW, wire_algorithm

STATUS_S = 1.0  # for the answers of the other members


class Node(BaseNode[LoopShell]):
    """A member of a group, on an event loop. Made by `peerlock.join`."""

    __slots__ = ()

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return self._shell.make_lock(check_name("lock", name), *self._shell.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self._shell, check_name("lock", name), wire_algorithm(DEFAULT_RW))

    @asynccontextmanager
    async def lock_all(self, names: Iterable[str]) -> AsyncIterator[tuple[Hold, ...]]:
        """Several locks, taken in one global order, so that two that want the same never wait for
        each other.
        """
        locks = [self.lock(name) for name in lock_names(names)]
        async with contextlib.AsyncExitStack() as stack:
            yield tuple([await stack.enter_async_context(lock) for lock in locks])

    async def status(self, wait_s: float = STATUS_S) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        wait_s, shell = check_wait(wait_s), self._shell
        shell.usable()
        done: asyncio.Future[NodeStatus] = shell.loop.create_future()
        tell: Callable[[NodeStatus], None] = lambda status: None if done.done() else done.set_result(status)  # noqa: E731
        shell.run(lambda: shell.ask_status(tell, wait_s))
        return await done

    async def leave(self) -> None:
        """Leave the group. What is still held is lost, and its body ends; waiters get `NodeClosed`."""
        await self._shell.leave()

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there
        are many.
        """
        self._shell.usable()
        self._shell.run(self._shell.collect)


class Joining:
    """`await` it, or use it with `async with`: a node that is a member of its group."""

    def __init__(self, make: Callable[[], LoopShell], timeout: float | None = None) -> None:
        self._make, self._timeout = make, timeout
        self._shell: LoopShell | None = None

    async def _join(self) -> Node:
        shell = self._make()
        started, membership = asyncio.Event(), shell.membership
        membership.on_started = started.set
        try:
            shell.run(shell.enter_group)
            try:
                async with asyncio.timeout(self._timeout):
                    await started.wait()
            except TimeoutError:
                raise shell.not_in_time(self._timeout or 0.0) from None
            if membership.failure is not None:
                raise membership.failure
        except BaseException:
            await shell.leave()
            await shell.hung_up()
            raise
        membership.on_started = None
        await shell.leave_at_the_end()
        return Node(shell)

    def __await__(self) -> Generator[None, None, Node]:
        return self._join().__await__()

    async def __aenter__(self) -> Node:
        node = await self._join()
        self._shell = node._shell
        return node

    async def __aexit__(self, *what: object) -> None:
        if self._shell is not None:
            await self._shell.leave()
            await self._shell.hung_up()
