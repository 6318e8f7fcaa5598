"""Naimi, Trehel and Arnold 1996 (Naimi and Trehel 1987): a token that is found along a path that
each request reverses.

No request is sent to all nodes. Each node knows one node that it believes to have the token last:
its `father`. A request goes from father to father, and each node on the way makes the requester its
father. The last one on the way is the root: it has no father. If it wants the token or is inside,
it remembers the requester as `next`; otherwise it gives the token away. So two structures are all
there is: a tree of fathers that leads to the last requester, and a list of nexts that leads from
the token's holder to it.

Where requests come one at a time from nodes chosen evenly, an entry costs H(N-1) = 1 + 1/2 + ... +
1/(N-1) messages on average, and never more than N: N-1 for the request and one for the token.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, NodeId, Out, State


class Request(Ask, frozen=True, tag=1):
    """req(k): node k asks. It is passed on from father to father."""

    origin: NodeId

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return self.origin


class Token(Grant, frozen=True, tag=2):
    """token."""

    is_token: ClassVar[bool] = True


Message: TypeAlias = Request | Token


class NaimiTrehel(State):
    me: NodeId
    father: NodeId | None  # nil at the root: it requested last
    token_present: bool
    requesting_cs: bool = False  # waiting or inside
    next: NodeId | None = None  # it gets the token from this node

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY) -> Self:
        root = next(iter(inside), shape.home)
        return cls(me, None if me == root else root, me == root, me in inside)

    def request(self, mode: Mode, out: Out[Message]) -> None:
        self.requesting_cs = True
        if self.father is None:
            # The root does not request: it waits for no other node, so it has the token.
            assert self.token_present, f"the root waits: {self}"
            out.enter()
            return
        out.send(self.father, Request(self.me))
        self.father = None

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(message.origin, out)
        else:
            self.on_token(out)

    def on_request(self, k: NodeId, out: Out[Message]) -> None:
        if self.father is not None:
            out.send(self.father, Request(k))
        elif self.requesting_cs:
            assert self.next is None, f"{k} asks a root that knows its next: {self}"
            self.next = k
        else:
            self.token_present = False
            out.send(k, Token())
        self.father = k

    def on_token(self, out: Out[Message]) -> None:
        self.token_present = True
        out.enter()

    def release(self, out: Out[Message]) -> None:
        self.requesting_cs = False
        if self.next is not None:
            out.send(self.next, Token())
            self.token_present, self.next = False, None
        out.idle()
