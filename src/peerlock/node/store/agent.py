"""A member's side of a group with a store: when it renews its lease, and when it changes the view."""

from __future__ import annotations

from peerlock.node.membership.agent import LOST, NO_VIEW, House, Residence
from peerlock.node.membership.lease import Lease, promise_s
from peerlock.node.membership.view import Decision
from peerlock.node.peer import Peer
from peerlock.node.store.member import Lodger
from peerlock.node.store.requests import Request, Snapshot, Swap


class AtStore(Residence):
    def __init__(
        self,
        house: House,
        lease_s: float,
        store: str,
        lodgers_of: type[Lodger] = Lodger,
        leases_of: type[Lease] = Lease,
    ) -> None:
        super().__init__(house, lease_s)
        self.store, self.lodgers_of, self.leases_of = store, lodgers_of, leases_of
        self.lodger: Lodger
        self.tended_at = 0.0
        self.asked: tuple[int, float] | None = None  # to be taken in: the request, when

    @property
    def me(self) -> Peer:
        return self.lodger.me

    @property
    def decision(self) -> Decision:
        return self.lodger.decision

    def ask(self, request: Request) -> None:
        if isinstance(request, Swap) and request.beat:
            self.asked = request.number, self.now
        self.house.ask(request)

    def may_join(self, yes: bool) -> None:
        self.lodger.may_join = yes

    def arrive(self, me: Peer, now: float) -> None:
        before, epoch, seen = (
            (self.lodger.snapshot, self.lodger.epoch, self.lodger.seen) if self.started else (Snapshot(0), 0, ())
        )
        number = self.lodger.number if self.started else 0
        self.lodger = self.lodgers_of(me, self.leases_of(self.lease_s), before, epoch, seen, number=number)
        self.started, self.over, self.since, self.beat_at, self.asked = True, False, now, 0.0, None
        self.tick(now)

    def beat(self, now: float) -> None:
        lodger = self.lodger
        self.now = now
        if self.asked is not None:
            # No answer: it may have been taken in, and left out again. Then it must not come back as the same.
            if now - self.asked[1] > LOST * self.lease_s and not self.leaving:
                self.asked = None
                self.comes_back()
                return
            if not self.leaving:
                lodger.look(self)
                return
        if not (lodger.is_member and not lodger.is_marked) or self.leaving:
            if not lodger.tend(self.house.steady(), self):
                lodger.look(self)
            return
        lodger.beat(now, self)
        self.tend(now)

    def tend(self, now: float) -> None:
        """Leave out who is dead, and so on; but not with every answer."""
        self.now = now
        if now >= self.tended_at:
            self.tended_at = now + min(0.05, self.lease_s / 20)
            if self.lodger.tend(self.house.steady(), self):
                self.tended_at = now + min(0.2, self.lease_s / 8)

    def next_at(self, now: float) -> float:
        # Somebody's time is up: at that moment, not with the next beat.
        steady, patience = self.house.steady(), promise_s(self.lease_s)
        ends = [since + patience - steady for _, _, since in self.lodger.seen if since + patience > steady]
        return max(now, min([self.beat_at, *(now + left for left in ends)]))

    def tick(self, now: float) -> None:
        if self.over:
            return
        if self.started and self.lodger.is_member and self.house.may_beat() and self.lodger.dead(self.house.steady()):
            self.tend(now)
        super().tick(now)

    def answered(self, number: int, done: bool, snapshot: Snapshot, now: float) -> None:
        if not self.started or self.over:
            return
        self.heard[self.store] = now
        self.now = now
        if self.asked is not None and (number == self.asked[0] or self.me in (snapshot.decision or NO_VIEW).members):
            self.asked = None
        before = self.lodger.snapshot.revision
        self.lodger.answered(number, done, snapshot, now, self.house.steady(), self)
        self.gone_yet(now)
        if self.goodbye:
            return
        if self.lodger.snapshot.revision != before:
            self.beat_at = 0.0  # a renewal that was under way has failed
        if self.lodger.wish == "join" and not done and number:
            self.beat_at = min(self.beat_at, now + 0.02)
        if self.lodger.is_member and not self.leaving:
            self.tend(now)
        self.tick(now)

    def suspect(self, peers: tuple[Peer, ...], now: float) -> None:
        ids = tuple(peer.id for peer in peers)
        if self.started and ids != self.lodger.apart:
            self.lodger.apart, self.beat_at = ids, 0.0
            self.tick(now)

    def wants_renewal(self, epoch: int, now: float) -> None:
        if self.started and self.lodger.epoch <= epoch:
            self.lodger.renew, self.now = epoch, now
            self.tend(now)

    def leave(self, now: float) -> None:
        if not self.started:
            self.house.left()
            return
        self.leaving, self.over, self.now = True, False, now
        self.lodger.leave(self.house.steady(), self)
        self.beat_at = now + min(0.1, self.every_s)
        self.gone_yet(now)
        self.house.wake_at(self.next_at(now))

    def runs(self, now: float) -> bool:
        return self.started and self.lodger.lease.runs(now)

    def waits_for(self, now: float) -> tuple[str, ...]:
        if not self.started:
            return ()
        silent = (self.store,) if now - self.heard.get(self.store, self.since) > self.lease_s / 2 else ()
        return (*silent, *(str(peer) for peer in self.unreached()))
