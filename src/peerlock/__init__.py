"""peerlock: a distributed lock with no lock server, and the papers that it comes from."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peerlock.algorithms import CATALOGUE, AlgorithmSpec, choose
from peerlock.contract import (
    NOBODY,
    Algorithm,
    Ask,
    Book,
    Grant,
    Members,
    Mode,
    Needs,
    Neighbours,
    NodeId,
    Out,
    Ring,
    Row,
    State,
    Wire,
    look,
    note,
    put,
    row,
    strike,
)  # fmt: skip
from peerlock.errors import (
    AfterFork,
    AlreadyHeld,
    Disagreement,
    LockError,
    LockLost,
    LockTimeout,
    NodeClosed,
    PeerlockError,
    RegistryError,
    Unreachable,
    UsageError,
)

if TYPE_CHECKING:
    from peerlock.net.aio.lock import Hold, Lock, RWLock
    from peerlock.net.settings import join

__all__ = [
    "CATALOGUE",
    "NOBODY",
    "AfterFork",
    "Algorithm",
    "AlgorithmSpec",
    "AlreadyHeld",
    "Ask",
    "Book",
    "Disagreement",
    "Grant",
    "Hold",
    "Lock",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Members",
    "Mode",
    "Needs",
    "Neighbours",
    "NodeId",
    "NodeClosed",
    "Out",
    "PeerlockError",
    "RWLock",
    "RegistryError",
    "Ring",
    "Row",
    "State",
    "Unreachable",
    "UsageError",
    "Wire",
    "choose",
    "join",
    "look",
    "note",
    "put",
    "row",
    "strike",
]  # fmt: skip


# The lock itself, when it is used: an algorithm of one's own needs no sockets.
_LATER = {"Hold": "net.aio.lock", "Lock": "net.aio.lock", "RWLock": "net.aio.lock", "join": "net.settings"}


def __getattr__(name: str) -> Any:
    if name in ("sync", "testing"):
        return importlib.import_module(f"peerlock.{name}")
    where = _LATER.get(name)
    if where is None:
        raise AttributeError(f"module 'peerlock' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"peerlock.{where}"), name)
    return found
