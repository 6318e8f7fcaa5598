"""Ricart and Agrawala 1983: the explicit-token algorithm, in the Appendix of their response.

Nearly Suzuki and Kasami's Algorithm A, found independently. There is no queue: a node that gives
the token away looks for the next waiting node from its own number upwards, round and round, and
this order is what keeps nodes from starving.

The Appendix prints no initial values for the arrays; they start at 0. Its token starts at process
1, here at `shape.home`; making it by one pass of Ricart and Agrawala's first algorithm is the
combinator `first_pass`.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, NodeId, Out, Row, State, put, row


class Request(Ask, frozen=True, tag=3):
    """REQUEST(our_sequence_number, ME)."""

    supersedes: ClassVar[bool] = True

    n: int


class Token(Grant, frozen=True, tag=4):
    """TOKEN(token_data)."""

    is_token: ClassVar[bool] = True

    token_data: Row


Message: TypeAlias = Request | Token


class RicartAgrawalaToken(State):
    me: NodeId  # ME
    others: tuple[NodeId, ...]  # ME + 1, ..., N, 1, ..., ME - 1: the order of the search
    request_data: Row  # highest sequence number heard from each node
    token_data: Row = ()  # what the token remembers from its last visit to each node; holder only
    our_sequence_number: int = 0
    have_token: bool = False
    in_critical_section: bool = False

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY) -> Self:
        others = sorted(shape.others(me), key=lambda j: (j < me, j))
        node = cls(me, tuple(others), row(shape.all, 0))
        if me in (inside or {shape.home}):
            node.token_data, node.have_token, node.in_critical_section = row(shape.all, 0), True, me in inside
        return node

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """request_resource, up to WAITFOR."""
        if self.have_token:
            self.in_critical_section = True
            out.enter()
            return
        self.our_sequence_number += 1
        out.broadcast(self.others, Request(self.our_sequence_number))

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(source, message.n, out)
        else:
            self.on_token(message.token_data, out)

    def on_token(self, token_data: Row, out: Out[Message]) -> None:
        """request_resource, from WAITFOR on."""
        self.token_data = token_data
        self.in_critical_section = self.have_token = True
        out.enter()

    def release(self, out: Out[Message]) -> None:
        """release_resource, called by the node itself."""
        self.release_resource(out)
        out.idle()

    def release_resource(self, out: Out[Message]) -> None:
        """release_resource."""
        self.token_data = put(self.token_data, self.me, self.our_sequence_number)
        self.in_critical_section = False
        for j in self.others:
            if self.request_data[j] > self.token_data[j]:
                out.send(j, Token(self.token_data))
                # The figure goes on with have_token false, and the rest of its loop does nothing.
                # It also keeps a stale token_data; forgetting it makes equal situations equal
                # states.
                self.have_token, self.token_data = False, ()
                return

    def on_request(self, j: NodeId, their_sequence_number: int, out: Out[Message]) -> None:
        """treat_request_message."""
        self.request_data = put(self.request_data, j, max(self.request_data[j], their_sequence_number))
        if self.have_token and not self.in_critical_section:
            self.release_resource(out)
