"""A member (or one who wants to be), as the voters see it: it beats, and has a lease for it."""

from __future__ import annotations

from typing import Any, Protocol

from peerlock.contract import State
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import Decision
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Beat, Vouch


class Hears(Protocol):
    """What a tenant asks of whoever drives it."""

    def send(self, to: Any, message: Any) -> None:
        """To a voter, by its name."""

    def learned(self, decision: Decision) -> None:
        """This view was decided."""

    def leased(self, until: float) -> None:
        """The node may believe until then."""

    def comes_back(self) -> None:
        """This incarnation may have been a member without knowing. It must not become one again."""


class Tenant(State):
    me: Peer
    lease: Lease
    decision: Decision  # the newest that is known
    wish: str = "join"  # or look (it would, but cannot yet), or leave, or nothing
    renew: int = -1  # a view with the same members is wanted, newer than this one; -1: none is
    apart: tuple[Peer, ...] = ()  # members that it cannot reach
    asked: int = -1  # the epoch after which it has asked to be taken in; -1: never

    def __copy__(self) -> Tenant:
        made: Tenant = super().__copy__()  # type: ignore[misc]
        made.lease = self.lease.__copy__()  # type: ignore[attr-defined]
        return made

    @property
    def is_member(self) -> bool:
        return self.me in self.decision.members and self.wish != "leave"

    def beat(self, now: float, out: Hears) -> None:
        beat = Beat(self.lease.beat(now), self.me, self.decision.epoch, self.asks(), self.apart, self.lease.lease_s)
        if self.wish == "join" and self.asked < 0:
            self.asked = self.decision.epoch
        for name in self.decision.electors:
            out.send(name, beat)

    def asks(self) -> str:
        return self.wish or ("renew" if self.renew >= 0 else "")

    def on_vouch(self, voter: Any, vouch: Vouch, now: float, out: Hears) -> None:
        if vouch.decision is not None:
            self.learn(vouch.decision, out)
        counts = vouch.ok and self.is_member and voter in self.decision.electors
        if counts and self.lease.confirm(voter, vouch.number, self.decision.majority, now):
            out.leased(self.lease.until)

    def learn(self, decision: Decision, out: Hears) -> None:
        if decision.epoch <= self.decision.epoch:
            return
        if self.wish in ("join", "look") and self.me not in decision.members and 0 <= self.asked < decision.epoch - 1:
            self.decision = decision
            out.comes_back()
            return
        if self.asked == decision.epoch - 1:
            self.asked = -1  # it was not taken into that one, or it is in it now
        was_member, others = self.is_member, decision.since != self.decision.since
        self.decision = decision
        if decision.epoch > self.renew:
            self.renew = -1
        if others:
            self.lease.forget()
        if self.me in decision.members and self.wish != "leave":
            self.wish = ""
        if was_member and not self.is_member:
            self.lease.end()
        self.apart = tuple(peer for peer in self.apart if peer in decision.members)
        out.learned(decision)

    def leave(self, now: float, out: Hears) -> None:
        """For good. It believes no more before it says so."""
        self.lease.end()
        self.lease.forget()
        self.wish = "leave"
        self.beat(now, out)
