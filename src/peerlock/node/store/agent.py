"""A member's side of a group with a store: when it renews its lease, and when it changes the view."""

from __future__ import annotations

from peerlock.node.membership.agent import LOST, NO_VIEW, AgentIO, MembershipAgent
from peerlock.node.membership.lease import Lease, support_s
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.member import StoreMember
from peerlock.node.store.requests import Request, Snapshot, Swap

LOST_RACE_S = 0.02  # a node that wants to be admitted tries again, after another one was faster


class StoreAgent(MembershipAgent):
    def __init__(
        self,
        io: AgentIO,
        lease_s: float,
        store: str,
        members_of: type[StoreMember] = StoreMember,
        leases_of: type[Lease] = Lease,
    ) -> None:
        super().__init__(io, lease_s)
        self.store, self.members_of, self.leases_of = store, members_of, leases_of
        self.member: StoreMember
        self.maintained_at = 0.0
        self.asked: tuple[int, float] | None = None  # to be admitted: the request, when

    @property
    def me(self) -> Peer:
        return self.member.me

    @property
    def view(self) -> View:
        return self.member.view

    def ask(self, request: Request) -> None:
        if isinstance(request, Swap) and request.heartbeat:
            self.asked = request.number, self.now
        self.io.ask(request)

    def may_join(self, yes: bool) -> None:
        self.member.may_join = yes

    def arrive(self, me: Peer, now: float) -> None:
        before, epoch, seen = (
            (self.member.snapshot, self.member.epoch, self.member.seen) if self.started else (Snapshot(0), 0, ())
        )
        number = self.member.number if self.started else 0
        self.member = self.members_of(me, self.leases_of(self.lease_s), before, epoch, seen, number=number)
        self.started, self.over, self.since, self.heartbeat_at, self.asked = True, False, now, 0.0, None
        self.tick(now)

    def heartbeat(self, now: float) -> None:
        member = self.member
        self.now = now
        if self.asked is not None:
            # No answer: it may have been admitted, and excluded again. Then it must not come back
            # as the same.
            if now - self.asked[1] > LOST * self.lease_s and not self.leaving:
                self.asked = None
                self.comes_back()
                return
            if not self.leaving:
                member.look(self)
                return
        if not (member.is_member and not member.is_marked) or self.leaving:
            if not member.maintain_view(self.io.steady(), self):
                member.look(self)
            return
        member.heartbeat(now, self)
        self.maintain_view(now)

    def maintain_view(self, now: float) -> None:
        """Exclude dead members, and so on; but not with every answer."""
        self.now = now
        if now >= self.maintained_at:
            self.maintained_at = now + min(0.05, self.lease_s / 20)
            if self.member.maintain_view(self.io.steady(), self):
                self.maintained_at = now + min(0.2, self.lease_s / 8)

    def next_at(self, now: float) -> float:
        # A member's time is up: at that moment, not with the next heartbeat.
        steady, patience = self.io.steady(), support_s(self.lease_s)
        ends = [since + patience - steady for _, _, since in self.member.seen if since + patience > steady]
        return max(now, min([self.heartbeat_at, *(now + left for left in ends)]))

    def tick(self, now: float) -> None:
        if self.over:
            return
        if (
            self.started
            and self.member.is_member
            and self.io.may_send_heartbeat()
            and self.member.dead(self.io.steady())
        ):
            self.maintain_view(now)
        super().tick(now)

    def answered(self, number: int, done: bool, snapshot: Snapshot, now: float) -> None:
        if not self.started or self.over:
            return
        self.heard[self.store] = now
        self.now = now
        if self.asked is not None and (number == self.asked[0] or self.me in (snapshot.view or NO_VIEW).members):
            self.asked = None
        before = self.member.snapshot.revision
        self.member.answered(number, done, snapshot, now, self.io.steady(), self)
        self.gone_yet(now)
        if self.goodbye:
            return
        if self.member.snapshot.revision != before:
            self.heartbeat_at = 0.0  # a renewal that was under way has failed
        if self.member.wish == "join" and not done and number:
            self.heartbeat_at = min(self.heartbeat_at, now + LOST_RACE_S)
        if self.member.is_member and not self.leaving:
            self.maintain_view(now)
        self.tick(now)

    def suspect(self, peers: tuple[Peer, ...], now: float) -> None:
        ids = tuple(peer.id for peer in peers)
        if self.started and ids != self.member.apart:
            self.member.apart, self.heartbeat_at = ids, 0.0
            self.tick(now)

    def wants_renewal(self, epoch: int, now: float) -> None:
        if self.started and self.member.epoch <= epoch:
            self.member.renew, self.now = epoch, now
            self.maintain_view(now)

    def leave(self, now: float) -> None:
        if not self.started:
            self.io.left()
            return
        self.leaving, self.over, self.now = True, False, now
        self.member.leave(self.io.steady(), self)
        self.heartbeat_at = now + min(0.1, self.every_s)
        self.gone_yet(now)
        self.io.wake_at(self.next_at(now))

    def runs(self, now: float) -> bool:
        return self.started and self.member.lease.runs(now)

    def waits_for(self, now: float) -> tuple[str, ...]:
        if not self.started:
            return ()
        silent = (self.store,) if now - self.heard.get(self.store, self.since) > self.lease_s / 2 else ()
        return (*silent, *(str(peer) for peer in self.unreached()))
