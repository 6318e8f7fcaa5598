"""An algorithm of your own: a lock with a central coordinator, the simplest distributed lock.

The node `home` is the coordinator. Every other node sends it REQUEST, and the coordinator answers
GRANT in the order of arrival. At the end of its entry the node sends RELEASE. That makes three
messages per entry, and none for an entry of the coordinator itself. Try it:

    peerlock sim examples/my_lock.py:CentralLock -n 5
    peerlock compare examples/my_lock.py:CentralLock suzuki-kasami-a ricart-agrawala
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from peerlock.contract import NOBODY, Ask, Grant, Members, Mode, NodeId, Out, State, Wire


class Request(Ask, frozen=True, tag=1):
    pass


class Granted(Grant, frozen=True, tag=2):
    pass


class Release(Wire, frozen=True, tag=3):
    """Charged to no node's entry: it is overhead."""


Message = Request | Granted | Release


class CentralLock(State):
    me: NodeId
    coordinator: NodeId
    holder: NodeId = 0  # the coordinator's: the node inside; 0: none
    queue: tuple[NodeId, ...] = ()  # the coordinator's: the waiting nodes, next first

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Mapping[NodeId, Mode] = NOBODY) -> Self:
        holder = next(iter(inside), 0) if me == shape.home else 0
        return cls(me, shape.home, holder)

    def request(self, mode: Mode, out: Out[Message]) -> None:
        if self.me == self.coordinator:
            self.queue = (*self.queue, self.me)
            self.serve(out)
        else:
            out.send(self.coordinator, Request())

    def release(self, out: Out[Message]) -> None:
        if self.me == self.coordinator:
            self.holder = 0
            self.serve(out)
        else:
            out.send(self.coordinator, Release())
        out.idle()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Granted):
            out.enter()
            return
        if isinstance(message, Request):
            self.queue = (*self.queue, source)
        else:
            self.holder = 0
        self.serve(out)

    def serve(self, out: Out[Message]) -> None:
        if self.holder or not self.queue:
            return
        self.holder, self.queue = self.queue[0], self.queue[1:]
        if self.holder == self.me:
            out.enter()
        else:
            out.send(self.holder, Granted())
