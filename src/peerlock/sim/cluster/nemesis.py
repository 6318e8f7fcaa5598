"""What happens to a group, drawn from the seed: the faults that every kind of group has, and those
of one host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.sim.cluster.network import Link
from peerlock.sim.cluster.plan import HARMLESS
from peerlock.sim.cluster.process import Process

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World


class Nemesis:
    kinds: tuple[str, ...] = ()
    pauses_s: tuple[float, ...] = ()

    faults: tuple[str, ...] = ()  # of all kinds that may be counted

    def __init__(self, world: World) -> None:
        self.world, self.plan, self.random = world, world.plan, world.random
        self.names = 0  # processes that came late

    def fault(self) -> None:
        world = self.world
        if world.calm:
            return
        world.later(self.random.expovariate(1 / self.plan.fault_every_s), self.fault)
        up = [process for process in world.processes if process.alive and not process.leaving]
        self.cause(self.choose(), up, [process for process in up if not process.paused])

    def choose(self) -> str:
        return self.random.choice(self.kinds)

    def cause(self, kind: str, up: list[Process], running: list[Process]) -> None:
        match kind:
            case "join" if len(up) < self.plan.most:
                self.world.faults["join"] += 1
                self.newcomer()
            case "crash" if len(running) > 1:
                self.crash(self.random.choice(up))
            case "leave" if len(running) > 2:
                self.leave(self.random.choice(running))
            case "pause" if len(running) > 1:
                self.pause(self.random.choice(running))
            case "reset" | "slow link":
                links = [link for process in up for link in process.links.values() if link.up]
                if links:
                    self.disturb(self.random.choice(links), kind)
            case "renewal" if running:
                process = self.random.choice(running)
                process.do(process.request_epoch)

    def newcomer(self) -> None:
        self.names += 1
        self.world.start(f"late-{self.names}")

    def disturb(self, link: Link, kind: str) -> None:
        world = self.world
        if kind == "slow link":
            world.faults[kind] += 1
            link.delay = self.random.choice((1.0, 5.0, 30.0))
            return
        if self.random.random() < 0.5:
            # The first part of what is under way still arrives, and ends in the middle of a frame.
            world.faults["reset in a frame"] += 1
            side = self.random.randrange(2)
            end = link.ends[side]
            end.do(lambda: end.arrives(link, side, b"\0\0\1"))
            world.network.cut(link)
            link.deaf[:] = True, True
        world.faults["reset"] += 1
        world.network.cut(link)

    def crash(self, process: Process) -> None:
        self.world.faults["crash"] += 1
        self.world.end(process)
        if self.random.random() < 0.7:
            self.world.faults["restart"] += 1
            self.restart(process)

    def restart(self, process: Process) -> None:
        raise NotImplementedError

    def leave(self, process: Process) -> None:
        self.world.faults["leave"] += 1

        def go() -> None:
            process.leaving = True
            process.core.close(process.now)
            process.registry.leave()

        process.do(go)

    def pause(self, process: Process) -> None:
        self.world.faults["pause"] += 1
        process.paused = True
        self.world.later(self.random.choice(self.pauses_s), process.go_on)

    def serious(self) -> int:
        return sum(count for fault, count in self.world.faults.items() if fault not in HARMLESS)

    def heal(self) -> None:
        for process in self.world.processes:
            if process.hung:
                process.comes_back()
            if process.paused and process.alive:
                process.go_on()

    def may_wait(self) -> tuple[str, ...]:
        """One of these may wait for ever."""
        return ()


class HostNemesis(Nemesis):
    faults: tuple[str, ...] = (
        "crash", "restart", "join", "leave", "pause", "reset", "reset in a frame", "slow link", "gave up", "renewal",
    )  # fmt: skip
    kinds: tuple[str, ...] = ("crash", "join", "leave", "pause", "reset", "reset", "slow link", "renewal")
    pauses_s = (0.01, 0.1, 4.0, 6.0)  # now and then for so long that it is excluded, if it is idle

    def restart(self, process: Process) -> None:
        after = self.random.expovariate(0.1 / self.plan.delay_s)
        self.world.later(after, lambda: self.world.start(process.name))
