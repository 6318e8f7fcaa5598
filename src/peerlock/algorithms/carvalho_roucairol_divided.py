"""Carvalho and Roucairol 1983, statement by statement: why procedures are indivisible (CR-INDIV).

`cut` says before which statements a procedure is interrupted. Our_Sequence_Number keeps its last
value when the node does not wait, as in the figure: here it can matter.
"""

from __future__ import annotations

from typing import ClassVar, Never, Self

from peerlock.algorithms.carvalho_roucairol import Message, Reply, Request
from peerlock.algorithms.interruptible import Divided, Process
from peerlock.contract import Inside, Members, Mode, NodeId, Out


class CarvalhoRoucairolDivided(Divided[Message, Never], kw_only=True):
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
    def prepare(cls, me: NodeId, shape: Members, inside: Inside, cut: tuple[str, ...]) -> Self:
        others = shape.others(me)
        return cls(me=me, others=others, cut=cut, a=frozenset(others if me in inside else ()), using=me in inside)

    # -- REQUEST-RESOURCE ----------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """Waiting := true"""
        self.waiting = True
        self.run("user", "our_number", out)

    def our_number(self, process: Process, out: Out[Message]) -> str:
        """Our_Sequence_Number := Hgst_Sequence_Number + 1"""
        self.our_sequence_number, self.j = self.hgst_sequence_number + 1, 0
        return "ask"

    def ask(self, process: Process, out: Out[Message]) -> str:
        """if not A[j] then, for one j"""
        return "send_request" if self.others[self.j] not in self.a else self.after_ask()

    def send_request(self, process: Process, out: Out[Message]) -> str:
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

    def waiting_false(self, process: Process, out: Out[Message]) -> str:
        """Waiting := false"""
        self.waiting = False
        return "using_true"

    def using_true(self, process: Process, out: Out[Message]) -> str:
        """Using := true"""
        self.using = True
        out.enter()
        return ""

    # -- RELEASE-RESOURCE ----------------------------------------------------------------------

    def release(self, out: Out[Message]) -> None:
        """Using := false"""
        self.using, self.j = False, 0
        self.run("user", "look", out)

    def look(self, process: Process, out: Out[Message]) -> str:
        """if Reply_Deferred[j] then A[j] := Reply_Deferred[j] := false, for one j"""
        j = self.others[self.j]
        if j in self.reply_deferred:
            self.a, self.reply_deferred = self.a - {j}, self.reply_deferred - {j}
            return "send_reply"
        return self.after_look(out)

    def send_reply(self, process: Process, out: Out[Message]) -> str:
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

    def first_statement(self, message: Message) -> str:
        return "hgst" if isinstance(message, Request) else "permitted"

    @property
    def their_sequence_number(self) -> int:
        assert isinstance(self.message, Request)
        return self.message.n

    def permitted(self, process: Process, out: Out[Message]) -> str:
        """A[j] := true"""
        self.a |= {self.source}
        self.run("user", self.wait_over(), out)
        return ""

    def hgst(self, process: Process, out: Out[Message]) -> str:
        """Hgst_Sequence_Number := max(Hgst_Sequence_Number, Their_Sequence_Number)"""
        self.hgst_sequence_number = max(self.hgst_sequence_number, self.their_sequence_number)
        return "our_priority"

    def our_priority(self, process: Process, out: Out[Message]) -> str:
        """Our_Priority := (Their_Sequence_Number, j) > (Our_Sequence_Number, ME)"""
        self.priority = (self.their_sequence_number, self.source) > (self.our_sequence_number, self.me)
        return "first_if"

    def first_if(self, process: Process, out: Out[Message]) -> str:
        """if Using or (Waiting and Our_Priority) then"""
        return "reply_deferred_true" if self.using or (self.waiting and self.priority) else "second_if"

    def reply_deferred_true(self, process: Process, out: Out[Message]) -> str:
        """Reply_Deferred[j] := true"""
        self.reply_deferred |= {self.source}
        return "second_if"

    def second_if(self, process: Process, out: Out[Message]) -> str:
        """if not (Using or Waiting) or (Waiting and not A[j] and not Our_Priority) then"""
        j = self.source
        if not (self.using or self.waiting) or (self.waiting and j not in self.a and not self.priority):
            return "reply"
        return "third_if"

    def reply(self, process: Process, out: Out[Message]) -> str:
        """A[j] := false; send REPLY(ME) to j"""
        self.a -= {self.source}
        out.send(self.source, Reply())
        return "third_if"

    def third_if(self, process: Process, out: Out[Message]) -> str:
        """if Waiting and A[j] and not Our_Priority then"""
        again = self.waiting and self.source in self.a and not self.priority
        self.priority = False
        return "ask_again" if again else ""

    def ask_again(self, process: Process, out: Out[Message]) -> str:
        """A[j] := false; send REPLY(ME) to j; send REQUEST(Our_Sequence_Number, ME) to j"""
        j = self.source
        self.a -= {j}
        out.send(j, Reply())
        out.send(j, Request(self.our_sequence_number))
        return ""
