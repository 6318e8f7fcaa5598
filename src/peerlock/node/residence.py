"""A node in its group, where there are leases: when it beats, whom it must reach before it is taken in, whom it cannot
reach.

Two kinds, for voters and for stores, with one face to the shells:

    arrive(peer)            a new incarnation, which wants in
    reached(peers)          with whom there are links
    suspect(peers)          members that do not answer
    wants_renewal(), leave()
    tick()

    and of the shell: learned(decision), leased(until), court(peers) make links to these

A beat is due every quarter of D: so two may be lost and the lease still runs on. Whoever is not a member yet beats
more often.
"""

from __future__ import annotations

from typing import Any, Protocol

from peerlock.node.lease import Lease, promise_s
from peerlock.node.store import Lodger, Request, Snapshot, Swap
from peerlock.node.tenant import Tenant
from peerlock.node.voting import Decision, Ruling, Vouch
from peerlock.node.wire import Peer

JOINING_S = 0.2  # between the beats of who is not a member yet
LOST = 1 / 3  # of a lease: after that an answer will not come
NO_VIEW = Decision(0, ())


class House(Protocol):
    """What a residence asks of whoever drives it."""

    def learned(self, decision: Decision) -> None: ...

    def leased(self, until: float) -> None: ...

    def court(self, peers: tuple[Peer, ...]) -> None:
        """Links to these are needed, before we are taken in."""

    def left(self) -> None:
        """The group goes on without us, as we wished."""

    def wake_at(self, when: float) -> None: ...

    def send(self, to: str, message: Any) -> None:
        """To a voter."""

    def ask(self, request: Request) -> None:
        """Of a store."""

    def complain(self, sentence: str) -> None: ...

    def refuse(self, sentence: str) -> None:
        """This node cannot be a member, and waiting does not help."""

    def anew(self) -> None:
        """This incarnation may have been a member without knowing: another one is needed."""

    def steady(self) -> float:
        """The time by a clock that does not count suspension."""
        ...

    def may_beat(self) -> bool:
        """Has the node answered of late? One that hangs loses its locks instead of keeping them from everybody."""
        ...


class Residence:
    """What both kinds do alike."""

    def __init__(self, house: House, lease_s: float) -> None:
        self.house, self.lease_s = house, lease_s
        self.beat_at = 0.0
        self.links: frozenset[Peer] = frozenset()
        self.heard: dict[str, float] = {}  # who decides: when it last answered
        self.since = 0.0  # this incarnation arrived
        self.started = False
        self.over = (
            False  # this incarnation must not become a member any more: it says nothing until the next one arrives
        )
        self.leaving = False
        self.goodbye = False  # the group knows that we are gone

    # -- what differs ------------------------------------------------------------------------------------

    @property
    def me(self) -> Peer:
        raise NotImplementedError

    @property
    def decision(self) -> Decision:
        raise NotImplementedError

    def beat(self, now: float) -> None:
        raise NotImplementedError

    def may_join(self, yes: bool) -> None:
        raise NotImplementedError

    # -- what is the same --------------------------------------------------------------------------------

    def learned(self, decision: Decision) -> None:
        """Of a tenant or a lodger: a view was decided."""
        self.beat_at = 0.0  # who is in it beats at once
        self.house.learned(decision)

    def comes_back(self) -> None:
        """It may have been taken in and left out again without hearing of it."""
        self.over = True
        self.house.anew()

    def leased(self, until: float) -> None:
        self.house.leased(until)

    def complain(self, sentence: str) -> None:
        self.house.complain(sentence)

    def refuse(self, sentence: str) -> None:
        self.house.refuse(sentence)

    def reached(self, peers: frozenset[Peer], now: float) -> None:
        self.links = peers
        if self.started and not self.over and self.me not in self.decision.members and not self.leaving:
            self.courting()
            self.beat_at = 0.0
            self.tick(now)

    def courting(self) -> None:
        """Somebody who cannot reach a member would stop the group: it waits outside until it can."""
        missing = tuple(peer for peer in self.decision.members if peer not in self.links)
        self.may_join(not missing)
        if missing:
            self.house.court(self.decision.members)

    def unreached(self) -> tuple[Peer, ...]:
        if not self.started or self.me in self.decision.members:
            return ()
        return tuple(peer for peer in self.decision.members if peer not in self.links)

    @property
    def every_s(self) -> float:
        return self.lease_s / 4 if self.me in self.decision.members else min(JOINING_S, self.lease_s / 4)

    def tick(self, now: float) -> None:
        if not self.started or self.over:
            return
        if now >= self.beat_at:
            self.beat_at = now + self.every_s
            if self.me not in self.decision.members and not self.leaving:
                self.courting()
            if self.leaving or self.house.may_beat():
                self.beat(now)
        self.house.wake_at(self.next_at(now))

    def next_at(self, now: float) -> float:
        return max(now, self.beat_at)

    def gone_yet(self, now: float) -> None:
        if self.leaving and not self.goodbye and self.me not in self.decision.members:
            self.goodbye = True
            self.house.left()


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
