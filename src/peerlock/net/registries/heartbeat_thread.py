"""The thread that sends heartbeats, for registries with leases.

A lease must be renewed while the node's event loop is busy, and a voter must vote. So both live in
a thread of their own, with an event loop of its own. It is the only thread that touches the agent,
the voter and their connections. It speaks to the node through `Shell.post`, and the node speaks to
it through `call`.

Before each heartbeat the thread asks the node for an answer. A node that has not given one for
`stall_s` is taken to hang: the thread stops sending heartbeats, so the node loses its locks instead
of keeping them from all others for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

log = logging.getLogger("peerlock")

CLOSE_S = 1.0  # for connections to be closed on both sides


def boottime() -> float:
    """A clock that counts suspension, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if not hasattr(time, "CLOCK_BOOTTIME"):  # Linux has it; elsewhere a suspended machine holds its leases for too long
    boottime = time.monotonic  # pragma: no cover

AnyTask: TypeAlias = asyncio.Task[Any]


class HeartbeatThread:
    def __init__(self, name: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.tasks: set[AnyTask] = set()
        self.at_end: list[Callable[[], Coroutine[Any, Any, None]]] = []  # what is to be closed then, and by no one else
        self.stopped = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.end_tasks())
            for close in self.at_end:
                try:
                    self.loop.run_until_complete(close())
                except Exception:  # the rest is to be closed all the same
                    log.exception("%s: not everything could be closed", self.thread.name)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self._let_close())
            self.loop.close()

    async def _let_close(self) -> None:
        """Connections that were closed say so, which takes some turns of the loop, and with TLS a
        word of the other end.
        """
        end, turns = time.monotonic() + CLOSE_S, 5
        while turns and time.monotonic() < end:
            await self.end_tasks()  # a timer may have begun something
            if len(self.selector.get_map()) > 1:  # the loop's own is one
                await asyncio.sleep(0.002)
            else:
                turns -= 1
                await asyncio.sleep(0)

    def call(self, act: Callable[..., Any], *words: Any) -> None:
        """Do that in this thread, soon. From any thread; nothing happens if it has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(act, *words)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> AnyTask:
        """In this thread: run that until the end of it, or of us."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: AnyTask) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of %s has ended", self.thread.name, exc_info=task.exception())

    def descriptors(self) -> list[int]:
        """All that this thread has open: a forked child must not keep them."""
        try:
            found = [key.fd for key in self.selector.get_map().values()]
            fileno = getattr(self.selector, "fileno", None)
            return [*found, *([fileno()] if fileno is not None else [])]
        except (RuntimeError, AttributeError, ValueError):
            return []  # it has ended

    async def end_tasks(self) -> None:
        """In this thread: nothing more is to be done."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.call(self.loop.stop)
            if threading.current_thread() is not self.thread:
                self.thread.join(5.0)
