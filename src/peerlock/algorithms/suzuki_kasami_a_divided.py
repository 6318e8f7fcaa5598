"""Suzuki and Kasami 1985, Figure 1, statement by statement: what must be indivisible (SK-INDIV).

The paper says that P2 is indivisible, and nothing of P1. `cut` says before which statements a
procedure is interrupted.
"""

from __future__ import annotations

from typing import ClassVar, Self

from peerlock.algorithms.interruptible import Divided, Process
from peerlock.algorithms.suzuki_kasami_a import Message, Privilege, Request
from peerlock.contract import Inside, Members, Mode, NodeId, Out, Row, put, row


class SuzukiKasamiADivided(Divided[Request, Privilege], kw_only=True):
    statements: ClassVar[tuple[str, ...]] = (
        "test_have_privilege", "next_number", "have_privilege_true",
        "ln_own", "look", "append", "test_q", "have_privilege_false", "send_privilege", "requesting_false",
        "p2_test", "p2_have_privilege_false", "p2_send_privilege",
    )  # fmt: skip

    rn: Row  # RN
    ln: Row  # LN; the figure keeps a stale copy, and here it can matter
    q: tuple[NodeId, ...] = ()  # Q
    have_privilege: bool = False
    requesting: bool = False
    j: int = 0  # how many the loop of P1 has looked at

    @classmethod
    def prepare(cls, me: NodeId, shape: Members, inside: Inside, cut: tuple[str, ...]) -> Self:
        start = row(shape.all, -1)
        return cls(
            me=me, others=shape.others(me), cut=cut, rn=start, ln=start,
            have_privilege=me in (inside or {shape.home}), requesting=me in inside,
        )  # fmt: skip

    # -- P1 ------------------------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """Requesting := true"""
        self.requesting = True
        self.run("user", "test_have_privilege", out)

    def test_have_privilege(self, process: Process, out: Out[Message]) -> str:
        """if not HavePrivilege then"""
        if not self.have_privilege:
            return "next_number"
        out.enter()
        return ""

    def next_number(self, process: Process, out: Out[Message]) -> str:
        """RN[I] := RN[I] + 1; send REQUEST(I, RN[I]) to all others; wait"""
        self.rn = put(self.rn, self.me, self.rn[self.me] + 1)
        for j in self.others:
            out.send(j, Request(self.rn[self.me]))
        return self.wait()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Privilege):
            self.token_came(message, out)
        else:
            self.to_be_treated(source, message, out)

    def read(self, token: Privilege) -> str:
        self.q, self.ln = token.q, token.ln
        return "have_privilege_true"

    def have_privilege_true(self, process: Process, out: Out[Message]) -> str:
        """HavePrivilege := true, and the critical section"""
        self.have_privilege = True
        out.enter()
        return ""

    def release(self, out: Out[Message]) -> None:
        self.run("user", "ln_own", out)

    def ln_own(self, process: Process, out: Out[Message]) -> str:
        """LN[I] := RN[I]"""
        self.ln, self.j = put(self.ln, self.me, self.rn[self.me]), 0
        return "look"

    def look(self, process: Process, out: Out[Message]) -> str:
        """if not in(Q, j) and RN[j] = LN[j] + 1 then, for one j"""
        j = self.others[self.j]
        return "append" if j not in self.q and self.rn[j] == self.ln[j] + 1 else self.next_j()

    def append(self, process: Process, out: Out[Message]) -> str:
        """Q := append(Q, j)"""
        self.q = (*self.q, self.others[self.j])
        return self.next_j()

    def next_j(self) -> str:
        self.j += 1
        return "look" if self.j < len(self.others) else "test_q"

    def test_q(self, process: Process, out: Out[Message]) -> str:
        """if Q is not empty then"""
        self.j = 0
        return "have_privilege_false" if self.q else "requesting_false"

    def have_privilege_false(self, process: Process, out: Out[Message]) -> str:
        """HavePrivilege := false"""
        self.have_privilege = False
        return "send_privilege"

    def send_privilege(self, process: Process, out: Out[Message]) -> str:
        """send PRIVILEGE(tail(Q), LN) to node head(Q)"""
        privilege = Privilege(self.q[1:], self.ln)
        if self.q[0] == self.me:
            self.mail = (*self.mail, privilege)  # after an interruption a queue can name its own node
        else:
            out.send(self.q[0], privilege)
        return "requesting_false"

    def requesting_false(self, process: Process, out: Out[Message]) -> str:
        """Requesting := false"""
        self.requesting = False
        out.idle()
        return ""

    # -- P2 ------------------------------------------------------------------------------------

    def first_statement(self, message: Request) -> str:
        return "p2_rn"

    def p2_rn(self, process: Process, out: Out[Message]) -> str:
        """RN[j] := max(RN[j], n)"""
        j, n = self.source, self.message.n
        self.rn = put(self.rn, j, max(self.rn[j], n))
        return "p2_test"

    def p2_test(self, process: Process, out: Out[Message]) -> str:
        """if HavePrivilege and not Requesting and RN[j] = LN[j] + 1 then"""
        j = self.source
        due = self.have_privilege and not self.requesting and self.rn[j] == self.ln[j] + 1
        return "p2_have_privilege_false" if due else ""

    def p2_have_privilege_false(self, process: Process, out: Out[Message]) -> str:
        """HavePrivilege := false"""
        self.have_privilege = False
        return "p2_send_privilege"

    def p2_send_privilege(self, process: Process, out: Out[Message]) -> str:
        """send PRIVILEGE(Q, LN) to node j"""
        out.send(self.source, Privilege(self.q, self.ln))
        return ""
