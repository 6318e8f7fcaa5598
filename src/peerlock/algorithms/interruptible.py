"""Procedures that are not indivisible: what the papers mean when they demand it, or forget to.

At every node two processes share the variables. The *user* calls the procedures that request and
release; the other one *treats* messages, one after the other. Here a procedure is a row of
statements. Before each statement that is named in `cut` its process may be interrupted, and the
other process may do whatever it does meanwhile; everywhere else it runs on. So one cut shows what
goes wrong at one place, and all harmless cuts together show what need not be indivisible.

A statement is a method. It returns the name of the statement that follows, or "" when the procedure
ends or waits. An interrupted process goes on when a timer says so: in the checker that is at any
time, in the simulator after a while.

A cut before a wait, or between two sends of a loop that tests nothing, would show nothing: it is as
if the message that is waited for, or the one that is sent next, took longer.
"""

from __future__ import annotations

from typing import ClassVar, Generic, Literal, Self, TypeVar

from peerlock.contract import NOBODY, Inside, Members, NodeId, Out, State, Wire
from peerlock.errors import UsageError

Process = Literal["user", "treat"]
A_WHILE = 0.5  # for how long the simulator interrupts; about half of a message's delay
Treated = TypeVar("Treated", bound=Wire)  # the messages that the second process treats
Token = TypeVar("Token", bound=Wire)  # the messages that the user waits for


class Divided(State, Generic[Treated, Token], kw_only=True):
    """Subclasses name their statements and write each as a method."""

    statements: ClassVar[tuple[str, ...]]  # where a cut is possible, in the order printed

    me: NodeId
    others: tuple[NodeId, ...]
    cut: tuple[str, ...]
    user: str = ""  # the statement before which the user was interrupted
    treat: str = ""  # the same for the process that treats messages
    at_wait: bool = False  # the user waits for the token
    mail: tuple[Token, ...] = ()  # tokens that came when the user was not at its wait
    treated: tuple[NodeId, Treated] | None = None  # the message under treatment
    unread: tuple[tuple[NodeId, Treated], ...] = ()  # messages that came meanwhile

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, cut: str = "") -> Self:
        return cls.prepare(me, shape, inside, cls.places(cut))

    @classmethod
    def prepare(cls, me: NodeId, shape: Members, inside: Inside, cut: tuple[str, ...]) -> Self:
        raise NotImplementedError  # a subclass knows its variables

    @classmethod
    def places(cls, cut: str) -> tuple[str, ...]:
        """`look`, `look+send`, or `all`."""
        if cut == "all":
            return cls.statements
        for place in cut.split("+"):
            if place not in cls.statements:
                raise UsageError(
                    f"There is no statement {place!r} to cut before. There are: {', '.join(cls.statements)}, and all; "
                    "join several with a plus sign."
                )
        return tuple(cut.split("+"))

    def run(self, process: Process, statement: str, out: Out[Treated | Token], *, go_on: bool = False) -> None:
        """From this statement to the end of the procedure, its wait or the next interruption."""
        while statement:
            if statement in self.cut and not go_on:
                setattr(self, process, statement)
                out.timer(process, A_WHILE)
                return
            go_on = False
            setattr(self, process, "")
            statement = getattr(self, statement)(process, out)
        if process == "treat":
            self.treated = None
            self.treat_next(out)

    def on_timeout(self, name: str, out: Out[Treated | Token]) -> None:
        assert name in ("user", "treat")
        self.run("user" if name == "user" else "treat", getattr(self, name), out, go_on=True)

    def wait(self) -> str:
        """The user waits for the token; if one has come already, the user goes on at once."""
        self.at_wait = True
        return self.go_on()

    def token_came(self, message: Token, out: Out[Treated | Token]) -> None:
        """A token is for the user, and only at its wait."""
        self.mail = (*self.mail, message)
        self.run("user", self.go_on(), out)

    def go_on(self) -> str:
        """The statement after the wait, if it is over; the token's contents are read then."""
        if not (self.at_wait and self.mail):
            return ""
        message, self.mail, self.at_wait = self.mail[0], self.mail[1:], False
        return self.read(message)

    def read(self, token: Token) -> str:
        """Take over what the token carries; the statement that follows."""
        raise NotImplementedError  # a subclass knows its token

    def to_be_treated(self, source: NodeId, message: Treated, out: Out[Treated | Token]) -> None:
        """A message for the process that treats messages; it waits if that one is busy."""
        self.unread = (*self.unread, (source, message))
        self.treat_next(out)

    def treat_next(self, out: Out[Treated | Token]) -> None:
        if self.treated is None and self.unread:
            self.treated, self.unread = self.unread[0], self.unread[1:]
            self.run("treat", self.first_statement(self.treated[1]), out)

    def first_statement(self, message: Treated) -> str:
        """Of the procedure that treats this message."""
        raise NotImplementedError  # a subclass knows its messages

    @property
    def source(self) -> NodeId:
        """The sender of the message under treatment."""
        assert self.treated is not None
        return self.treated[0]

    @property
    def message(self) -> Treated:
        """The message under treatment."""
        assert self.treated is not None
        return self.treated[1]
