"""The lock for threads: the API of `peerlock` without `async` and `await`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from peerlock.net.aio.shell import refuse_on_the_loop_of
from peerlock.net.settings import join as aio_join
from peerlock.net.settings import prepare
from peerlock.net.threads.hold import Hold
from peerlock.net.threads.lock import Lock, RWLock
from peerlock.net.threads.node import Node, started
from peerlock.net.threads.shell import ThreadShell

P = ParamSpec("P")


def with_the_options_of(other: Callable[P, object]) -> Callable[[Callable[..., Node]], Callable[P, Node]]:
    def typed(function: Callable[..., Node]) -> Callable[P, Node]:
        function.__signature__ = inspect.signature(other).replace(return_annotation="Node")  # type: ignore[attr-defined]
        return function

    return typed


@with_the_options_of(aio_join)
def join(group: str, *, timeout: float | None = None, **options: Any) -> Node:
    """Become a member of a group: `with peerlock.sync.join("shop") as node`. The options are those
    of `peerlock.join`.
    """
    inspect.signature(aio_join).bind(group, timeout=timeout, **options)  # or a TypeError, as for any function
    prepared = prepare(group, timeout=timeout, **options)
    if prepared.attaches():
        return started(prepared.threads_shell(), timeout)
    registry = prepared.registry()
    try:
        refuse_on_the_loop_of(group, registry)
    except BaseException:
        registry.close()
        raise
    return started(ThreadShell(registry, group, prepared.algorithm, prepared.limits), timeout)


__all__ = ["Hold", "Lock", "Node", "RWLock", "join"]
