"""Tools for tests of your own code: a group in memory, in one process, in virtual time.

    from peerlock.testing import Group, run

    async def scenario() -> None:
        group = Group()
        anna, ben = await group.join("anna"), await group.join("ben")
        hold = await anna.lock("orders").acquire()
        assert await ben.lock("orders").try_acquire(patience_s=60) is None   # takes no time at all
        group.crash(anna)
        async with ben.lock("orders") as hold:
            ...

    run(scenario())

The nodes are those that ship, without sockets and files: `node.lock`, `rwlock`, `status`, all of
it. `run` is an event loop whose clock jumps to the next thing to do, so a time-out of an hour takes
no time. A test that waits for something that never comes fails with a sentence and does not hang.
So does a test whose task polls: a scenario has a limit of virtual time, and a limit of turns of the
event loop for a task that polls without sleeping.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Coroutine
from functools import partial
from math import inf, nextafter
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from peerlock.errors import UsageError
from peerlock.net.aio.node import Joining, Node
from peerlock.net.aio.shell import AioShell
from peerlock.net.registries.base import Registry, View
from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.transport.link import Link
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import DEFAULT

T = TypeVar("T")
DAY_S = 86_400.0
TURNS = 1_000_000  # of the event loop: some seconds of real time


class NothingHappens(AssertionError):
    """The scenario does not end: every task waits for ever, or one polls for ever."""


class _NoTime(selectors.SelectSelector):
    """It never waits: the clock jumps."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingHappens(f"At {self.loop.time():g} s every task waits, and nothing will ever happen.")
        self.loop.turn(timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    virtual = True

    def __init__(self, limit_s: float = DAY_S, turns: int = TURNS) -> None:
        self.passed, self.turned = 0.0, 0
        self.limit_s, self.turns = limit_s, turns
        self.until_s, self.last = limit_s, turns
        selector = _NoTime()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.passed

    def turn(self, waits_s: float) -> None:
        """Begin the next turn of the loop, after a wait in virtual time."""
        self.passed += max(0.0, waits_s)
        self.turned += 1
        if self.passed > self.until_s:
            self._over(
                f"After {self.passed:g} s of virtual time the scenario has not ended: a task waits for ever.",
                "Let what it waits for happen, or give run a larger limit_s=.",
            )
        if self.turned > self.last:
            self._over(
                f"After {self.turns:,} turns of the event loop, at {self.passed:g} s of virtual time, the scenario has "
                "not ended.",
                "Where a task polls, wait for an event instead of polling, or give run a larger turns=.",
            )

    def _over(self, what: str, advice: str) -> NoReturn:
        # The rest of the scenario is cleaned up within the same limits: a task may swallow its
        # cancellation.
        self.until_s, self.last = self.passed + self.limit_s, self.turned + self.turns
        at_work = ", ".join(sorted(map(_where, asyncio.all_tasks(self)))[:5])
        raise NothingHappens(f"{what} Tasks that have not ended: {at_work or 'none'}. {advice}")


def _where(task: asyncio.Task[object]) -> str:
    """The name of a task and the line that it has reached."""
    coroutine = task.get_coro()
    name = getattr(coroutine, "__name__", task.get_name())
    lines = [f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})" for frame in task.get_stack(limit=1)]
    return name + "".join(lines)


def run(scenario: Coroutine[Any, Any, T], *, limit_s: float = DAY_S, turns: int = TURNS) -> T:
    """Run a coroutine in virtual time, to its end.

    The end must come within `limit_s` virtual seconds (a day) and `turns` turns of the event loop
    (a million). Else `run` raises `NothingHappens`.
    """
    for name, value in (("limit_s", limit_s), ("turns", turns)):
        if not isinstance(value, int | float) or not value > 0:
            scenario.close()  # else Python complains of it, too
            raise UsageError(f"{name} must be a number above 0; got {value!r}.")
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(limit_s, turns)) as runner:
        return runner.run(scenario)


class MemoryLink(Link):
    """One end of a link between two nodes of this process."""

    other: MemoryLink

    shell: MemoryShell

    def __init__(self, shell: MemoryShell, dialled: Peer | None) -> None:
        super().__init__(shell, dialled)
        self.due = 0.0

    def write(self, data: bytes) -> None:
        if not self.closed:
            loop, other = self.shell.loop, self.other
            # A little later than the previous write: of two timers for one moment either may come
            # first.
            other.due = nextafter(max(other.due, loop.time() + self.shell.group_of.delay_s), inf)
            loop.call_at(other.due, other.feed, data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.closed = True
                self.shell.after(0.0, partial(end.shell.links.lost, end))


class MemoryRegistry(Registry):
    """Knows which nodes are there: they all join through it."""

    kind = "memory"

    def __init__(self, group: Group, name: str) -> None:
        self.group, self.name = group, name
        self.me: Peer | None = None

    def incarnate(self) -> Peer:
        self.group.number += 1
        self.me = Peer(self.name, self.group.number, "")
        return self.me

    def listeners(self) -> list[socket.socket]:
        assert self.me is not None and isinstance(self.shell, MemoryShell)
        self.group.present[self.me] = self.shell
        return []

    def endpoint(self, peer: Peer) -> Endpoint:
        return Endpoint(path="this process")

    def newest(self) -> View | None:
        return self.group.view

    def lives(self, peer: Peer) -> bool | None:
        return peer in self.group.present

    def change(self, even_if_the_same: bool = False) -> View | None:
        group = self.group
        members = tuple(sorted(group.present))
        if members and (group.view is None or group.view.members != members or even_if_the_same):
            group.view = View(group.view.epoch + 1 if group.view else 1, members)
        return group.view

    def leave(self) -> View | None:
        if self.me is not None:
            self.group.present.pop(self.me, None)
        return self.change()


class MemoryShell(AioShell):
    """The shell of a node without sockets."""

    def __init__(self, group: Group, registry: MemoryRegistry, algorithm: str, limits: Limits | None) -> None:
        self.group_of = group
        super().__init__(registry, group.name, algorithm, limits)

    def connect(self, peer: Peer) -> None:
        other = self.group_of.present.get(peer)
        if other is None or frozenset((self.core.me.name, peer.name)) in self.group_of.cuts:
            self.after(0.0, lambda: self.links.not_connected(peer, "no node is there"))
            return
        here, there = MemoryLink(self, peer), MemoryLink(other, None)
        here.other, there.other = there, here
        self.group_of.links.append(here)
        self.after(0.0, lambda: self.links.connected(here))

    def relisten(self) -> None:
        self.registry.listeners()


class Group:
    """A group of nodes in this process."""

    def __init__(self, name: str = "test", *, algorithm: str = DEFAULT, delay_s: float = 0.001) -> None:
        self.name, self.algorithm, self.delay_s = name, algorithm, delay_s
        self.number = 0
        self.view: View | None = None
        self.present: dict[Peer, MemoryShell] = {}
        self.links: list[MemoryLink] = []
        self.cuts: set[frozenset[str]] = set()

    async def join(self, name: str, *, algorithm: str | None = None, limits: Limits | None = None) -> Node:
        """A new member, as `peerlock.join` gives one."""
        if any(peer.name == name for peer in self.present):
            raise UsageError(f"{name} is there already.")
        spec = algorithm or self.algorithm
        return await Joining(lambda: MemoryShell(self, MemoryRegistry(self, name), spec, limits))

    def shell_of(self, node: Node) -> MemoryShell:
        shell = node._shell
        assert isinstance(shell, MemoryShell), f"{node} is no node of a group in memory"
        return shell

    def crash(self, node: Node) -> None:
        """End the process of that node at once. Its locks are free."""
        shell = self.shell_of(node)
        shell.closing = True
        shell.core.table.wedge()
        self.present.pop(shell.core.me, None)
        for link in list(shell.links.by_peer.values()):
            link.close()

    def cut(self, one: Node, other: Node) -> None:
        """Break the link between two nodes until `heal`. Messages under way are sent again then."""
        self.cuts.add(frozenset((one.name, other.name)))
        link = self.shell_of(one).links.by_peer.get(self.shell_of(other).core.me)
        if link is not None:
            link.close()

    def heal(self) -> None:
        self.cuts.clear()


__all__ = ["Group", "NothingHappens", "VirtualLoop", "run"]
