"""A trace of one lock of a running group, in the format that the simulator writes.

A tracer records what one node's algorithm is told and does, from the start of an epoch, so that
everything that happens can be computed again from the start. The events of several nodes are put
together by time: all nodes of one host have one clock. Numbers of nodes are their places in the
view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from peerlock.contract import NodeId, Wire
from peerlock.node.effects import EpochStarted
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.table import NOTHING
from peerlock.trace import Event, Keeper

if TYPE_CHECKING:
    from peerlock.net.shell import Shell


class Tracer:
    """Writes down what happens to one lock at one node."""

    def __init__(self, shell: Shell, lock: str) -> None:
        self.shell, self.lock = shell, lock
        self.keeper = Keeper()
        self.epoch = 0
        self.about: dict[str, Any] = {}
        self.until = 0.0
        shell.core.table.observers[lock] = self
        shell.listeners.add(self.began)

    def stop(self) -> None:
        self.until = self.shell.now()
        self.shell.listeners.discard(self.began)
        if self.shell.core.table.observers.get(self.lock) is self:
            del self.shell.core.table.observers[self.lock]

    def began(self, start: EpochStarted) -> None:
        """An epoch has started; the first one is the one that is traced."""
        view_change, table = self.shell.core.view_change, self.shell.core.table
        if self.about:
            return
        local_lock = table.locks.get(self.lock)
        opening = table.opening.get(self.lock, NOTHING)
        self.epoch = view_change.epoch
        self.about = {
            "kind": "recorded",
            "lock": self.lock,
            "epoch": view_change.epoch,
            "me": table.me,
            "nodes": len(view_change.members),
            "algorithm": local_lock.wire_algorithm.name if local_lock is not None else "",
            "home": table.home(self.lock),
            "inside": {str(node): mode for node, mode in opening.inside.items()},
            "waits": [node for _, node in opening.waits],
            "labels": {str(number): peer.name for number, peer in enumerate(view_change.members, 1)},
        }
        # What the start itself did was told before anybody could know its epoch; it belongs to it.
        self.keeper.events = [event for event in self.keeper.events if event.t >= start.at]

    def observers(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "until": self.until,
            "events": [msgspec.to_builtins(event) for event in self.keeper.events],
        }

    def see(self, local_lock: LocalLock) -> bool:
        """Only one epoch is traced."""
        if self.about and local_lock.table.epoch != self.epoch:
            return False
        if self.about and not self.about["algorithm"]:
            self.about["algorithm"] = local_lock.wire_algorithm.name
        return True

    def number(self, source: NodeId, to: NodeId, seq: int) -> int:
        return ((source * 1024 + to) << 40) + seq

    def sent(self, local_lock: LocalLock, to: NodeId, message: Wire, seq: int) -> None:
        if self.see(local_lock):
            me = local_lock.table.me
            self.keeper.sent(self.shell.now(), self.number(me, to, seq), me, to, message)

    def received(self, local_lock: LocalLock, source: NodeId, message: Wire, seq: int) -> None:
        if self.see(local_lock):
            me = local_lock.table.me
            self.keeper.received(self.shell.now(), self.number(source, me, seq), me, source)

    def asked(self, local_lock: LocalLock) -> None:
        if self.see(local_lock):
            now = self.shell.now()
            self.keeper.requested(now, local_lock.table.me, local_lock.mode, now)

    def entered(self, local_lock: LocalLock) -> None:
        if self.see(local_lock):
            self.keeper.entered(self.shell.now(), local_lock.table.me, local_lock.mode)

    def left(self, local_lock: LocalLock) -> None:
        if self.see(local_lock):
            self.keeper.left(self.shell.now(), local_lock.table.me)

    def idled(self, local_lock: LocalLock) -> None:
        if self.see(local_lock):
            self.keeper.idle(self.shell.now(), local_lock.table.me)


def merged(parts: list[dict[str, Any]]) -> list[Event]:
    """The traces of several nodes as one. Times start at 0."""
    parts = [part for part in parts if part["about"]]
    epochs = {part["about"]["epoch"] for part in parts}
    newest = max(epochs, default=0)
    events = [
        msgspec.convert(event, Event) for part in parts if part["about"]["epoch"] == newest for event in part["events"]
    ]
    # Nodes do not stop at the same moment: what came after the first one had stopped is not whole.
    until = min((part["until"] for part in parts), default=0.0)
    events = sorted((event for event in events if event.t < until), key=lambda event: event.t)
    start = events[0].t if events else 0.0
    for event in events:
        event.t = round(event.t - start, 7)
        if event.since is not None:
            event.since = round(event.since - start, 7)
    about = next((dict(part["about"]) for part in parts if part["about"]["epoch"] == newest), {})
    about.pop("me", None)
    about["algorithm"] = next((part["about"]["algorithm"] for part in parts if part["about"]["algorithm"]), "")
    return [Event("run", about={"format": 1, **about}), *events]
