"""A voter at work: when it proposes a view, when it asks again, and that it says nothing before its
record is saved.

Everything happens in `receive` and `tick`. If the record has changed, all that the voter says is
kept back until the record is saved.

Of several voters that want to propose, the first in the list goes first. Each of the others waits a
little longer than the one before it, and a voter that was outbid waits longer still. So two voters
that propose at once get out of each other's way.
"""

from __future__ import annotations

from typing import Any, Protocol
from zlib import crc32

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Ballot, Gossip, Heartbeat, HeartbeatAck, ViewDecided
from peerlock.node.quorum.voter import Voter, VoterRecord

BATCH_S = 0.005  # for others that join or leave at the same time
STEP_S = 0.12  # that the next in the list waits longer
AGAIN_S = 0.1  # before a voter that has not answered is asked again
TRIES = 30  # of that, before a new ballot


class VoterIO(Protocol):
    """What a voter's driver asks of its shell."""

    def save(self, record: VoterRecord) -> None:
        """Durably, before this returns."""

    def send(self, to: str, message: Ballot) -> None: ...

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None: ...

    def decided(self, view: View) -> None: ...

    def wake_at(self, when: float) -> None:
        """Call `tick` then, or earlier."""


class VoterDriver:
    def __init__(self, voter: Voter, io: VoterIO, now: float) -> None:
        self.voter, self.io = voter, io
        self.saved = voter.record
        self.gossip: dict[str, tuple[float, Gossip]] = {}
        self.since: float | None = None  # there is something to decide
        self.ask_at = 0.0
        self.tries = 0
        self.outbid = 0  # times in a row
        self.gossip_at = now
        self.held: list[tuple[Any, ...]] = []  # what was said since the record was saved
        self.wake(now)

    @property
    def heartbeat_s(self) -> float:
        return self.voter.lease_s / 4

    # -- the voter's `VoterOutput`: what it says waits until its record is saved ---------------------------------

    def send(self, to: str, message: Ballot) -> None:
        self.held.append((self.io.send, to, message))

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None:
        self.held.append((self.io.answer, peer, ack))

    def decided(self, view: View) -> None:
        self.held.append((self.io.decided, view))
        self.gossip.clear()
        self.since, self.outbid = None, 0

    def settle(self, now: float) -> None:
        if self.voter.record != self.saved:
            record = self.voter.record
            self.io.save(record)
            self.saved = record
        held, self.held = self.held, []
        for say, *what in held:
            say(*what)
        self.plan(now)

    # -- what happens --------------------------------------------------------------------------------------

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        self.voter.expire(now)
        self.voter.on_heartbeat(heartbeat, now, self)
        self.settle(now)

    def receive(self, source: str, message: Ballot, now: float) -> None:
        self.voter.expire(now)
        if isinstance(message, Gossip):
            if message.epoch < self.voter.decided.epoch:
                self.send(source, ViewDecided(self.voter.decided))
            elif message.epoch > self.voter.decided.epoch:
                self.send(source, Gossip(self.voter.decided.epoch, ()))  # it is told what it has missed
            else:
                self.gossip[source] = now, message
        else:
            ours = self.voter.ballot
            self.voter.receive(source, message, now, self)
            if ours and not self.voter.ballot and self.voter.decided == self.saved.decided:
                self.outbid += 1
                self.since = None
        self.settle(now)

    def order(self, voters: tuple[tuple[str, str], ...], now: float) -> None:
        """The operator wants other voters."""
        self.voter.wanted = voters
        self.settle(now)

    def tick(self, now: float) -> None:
        voter = self.voter
        voter.expire(now)
        if now >= self.gossip_at:
            self.gossip_at = now + self.heartbeat_s
            supported = tuple(peer for peer in voter.decided.members if voter.supports(peer))
            voter.to_others(Gossip(voter.decided.epoch, supported), self)
        if voter.ballot and now >= self.ask_at:
            self.tries += 1
            self.ask_at = now + AGAIN_S
            voter.again(now, self)
            if voter.ballot and voter.value is None and self.tries > TRIES:
                voter.give_up()
                self.outbid += 1
                self.since = None
        elif not voter.ballot and self.since is not None and now >= self.since + self.delay():
            self.tries, self.ask_at, self.since = 0, now + AGAIN_S, None
            voter.propose(now, self)
        self.settle(now)

    def plan(self, now: float) -> None:
        """When the next thing is to be done."""
        voter = self.voter
        if voter.wants(self.unsupported(now)):
            if self.since is None and not voter.ballot:
                self.since = now
        else:
            self.since = None
        self.wake(now)

    def wake(self, now: float) -> None:
        times = [self.gossip_at, *(until for _, until in self.voter.supported)]
        if self.voter.ballot:
            times.append(self.ask_at)
        elif self.since is not None:
            times.append(self.since + self.delay())
        self.io.wake_at(max(now, min(times)))

    def delay(self) -> float:
        electors = self.voter.decided.electors
        place = electors.index(self.voter.me) if self.voter.me in electors else len(electors)
        jitter = crc32(f"{self.voter.me} {self.voter.promised} {self.outbid}".encode()) % 100 / 100
        return BATCH_S + place * STEP_S + min(self.outbid, 8) * STEP_S * (0.5 + jitter)

    def unsupported(self, now: float) -> tuple[Peer, ...]:
        """Members that a majority does not support, by what was heard of late."""
        voter, epoch = self.voter, self.voter.decided.epoch
        heard = [
            message.supported
            for name, (when, message) in self.gossip.items()
            if message.epoch == epoch and now - when < 3 * self.heartbeat_s and name in voter.decided.electors
        ]
        needed = voter.decided.majority
        return tuple(
            peer
            for peer in voter.decided.members
            if (not voter.supports(peer)) + sum(peer not in supported for supported in heard) >= needed
        )
