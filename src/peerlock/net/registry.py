"""Who the members are: what a shell asks of a registry.

A registry decides one view an epoch, knows (or does not) who is dead, and says when a member may believe. It is asked
by a shell, for one node; every answer is the newest view that is known, and a change that is not decided at once
arrives later through `decided`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from peerlock.node.wire import Peer


class Decision(Struct, frozen=True):
    """The view of an epoch."""

    epoch: int
    members: tuple[Peer, ...]


class Endpoint(Struct, frozen=True):
    """Where somebody listens."""

    path: str = ""  # a Unix socket
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Registry(Protocol):
    kind: str

    def incarnate(self) -> Peer:
        """A new incarnation of this node, which is there from now on and wants to be a member."""
        ...

    def listener(self) -> socket.socket:
        """A socket that listens for this incarnation."""
        ...

    def endpoint(self, peer: Peer) -> Endpoint:
        """Where that incarnation listens."""
        ...

    def tls(self, server: bool) -> ssl.SSLContext | None: ...

    def greeted(self, peer: Peer, certificate: str | None) -> str | None:
        """Somebody says to be that peer. Why it is not let in; None: it is."""
        ...

    def newest(self) -> Decision | None:
        """The newest view, as far as it can be known without waiting."""
        ...

    def change(self, even_if_the_same: bool = False) -> Decision | None:
        """A view of all who are there."""
        ...

    def lives(self, peer: Peer) -> bool | None:
        """Is it alive? None: that cannot be known."""
        ...

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[Decision | None, tuple[Peer, ...]]:
        """Leave out those that may be left out. The newest view, and whom it was not possible to leave out."""
        ...

    def believe(self) -> bool:
        """May this node believe from now on? False: not now, or no more; the newest view says which."""
        ...

    def doubt(self) -> None:
        """It does not believe any more."""

    def learned(self, decision: Decision) -> None:
        """The node has heard of a view."""

    def leave(self) -> Decision | None:
        """This incarnation wants no more. The view without it, if that was decided."""
        ...

    def close(self) -> None: ...

    decided: Callable[[Decision], None] | None
