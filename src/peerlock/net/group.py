"""Joining a group: which registry, from what the caller, the environment and a file say."""

from __future__ import annotations

from pathlib import Path

from peerlock.errors import UsageError
from peerlock.net.host import HostRegistry, check_name
from peerlock.net.registry import Registry
from peerlock.node.table import Limits
from peerlock.node.wire import DEFAULT, spoken


def registry_for(group: str, *, name: str | None, dir: str | Path | None) -> Registry:
    return HostRegistry(group, name, dir)


def limits_for(local_grants: int | None, idle_locks: int | None) -> Limits:
    usual = Limits()
    for what, value in (("local_grants", local_grants), ("idle_locks", idle_locks)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{what} must be a whole number of at least 1; got {value!r}.")
    return Limits(local_grants or usual.local_grants, idle_locks or usual.idle_locks)


__all__ = ["DEFAULT", "check_name", "limits_for", "registry_for", "spoken"]
