"""Carvalho and Roucairol 1983: Ricart and Agrawala's algorithm with permissions that last.

A REPLY from j is a permission that stays valid until we give one to j: as far as j is concerned we
may enter again and again. So a node asks only those whose permission it does not have, and the last
one inside asks none.

The figure's three tests exclude each other; here they are one `if` with its branches.
REQUEST-RESOURCE ends in one step with the end of its wait: `Waiting` becomes false and `Using` true
when the last permission arrives.
"""

from __future__ import annotations

from typing import Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, NodeId, Out, State


class Request(Ask, frozen=True, tag=1):
    """REQUEST(Our_Sequence_Number, ME)."""

    n: int


class Reply(Grant, frozen=True, tag=2):
    """REPLY(ME): the permission to enter until further notice."""


Message: TypeAlias = Request | Reply


class CarvalhoRoucairol(State):
    me: NodeId  # ME
    others: tuple[NodeId, ...]
    our_sequence_number: int = 0  # 0 when neither waiting nor using: the paper keeps a stale one
    hgst_sequence_number: int = 0
    a: frozenset[NodeId] = frozenset()  # A[j]: j's permission is ours
    reply_deferred: frozenset[NodeId] = frozenset()  # Reply_Deferred[j]
    using: bool = False
    waiting: bool = False

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY) -> Self:
        others = shape.others(me)
        return cls(me, others, a=frozenset(others), using=True) if me in inside else cls(me, others)

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """REQUEST-RESOURCE, up to the wait."""
        self.waiting = True
        self.our_sequence_number = self.hgst_sequence_number + 1
        request = Request(self.our_sequence_number)
        for j in self.others:
            if j not in self.a:
                out.send(j, request)
        self.enter_if_permitted(out)

    def after(self, older: int) -> None:
        self.hgst_sequence_number = older

    def enter_if_permitted(self, out: Out[Message]) -> None:
        """REQUEST-RESOURCE, from the wait on."""
        if len(self.a) == len(self.others):
            self.waiting, self.using = False, True
            out.enter()

    def release(self, out: Out[Message]) -> None:
        """RELEASE-RESOURCE."""
        self.using, self.our_sequence_number = False, 0
        for j in sorted(self.reply_deferred):
            out.send(j, Reply())
        self.a, self.reply_deferred = self.a - self.reply_deferred, frozenset()
        out.idle()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(source, message.n, out)
        else:
            self.on_reply(source, out)

    def on_reply(self, j: NodeId, out: Out[Message]) -> None:
        """TREAT-REPLY-MESSAGE."""
        self.a |= {j}
        if self.waiting:
            self.enter_if_permitted(out)

    def on_request(self, j: NodeId, their_sequence_number: int, out: Out[Message]) -> None:
        """TREAT-REQUEST-MESSAGE."""
        self.hgst_sequence_number = max(self.hgst_sequence_number, their_sequence_number)
        our_priority = (their_sequence_number, j) > (self.our_sequence_number, self.me)
        if self.using or (self.waiting and our_priority):
            self.reply_deferred |= {j}
            return
        permitted = j in self.a
        self.a -= {j}
        out.send(j, Reply())
        if self.waiting and permitted:
            # We gave up a permission that we still need: ask for it again.
            out.send(j, Request(self.our_sequence_number))
