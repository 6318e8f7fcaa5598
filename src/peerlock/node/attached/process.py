"""One lock at an attached process: the number that the process has, and where it is with it.

The numbers in the comments are those of the rules in `node/attached/__init__.py`.
"""

from __future__ import annotations

from typing import Literal, Protocol, Self, TypeAlias

from peerlock.contract import Mode
from peerlock.node.attached.messages import (
    Cancel,
    FromHost,
    Granted,
    Hand,
    Number,
    Passed,
    ProcessId,
    Recall,
    Report,
    Return,
    Revoked,
    Successor,
    ToHost,
    Want,
)

At: TypeAlias = Literal["idle", "want", "entering", "inside"]


class ProcessOutput(Protocol):
    """What the process side asks for."""

    def send(self, message: ToHost) -> None:
        """To the host node."""

    def hand(self, process: ProcessId, hand: Hand) -> bool:
        """To another process. False: it cannot be reached."""
        ...

    def mark(self, number: Number) -> None:
        """Write on the page that this process is inside, under this number; 0: it is not."""


class ProcessLock:
    """`request` leads to `entering`, at once or when a number arrives. The caller of these methods
    then looks at the page, and says what it saw: `looked`.
    """

    __slots__ = (
        "at",
        "early",
        "end",
        "generation",
        "keep",
        "last",
        "mode",
        "number",
        "out",
        "recalled",
        "successor",
        "used",
    )

    def __init__(self, out: ProcessOutput, generation: int = 1) -> None:
        self.out, self.generation = out, generation
        self.at: At = "idle"
        self.mode: Mode = "write"  # of the request
        self.number: Number = 0  # that this process has; 0: none
        self.used = self.end = 0  # fences under the number: the last one, and the largest
        self.keep = True
        self.successor: Successor | None = None
        self.recalled = False
        self.last: Number = 0  # the largest number that was accepted
        self.early: tuple[Successor | Recall, ...] = ()  # about numbers that have not arrived

    def __copy__(self) -> Self:
        made = type(self)(self.out)
        for name in ProcessLock.__slots__:
            setattr(made, name, getattr(self, name))
        return made

    def key(self) -> tuple[object, ...]:
        return (
            self.at, self.mode, self.number, self.used, self.end, self.keep, self.successor, self.recalled, self.last,
            self.early, self.generation,
        )  # fmt: skip

    # -- callers -----------------------------------------------------------------------------------------

    def request(self, mode: Mode) -> None:
        assert self.at == "idle"
        self.mode = mode
        if self.number and self.used < self.end and mode == "write":
            self.enter()
            return
        if self.number:
            self.give_back()
        self.at = "want"
        self.out.send(Want(mode))

    def cancel(self) -> None:
        """Nothing is wanted any more. A number may be under way, and is passed on when it arrives."""
        assert self.at == "want"
        self.at = "idle"
        self.out.send(Cancel())

    def enter(self) -> None:
        self.at = "entering"
        self.out.mark(self.number)  # 7

    def looked(self, revoked: Number) -> bool:
        """The largest number that the host node has revoked, read after the mark. May the caller
        enter?
        """
        assert self.at == "entering"
        if revoked >= self.number:
            self.out.mark(0)
            self.give_back()  # 12
            self.at = "want"
            self.out.send(Want(self.mode))
            return False
        self.at = "inside"
        self.used += 1
        return True

    def release(self) -> None:
        assert self.at == "inside"
        self.at = "idle"
        self.out.mark(0)
        self.pass_on(wanted=True)

    # -- the number --------------------------------------------------------------------------------------

    def pass_on(self, wanted: bool) -> None:
        """3: hand it over, return it, or keep it."""
        if self.successor is not None:
            self.hand_over(self.successor)
        elif self.recalled or not self.keep or not wanted:
            self.give_back()

    def hand_over(self, successor: Successor) -> None:
        number = self.number
        if self.out.hand(successor.process, Hand(successor.next, successor.end)):
            self.forget()
            self.out.send(Passed(number, successor.next))
        else:
            self.give_back()

    def give_back(self) -> None:
        number = self.number
        self.forget()
        self.out.send(Return(number))

    def forget(self) -> None:
        self.number, self.successor, self.recalled, self.keep = 0, None, False, True

    def arrive(self, number: Number, end: int, keep: bool) -> None:
        if number <= self.last:  # 5
            return
        self.last = number
        self.number, self.used, self.end, self.keep = number, number - 1, end, keep
        early, self.early = self.early, ()
        for said in early:  # 4
            if said.number >= number:
                self.take(said)
        if self.at == "want":
            self.enter()
        elif self.number:
            self.pass_on(wanted=False)

    # -- messages ------------------------------------------------------------------------------------------

    def hear(self, generation: int, message: FromHost | Hand) -> None:
        if generation == self.generation:  # 1
            self.take(message)

    def take(self, message: FromHost | Hand) -> None:
        match message:
            case Granted():
                self.arrive(message.number, message.end, message.keep)
            case Hand():
                self.arrive(message.number, message.end, True)
            case Revoked():
                self.on_revoked(message.number)
            case Successor() | Recall():
                self.on_order(message)

    def on_order(self, order: Successor | Recall) -> None:
        if order.number > self.last:
            self.early = (*self.early, order)  # 4
        elif order.number == self.number:
            if isinstance(order, Successor):
                self.successor = order
            else:
                self.recalled = True
            if self.at == "idle":
                self.pass_on(wanted=True)

    def on_revoked(self, number: Number) -> None:
        if number > self.last:  # it has not arrived, and must not be accepted any more
            self.last = number
            self.early = tuple(order for order in self.early if order.number > number)
            if self.at == "want":
                self.out.send(Want(self.mode))
        elif number == self.number and self.at == "idle":
            self.forget()

    def begin(self, generation: int) -> Report:
        """9: a new generation."""
        self.generation = generation
        self.successor, self.recalled, self.early = None, False, ()
        mode = self.mode if self.at in ("entering", "inside") else "write"
        return Report(self.number, mode, self.mode if self.at == "want" else None)


__all__ = ["At", "ProcessLock", "ProcessOutput"]
