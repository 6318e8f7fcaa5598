"""Suzuki and Kasami 1985, Figure 2: Algorithm B, as printed.

Algorithm A with request numbers counted modulo L, for any L >= 2. The L requests of a node with the
numbers 0 to L-1 are a *round*. A node that has got all L of another's round sends REPLY, and at the
end of its round a node keeps the privilege until it has a REPLY from all others, so that requests
of two rounds never are under way together.

This is the figure, errors included: it fails in two ways, which `suzuki_kasami_b` describes and
repairs. "Send REPLY to node i" reads j, as does "Send REQUEST(I, RN[I]) to node i". What the figure
does not say: a PRIVILEGE that arrives while P1 is not at its wait stays unread until P1 next is.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, NodeId, Out, Row, State, put, row
from peerlock.errors import UsageError


class Request(Ask, frozen=True, tag=1):
    """REQUEST(j, n): node j, the sender, asks; n counts its requests modulo L."""

    n: int


class Privilege(Grant, frozen=True, tag=2):
    """PRIVILEGE(Q, LN)."""

    is_token: ClassVar[bool] = True

    q: tuple[NodeId, ...]
    ln: Row


class Reply(Grant, frozen=True, tag=3):
    """REPLY: the sender has received all L requests of the addressee's round."""


Message: TypeAlias = Request | Privilege | Reply


class AsPrinted(State):
    me: NodeId  # I
    others: tuple[NodeId, ...]  # {1, 2, ..., N} - {I}
    l: int  # L
    rn: Row  # RN[j]: youngest request number heard from j
    request_count: Row  # RequestCount[j]: how many of j's round have arrived here
    ln: Row = ()  # LN[j]: number of j's last granted request; holder only
    q: tuple[NodeId, ...] = ()  # Q: waiting nodes, next first; holder only
    have_privilege: bool = False
    requesting: bool = False  # waiting, inside or at the wait for REPLYs
    reply_count: int = 0
    ending: bool = False  # at "Wait until ReplyCount = N - 1"
    unread: tuple[Privilege, ...] = ()  # arrived when P1 was not at its wait; read at the next one

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, l: int = 2) -> Self:
        if l < 2:
            raise UsageError(f"Algorithm B counts requests modulo L and needs L >= 2; got L = {l}.")
        node = cls(me, shape.others(me), l, rn=row(shape.all, -1), request_count=row(shape.all, 0))
        if me in (inside or {shape.home}):
            node.ln, node.have_privilege, node.requesting = node.rn, True, me in inside
        return node

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """P1, up to the wait."""
        self.requesting = True
        if self.have_privilege:
            out.enter()
            return
        self.rn = put(self.rn, self.me, (self.rn[self.me] + 1) % self.l)
        request = Request(self.rn[self.me])
        for j in self.others:
            out.send(j, request)
        if self.unread:
            privilege, self.unread = self.unread[0], self.unread[1:]
            self.on_privilege(privilege, out)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(source, message.n, out)
        elif isinstance(message, Privilege):
            self.on_privilege(message, out)
        else:
            self.on_reply(out)

    def on_privilege(self, privilege: Privilege, out: Out[Message]) -> None:
        """P1, the end of the wait."""
        if not self.requesting or self.have_privilege:
            self.unread = (*self.unread, privilege)
            return
        self.q, self.ln, self.have_privilege = privilege.q, privilege.ln, True
        out.enter()

    def release(self, out: Out[Message]) -> None:
        """P1, after the critical section, up to the wait for REPLYs."""
        self.ln = put(self.ln, self.me, self.rn[self.me])
        self.ending = True
        if not self.ends_round():
            self.finish(out)
        elif self.reply_count == len(self.others):
            self.end_round(out)

    def ends_round(self) -> bool:
        return self.rn[self.me] == self.l - 1

    def end_round(self, out: Out[Message]) -> None:
        self.reply_count = 0
        self.finish(out)

    def finish(self, out: Out[Message]) -> None:
        """P1, the rest."""
        for j in self.others:
            if j not in self.q and self.waits(j):
                self.q = (*self.q, j)
        if self.q:
            self.pass_privilege(self.q[0], self.q[1:], out)
        self.requesting = self.ending = False
        out.idle()

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        """P2."""
        self.request_count = put(self.request_count, j, self.request_count[j] + 1)
        if self.request_count[j] == self.l:
            out.send(j, Reply())
            self.request_count = put(self.request_count, j, 0)
        begins = self.request_count[j] == 1
        self.rn = put(self.rn, j, n if begins else max(self.rn[j], n))
        if self.have_privilege and not self.requesting and self.waits(j):
            self.pass_privilege(j, self.q, out)

    def on_reply(self, out: Out[Message]) -> None:
        """P3."""
        self.reply_count += 1
        if self.ending and self.reply_count == len(self.others):
            self.end_round(out)

    def waits(self, j: NodeId) -> bool:
        return self.rn[j] == (self.ln[j] + 1) % self.l

    def pass_privilege(self, to: NodeId, q: tuple[NodeId, ...], out: Out[Message]) -> None:
        out.send(to, Privilege(q, self.ln))
        # The figure keeps stale copies of Q and LN; forgetting them changes no behaviour.
        self.q, self.ln, self.have_privilege = (), (), False
