"""Helary, Plouzeau and Raynal 1986: a token on any connected network.

A request floods the network: a process that gets it for the first time passes it on to those
neighbours that, as far as the message tells (`already_seen`), have not got it. Each process
remembers from which neighbour each request came, so the token finds its way back to the requester
along the request's own path. No process knows more than its neighbours' names. `lud` travels with
the token: the clock of each process when it last gave the token away; a request (i, t) with lud[i]
>= t has been satisfied.

`req_array[via]` of the paper lists the requests that came from neighbour `via`. It holds at most
one request of each origin, so it is kept here by origin: (req_origin, (req_time, via)).

As printed the text fails twice, and `HelaryPlouzeauRaynal` repairs both:

1. min(X) is defined on couples (origin, time) and compares origins first, so a process with a small
   name overtakes one with a large name for ever: Theorem 3 (no starvation) fails. Its proof, and
   section 3 (iv), order by age. Repair: compare times first.
2. A process deletes a request when the token passes it on its way to the origin. A copy of that
   request that arrives later by another path is then taken for a new one, stored, and flooded once
   more: a line can be crossed more than twice, and the claimed 2e request messages are exceeded.
   The figure's own comment says "the youngest that Pi ever received". Repair: do not delete. A
   satisfied request is not served again because of `lud`.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from peerlock.contract import (
    NOBODY,
    Ask,
    Book,
    Grant,
    Inside,
    Mode,
    Needs,
    Neighbours,
    NodeId,
    Out,
    State,
    look,
    note,
    strike,
)  # fmt: skip


class Req(Ask, frozen=True, tag=1):
    """req((req_origin, req_time), (sender, already_seen)); the sender is the message's source."""

    req_origin: NodeId
    req_time: int
    already_seen: frozenset[NodeId]

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return self.req_origin

    def asked(self) -> int | None:
        return self.req_time


class Token(Grant, frozen=True, tag=2):
    """token(lud, elec): on its way to elec."""

    is_token: ClassVar[bool] = True

    lud: Book[int]
    elec: NodeId

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return self.elec


Message: TypeAlias = Req | Token


class AsPrinted(State):
    needs: ClassVar[Needs] = Needs(shape=Neighbours)

    me: NodeId  # i
    neighbours: tuple[NodeId, ...]
    c: int = 0  # C: the logical clock
    token_here: bool = False
    in_cs: bool = False
    req_array: Book[tuple[int, NodeId]] = ()  # by origin: (req_time, via)
    lud: Book[int] = ()  # an absent name reads as -1; owner only

    @classmethod
    def start(cls, me: NodeId, shape: Neighbours, inside: Inside = NOBODY) -> Self:
        return cls(me, shape.names, token_here=me in (inside or {shape.home}), in_cs=me in inside)

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """enter_CS."""
        if self.token_here:
            self.in_cs = True
            out.enter()
            return
        req = Req(self.me, self.c, frozenset({self.me, *self.neighbours}))
        for k in self.neighbours:
            out.send(k, req)

    def after(self, older: int) -> None:
        self.c = older

    def release(self, out: Out[Message]) -> None:
        """exit_CS."""
        self.in_cs = False
        self.transmit_token(out)
        out.idle()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Req):
            self.on_req(source, message.req_origin, message.req_time, message.already_seen, out)
        else:
            self.on_token(message.lud, message.elec, out)

    def on_req(
        self, sender: NodeId, req_origin: NodeId, req_time: int, already_seen: frozenset[NodeId], out: Out[Message]
    ) -> None:
        """receive_request."""
        if look(self.req_array, req_origin, (-1, sender))[0] >= req_time:
            return
        self.c = max(self.c, req_time) + 1
        self.req_array = note(self.req_array, req_origin, (req_time, sender))
        passed_on = Req(req_origin, req_time, already_seen.union(self.neighbours))
        for k in self.neighbours:
            if k not in already_seen:
                out.send(k, passed_on)
        if self.token_here and not self.in_cs:
            self.transmit_token(out)

    def on_token(self, lud: Book[int], elec: NodeId, out: Out[Message]) -> None:
        """receive_token."""
        if elec == self.me:
            self.token_here, self.lud = True, lud
            self.in_cs = True
            out.enter()
        else:
            self.send_token(lud, elec, out)

    def transmit_token(self, out: Out[Message]) -> None:
        """transmit_token."""
        x = [(orig, t) for orig, (t, _) in self.req_array if look(self.lud, orig, -1) < t]
        if x:
            elec = self.oldest(x)
            lud = note(self.lud, self.me, self.c)
            self.c += 1  # with the line before: (A) in the proof
            self.token_here, self.lud = False, ()
            self.send_token(lud, elec, out)

    def oldest(self, x: list[tuple[NodeId, int]]) -> NodeId:
        return min(x)[0]

    def send_token(self, lud: Book[int], elec: NodeId, out: Out[Message]) -> None:
        _, via = look(self.req_array, elec, (-1, self.me))
        assert via != self.me, f"the token for {elec} at {self.me}, which knows no request of it: {self}"
        self.forget(elec)
        out.send(via, Token(lud, elec))

    def forget(self, elec: NodeId) -> None:
        self.req_array = strike(self.req_array, elec)

    def rewire(self, neighbours: tuple[NodeId, ...]) -> None:
        """Section 7: only the neighbour sets have to be updated."""
        self.neighbours = neighbours


class HelaryPlouzeauRaynal(AsPrinted):
    """The two repairs and nothing else."""

    def oldest(self, x: list[tuple[NodeId, int]]) -> NodeId:
        return min(x, key=lambda request: (request[1], request[0]))[0]

    def forget(self, elec: NodeId) -> None:
        pass
