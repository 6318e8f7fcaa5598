"""One lock at an attached process: the number that the process has, and where it is with it.

The numbers in the comments are those of the rules in `node/attached/__init__.py`.
"""

from __future__ import annotations

from typing import Literal, Protocol, Self, TypeAlias

from peerlock.contract import Mode
from peerlock.node.attached.chain import Chain, Named, Number, ProcessId, after, first, next_of, turns
from peerlock.node.attached.messages import (
    Cancel,
    FromHost,
    Granted,
    Hand,
    Passed,
    Recall,
    Report,
    Return,
    Revoked,
    Successors,
    ToHost,
    Want,
)

SHORT = 8  # successors: the host node should know soon that there are no more

At: TypeAlias = Literal["idle", "want", "entering", "inside"]


class ProcessOutput(Protocol):
    """What the process side asks for."""

    def send(self, message: ToHost, *, late: bool = False) -> None:
        """To the host node; late: it need not know at once."""

    def hand(self, process: ProcessId, hand: Hand) -> bool:
        """To another process. False: it cannot be reached."""
        ...

    def mark(self, number: Number) -> None:
        """Write on the page that this process is inside, under this number; 0: it is not."""

    def accepted(self, number: Number) -> None:
        """Write on the page that this number has arrived."""


class ProcessLock:
    """`request` leads to `entering`, at once or when a number arrives. The caller of these methods
    then looks at the page, and says what it saw: `looked`.
    """

    __slots__ = (
        "at",
        "chain",
        "early",
        "end",
        "expected",
        "generation",
        "given",
        "keep",
        "last",
        "me",
        "mode",
        "number",
        "out",
        "recalled",
        "used",
    )

    def __init__(self, out: ProcessOutput, me: ProcessId, generation: int = 1) -> None:
        self.out, self.me, self.generation = out, me, generation
        self.at: At = "idle"
        self.mode: Mode = "write"  # of the request
        self.number: Number = 0  # that this process has; 0: none
        self.given: Mode = "write"  # in which mode it has the number
        self.used = self.end = 0  # fences under the number: the last one, and the largest
        self.keep = True
        self.chain: Chain = ()  # the processes that come after, as far as they are known
        self.recalled = False
        self.last: Number = 0  # the largest number that was accepted
        self.expected: Number = 0  # that is named for this process, further down a chain that it has passed on
        self.early: tuple[Successors | Recall, ...] = ()  # about numbers that have not arrived

    def __copy__(self) -> Self:
        made = type(self)(self.out, self.me)
        for name in ProcessLock.__slots__:
            setattr(made, name, getattr(self, name))
        return made

    def key(self) -> tuple[object, ...]:
        return (
            self.at, self.mode, self.number, self.used, self.end, self.keep, self.chain, self.recalled, self.last,
            self.early, self.generation, self.expected, self.given,
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
        if self.expected <= self.last or mode == "read":
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
        if self.chain:
            self.hand_over(first(self.chain))
        elif self.recalled or not self.keep or not wanted:
            self.give_back()

    def hand_over(self, next: Named) -> None:
        number, rest, used = self.number, after(self.chain), self.used >= self.number
        if self.out.hand(next.process, Hand(next.number, next.end, rest)):
            self.forget()
            self.expected = next_of(self.me, rest)
            # Where enough successors are known, the host node is not waited for.
            self.out.send(Passed(number, next.number, used), late=self.expected > 0 and turns(rest) not in (0, SHORT))
        else:
            self.give_back()

    def give_back(self) -> None:
        number = self.number
        self.forget()
        self.out.send(Return(number))

    def forget(self) -> None:
        self.number, self.chain, self.recalled, self.keep = 0, (), False, True

    def arrive(self, number: Number, end: int, keep: bool, chain: Chain = (), mode: Mode = "write") -> None:
        if number <= self.last:  # 5
            return
        self.last = number
        self.number, self.used, self.end, self.keep, self.given = number, number - 1, end, keep, mode
        self.chain = chain
        self.out.accepted(number)
        early, self.early = self.early, ()
        for said in early:  # 4
            if said.number >= number:
                self.take(said)
        if self.at == "want" and mode != self.mode == "write":  # 14
            self.give_back()
            self.out.send(Want(self.mode))
        elif self.at == "want":
            self.enter()
        elif self.number:
            self.pass_on(wanted=False)

    # -- messages ------------------------------------------------------------------------------------------

    def hear(self, generation: int, message: FromHost | Hand) -> None:
        if generation == self.generation:  # 1
            self.take(message)

    def take(self, message: FromHost | Hand) -> None:
        if type(message) is Hand:  # almost all are
            self.arrive(message.number, message.end, True, message.chain)
            return
        match message:
            case Granted():
                self.arrive(message.number, message.end, message.keep, (), message.mode)
            case Revoked():
                self.on_revoked(message.number)
            case Successors() | Recall():
                self.on_order(message)

    def on_order(self, order: Successors | Recall) -> None:
        if order.number > self.last:
            self.early = (*self.early, order)  # 4
        elif order.number == self.number:
            if isinstance(order, Successors):
                if turns(order.chain) > turns(self.chain):  # what was named stays named: one continues the other
                    self.chain = order.chain
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
        """9: a new generation; or a new connection to the same one, which has lost what was under way."""
        if generation != self.generation:
            self.generation = generation
            self.chain, self.recalled, self.early, self.expected = (), False, (), 0
        return Report(self.number, self.given, self.mode if self.at == "want" else None, self.last)


__all__ = ["At", "ProcessLock", "ProcessOutput"]
