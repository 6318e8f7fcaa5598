"""What is done to a group, and to what kind of group."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

FAULTS = {
    "kill": "a process is killed, and started again under its name",
    "restart": "a process leaves, and is started again",
    "pause": "a process is stopped for less than a lease",
    "pause_long": "a process is stopped for longer than a lease",
    "block": "the event loop of a process is busy for up to a lease",
    "between": "a holder is stopped for longer than a lease, between its last look at the lock and its write",
    "partition": "some hosts are cut off from the others, both ways",
    "one_way": "some hosts are cut off from the others, one way",
    "flapping": "some hosts are cut off and connected again, several times",
    "pair": "two hosts are cut off from each other, and from no other host",
    "slow": "all messages of a host are late by about a third of a second",
    "reset": "all connections of a host are reset",
    "clock_rate": "the clock of a process is too fast or too slow, within what is allowed",
    "clock_jump": "the clock of a process jumps ahead, as after a suspension",
    "host_kill": "the host node is killed",
    "host_stop": "the host node is stopped for a lease",
    "authority": "a voter's process is killed; or etcd's leader, another etcd server or all are killed or stopped",
}
REGISTRIES = ("embedded", "etcd", "static", "host", "attached")
_OF_HOSTS = tuple(kind for kind in FAULTS if kind not in ("block", "host_kill", "host_stop"))
ON_ONE_HOST = ("host", "attached")
# Groups without leases rely on no clock and on no server. One host has no network either.
POSSIBLE = {
    "embedded": _OF_HOSTS,
    "etcd": _OF_HOSTS,
    "static": tuple(kind for kind in _OF_HOSTS if kind not in ("clock_rate", "clock_jump", "authority")),
    "host": ("kill", "restart", "pause", "pause_long", "block"),
    "attached": ("kill", "restart", "pause", "pause_long", "block", "host_kill", "host_stop"),
}
# These come alone, and with a kind of group of their own.
ALONE = {
    "syscalls": "with --registry host: system calls are late, fail, or are the last ones of a process; strace does it",
}


class Fault(NamedTuple):
    """A fault that happened."""

    when: float
    kind: str
    to: str


class Plan(Struct, frozen=True):
    registry: str = "embedded"
    nodes: int = 5
    voters: int = 3  # of them, with embedded voters
    seconds: float = 60.0
    faults: tuple[str, ...] = tuple(FAULTS)
    seed: int = 1
    lease_s: float = 2.0
    etcd_nodes: int = 3
    guard: bool = True
    planted: str = ""
    namespaces: bool | None = None  # None: where it may
    keep: str | None = None  # the logs
    fault_every_s: float = 1.2
