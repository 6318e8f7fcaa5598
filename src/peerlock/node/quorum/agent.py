"""A member's side of a group with voters: when it sends heartbeats, and to whom."""

from __future__ import annotations

from typing import Any

from peerlock.node.membership.agent import House, Residence
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import Decision
from peerlock.node.peer import Peer
from peerlock.node.quorum.member import Tenant
from peerlock.node.quorum.messages import Ruling, Vouch


class AtVoters(Residence):
    def __init__(
        self, house: House, lease_s: float, voters: tuple[tuple[str, str], ...], tenants_of: type[Tenant] = Tenant,
        leases_of: type[Lease] = Lease,
    ) -> None:  # fmt: skip
        super().__init__(house, lease_s)
        self.voters, self.tenants_of, self.leases_of = voters, tenants_of, leases_of
        self.tenant: Tenant
        self.informed = False  # some voter has told us what it knows

    @property
    def me(self) -> Peer:
        return self.tenant.me

    @property
    def decision(self) -> Decision:
        return self.tenant.decision

    def send(self, to: str, message: Any) -> None:
        self.house.send(to, message)

    def may_join(self, yes: bool) -> None:
        if self.tenant.wish in ("join", "look"):
            self.tenant.wish = "join" if yes and self.informed else "look"

    def arrive(self, me: Peer, now: float) -> None:
        before, number = (
            (self.decision, self.tenant.lease.number) if self.started else (Decision(0, (), self.voters), 0)
        )
        # Beats are numbered on: an answer to one of an earlier incarnation, late as it may be, confirms nothing of this one.
        lease = self.leases_of(self.lease_s, number)
        self.tenant = self.tenants_of(me, lease, before, "look")
        self.started, self.over, self.since, self.beat_at = True, False, now, 0.0
        self.tick(now)

    def beat(self, now: float) -> None:
        self.tenant.beat(now, self)

    def on_word(self, voter: str, word: Vouch | Ruling, now: float) -> None:
        """From a voter."""
        if not self.started or self.over:
            return
        self.heard[voter] = now
        if not self.informed:
            self.informed, self.beat_at = True, 0.0
        if isinstance(word, Ruling):
            self.tenant.learn(word.decision, self)
        else:
            self.tenant.on_vouch(voter, word, now, self)
        self.gone_yet(now)
        self.tick(now)

    def suspect(self, peers: tuple[Peer, ...], now: float) -> None:
        if self.started and peers != self.tenant.apart:
            self.tenant.apart, self.beat_at = peers, 0.0
            self.tick(now)

    def wants_renewal(self, epoch: int, now: float) -> None:
        """A view with the same members, newer than that of `epoch`."""
        if self.started and self.decision.epoch <= epoch:
            self.tenant.renew, self.beat_at = epoch, 0.0
            self.tick(now)

    def leave(self, now: float) -> None:
        if not self.started:
            self.house.left()
            return
        self.leaving, self.over = True, False
        self.tenant.leave(now, self)
        self.beat_at = now + self.every_s
        self.gone_yet(now)
        self.house.wake_at(self.next_at(now))

    def runs(self, now: float) -> bool:
        return self.started and self.tenant.lease.runs(now)

    def waits_for(self, now: float) -> tuple[str, ...]:
        """Voters that do not answer, if that matters; members that must be reached first."""
        if not self.started:
            return ()
        silent = [
            f"voter {name}"
            for name in self.decision.electors
            if now - self.heard.get(name, self.since) > self.lease_s / 2
        ]
        if len(silent) <= len(self.decision.voters) - self.decision.majority:
            silent = []
        return (*silent, *(str(peer) for peer in self.unreached()))
