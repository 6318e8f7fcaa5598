"""The lock for threads: the words of `peerlock`, without `async` and `await`."""

from __future__ import annotations

from pathlib import Path

from peerlock.net.group import limits_for, registry_for
from peerlock.net.threads import Hold, Lock, RWLock, ThreadNode, started
from peerlock.node.wire import DEFAULT, spoken


def join(
    group: str,
    *,
    name: str | None = None,
    dir: str | Path | None = None,
    algorithm: str = DEFAULT,
    local_grants: int | None = None,
    idle_locks: int | None = None,
) -> ThreadNode:
    """Become a member of a group: `with peerlock.sync.join("shop") as node`. See `peerlock.join`."""
    spoken(algorithm)
    limits = limits_for(local_grants, idle_locks)
    return started(ThreadNode(registry_for(group, name, dir), group, algorithm=algorithm, limits=limits))


__all__ = ["Hold", "Lock", "RWLock", "join"]
