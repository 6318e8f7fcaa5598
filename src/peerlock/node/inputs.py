"""What is told to a core is one event, and never comes in the middle of another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from peerlock.node.locks.deadline import Deadline
    from peerlock.node.locks.local_lock import LocalLock
    from peerlock.node.locks.table import LockTable
    from peerlock.node.locks.ticket import Ticket


class Part(Protocol):
    """The core, or a part of it."""

    @property
    def core(self) -> Any: ...


P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Part)
Table = TypeVar("Table", bound="LockTable")


def an_input(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The effects that it queues are carried out by the shell when it has returned."""

    @wraps(method)
    def handle(part: S, /, *words: P.args, **named: P.kwargs) -> T:
        core = part.core
        assert not core.handling, f"{method.__name__} was called in the middle of another input"
        core.handling = True
        try:
            return method(part, *words, **named)
        finally:
            core.handling = False

    return handle


class Callers(Generic[Table]):
    """The inputs of a core that callers cause. Without the decorator, which would cost a tenth of an
    entry.
    """

    handling: bool  # an input is being handled
    table: Table
    deadline: Deadline

    @property
    def core(self) -> Any:
        return self

    def acquire(self, local_lock: LocalLock, ticket: Ticket, now: float) -> None:
        """The ticket is HELD afterwards, or it waits: then `Wake` follows."""
        assert not self.handling, "acquire was called in the middle of another input"
        self.handling = True
        try:
            local_lock.acquire(ticket, now)
        finally:
            self.handling = False

    def release(self, ticket: Ticket, now: float) -> None:
        """The ticket is DONE afterwards, or LOST if the lease was over."""
        assert not self.handling, "release was called in the middle of another input"
        assert ticket.local_lock is not None
        self.handling = True
        try:
            ticket.local_lock.release(ticket, now)
        finally:
            self.handling = False

    def close(self, now: float) -> None:
        """Nothing is granted here any more; callers that wait are told."""
        raise NotImplementedError

    @an_input
    def cancel(self, ticket: Ticket, now: float) -> None:
        """A ticket that waits is not wanted any more."""
        assert ticket.local_lock is not None
        ticket.local_lock.cancel(ticket, now)
