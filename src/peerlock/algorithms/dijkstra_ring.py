"""Dijkstra 1983 (EWD851): a token on a ring, called by signals.

Signals run to the right and call the token, which runs to the left. A process that a signal has
passed is black and owes the token to its left; sending the token on makes it white again. Nothing
moves while no process wants to enter.

The note's processes come out of their noncritical section by themselves; here the driver's
`request` is that moment. A connection belongs to one pair of neighbours in one order: with two
processes there are two of them, a signal and the token travel on different ones, and that is why
`receive` can tell them apart by their kind alone.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Mode, Needs, NodeId, Out, Ring, State


class Signal(Ask, frozen=True, tag=1):
    """A signal to the right: the sender, or a process to its left, waits for the token."""


class Token(Grant, frozen=True, tag=2):
    """The token, to the left."""

    is_token: ClassVar[bool] = True


Message: TypeAlias = Signal | Token


class DijkstraRing(State):
    needs: ClassVar[Needs] = Needs(shape=Ring)

    left: NodeId
    right: NodeId
    holds_token: bool
    section: Literal["noncritical", "waiting", "critical"] = "noncritical"
    black: bool = False

    @classmethod
    def start(cls, me: NodeId, shape: Ring, inside: Inside = NOBODY) -> Self:
        holds_token = me in (inside or {shape.home})
        return cls(shape.left, shape.right, holds_token, "critical" if me in inside else "noncritical")

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """Upon completion of the noncritical section."""
        if self.holds_token:
            self.section = "critical"
            out.enter()
            return
        if not self.black:
            out.send(self.right, Signal())
        self.section = "waiting"

    def release(self, out: Out[Message]) -> None:
        """Upon completion of the critical section."""
        self.section = "noncritical"
        if self.black:
            self.black = False
            self.send_token(out)
        out.idle()

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Signal):
            self.on_signal(out)
        else:
            self.on_token(out)

    def on_signal(self, out: Out[Message]) -> None:
        """Upon receipt of a signal."""
        if self.section != "noncritical":
            self.black = True
        elif self.holds_token:
            self.send_token(out)
        else:
            self.black = True
            out.send(self.right, Signal())

    def on_token(self, out: Out[Message]) -> None:
        """Upon receipt of the token."""
        self.holds_token = True
        if self.section == "waiting":
            self.section = "critical"
            out.enter()
        else:
            assert self.black, f"P5: the recipient of the token is black or waiting: {self}"
            self.black = False
            self.send_token(out)

    def send_token(self, out: Out[Message]) -> None:
        self.holds_token = False
        out.send(self.left, Token())
