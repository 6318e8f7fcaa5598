"""A distributed lock for Python with no lock service to operate.

    async with peerlock.join("shop") as node:
        async with node.lock("orders") as hold:
            ...

`join` and what it returns are for asyncio. `peerlock.sync` has the same for threads, and
`peerlock.testing` has groups in memory. The classic algorithms that the nodes run can be simulated
(`peerlock.sim`), checked over every interleaving (`peerlock.check`) and compared with the claims of
their papers (`peerlock.claims`). `peerlock.contract` is for authors of algorithms.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from peerlock.errors import (
    AfterFork,
    AlreadyHeld,
    Disagreement,
    LockError,
    LockLost,
    LockTimeout,
    NodeClosed,
    PeerlockError,
    ProtocolError,
    RegistryError,
    StaleFence,
    Unreachable,
    UsageError,
)

if TYPE_CHECKING:
    from peerlock.net.aio.hold import Hold
    from peerlock.net.aio.lock import Lock, RWLock
    from peerlock.net.aio.node import Node
    from peerlock.net.settings import join

    __version__: str

__all__ = [
    "AfterFork", "AlreadyHeld", "Disagreement", "Hold", "Lock", "LockError", "LockLost", "LockTimeout", "Node", "NodeClosed",
    "PeerlockError", "ProtocolError", "RWLock", "RegistryError", "StaleFence", "Unreachable", "UsageError", "__version__",
    "join",
]  # fmt: skip

# Imported when they are used: an author of an algorithm needs no sockets.
_LAZY = {
    "Hold": "net.aio.hold",
    "Lock": "net.aio.lock",
    "RWLock": "net.aio.lock",
    "Node": "net.aio.node",
    "join": "net.settings",
}
_MODULES = ("check", "claims", "contract", "guards", "prometheus", "sim", "sync", "testing")


def __getattr__(name: str) -> Any:
    found: Any
    if name in _MODULES:
        found = importlib.import_module(f"peerlock.{name}")
    elif name in _LAZY:
        found = getattr(importlib.import_module(f"peerlock.{_LAZY[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version

        found = version("peerlock")
    else:
        raise AttributeError(f"module 'peerlock' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
