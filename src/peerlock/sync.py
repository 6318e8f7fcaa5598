"""The lock for threads: the words of `peerlock`, without `async` and `await`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peerlock.net.aio.shell import refuse_on_the_loop_of
from peerlock.net.registries.etcd import Etcd
from peerlock.net.registries.static import Tls
from peerlock.net.settings import check_timeout, gather, prepared, registry_for
from peerlock.net.threads.lock import Hold, Lock, RWLock
from peerlock.net.threads.node import Node, started


def join(
    group: str,
    *,
    name: str | None = None,
    dir: str | Path | None = None,
    algorithm: str | None = None,
    nodes: Mapping[str, str] | None = None,
    tls: Tls | Mapping[str, str] | None = None,
    insecure: bool | None = None,
    assume_dead: tuple[str, ...] | None = None,
    state: str | Path | None = None,
    config: str | Path | None = None,
    local_grants: int | None = None,
    idle_locks: int | None = None,
    spin: bool | None = None,
    voters: Mapping[str, str] | None = None,
    etcd: Etcd | Mapping[str, Any] | None = None,
    address: str | None = None,
    bind: str | None = None,
    lease_s: float | None = None,
    stall_s: float | None = None,
    watchdog: bool | None = None,
    first_start: bool | None = None,
    timeout: float | None = None,
) -> Node:
    """Become a member of a group: `with peerlock.sync.join("shop") as node`. The words are those of `peerlock.join`."""
    settings = gather(
        config, name=name, dir=dir, algorithm=algorithm, nodes=nodes, tls=tls, insecure=insecure,
        assume_dead=assume_dead, state=state, local_grants=local_grants, idle_locks=idle_locks, spin=spin,
        voters=voters, etcd=etcd, address=address, bind=bind, lease_s=lease_s, stall_s=stall_s, watchdog=watchdog,
        first_start=first_start,
    )  # fmt: skip
    algorithm, limits = prepared(settings)
    check_timeout(timeout)
    registry = registry_for(group, settings)
    try:
        refuse_on_the_loop_of(group, registry)
    except BaseException:
        registry.close()
        raise
    return started(Node(registry, group, algorithm=algorithm, limits=limits), timeout)


__all__ = ["Hold", "Lock", "Node", "RWLock", "join"]
