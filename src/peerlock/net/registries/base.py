"""Which peers are members: what a shell asks of a registry.

A registry decides one view per epoch, knows (or does not) which members are dead, and says when a
member may believe. It is asked by a shell, for one node; every answer is the newest view that is
known, and a change that is not decided at once arrives later through `decided`.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.errors import RegistryError, UsageError
from peerlock.net.transport.endpoint import Endpoint
from peerlock.node.failure_detector import PATIENCE_S
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import Hello, StaticState

if TYPE_CHECKING:
    from peerlock.net.shell import Shell


class Registry:
    """The base of all kinds; what one does not need it leaves alone."""

    kind = ""
    name = ""  # of this node
    leases = False  # a node may believe for a time only: the registry calls `Permission.leased` again and again
    outside = False  # a peer that is not in the newest view need not ask again: it is admitted when it can be
    source: str | None = None  # the address that links are made from; None: the kernel chooses
    patience_s = PATIENCE_S  # with a member that does not answer, before `exclude` hears of it
    clock: Callable[[], float] = staticmethod(time.monotonic)  # that the node lives by

    place = ""  # tells this group from others of the same name
    shell: Shell = None  # type: ignore[assignment]  # the node that it serves; set before anything is asked

    def incarnate(self) -> Peer:
        """A new incarnation of this node, which is there from now on and wants to be a member."""
        raise NotImplementedError

    def stands(self) -> bool:
        """Is what keeps the group where this node found it? False: everything that is held is lost."""
        return True

    def lost(self) -> RegistryError:
        """What to say if it does not stand."""
        return RegistryError(f"The registry of the group is gone ({self.kind}).")

    def listeners(self) -> list[socket.socket]:
        """Sockets that listen for this incarnation, and for the command line."""
        raise NotImplementedError

    def endpoint(self, peer: Peer) -> Endpoint:
        """Where that incarnation listens."""
        raise NotImplementedError

    def tls(self, server: bool) -> ssl.SSLContext | None:
        return None

    def misnamed(self, name: str, certificate: str | None) -> str | None:
        """Why the owner of that certificate is not the node of that name; None: it is, or there are
        no certificates.
        """
        if self.tls(server=False) is None or certificate == name:
            return None
        return f"its certificate is for {certificate}"

    def reach(self, peer: Peer) -> None:
        """The node needs a link with that member."""
        self.shell.links.dial(peer)

    def is_addressed(self, to: int, me: Peer) -> bool:
        """Does a peer that says hello to that incarnation mean this one?"""
        return to == me.id

    def excludes_us(self, hello: Hello) -> bool:
        """Does a peer say for certain that the group goes on without this incarnation?"""
        return False

    def greeted(self, peer: Peer, certificate: str | None) -> str | None:
        """A connection says to be that peer. Why it is not let in; None: it is."""
        return None

    def newest(self) -> View | None:
        """The newest view, as far as it can be known without waiting."""
        return None

    def confirms(self, view: View) -> bool:
        """A peer says that this was decided: was it, as far as can be known?"""
        return True

    def crowd(self) -> int:
        """How many processes ask for a place in the group now."""
        return 0

    def change(self, even_if_the_same: bool = False) -> View | None:
        """A view of all peers that are there. If it is decided later, `Membership.take` hears of
        it.
        """
        raise NotImplementedError

    def lives(self, peer: Peer) -> bool | None:
        """Is it alive? None: that cannot be known."""
        return None

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[View | None, tuple[Peer, ...]]:
        """Exclude those that may be excluded. The newest view, and those that could not be
        excluded.
        """
        return None, peers

    def relieve(self) -> None:
        """The peers that `exclude` was told of last answer again."""

    def begin_holding(self) -> bool:
        """May this node believe from now on? False: not now, or no more; the newest view says
        which.
        """
        return True

    def end_holding(self) -> None:
        """It does not believe any more."""

    def learned(self, view: View) -> None:
        """The node has heard of a view."""

    def linked(self, peer: Peer) -> None:
        """A link with that peer is up."""

    def unlinked(self, peer: Peer) -> None:
        """It is down, or could not be made."""

    def told(self, peer: Peer, tell: StaticState) -> None:
        """A peer says what it knows."""

    def kick(self, name: str) -> str:
        """The operator says that a node is dead. What came of it, in a sentence."""
        raise UsageError(f"A group of the kind {self.kind} knows by itself which members are dead: no kick is needed.")

    def record_process_groups(self, words: bytes) -> None:
        """These process groups work under locks of this node: they must be gone before a lock is
        another's.
        """

    def is_gone(self, peer: Peer) -> bool:
        """Does the group go on without that incarnation, for good?"""
        return False

    def descriptors(self) -> list[int]:
        """That a forked child must not keep open."""
        return []

    def waits_for(self) -> tuple[str, ...]:
        """Names of the nodes without which no view can be decided."""
        return ()

    def blocked_by(self) -> str | None:
        """Why believing is refused again and again, if it is known."""
        return None

    def leave(self) -> View | None:
        """This incarnation wants no more. The view without it, if that was decided."""
        return None

    def left(self, wait_s: float) -> bool:
        """Wait for the view without it. In a thread that may be blocked."""
        return True

    def arm(self, until: float) -> None:
        """The node believes until then."""

    def lapsed(self) -> None:
        """The node has noticed that its lease is over, and its holders were told."""

    def close(self) -> None:
        """Nothing is used any more."""


__all__ = ["Registry", "View"]
