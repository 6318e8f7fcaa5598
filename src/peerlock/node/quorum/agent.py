"""A member's side of a group with voters: when it sends heartbeats, and to which voters."""

from __future__ import annotations

from typing import Any

from peerlock.node.membership.agent import AgentIO, MembershipAgent
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.messages import HeartbeatAck, ViewDecided


class QuorumAgent(MembershipAgent):
    def __init__(
        self, io: AgentIO, lease_s: float, voters: tuple[tuple[str, str], ...], members_of: type[QuorumMember] = QuorumMember,
        leases_of: type[Lease] = Lease,
    ) -> None:  # fmt: skip
        super().__init__(io, lease_s)
        self.voters, self.members_of, self.leases_of = voters, members_of, leases_of
        self.member: QuorumMember
        self.informed = False  # some voter has told us what it knows

    @property
    def me(self) -> Peer:
        return self.member.me

    @property
    def view(self) -> View:
        return self.member.view

    def send(self, to: str, message: Any) -> None:
        self.io.send(to, message)

    def may_join(self, yes: bool) -> None:
        if self.member.wish in ("join", "look"):
            self.member.wish = "join" if yes and self.informed else "look"

    def arrive(self, me: Peer, now: float) -> None:
        before, number = (self.view, self.member.lease.number) if self.started else (View(0, (), self.voters), 0)
        # Heartbeats are numbered on: a late answer to one of an earlier incarnation confirms
        # nothing of this one.
        lease = self.leases_of(self.lease_s, number)
        self.member = self.members_of(me, lease, before, "look")
        self.started, self.over, self.since, self.heartbeat_at = True, False, now, 0.0
        self.tick(now)

    def heartbeat(self, now: float) -> None:
        self.member.heartbeat(now, self)

    def on_word(self, voter: str, word: HeartbeatAck | ViewDecided, now: float) -> None:
        """From a voter."""
        if not self.started or self.over:
            return
        self.heard[voter] = now
        if not self.informed:
            self.informed, self.heartbeat_at = True, 0.0
        if isinstance(word, ViewDecided):
            self.member.learn(word.view, self)
        else:
            self.member.on_heartbeat_ack(voter, word, now, self)
        self.gone_yet(now)
        self.tick(now)

    def suspect(self, peers: tuple[Peer, ...], now: float) -> None:
        if self.started and peers != self.member.apart:
            self.member.apart, self.heartbeat_at = peers, 0.0
            self.tick(now)

    def wants_renewal(self, epoch: int, now: float) -> None:
        """A view with the same members, newer than that of `epoch`."""
        if self.started and self.view.epoch <= epoch:
            self.member.renew, self.heartbeat_at = epoch, 0.0
            self.tick(now)

    def leave(self, now: float) -> None:
        if not self.started:
            self.io.left()
            return
        self.leaving, self.over = True, False
        self.member.leave(now, self)
        self.heartbeat_at = now + self.every_s
        self.gone_yet(now)
        self.io.wake_at(self.next_at(now))

    def runs(self, now: float) -> bool:
        return self.started and self.member.lease.runs(now)

    def waits_for(self, now: float) -> tuple[str, ...]:
        """Voters that do not answer, if that matters; members that must be reached first."""
        if not self.started:
            return ()
        silent = [
            f"voter {name}" for name in self.view.electors if now - self.heard.get(name, self.since) > self.lease_s / 2
        ]
        if len(silent) <= len(self.view.voters) - self.view.majority:
            silent = []
        return (*silent, *(str(peer) for peer in self.unreached()))
