"""Joining a group: which registry, from what the caller, the environment and a file say."""

from __future__ import annotations

from pathlib import Path

from peerlock.errors import UsageError
from peerlock.net.aio import Joining, Node
from peerlock.net.host import HostRegistry
from peerlock.net.registry import Registry
from peerlock.node.table import Limits
from peerlock.node.wire import DEFAULT, spoken


def join(
    group: str,
    *,
    name: str | None = None,
    dir: str | Path | None = None,
    algorithm: str = DEFAULT,
    local_grants: int | None = None,
    idle_locks: int | None = None,
) -> Joining:
    """Become a member of a group: `async with peerlock.join("shop") as node`, or `node = await peerlock.join("shop")`.

    Without anything else the group is that of this user on this machine; nothing has to run and nothing to be configured.
    `dir` names a directory for a group that several users share. `algorithm` is what its locks use unless they say otherwise.
    """
    spoken(algorithm)
    limits = limits_for(local_grants, idle_locks)
    return Joining(lambda: Node(registry_for(group, name, dir), group, algorithm=algorithm, limits=limits))


def registry_for(group: str, name: str | None, dir: str | Path | None) -> Registry:
    return HostRegistry(group, name, dir)


def limits_for(local_grants: int | None, idle_locks: int | None) -> Limits:
    usual = Limits()
    for what, value in (("local_grants", local_grants), ("idle_locks", idle_locks)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{what} must be a whole number of at least 1; got {value!r}.")
    return Limits(local_grants or usual.local_grants, idle_locks or usual.idle_locks)
