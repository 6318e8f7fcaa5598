"""The Appendix's token algorithm, statement by statement: why it should be indivisible (RT-INDIV).

`cut` says before which statements a procedure is interrupted. Both processes call release_resource.
"""

from __future__ import annotations

from typing import ClassVar, Self

from peerlock.algorithms.interruptible import Divided, Process
from peerlock.algorithms.ricart_agrawala_token import Message, Request, Token
from peerlock.contract import Inside, Members, Mode, NodeId, Out, Row, put, row


class RicartAgrawalaTokenDivided(Divided[Request, Token], kw_only=True):
    statements: ClassVar[tuple[str, ...]] = (
        "ask", "have_token_true", "in_critical_section_true",
        "token_data_own", "in_critical_section_false", "look", "send_token", "have_token_false",
        "test_idle_token",
    )  # fmt: skip

    request_data: Row
    token_data: Row  # stale without the token, as in the figure
    our_sequence_number: int = 0
    have_token: bool = False
    in_critical_section: bool = False
    user_j: int = 0  # how many the loop of release_resource has looked at, called by the user
    treat_j: int = 0  # and called from treat_request_message

    @classmethod
    def prepare(cls, me: NodeId, shape: Members, inside: Inside, cut: tuple[str, ...]) -> Self:
        others = tuple(sorted(shape.others(me), key=lambda j: (j < me, j)))
        zeros = row(shape.all, 0)
        return cls(
            me=me, others=others, cut=cut, request_data=zeros, token_data=zeros,
            have_token=me in (inside or {shape.home}), in_critical_section=me in inside,
        )  # fmt: skip

    # -- request_resource ----------------------------------------------------------------------

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """IF NOT have_token"""
        self.run("user", "have_token_true" if self.have_token else "ask", out)

    def ask(self, process: Process, out: Out[Message]) -> str:
        """our_sequence_number := our_sequence_number + 1; BROADCAST REQUEST; WAITFOR TOKEN"""
        self.our_sequence_number += 1
        out.broadcast(self.others, Request(self.our_sequence_number))
        return self.wait()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Token):
            self.token_came(message, out)
        else:
            self.to_be_treated(source, message, out)

    def read(self, token: Token) -> str:
        self.token_data = token.token_data
        return "have_token_true"

    def have_token_true(self, process: Process, out: Out[Message]) -> str:
        """have_token := TRUE"""
        self.have_token = True
        return "in_critical_section_true"

    def in_critical_section_true(self, process: Process, out: Out[Message]) -> str:
        """in_critical_section := TRUE"""
        self.in_critical_section = True
        out.enter()
        return ""

    # -- release_resource ----------------------------------------------------------------------

    def release(self, out: Out[Message]) -> None:
        self.run("user", "token_data_own", out)

    def token_data_own(self, process: Process, out: Out[Message]) -> str:
        """token_data[ME] := our_sequence_number"""
        self.token_data = put(self.token_data, self.me, self.our_sequence_number)
        return "in_critical_section_false"

    def in_critical_section_false(self, process: Process, out: Out[Message]) -> str:
        """in_critical_section := FALSE"""
        self.in_critical_section = False
        return "look"

    def looking_at(self, process: Process) -> int:
        return self.user_j if process == "user" else self.treat_j

    def look(self, process: Process, out: Out[Message]) -> str:
        """IF request_data[j] > token_data[j] AND have_token, for one j"""
        j = self.others[self.looking_at(process)]
        return (
            "send_token" if self.request_data[j] > self.token_data[j] and self.have_token else self.next(process, out)
        )

    def send_token(self, process: Process, out: Out[Message]) -> str:
        """SEND TOKEN(token_data) to j"""
        out.send(self.others[self.looking_at(process)], Token(self.token_data))
        return "have_token_false"

    def have_token_false(self, process: Process, out: Out[Message]) -> str:
        """have_token := FALSE"""
        self.have_token = False
        return self.next(process, out)

    def next(self, process: Process, out: Out[Message]) -> str:
        at = (self.looking_at(process) + 1) % len(self.others)
        if process == "user":
            self.user_j = at
        else:
            self.treat_j = at
        if at:
            return "look"
        if process == "user":
            out.idle()
        return ""

    # -- treat_request_message -----------------------------------------------------------------

    def first_statement(self, message: Request) -> str:
        return "request_data_max"

    def request_data_max(self, process: Process, out: Out[Message]) -> str:
        """request_data[j] := max(request_data[j], their_sequence_number)"""
        j, their_sequence_number = self.source, self.message.n
        self.request_data = put(self.request_data, j, max(self.request_data[j], their_sequence_number))
        return "test_idle_token"

    def test_idle_token(self, process: Process, out: Out[Message]) -> str:
        """IF have_token AND NOT in_critical_section THEN release_resource"""
        return "token_data_own" if self.have_token and not self.in_critical_section else ""
