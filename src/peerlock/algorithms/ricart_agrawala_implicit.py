"""Ricart and Agrawala 1981, variation: implicit reply.

A node that would reply at once says nothing; one that defers says DEFERRED at once and REPLY when
it leaves. A requester that has heard no DEFERRED from j when its time runs out takes j's reply for
granted: N-1 messages without contention, up to 3(N-1) where all nodes contend.

Safe only if every DEFERRED arrives before the time is up: REQUEST and DEFERRED each take at most
`delay_bound`, so the time-out is twice that. Messages may arrive in any order, so a REPLY can come
before the DEFERRED it belongs to.
"""

from __future__ import annotations

from peerlock.algorithms.ricart_agrawala import Message, Request, WithTimeout
from peerlock.contract import Grant, NodeId, Out


class Deferred(Grant, frozen=True, tag=3):
    """DEFERRED: the sender will reply later; do not take its reply for granted."""


class RicartAgrawalaImplicit(WithTimeout):
    """`awaited` holds the nodes that said DEFERRED and have not replied."""

    in_time: bool = False  # a DEFERRED may still arrive
    early: frozenset[NodeId] = frozenset()  # nodes whose REPLY came before their DEFERRED

    def ask(self, out: Out[Message]) -> None:
        self.awaited = frozenset()
        if self.others:
            self.in_time = True
            self.send_requests(out)
            out.timer("reply", self.timeout)

    def send_requests(self, out: Out[Message]) -> None:
        request = Request(self.our_sequence_number)
        for j in self.others:
            out.send(j, request)

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        """Send DEFERRED, or nothing."""
        self.highest_sequence_number = max(self.highest_sequence_number, n)
        if self.defers(j, n):
            self.deferred |= {j}
            out.send(j, Deferred())

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Deferred):
            self.on_deferred(source)
        else:
            super().receive(source, message, out)

    def on_deferred(self, j: NodeId) -> None:
        if j in self.early:
            self.early -= {j}
        else:
            self.awaited |= {j}

    def on_reply(self, j: NodeId, out: Out[Message]) -> None:
        if j not in self.awaited:
            self.early |= {j}
        super().on_reply(j, out)

    def on_timeout(self, name: str, out: Out[Message]) -> None:
        """Time has passed: a reply is assumed from all that did not send DEFERRED."""
        self.in_time = False
        self.enter_if_permitted(out)

    def enter_if_permitted(self, out: Out[Message]) -> None:
        if not self.in_time:
            super().enter_if_permitted(out)
