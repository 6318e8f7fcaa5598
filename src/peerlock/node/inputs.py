"""What is told to a core is one event, and never comes in the middle of another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from peerlock.node.core import Core


class Part(Protocol):
    """The core, or a part of it."""

    core: Core


P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=Part)


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
