"""What is between simulated processes: links that break, and datagrams that are lost, late or
doubled.

A link delivers what was written in order, after a delay of its own; between links anything
overtakes anything. A reset loses what is under way, or some of it arrives; it may end in the middle
of a frame. Sites are cut off from each other, both ways or one way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from peerlock.node.peer import Peer

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World


class Site(Protocol):
    """Where something runs that sends and gets datagrams."""

    @property
    def site(self) -> str: ...

    def do(self, act: Callable[[], object]) -> None: ...


class End(Site, Protocol):
    """Of a link."""

    @property
    def name(self) -> str: ...

    def arrives(self, link: Link, side: int, data: bytes) -> None: ...

    def ended(self, link: Link) -> None: ...


class Link:
    """Two ends and what is under way between them."""

    __slots__ = ("deaf", "delay", "dialled", "due", "ends", "halves", "refused", "up")

    def __init__(self, a: End, b: End, dialled: Peer) -> None:
        self.ends: tuple[End, End] = (a, b)
        self.dialled = dialled  # by the first
        self.up = True
        self.deaf = [False, False]  # nothing arrives at this end any more
        self.refused = [False, False]  # and what has arrived is not read
        self.due = [0.0, 0.0]  # when the last thing that was written to an end arrives
        self.halves: list[bytearray] = [bytearray(), bytearray()]  # arrived at an end, not yet a frame
        self.delay = 1.0


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.links: dict[Link, None] = {}  # that are up
        self.blocked: Counter[tuple[str, str]] = Counter()  # (from, to): by how many faults

    def cut_off(self, a: str, b: str) -> bool:
        return a != b and self.blocked[a, b] > 0

    def separated(self, a: str, b: str) -> bool:
        """In one direction or in both."""
        return self.cut_off(a, b) or self.cut_off(b, a)

    def separate(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        world = self.world
        if world.calm:
            return
        for pair in pairs:
            self.blocked[pair] += 1
        world.later(seconds, lambda: self.join(pairs))
        for process in world.processes:
            for link in list(process.links.values()):
                a, b = link.ends
                ways = self.cut_off(b.name, a.name), self.cut_off(a.name, b.name)
                if link.up and any(ways):
                    link.deaf[:] = [deaf or cut for deaf, cut in zip(link.deaf, ways, strict=True)]
                    # Neither side hears of it at once; what is said the other way arrives until
                    # then.
                    world.later(world.random.choice((0.1, 1.0)), lambda link=link: self.cut(link))  # type: ignore[misc]

    def join(self, pairs: list[tuple[str, str]]) -> None:
        if not self.world.calm:
            self.blocked.subtract(pairs)

    def separate_for_good(self, pairs: list[tuple[str, str]]) -> None:
        """Cables that are never repaired, when all other faults have stopped."""
        self.blocked = Counter(pairs)
        for process in self.world.processes:
            for link in list(process.links.values()) if process.alive and not process.leaving else ():
                if self.cut_off(link.ends[0].name, link.ends[1].name):
                    link.deaf[:] = True, True
                    self.cut(link)

    # -- links -------------------------------------------------------------------------------------------

    def connect(self, a: End, b: End, dialled: Peer) -> Link:
        link = Link(a, b, dialled)
        self.links[link] = None
        return link

    def transmit(self, link: Link, source: End, data: bytes) -> None:
        if not link.up:
            return
        world = self.world
        side = 0 if link.ends[1] is source else 1
        to = link.ends[side]
        if self.cut_off(source.name, to.name):
            link.deaf[side] = True  # what was lost in the middle makes the rest useless, that way
            world.later(1.0, lambda: self.cut(link))
            return
        when = link.due[side] = max(link.due[side], world.now + world.delay() * link.delay)

        def arrive() -> None:
            if not link.deaf[side]:
                to.do(lambda: to.arrives(link, side, data))

        world.at(when, arrive)

    def cut(self, link: Link) -> None:
        """The link is gone. What was under way is lost, or arrives before the end of the link does,
        which is later.
        """
        if not link.up:
            return
        world = self.world
        link.up = False
        del self.links[link]
        for side in (0, 1):
            lost = world.random.random() < 0.5
            link.deaf[side] = link.deaf[side] or lost
            world.at(max(link.due[side], world.now + world.delay()), lambda side=side: self.ends(link, side))  # type: ignore[misc]

    def ends(self, link: Link, side: int) -> None:
        end = link.ends[side]
        link.deaf[side] = True
        end.do(lambda: end.ended(link))

    def cut_all(self, process: End) -> None:
        for link in [link for link in self.links if process in link.ends]:
            self.cut(link)

    def is_under_way(self, link: Link, end: int) -> bool:
        """May something still arrive at that end?"""
        return link.due[end] >= self.world.now

    # -- datagrams ---------------------------------------------------------------------------------------

    def datagram(self, source: Site, to: Site, act: Callable[[], object]) -> None:
        """What members and voters say to each other."""
        world = self.world
        if self.cut_off(source.site, to.site) or self.loses():
            return
        times = 2 if not world.calm and world.random.random() < 0.03 else 1
        for _ in range(times):
            world.later(self.datagram_delay(), lambda: to.do(act))

    def loses(self) -> bool:
        return not self.world.calm and self.world.random.random() < 0.02

    def datagram_delay(self) -> float:
        world = self.world
        return world.delay() * (1000 if not world.calm and world.random.random() < 0.01 else 1)
