"""One member of a group with voters: it sends heartbeats, and has a lease for them. A node that
wants to join does the same.
"""

from __future__ import annotations

from typing import Any, Protocol

from peerlock.contract import State
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Heartbeat, HeartbeatAck


class MemberOutput(Protocol):
    """What a member asks of its caller."""

    def send(self, to: Any, message: Any) -> None:
        """To a voter, by its name."""

    def learned(self, view: View) -> None:
        """This view was decided."""

    def leased(self, until: float) -> None:
        """The node may believe until then."""

    def comes_back(self) -> None:
        """This incarnation may have been a member without knowing. It must not become one again."""


class QuorumMember(State):
    me: Peer
    lease: Lease
    view: View  # the newest that is known
    wish: str = "join"  # or look (it would, but cannot yet), or leave, or nothing
    renew: int = -1  # a view with the same members is wanted, newer than this one; -1: none is
    apart: tuple[Peer, ...] = ()  # members that it cannot reach
    asked: int = -1  # the epoch after which it has asked to be admitted; -1: never

    def __copy__(self) -> QuorumMember:
        made: QuorumMember = super().__copy__()  # type: ignore[misc]
        made.lease = self.lease.__copy__()  # type: ignore[attr-defined]
        return made

    @property
    def is_member(self) -> bool:
        return self.me in self.view.members and self.wish != "leave"

    def heartbeat(self, now: float, out: MemberOutput) -> None:
        heartbeat = Heartbeat(
            self.lease.heartbeat(now), self.me, self.view.epoch, self.asks(), self.apart, self.lease.lease_s
        )
        if self.wish == "join" and self.asked < 0:
            self.asked = self.view.epoch
        for name in self.view.electors:
            out.send(name, heartbeat)

    def asks(self) -> str:
        return self.wish or ("renew" if self.renew >= 0 else "")

    def on_heartbeat_ack(self, voter: Any, ack: HeartbeatAck, now: float, out: MemberOutput) -> None:
        if ack.view is not None:
            self.learn(ack.view, out)
        counts = ack.ok and self.is_member and voter in self.view.electors
        if counts and self.lease.confirm(voter, ack.number, self.view.majority, now):
            out.leased(self.lease.until)

    def learn(self, view: View, out: MemberOutput) -> None:
        if view.epoch <= self.view.epoch:
            return
        if self.wish in ("join", "look") and self.me not in view.members and 0 <= self.asked < view.epoch - 1:
            self.view = view
            out.comes_back()
            return
        if self.asked == view.epoch - 1:
            self.asked = -1  # it was not taken into that one, or it is in it now
        was_member, others = self.is_member, view.since != self.view.since
        self.view = view
        if view.epoch > self.renew:
            self.renew = -1
        if others:
            self.lease.forget()
        if self.me in view.members and self.wish != "leave":
            self.wish = ""
        if was_member and not self.is_member:
            self.lease.end()
        self.apart = tuple(peer for peer in self.apart if peer in view.members)
        out.learned(view)

    def leave(self, now: float, out: MemberOutput) -> None:
        """For good. It believes no more before it says so."""
        self.lease.end()
        self.lease.forget()
        self.wish = "leave"
        self.heartbeat(now, out)
