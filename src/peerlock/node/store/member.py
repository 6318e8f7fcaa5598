"""A member of a group whose views are kept in a store."""

from __future__ import annotations

from typing import Protocol

from peerlock.contract import State
from peerlock.node.membership.lease import Lease, support_s
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.requests import AT_ONCE, Look, Renew, Request, Snapshot, Swap

STORE = "store"
LATE = 8  # answers that are still waited for


class StoreOutput(Protocol):
    """What a member asks of its caller."""

    def ask(self, request: Request) -> None:
        """Of the store. `answered` follows, or nothing."""

    def learned(self, view: View) -> None: ...

    def leased(self, until: float) -> None: ...

    def complain(self, sentence: str) -> None: ...

    def refuse(self, sentence: str) -> None:
        """This node cannot be a member."""


class StoreMember(State):
    me: Peer
    lease: Lease
    snapshot: Snapshot = Snapshot(0)
    epoch: int = 0  # the newest that was seen
    seen: tuple[tuple[int, int, float], ...] = ()  # heartbeats of others: whose, which, since when
    wish: str = "join"  # or leave, or nothing
    renew: int = -1  # a view with the same members is wanted, newer than this one; -1: none is
    apart: tuple[int, ...] = ()
    may_join: bool = True  # it has a link to every member
    number: int = 0
    under_way: tuple[tuple[int, int], ...] = ()  # requests without an answer: number, what was known when it was sent

    def __copy__(self) -> StoreMember:
        made: StoreMember = super().__copy__()  # type: ignore[misc]
        made.lease = self.lease.__copy__()  # type: ignore[attr-defined]
        return made

    @property
    def view(self) -> View:
        return self.snapshot.view or View(0, ())

    @property
    def members(self) -> tuple[Peer, ...]:
        return self.view.members

    @property
    def is_member(self) -> bool:
        return self.me in self.members and self.wish != "leave"

    @property
    def is_marked(self) -> bool:
        return self.me in self.view.leaving

    # -- what is asked -----------------------------------------------------------------------------------

    def next(self) -> int:
        self.number += 1
        self.under_way = (*self.under_way, (self.number, self.snapshot.at))[-LATE:]
        return self.number

    def look(self, out: StoreOutput) -> None:
        out.ask(Look(self.next()))

    def heartbeat(self, now: float, out: StoreOutput) -> None:
        """Once in a while. Only a member that may go on being one renews; the others look."""
        if not self.is_member or self.is_marked:
            self.look(out)
            return
        number = self.lease.heartbeat(now, self.next())
        out.ask(Renew(number, self.snapshot.revision, self.me.id, self.apart))

    def maintain_view(self, steady: float, out: StoreOutput) -> bool:
        """Is there something to change? Then it is asked for."""
        if not self.snapshot.at:
            return False  # nothing is known yet
        if self.wish == "join" and self.me not in self.members:
            if self.may_join:
                return self.swap(steady, out, take_in=True)
            return bool(self.dead(steady)) and self.swap(steady, out)  # no other member may be left to do it
        if self.wish == "leave":
            return self.me in self.members and self.swap(steady, out)
        if self.is_marked:
            # No other member may be left to do it; and the only one left need not be marked.
            return (bool(self.dead(steady)) or self.members == (self.me,)) and self.swap(steady, out)
        return self.is_member and self.swap(steady, out)

    def swap(self, steady: float, out: StoreOutput, take_in: bool = False) -> bool:
        decided = self.view
        dead = self.dead(steady)[:AT_ONCE]
        members = {peer for peer in decided.members if peer.id not in dead}
        if self.wish == "leave":
            members.discard(self.me)
        if take_in:
            members.add(self.me)
        heartbeats = tuple((who, self.revision_of(who)) for who in dead)
        lease_s = self.lease.lease_s
        if members == set(decided.members) and self.renew < 0 and self.members != decided.leaving:
            victim = self.victim(steady)
            if victim is None:
                return False
            leaving = tuple(sorted({*decided.leaving, victim}))
            marked = View(decided.epoch, decided.members, leaving=leaving, lease_s=lease_s)
            out.ask(Swap(self.next(), self.snapshot.revision, (), marked))
            return True
        gone = tuple(peer.id for peer in decided.members if peer not in members)
        still = tuple(peer for peer in decided.leaving if peer in members)
        if len(still) == len(members):
            still = ()  # a member must be left that may renew
        view = View(decided.epoch + 1, tuple(sorted(members)), leaving=still, lease_s=lease_s)
        out.ask(Swap(self.next(), self.snapshot.revision, heartbeats, view, self.me.id if take_in else 0, gone))
        return True

    def dead(self, steady: float) -> tuple[int, ...]:
        """Whose heartbeat I saw D ago, and have not seen another since."""
        ago = steady - support_s(self.lease.lease_s)
        others = {peer.id for peer in self.members if peer != self.me}
        return tuple(who for who, _, since in self.seen if who in others and since <= ago)

    def revision_of(self, who: int) -> int:
        return next((revision for other, revision, _ in self.seen if other == who), 0)

    def victim(self, steady: float) -> Peer | None:
        """Of pairs that cannot talk to each other: the one that is in the most of them, else the
        last in order.

        What the dead said last does not count, nor a member that is marked already; and the last
        one is never marked.
        """
        dead = self.dead(steady)
        here = {peer.id: peer for peer in self.members if peer not in self.view.leaving and peer.id not in dead}
        if len(here) < 2:
            return None
        pairs = {
            frozenset((here[heartbeat.id], here[far]))
            for heartbeat in self.snapshot.heartbeats
            if heartbeat.id in here
            for far in heartbeat.apart
            if far in here and far != heartbeat.id
        }
        if not pairs:
            return None
        return max((peer for pair in pairs for peer in pair), key=lambda peer: (sum(peer in p for p in pairs), peer))

    def leave(self, steady: float, out: StoreOutput) -> None:
        """For good. It believes no more before it says so."""
        self.lease.end()
        self.lease.forget()
        self.wish = "leave"
        if not self.maintain_view(steady, out):
            self.look(out)

    # -- what is answered --------------------------------------------------------------------------------

    def answered(
        self, number: int, done: bool, snapshot: Snapshot, now: float, steady: float, out: StoreOutput
    ) -> None:
        """The answer to a request, or with number 0 what the store says by itself."""
        known = dict(self.under_way).get(number)
        self.under_way = tuple(entry for entry in self.under_way if entry[0] != number)
        if known is not None and snapshot.at < known:
            out.complain(
                f"the store is at revision {snapshot.at} and was at {known} before: a backup was restored? Nothing of it is "
                "believed. Start the group under another name, or restore a newer one."
            )
            return
        self.saw(snapshot, steady, out)
        if done and self.is_member and not self.is_marked and self.lease.confirm(STORE, number, 1, now):
            out.leased(self.lease.until)

    def saw(self, snapshot: Snapshot, steady: float, out: StoreOutput) -> None:
        if snapshot.at < self.snapshot.at:
            return  # older than what is known
        epoch = snapshot.view.epoch if snapshot.view is not None else 0
        if epoch < self.epoch:
            out.complain(
                f"the store says epoch {epoch}, and epoch {self.epoch} was seen: a backup was restored? Nothing of it is "
                "believed. Start the group under another name, or restore a newer one."
            )
            return
        was_member = self.is_member
        said = snapshot.view.lease_s if snapshot.view is not None and snapshot.view.members else 0.0
        if said and said != self.lease.lease_s and not was_member:
            out.refuse(
                f"the members of this group take a lease to be {said:g} s, and this node {self.lease.lease_s:g} s: "
                f"it must be the same for all. Set lease_s to {said:g}; to change it, let all members leave first (if all "
                f"were killed, start one node with {said:g} and let it leave)"
            )
            return
        self.snapshot = snapshot
        before = {who: (revision, since) for who, revision, since in self.seen}
        there = {heartbeat.id: heartbeat.revision for heartbeat in snapshot.heartbeats}
        self.seen = tuple(
            (peer.id, there.get(peer.id, 0), self.since(before.get(peer.id), there.get(peer.id, 0), steady))
            for peer in self.members
            if peer != self.me
        )
        if epoch > self.epoch:
            self.epoch = epoch
            if epoch > self.renew:
                self.renew = -1
            if self.me in self.members and self.wish == "join":
                self.wish = ""
            here = {peer.id for peer in self.members}
            self.apart = tuple(who for who in self.apart if who in here)
            if was_member and not self.is_member:
                self.lease.end()
            assert snapshot.view is not None
            out.learned(snapshot.view)
        if self.is_marked:
            self.lease.end()

    @staticmethod
    def since(before: tuple[int, float] | None, revision: int, steady: float) -> float:
        return before[1] if before is not None and before[0] == revision else steady
