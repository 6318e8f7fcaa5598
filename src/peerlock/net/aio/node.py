"""A node whose users are tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from peerlock.errors import UsageError
from peerlock.net.aio.hold import Hold
from peerlock.net.aio.lock import Lock, RWLock
from peerlock.net.aio.shell import AioShell
from peerlock.net.control.status import NodeStatus, check_wait
from peerlock.net.files import check_name, lock_names
from peerlock.net.registries.base import Registry
from peerlock.net.yielding import YieldPolicy
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire_algorithms import DEFAULT, DEFAULT_RW, wire_algorithm

STATUS_S = 1.0  # for the answers of the other members
FAREWELL_S = 2.0  # for what must still go out when a node leaves


class Node(AioShell):
    """A member of a group. Made by `join`."""

    def __init__(
        self, registry: Registry, group: str, *, algorithm: str = DEFAULT, limits: Limits | None = None
    ) -> None:
        super().__init__(registry, group, algorithm, limits)
        self._pace = YieldPolicy()
        self._at_end: AsyncGenerator[None, None] | None = None
        self._done = self._loop.create_future()  # what an end of a body gives back that has nothing to wait for
        self._done.set_result(None)

    # -- for users ---------------------------------------------------------------------------------------

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return Lock(self, check_name("lock", name), *self.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self, check_name("lock", name), wire_algorithm(DEFAULT_RW))

    @asynccontextmanager
    async def lock_all(self, names: Iterable[str]) -> AsyncIterator[tuple[Hold, ...]]:
        """Several locks, taken in one global order, so that two that want the same never wait for each other."""
        locks = [self.lock(name) for name in lock_names(names)]
        async with contextlib.AsyncExitStack() as stack:
            yield tuple([await stack.enter_async_context(lock) for lock in locks])

    async def status(self, wait_s: float = STATUS_S) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        wait_s = check_wait(wait_s)
        self.usable()
        done: asyncio.Future[NodeStatus] = self._loop.create_future()
        self.ask_status(lambda status: None if done.done() else done.set_result(status), wait_s)
        return await done

    async def leave(self) -> None:
        """Leave the group. What is still held is lost, and its body ends; waiters get `NodeClosed`."""
        if self.closing or self.forked:
            return
        self.say_farewell()
        self.fall_silent()
        try:
            if self.registry.leases:
                await self._loop.run_in_executor(None, self.registry.left, FAREWELL_S)
            await asyncio.sleep(0)
        finally:
            self.registry.close()  # also if nobody waits for the farewell any more
            if self._at_end is not None:
                await self._at_end.aclose()

    async def leave_at_the_end(self) -> None:
        """A program may forget to leave. `asyncio.run` closes what is an asynchronous generator before it closes the loop."""
        self._at_end = self._forgotten()
        await anext(self._at_end)

    async def _forgotten(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if not self.closing and not self.forked:
                if not getattr(self._loop, "virtual", False):  # in a test's group that is ordinary
                    self.complain(
                        "the event loop ends and this node has not left: use async with, or await node.leave()"
                    )
                self.say_farewell()
                self.fall_silent()
                self.registry.left(FAREWELL_S)
                self.registry.close()

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there are many."""
        self.usable()
        self.core.full()

    def usable(self) -> None:
        super().usable()
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(
                "A node belongs to the event loop that it joined in: use it there, or peerlock.sync for threads."
            )

    def __repr__(self) -> str:
        return f"<node {self.name} of the group {self.group}, epoch {self.epoch}>"


class Joining:
    """`await` it, or use it with `async with`: a node that is a member of its group."""

    def __init__(self, make: Callable[[], Node], timeout: float | None = None) -> None:
        self._make, self._timeout = make, timeout
        self._node: Node | None = None

    async def _join(self) -> Node:
        node = self._make()
        started = asyncio.Event()
        node.on_started = started.set
        try:
            node.enter_group()
            try:
                async with asyncio.timeout(self._timeout):
                    await started.wait()
            except TimeoutError:
                raise node.not_in_time(self._timeout or 0.0) from None
            if node.failure is not None:
                raise node.failure
        except BaseException:
            await node.leave()
            await node.hung_up()
            raise
        node.on_started = None
        await node.leave_at_the_end()
        return node

    def __await__(self) -> Generator[Any, None, Node]:
        return self._join().__await__()

    async def __aenter__(self) -> Node:
        self._node = await self._join()
        return self._node

    async def __aexit__(self, *what: object) -> None:
        if self._node is not None:
            await self._node.leave()
            await self._node.hung_up()
