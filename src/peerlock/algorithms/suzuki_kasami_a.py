"""Suzuki and Kasami 1985, Figure 1: Algorithm A.

One PRIVILEGE wanders from node to node. A node that wants it tells all others, once: REQUEST(j, n).
The privilege carries LN, the number of each node's last granted request, so its holder can tell
which nodes wait: j does, exactly if RN[j] = LN[j] + 1; and Q, the queue of those known to wait.
Numbers grow without bound; Algorithm B mends that.

The figure's P1 spans the wait and the critical section. Here it is cut at both: `request` runs to
the wait, `on_privilege` is what ends it, `release` is what follows "Critical Section".
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, NodeId, Out, Row, State, put, row


class Request(Ask, frozen=True, tag=1):
    """REQUEST(j, n): node j, the sender, asks for the n-th time, counted from 0."""

    supersedes: ClassVar[bool] = True

    n: int


class Privilege(Grant, frozen=True, tag=2):
    """PRIVILEGE(Q, LN)."""

    is_token: ClassVar[bool] = True

    q: tuple[NodeId, ...]
    ln: Row

    def successor(self) -> NodeId | None:
        """The first of Q has the privilege after the one it is sent to, and puts every node that it
        has heard of into Q. A REQUEST(j, n) that was granted has no effect: LN[j] is n by then, and
        RN[j] is a maximum.
        """
        return self.q[0] if self.q else None


Message: TypeAlias = Request | Privilege


class SuzukiKasamiA(State):
    me: NodeId  # I
    others: tuple[NodeId, ...]  # {1, 2, ..., N} - {I}
    rn: Row  # RN[j]: highest request number heard from j
    ln: Row = ()  # LN[j]: number of j's last granted request; holder only
    q: tuple[NodeId, ...] = ()  # Q: waiting nodes, next first; holder only
    have_privilege: bool = False
    requesting: bool = False  # waiting or inside

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY) -> Self:
        start = row(shape.all, -1)
        if me not in (inside or {shape.home}):
            return cls(me, shape.others(me), start)
        return cls(me, shape.others(me), start, start, have_privilege=True, requesting=me in inside)

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """P1, up to the wait."""
        self.requesting = True
        if self.have_privilege:
            out.enter()
            return
        self.rn = put(self.rn, self.me, self.rn[self.me] + 1)
        request = Request(self.rn[self.me])
        for j in self.others:
            out.send(j, request)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(source, message.n, out)
        else:
            self.on_privilege(message.q, message.ln, out)

    def on_privilege(self, q: tuple[NodeId, ...], ln: Row, out: Out[Message]) -> None:
        """P1, the end of the wait."""
        assert self.requesting and not self.have_privilege, f"privilege for node {self.me}, which does not wait: {self}"
        self.q, self.ln, self.have_privilege = q, ln, True
        out.enter()

    def release(self, out: Out[Message]) -> None:
        """P1, after the critical section."""
        rn, ln = self.rn, put(self.ln, self.me, self.rn[self.me])
        self.ln = ln
        for j in self.others:
            if rn[j] == ln[j] + 1 and j not in self.q:
                self.q = (*self.q, j)
        if self.q:
            self.pass_privilege(self.q[0], self.q[1:], out)
        self.requesting = False
        out.idle()

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        """P2."""
        if n > self.rn[j]:  # RN[j] := max(RN[j], n)
            self.rn = put(self.rn, j, n)
        if self.have_privilege and not self.requesting and self.rn[j] == self.ln[j] + 1:
            self.pass_privilege(j, self.q, out)

    def pass_privilege(self, to: NodeId, q: tuple[NodeId, ...], out: Out[Message]) -> None:
        out.send(to, Privilege(q, self.ln))
        # Q and LN leave with the privilege. The paper keeps stale copies; forgetting
        # them changes no behaviour and makes equal situations equal states.
        self.q, self.ln, self.have_privilege = (), (), False
