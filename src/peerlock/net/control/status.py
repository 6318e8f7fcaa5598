"""What a node can say of its group: for people, and for `peerlock status`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from peerlock.errors import UsageError, shown
from peerlock.node.core import Core
from peerlock.node.peer import Peer
from peerlock.node.wire import VERSION, Answer, LockStatus

LONGEST_S = 3600.0


def check_wait(wait_s: object) -> float:
    """For how long the answers of the other members are waited for."""
    if isinstance(wait_s, int | float) and not isinstance(wait_s, bool) and 0 <= wait_s <= LONGEST_S:
        return float(wait_s)
    raise UsageError(f"wait_s must be a number of seconds, from 0 to {LONGEST_S:g}; got {shown(wait_s)}.")


class Holder(Struct, frozen=True):
    node: str
    mode: str
    fence: int
    seconds: float


class Waiter(Struct, frozen=True):
    node: str
    mode: str
    seconds: float


class LockView(Struct, frozen=True):
    """One lock in the whole group."""

    name: str
    algorithm: str
    holders: tuple[Holder, ...]
    waiters: tuple[Waiter, ...]  # the one that has waited longest first


class NodeStatus(Struct, frozen=True):
    """What one node knows of its group. Without `complete` there may be holders and waiters that it
    does not name.
    """

    group: str
    node: str
    epoch: int
    members: tuple[str, ...]
    locks: tuple[LockView, ...]
    silent: tuple[str, ...]  # members that did not answer
    waits_for: tuple[str, ...]  # peers that this node waits for: no answer, and may not be excluded; or no report
    changing: bool  # the group is between two views
    older: tuple[str, ...] = ()  # members that speak an older version of the protocol than this node
    # of this node alone, since it started
    grants: int = 0
    messages: int = 0
    losses: int = 0
    kind: str = ""  # of the group: host, static, embedded (voters) or etcd
    # Every member of the newest view has answered, and this node is one of them.
    complete: bool = False
    outside: tuple[str, ...] = ()  # nodes on this host that are not in the view; only `peerlock status` looks for them


def node_status(
    core: Core, answers: Mapping[Peer, Answer], now: float, registry_waits_for: tuple[str, ...] = (), kind: str = ""
) -> NodeStatus:
    found: dict[str, tuple[str, list[Holder], list[Waiter]]] = {}
    for peer, locks in [(core.me, core.table.status(now)), *((peer, answer.locks) for peer, answer in answers.items())]:
        for lock in locks:
            _add(found, str(peer), lock)
    silent = [str(peer) for peer in core.view_change.members if peer != core.me and peer not in answers]
    blockers = core.links.failure_detector.blockers or core.view_change.missing()
    waits_for = tuple(dict.fromkeys((*registry_waits_for, *(str(peer) for peer in blockers if peer != core.me))))
    # A node without a lease may have been excluded, and the group may have other members by now.
    leased = not core.table.leases or (core.table.may_hold and now < core.deadline.until)
    return NodeStatus(
        core.group,
        core.me.name,
        core.view_change.epoch,
        tuple(map(str, core.view_change.members)),
        tuple(
            LockView(name, algorithm, tuple(holders), tuple(sorted(waiters, key=lambda waiter: -waiter.seconds)))
            for name, (algorithm, holders, waiters) in sorted(found.items())
        ),
        tuple(silent),
        waits_for,
        core.view_change.wedged,
        tuple(str(peer) for peer, answer in answers.items() if answer.newest < VERSION),
        core.table.grants,
        core.table.messages,
        core.table.losses,
        kind,
        leased and not core.view_change.wedged and not silent and not waits_for,
    )


def _add(found: dict[str, tuple[str, list[Holder], list[Waiter]]], node: str, lock: LockStatus) -> None:
    _, holders, waiters = found.setdefault(lock.lock, (lock.algorithm, [], []))
    if lock.held is not None:
        holders.append(Holder(lock.by or node, lock.held, lock.fence or 0, lock.held_s or 0.0))
    waiters += [Waiter(waiter.by or node, waiter.mode, waiter.waited_s) for waiter in lock.waiters]
