"""One lock at the host node: which attached process has it, which one is next, and which ones wait.

The numbers in the comments are those of the rules in `node/attached/__init__.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol, Self

from peerlock.contract import Mode
from peerlock.node.attached.chain import Named, Number, ProcessId, chain_of
from peerlock.node.attached.messages import (
    Cancel,
    FromHost,
    Granted,
    Passed,
    Recall,
    Report,
    Return,
    Revoked,
    Successors,
    ToHost,
    Want,
)


class HostOutput(Protocol):
    """What the host's side asks for."""

    def send(self, process: ProcessId, message: FromHost) -> None: ...

    def numbers(self, process: ProcessId) -> tuple[Number, int]:
        """The next number, for that process, and the largest fence that may be used under it."""
        ...

    def revoke_page(self, process: ProcessId, number: Number) -> None:
        """Write for that process that all numbers up to this one are revoked. Then look at its page,
        and say what is there: `HostLock.found`.
        """

    def give_back(self) -> None:
        """No process of this host has the lock, and other hosts ask for it."""


AHEAD = 2  # successors: if there are fewer, all that wait are named
MOST_NAMED = 512  # at a time


class HostLock:
    __slots__ = (
        "asked",
        "dead",
        "handed_over",
        "has",
        "mode",
        "named",
        "out",
        "owners",
        "queue",
        "reading",
        "recalled",
        "revoking",
        "unresolved",
    )

    def __init__(self, out: HostOutput, living: frozenset[ProcessId] = frozenset()) -> None:
        """`living`: the processes that were attached to an earlier generation."""
        self.out = out
        self.has = False  # the host has the lock
        self.asked = False  # other hosts ask for it
        self.owners: dict[ProcessId, Number] = {}  # several, if they are readers
        self.mode: Mode = "write"  # of the owners
        self.named: tuple[Named, ...] = ()  # the owner's successors, in order
        self.queue: tuple[tuple[ProcessId, Mode], ...] = ()
        self.recalled = False
        self.revoking: frozenset[ProcessId] = frozenset()  # owners that are revoked, and were inside
        self.handed_over: Named | None = None  # the owner, if another process handed the number over
        self.dead: frozenset[ProcessId] = frozenset()
        self.unresolved = living  # 10: processes that have neither reported nor been read
        self.reading: frozenset[ProcessId] = frozenset()  # those that are revoked, and about to be read

    def __copy__(self) -> Self:
        made = type(self)(self.out)
        for name in HostLock.__slots__:
            setattr(made, name, getattr(self, name))
        made.owners = dict(self.owners)
        return made

    def key(self) -> tuple[object, ...]:
        return (
            self.has, self.asked, tuple(sorted(self.owners.items())), self.mode, self.named, self.queue,
            self.recalled, self.revoking, self.handed_over, self.dead, self.unresolved, self.reading,
        )  # fmt: skip

    # -- the other hosts -----------------------------------------------------------------------------------

    def gained(self) -> None:
        """The host has the lock."""
        self.has = True
        self.serve()

    def others_ask(self) -> None:
        """The host must give the lock back as soon as it can."""
        self.asked = True
        self.serve()

    # -- messages ------------------------------------------------------------------------------------------

    def hear(self, process: ProcessId, message: ToHost) -> None:
        """On the connection that this process has to this generation."""
        if process in self.dead:
            return
        match message:
            case Want():
                self.want(process, message.mode)
            case Cancel():
                self.queue = tuple(entry for entry in self.queue if entry[0] != process)
            case Return():
                self.has_it(process, message.number)
                if self.owners.get(process) == message.number:
                    self.ended(process)
            case Passed():
                self.passed(process, message.number, message.to, message.used)
            case Report():
                self.reported(process, message)
        self.serve()

    def want(self, process: ProcessId, mode: Mode) -> None:
        """Of an owner or a successor this is old: its number is under way."""
        named = any(each.process == process for each in self.named)
        if process not in self.owners and not named and all(entry[0] != process for entry in self.queue):
            self.queue = (*self.queue, (process, mode))

    def has_it(self, process: ProcessId, number: Number) -> None:
        """8: it was handed over, even if the word of that has not come yet."""
        place = bisect_left(self.named, number, key=attrgetter("number"))  # they are in order
        if place < len(self.named) and (self.named[place].process, self.named[place].number) == (process, number):
            self.named = self.named[place:]
            self.owners = {}
            self.succeed()

    def passed(self, process: ProcessId, number: Number, to: Number, used: bool) -> None:
        self.has_it(process, number)
        if self.owners.get(process) == number and self.named and self.named[0].number == to:
            self.owners = {}
            self.handed_over = self.succeed()

    def succeed(self, grants: bool = False) -> Named | None:
        """The first successor that lives is the owner from now on. If one before it is dead, nobody
        hands it over.
        """
        self.mode, self.recalled, self.revoking, self.handed_over = "write", False, frozenset(), None
        for place, first in enumerate(self.named):
            if first.process not in self.dead:
                self.named, self.owners = self.named[place + 1 :], {first.process: first.number}
                if grants or place:
                    self.grant_to_a_successor(first)
                return first
        self.named, self.owners = (), {}
        return None

    def ended(self, process: ProcessId) -> None:
        """6: this owner has the lock no more."""
        del self.owners[process]
        self.revoking -= {process}
        if self.owners:
            return
        self.recalled, self.handed_over = False, None
        if self.named:
            self.succeed(grants=True)

    def grant_to_a_successor(self, named: Named) -> None:
        """Its number, which it may have already, and which ones come after it."""
        self.out.send(named.process, Granted(named.number, named.end))
        if self.named:
            self.out.send(named.process, Successors(named.number, chain_of(self.named)))

    # -- what is decided -----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Grant the lock, name a successor, or take the lock back."""
        if not self.has or self.unresolved:
            return
        if self.asked and not self.owners:
            self.has, self.asked = False, False
            self.out.give_back()
            return
        while self.queue and self.may_be_next(self.queue[0][1]):
            self.grant_to_the_first()
        if not self.owners:
            return
        if len(self.named) < AHEAD and not self.asked and self.may_succeed():
            self.name_successors()
        if (self.queue or self.asked) and not self.named and not self.recalled and self.mode == "write":
            self.recalled = True
            for process, number in self.owners.items():
                self.out.send(process, Recall(number))

    def name_successors(self) -> None:
        """Those that wait come after the last one that was named."""
        chosen: list[ProcessId] = []
        while self.may_succeed() and len(chosen) < self.most_named():
            (process, _), *rest = self.queue
            self.queue = tuple(rest)
            chosen.append(process)
        self.append(chosen)

    def append(self, processes: Sequence[ProcessId]) -> None:
        """They come after the last one that was named; that one is told. A process may be named that
        does not wait, and more than once: it passes on what it does not need.
        """
        if not processes:
            return
        if self.named:
            last, owned = self.named[-1].process, self.named[-1].number
        else:
            ((last, owned),) = self.owners.items()
        more = tuple(Named(process, *self.out.numbers(process)) for process in processes)
        self.named = (*self.named, *more)
        self.out.send(last, Successors(owned, chain_of(more)))

    def most_named(self) -> int:
        return MOST_NAMED

    def may_be_next(self, mode: Mode) -> bool:
        return not self.owners or (self.mode == mode == "read" and not self.asked)

    def may_succeed(self) -> bool:
        return bool(self.queue) and self.mode == self.queue[0][1] == "write" and not self.recalled

    def grant_to_the_first(self) -> None:
        (process, mode), *rest = self.queue
        self.queue, self.mode = tuple(rest), mode
        number, end = self.out.numbers(process)
        self.owners = {**self.owners, process: number}
        self.out.send(process, Granted(number, end, mode, keep=mode == "write"))

    def died(self, process: ProcessId) -> None:
        """The kernel says so."""
        self.dead |= {process}
        self.unresolved -= {process}
        self.queue = tuple(entry for entry in self.queue if entry[0] != process)
        if process in self.owners:
            self.ended(process)
        elif self.handed_over is not None:
            self.grant_to_a_successor(self.handed_over)  # 13: the process that has died may have handed it over
        self.serve()

    # -- processes that are stuck --------------------------------------------------------------------------

    def is_waited_for(self) -> bool:
        return bool(self.owners) and bool(self.queue or self.named or self.asked)

    def revoke(self, process: ProcessId) -> None:
        """7: the owner did not mark its number in time, and others wait."""
        self.revoking |= {process}
        self.out.revoke_page(process, self.owners[process])

    def read(self, process: ProcessId, older: Number) -> None:
        """11: a process does not report. `older`: the largest number that an earlier generation can
        have made.
        """
        self.reading |= {process}
        self.out.revoke_page(process, older)

    def found(self, process: ProcessId, inside: Number, mode: Mode) -> None:
        """What is marked on the page of a process that was revoked, and in which mode."""
        if process in self.reading:
            self.reading -= {process}
            if process in self.unresolved:
                self.resolved(process, inside, mode)
        elif process in self.revoking and inside != self.owners[process]:
            self.out.send(process, Revoked(self.owners[process]))
            self.ended(process)
        self.serve()

    # -- a new generation ----------------------------------------------------------------------------------

    def reported(self, process: ProcessId, report: Report) -> None:
        if process in self.unresolved:
            self.resolved(process, report.number, report.mode)
        else:
            self.compare(process, report)
        self.queue = tuple(entry for entry in self.queue if entry[0] != process)
        if report.wants is not None:
            self.want(process, report.wants)

    def compare(self, process: ProcessId, report: Report) -> None:
        """15: the process was known. It was read, or its earlier connection has ended with what was
        under way.
        """
        for named in reversed(self.named):
            if named.process == process and named.number <= report.last:
                self.has_it(process, named.number)
                break
        number = self.owners.get(process)
        if number is not None and number > report.last:
            self.revoke(process)  # it may be under way, from another process, or may have been lost
        elif number is not None and number != report.number:
            self.ended(process)
        self.tell_again(process)

    def tell_again(self, process: ProcessId) -> None:
        """What comes after the numbers of that process."""
        if process in self.owners and self.recalled:
            self.out.send(process, Recall(self.owners[process]))
        numbers = [
            self.owners.get(process, 0),
            *(named.number if named.process == process else 0 for named in self.named),
        ]
        for place, number in enumerate(numbers):
            if number and self.named[place:]:
                self.out.send(process, Successors(number, chain_of(self.named[place:])))

    def resolved(self, process: ProcessId, number: Number, mode: Mode) -> None:
        """10: the largest number owns the lock."""
        self.unresolved -= {process}
        if not number:
            return
        if self.owners and mode == self.mode == "read":
            self.owners = {**self.owners, process: number}
        elif not self.owners or number > max(self.owners.values()):
            self.owners, self.mode = {process: number}, mode


__all__ = ["HostLock", "HostOutput"]
