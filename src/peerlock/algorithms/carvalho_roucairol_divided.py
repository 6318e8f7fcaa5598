"""Carvalho and Roucairol 1983, statement by statement: why the procedures must be indivisible (CR-INDIV).

`cut` says before which statements a procedure is interrupted. Our_Sequence_Number keeps its last value when nobody waits, as in
the figure: here it can matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from peerlock.algorithms.carvalho_roucairol import Message, Reply, Request
from peerlock.algorithms.interruptible import Divided, Process
from peerlock.contract import Members, Mode, NodeId, Out


class CarvalhoRoucairolDivided(Divided, kw_only=True):
    statements: ClassVar[tuple[str, ...]] = (
        "our_number", "ask", "send_request", "waiting_false", "using_true",
        "look", "send_reply",
        "our_priority", "first_if", "reply_deferred_true", "second_if", "reply", "third_if", "ask_again",
    )  # fmt: skip

    our_sequence_number: int = 0
    hgst_sequence_number: int = 0
    a: frozenset[NodeId] = frozenset()  # A[j]
    reply_deferred: frozenset[NodeId] = frozenset()
    using: bool = False
    waiting: bool = False
    waits: bool = False  # the user is at its waitfor
    priority: bool = False  # Our_Priority, of the message under treatment
    j: int = 0  # how many the user's loop has looked at

    @classmethod
    def prepare(cls, me: NodeId, shape: Members, inside: Mapping[NodeId, Mode], cut: tuple[str, ...]) -> Self:
        others = shape.others(me)
        return cls(me=me, others=others, cut=cut, a=frozenset(others if me in inside else ()), using=me in inside)

    # -- REQUEST-RESOURCE ----------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """Waiting := true"""
        self.waiting = True
        self.run("user", "our_number", out)

    def our_number(self, who: Process, out: Out[Message]) -> str:
        """Our_Sequence_Number := Hgst_Sequence_Number + 1"""
        self.our_sequence_number, self.j = self.hgst_sequence_number + 1, 0
        return "ask"

    def ask(self, who: Process, out: Out[Message]) -> str:
        """if not A[j] then, for one j"""
        return "send_request" if self.others[self.j] not in self.a else self.after_ask()

    def send_request(self, who: Process, out: Out[Message]) -> str:
        """send REQUEST(Our_Sequence_Number, ME) to j"""
        out.send(self.others[self.j], Request(self.our_sequence_number))
        return self.after_ask()

    def after_ask(self) -> str:
        self.j += 1
        if self.j < len(self.others):
            return "ask"
        self.waits, self.j = True, 0
        return self.wait_over()

    def wait_over(self) -> str:
        """waitfor A[j] true for all j"""
        if not self.waits or len(self.a) < len(self.others):
            return ""
        self.waits = False
        return "waiting_false"

    def waiting_false(self, who: Process, out: Out[Message]) -> str:
        """Waiting := false"""
        self.waiting = False
        return "using_true"

    def using_true(self, who: Process, out: Out[Message]) -> str:
        """Using := true"""
        self.using = True
        out.enter()
        return ""

    # -- RELEASE-RESOURCE ----------------------------------------------------------------------

    def release(self, out: Out[Message]) -> None:
        """Using := false"""
        self.using, self.j = False, 0
        self.run("user", "look", out)

    def look(self, who: Process, out: Out[Message]) -> str:
        """if Reply_Deferred[j] then A[j] := Reply_Deferred[j] := false, for one j"""
        j = self.others[self.j]
        if j in self.reply_deferred:
            self.a, self.reply_deferred = self.a - {j}, self.reply_deferred - {j}
            return "send_reply"
        return self.after_look(out)

    def send_reply(self, who: Process, out: Out[Message]) -> str:
        """send REPLY(ME) to j"""
        out.send(self.others[self.j], Reply())
        return self.after_look(out)

    def after_look(self, out: Out[Message]) -> str:
        self.j += 1
        if self.j < len(self.others):
            return "look"
        self.j = 0
        out.idle()
        return ""

    # -- TREAT-REPLY-MESSAGE and TREAT-REQUEST-MESSAGE -----------------------------------------

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        self.to_be_treated(source, message, out)

    def first_statement(self, message: Any) -> str:
        return "hgst" if isinstance(message, Request) else "permitted"

    def permitted(self, who: Process, out: Out[Message]) -> str:
        """A[j] := true"""
        assert self.treated is not None
        self.a |= {self.treated[0]}
        self.run("user", self.wait_over(), out)
        return ""

    def hgst(self, who: Process, out: Out[Message]) -> str:
        """Hgst_Sequence_Number := max(Hgst_Sequence_Number, Their_Sequence_Number)"""
        assert self.treated is not None
        self.hgst_sequence_number = max(self.hgst_sequence_number, self.treated[1].n)
        return "our_priority"

    def our_priority(self, who: Process, out: Out[Message]) -> str:
        """Our_Priority := (Their_Sequence_Number, j) > (Our_Sequence_Number, ME)"""
        assert self.treated is not None
        j, message = self.treated
        self.priority = (message.n, j) > (self.our_sequence_number, self.me)
        return "first_if"

    def first_if(self, who: Process, out: Out[Message]) -> str:
        """if Using or (Waiting and Our_Priority) then"""
        return "reply_deferred_true" if self.using or (self.waiting and self.priority) else "second_if"

    def reply_deferred_true(self, who: Process, out: Out[Message]) -> str:
        """Reply_Deferred[j] := true"""
        assert self.treated is not None
        self.reply_deferred |= {self.treated[0]}
        return "second_if"

    def second_if(self, who: Process, out: Out[Message]) -> str:
        """if not (Using or Waiting) or (Waiting and not A[j] and not Our_Priority) then"""
        assert self.treated is not None
        j = self.treated[0]
        if not (self.using or self.waiting) or (self.waiting and j not in self.a and not self.priority):
            return "reply"
        return "third_if"

    def reply(self, who: Process, out: Out[Message]) -> str:
        """A[j] := false; send REPLY(ME) to j"""
        assert self.treated is not None
        self.a -= {self.treated[0]}
        out.send(self.treated[0], Reply())
        return "third_if"

    def third_if(self, who: Process, out: Out[Message]) -> str:
        """if Waiting and A[j] and not Our_Priority then"""
        assert self.treated is not None
        again = self.waiting and self.treated[0] in self.a and not self.priority
        self.priority = False
        return "ask_again" if again else ""

    def ask_again(self, who: Process, out: Out[Message]) -> str:
        """A[j] := false; send REPLY(ME) to j; send REQUEST(Our_Sequence_Number, ME) to j"""
        assert self.treated is not None
        j = self.treated[0]
        self.a -= {j}
        out.send(j, Reply())
        out.send(j, Request(self.our_sequence_number))
        return ""
