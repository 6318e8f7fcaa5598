"""For tests of your own code: a group in memory, in one process, in virtual time.

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

The nodes are those that ship, with everything but sockets and files: `node.lock`, `rwlock`, `status`, all of it.
`run` is an event loop whose clock jumps to the next thing to do, so a time-out of an hour takes no time, and a test
that waits for something that will never come fails with a sentence instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from math import inf, nextafter
from typing import Any, TypeVar

from peerlock.errors import UsageError
from peerlock.net.aio import Joining, Node
from peerlock.net.link import Link
from peerlock.net.registry import Decision, Registry
from peerlock.node.desk import Limits
from peerlock.node.wire import DEFAULT, Peer

T = TypeVar("T")
DAY_S = 86_400.0


class NothingHappens(AssertionError):
    """Every task waits, and nothing is under way that could wake one."""


class _NoTime(selectors.SelectSelector):
    """Instead of waiting, the clock jumps."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingHappens(f"At {self.loop.time():g} s every task waits, and nothing will ever happen.")
        self.loop.passed += max(0.0, timeout)
        if self.loop.passed > self.loop.limit_s:
            self.loop.limit_s = float("inf")  # once; what is left is to be cleaned up
            raise NothingHappens(
                f"After {self.loop.passed:g} s of virtual time the scenario has not ended: somebody waits for ever."
            )
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    virtual = True

    def __init__(self) -> None:
        self.passed, self.limit_s = 0.0, DAY_S
        selector = _NoTime()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.passed


def run(scenario: Coroutine[Any, Any, T], *, limit_s: float = DAY_S) -> T:
    """Run a coroutine in virtual time, to its end, which must come within `limit_s` virtual seconds: a day."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.limit_s = limit_s
        return runner.run(scenario)


class MemoryLink(Link):
    """One end of a link between two nodes of this process."""

    other: MemoryLink

    def __init__(self, shell: MemoryNode, dialled: Peer | None) -> None:
        super().__init__(shell, dialled)
        self.node, self.due = shell, 0.0

    def write(self, data: bytes) -> None:
        if not self.closed:
            loop, other = self.node._loop, self.other
            # A little later than what was written before: of two timers of one moment either may come first.
            other.due = nextafter(max(other.due, loop.time() + self.node.group_of.delay_s), inf)
            loop.call_at(other.due, other.feed, data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.closed = True
                self.node._loop.call_soon(end.node.lost, end)


class MemoryRegistry(Registry):
    """Knows who is there: it put them there."""

    kind = "memory"

    def __init__(self, group: Group, name: str) -> None:
        self.group, self.name = group, name
        self.me: Peer | None = None

    def incarnate(self) -> Peer:
        self.group.number += 1
        self.me = Peer(self.name, self.group.number, "")
        return self.me

    def listeners(self) -> list[Any]:
        assert self.me is not None
        self.group.present[self.me] = self.shell
        return []

    def newest(self) -> Decision | None:
        return self.group.view

    def lives(self, peer: Peer) -> bool | None:
        return peer in self.group.present

    def change(self, even_if_the_same: bool = False) -> Decision | None:
        group = self.group
        members = tuple(sorted(group.present))
        if members and (group.view is None or group.view.members != members or even_if_the_same):
            group.view = Decision(group.view.epoch + 1 if group.view else 1, members)
        return group.view

    def leave(self) -> Decision | None:
        if self.me is not None:
            self.group.present.pop(self.me, None)
        return self.change()


class MemoryNode(Node):
    """A node without sockets."""

    def __init__(self, group: Group, registry: MemoryRegistry, algorithm: str, limits: Limits | None) -> None:
        self.group_of = group
        super().__init__(registry, group.name, algorithm=algorithm, limits=limits)

    def connect(self, peer: Peer) -> None:
        other = self.group_of.present.get(peer)
        if other is None or frozenset((self.name, peer.name)) in self.group_of.cuts:
            self._loop.call_soon(self.not_connected, peer, "nobody is there")
            return
        here, there = MemoryLink(self, peer), MemoryLink(other, None)
        here.other, there.other = there, here
        self.group_of.links.append(here)
        self._loop.call_soon(self.connected, here)

    def relisten(self) -> None:
        self.registry.listeners()


class Group:
    """A group of nodes in this process."""

    def __init__(self, name: str = "test", *, algorithm: str = DEFAULT, delay_s: float = 0.001) -> None:
        self.name, self.algorithm, self.delay_s = name, algorithm, delay_s
        self.number = 0
        self.view: Decision | None = None
        self.present: dict[Peer, MemoryNode] = {}
        self.links: list[MemoryLink] = []
        self.cuts: set[frozenset[str]] = set()

    async def join(self, name: str, *, algorithm: str | None = None, limits: Limits | None = None) -> Node:
        """A new member, as `peerlock.join` gives one."""
        if any(peer.name == name for peer in self.present):
            raise UsageError(f"{name} is there already.")
        chosen = algorithm or self.algorithm
        return await Joining(lambda: MemoryNode(self, MemoryRegistry(self, name), chosen, limits))

    def crash(self, node: Node) -> None:
        """The process of that node is gone, at once: what it held is nobody's."""
        assert isinstance(node, MemoryNode)
        node.closing = True
        node.core.table.wedge()
        self.present.pop(node.core.me, None)
        for link in list(node.links.values()):
            link.close()

    def cut(self, one: Node, other: Node) -> None:
        """The link between the two breaks and cannot be made again until `heal`. What was under way is lost, for now."""
        self.cuts.add(frozenset((one.name, other.name)))
        link = one.links.get(other.core.me)
        if link is not None:
            link.close()

    def heal(self) -> None:
        self.cuts.clear()


__all__ = ["Group", "NothingHappens", "VirtualLoop", "run"]
