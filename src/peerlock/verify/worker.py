"""One of the processes of `peerlock verify`: it takes the lock, changes a file under it, and logs
what it saw.

Every line of its log has the time of the kernel's monotonic clock, whatever clock the node itself
is made to believe in. A line is written in one system call, so a kill loses no line that was begun.

    {"t": 12.5, "pid": 7, "what": "granted", "fence": 4294967297} lease (until), lapsed, granted,
    checked (since), writes, wrote, refused, released, lost, joined, left

Commands come on standard input: `between` (stop yourself between the check and the write, once),
`never mind` (do not stop yourself after all), `rate R`, `jump S`, `block S`, `leave`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time

import msgspec
from msgspec import Struct

from peerlock.errors import LockLost, PeerlockError, StaleFence
from peerlock.guards import GuardedFile
from peerlock.mutants.nodes import PLANTED_CORES
from peerlock.net.aio.hold import Hold
from peerlock.net.aio.node import Joining, Node
from peerlock.net.aio.shell import AioShell, LoopShell
from peerlock.net.registries.base import Registry
from peerlock.net.registries.heartbeat_thread import boottime
from peerlock.net.registries.leased import LeasedRegistry
from peerlock.net.settings import Prepared, Settings, leased_registry, registry_for
from peerlock.node.effects import LeaseLapsed
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire_algorithms import DEFAULT
from peerlock.verify.log import line


class Spec(Struct):
    group: str
    settings: Settings
    log: str
    resource: str
    seed: int
    guard: bool = True
    planted: str = ""
    hold_s: float = 0.004
    think_s: float = 0.01


class Clock:
    """The node's idea of time: its rate may be wrong, and it may jump ahead."""

    def __init__(self) -> None:
        self.rate, self.jumped = 1.0, 0.0
        self.true = self.shown = boottime()

    def __call__(self) -> float:
        return self.steady() + self.jumped

    def steady(self) -> float:
        """Without suspensions."""
        return self.shown + (boottime() - self.true) * self.rate

    def run_at(self, rate: float) -> None:
        self.shown, self.true, self.rate = self.steady(), boottime(), rate

    def jump(self, seconds: float) -> None:
        self.jumped += seconds

    def in_truth(self, shown: float) -> float:
        """On the kernel's monotonic clock, when this one will show that."""
        return time.monotonic() + (shown - self()) / self.rate


class Unguarded(GuardedFile):
    """It takes every write, whatever was written before."""

    def _compare(self, fence: int, last: int) -> None:
        pass


class Watched(AioShell):
    """It logs the end of its lease before another node can be granted a lock because of that."""

    def __init__(self, worker: Worker, registry: Registry) -> None:
        super().__init__(registry, worker.spec.group)

        def lapsed(effect: LeaseLapsed) -> None:
            worker.note("lapsed", held=effect.lost)
            self.permission.lapsed(effect)

        self.handlers[LeaseLapsed] = lapsed


class Worker:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.random = random.Random(spec.seed)
        self.clock = Clock()
        self.between = False
        self.ended = asyncio.Event()
        self.resource = (GuardedFile if spec.guard else Unguarded)(spec.resource)

    def note(self, what: str, **more: float | str) -> None:
        os.write(self.log, line(time.monotonic(), os.getpid(), what, {**more}))

    async def run(self) -> None:
        group, settings = self.spec.group, self.spec.settings
        if self.spec.planted:
            AioShell.cores_of = PLANTED_CORES[self.spec.planted]
        asyncio.get_running_loop().add_reader(0, self.command)
        node = await Joining(lambda: self.shell(group, settings))._join()
        self.note("joined", epoch=node.epoch)
        try:
            while not self.ended.is_set():
                await self.once(node)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ended.wait(), self.random.expovariate(1 / self.spec.think_s))
        finally:
            await node.leave()
            self.note("left")

    def shell(self, group: str, settings: Settings) -> LoopShell:
        if settings.share == "always":
            return Prepared(group, settings, DEFAULT, Limits()).aio_shell()
        if settings.voters is not None or settings.etcd is not None:
            registry = leased_registry(group, settings, self.clock, self.clock.steady)
            assert isinstance(registry, LeasedRegistry)
            registry.on_leased = lambda until: self.note("lease", until=self.clock.in_truth(until))
        else:
            registry = registry_for(group, settings)
        return Watched(self, registry)

    async def once(self, node: Node) -> None:
        fence = 0
        try:
            async with node.lock("counter") as hold:
                fence = hold.fence
                self.note("granted", fence=fence)
                data = self.resource.take(fence)
                await asyncio.sleep(self.random.expovariate(1 / self.spec.hold_s))
                self.check(hold)
                if self.between:
                    self.between = False
                    self.note("stops", fence=fence)
                    os.kill(os.getpid(), signal.SIGSTOP)
                self.write(fence, int(data or b"0"))
                self.check(hold)
                self.note("released", fence=fence)
        except LockLost as problem:
            self.note("lost", fence=fence, why=str(problem))
        except StaleFence:
            self.note("refused", fence=fence)  # it was stopped right after the grant
            self.note("lost", fence=fence, why="another process has had the lock since")

    def check(self, hold: Hold) -> None:
        """`hold.check()` says that the lock is held, between `since` and the time of this line."""
        since = time.monotonic()
        hold.check()
        self.note("checked", fence=hold.fence, since=since)

    def write(self, fence: int, value: int) -> None:
        self.note("writes", fence=fence, value=value + 1)
        try:
            self.resource.write(fence, str(value + 1).encode())
        except StaleFence:
            self.note("refused", fence=fence)
        else:
            self.note("wrote", fence=fence, value=value + 1)

    def command(self) -> None:
        for words in os.read(0, 65536).decode().splitlines() or ["leave"]:
            word, _, rest = words.partition(" ")
            match word:
                case "between":
                    self.between = True
                case "never":
                    self.between = False
                case "rate":
                    self.clock.run_at(float(rest))
                case "jump":
                    self.clock.jump(float(rest))
                case "block":
                    time.sleep(float(rest))
                case "leave":
                    self.ended.set()


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    try:
        asyncio.run(Worker(spec).run())
    except PeerlockError as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
