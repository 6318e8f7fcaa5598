"""One of the three or five voters that decide which peers are members.

A voter does two things. It *supports*: a member that sends a heartbeat is promised that this voter
will not exclude it for D. And it *votes*: for each epoch the voters decide one view by
single-decree Paxos, with the view of the epoch before naming them.

    Prepare   ->  Promise    I vote in no lower ballot; this is what I have accepted, and these I support
    Accept    ->  Accepted   once I support none of those that it excludes; until then NotYet
    a majority has accepted: the view is decided, and all peers are told

1. A voter accepts a view without m only when its own promises to m have run out, or m has said that
   it leaves. A member that leaves has given up its lease before it says so, and sends no heartbeat
   again.
2. A voter that has accepted a view without m, or was asked to, renews m no more until that epoch is
   decided. Without the first half a member would hold that is not in the next view. Without the
   second two voters block each other for ever: one has accepted a view without m and may not take
   it back, the other renews m again and again and may not accept.
3. A voter that was restarted has forgotten its promises. It supports every member until D after its
   start. So does one that was not a voter in the epoch before, or has not heard of that epoch and
   the voters have changed since.
4. A proposer excludes the members that a majority no longer supports, or one end of a pair that
   cannot talk to each other; it admits those that a majority has heard of. If a voter has accepted
   a view, it proposes that one, as Paxos has it.
5. A voter that refuses a renewal because of an epoch that is not decided proposes in it itself.
6. A peer is admitted if it has said that it knows the epoch before, and is in none: so no
   incarnation comes back.
7. A voter that has accepted a view with other voters renews nobody until that is decided, and then
   only who knows it.

Why an excluded member holds nothing: m's lease rests on a heartbeat that a majority has confirmed,
the view without m on a majority that has accepted it. Some voter is in both. It did not accept
before its promise had run out, and then the lease that rests on it has, too
(`peerlock.node.membership.lease`). After accepting it confirmed nothing (2).

What must survive a crash is in `VoterRecord`; the caller makes it durable before anything that
`out` was told leaves the machine. `peerlock.check.protocols.quorum` explores this very object, with
each rule taken away in turn.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct

from peerlock.contract import State
from peerlock.node.membership.lease import support_s
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import (
    MOST_VOTERS,
    Accept,
    Accepted,
    Ballot,
    Gossip,
    Heartbeat,
    HeartbeatAck,
    NotYet,
    Prepare,
    Promise,
    Refused,
    ViewDecided,
)

EVERYBODY = None  # a restarted voter has forgotten whom it supports, so it supports every member


class VoterOutput(Protocol):
    """What a voter asks of its caller."""

    def send(self, to: Any, message: Any) -> None:
        """To a voter, by its name."""

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None: ...

    def decided(self, view: View) -> None:
        """All peers that want to know are to be told."""


class VoterRecord(Struct, frozen=True):
    """What a voter must not forget."""

    decided: View
    promised: int = 0
    accepted: tuple[int, View] | None = None


class Voter(State):
    me: str
    lease_s: float
    decided: View  # the newest view
    promised: int = 0  # for the epoch after it: the highest ballot that was promised anything
    accepted: tuple[int, View] | None = None
    # All of the above but the name and D is the record. What follows is forgotten in a crash.
    supported: tuple[tuple[Peer | None, float], ...] = ()  # until when
    suspected: tuple[Peer, ...] = ()  # it was asked to leave them out
    leavers: tuple[Peer, ...] = ()
    joiners: tuple[Peer, ...] = ()
    apart: tuple[tuple[Peer, Peer], ...] = ()  # the first cannot reach the second
    renew: bool = False  # a member wants a view with the same members
    wanted: tuple[tuple[str, str], ...] = ()  # the operator wants these voters
    # its own proposal
    ballot: int = 0
    answers: tuple[tuple[str, Promise], ...] = ()
    value: View | None = None
    votes: tuple[str, ...] = ()

    @classmethod
    def restarted(cls, me: str, lease_s: float, record: VoterRecord, now: float) -> Voter:
        made = cls(me, lease_s, record.decided, record.promised, record.accepted)
        if record.decided.members:
            made.support(EVERYBODY, now)
        return made

    @property
    def record(self) -> VoterRecord:
        return VoterRecord(self.decided, self.promised, self.accepted)

    @property
    def votes_here(self) -> bool:
        return self.me in self.decided.electors

    # -- promises to members -----------------------------------------------------------------------------

    def support(self, peer: Peer | None, now: float) -> None:
        self.supported = _put(self.supported, peer, now + support_s(self.lease_s))

    def supports(self, peer: Peer) -> bool:
        if peer in self.leavers:
            return False
        return any(entry[0] == peer or entry[0] is EVERYBODY for entry in self.supported)

    def expire(self, now: float) -> None:
        """Promises whose time is over. Called before anything else happens at `now`."""
        for peer, until in self.supported:
            if until <= now:
                self.ran_out(peer)

    def ran_out(self, peer: Peer | None) -> None:
        self.supported = tuple(entry for entry in self.supported if entry[0] != peer)
        self.joiners = tuple(joiner for joiner in self.joiners if joiner != peer)
        self.leavers = tuple(leaver for leaver in self.leavers if leaver != peer or peer in self.decided.members)
        self.apart = tuple(pair for pair in self.apart if pair[0] != peer)

    def on_heartbeat(self, heartbeat: Heartbeat, now: float, out: VoterOutput) -> None:
        peer, decided = heartbeat.peer, self.decided
        newer = decided if heartbeat.epoch < decided.epoch else None
        if not self.votes_here:
            out.answer(peer, HeartbeatAck(heartbeat.number, False, newer, f"{self.me} is no voter any more"))
            return
        if heartbeat.lease_s > self.lease_s:
            theirs, ours = f"{heartbeat.lease_s:g} s", f"{self.lease_s:g} s"
            why = f"its lease is {theirs}, that of the voter {self.me} is {ours}: they must be the same"
            out.answer(peer, HeartbeatAck(heartbeat.number, False, newer, why))
            return
        if heartbeat.wish == "leave":
            self.on_leave(peer)
            out.answer(peer, HeartbeatAck(heartbeat.number, False, newer, "it leaves"))
        elif peer in decided.members:
            why = self.refuses(heartbeat)
            if not why:
                self.support(peer, now)
                self.apart = (
                    *(pair for pair in self.apart if pair[0] != peer),
                    *((peer, far) for far in heartbeat.apart),
                )
                self.renew = self.renew or (heartbeat.wish == "renew" and heartbeat.epoch == decided.epoch)
            out.answer(peer, HeartbeatAck(heartbeat.number, not why, newer, why))
        else:
            if heartbeat.wish == "join" and heartbeat.epoch == decided.epoch and peer not in self.leavers:
                self.joiners = _with(self.joiners, peer)
                self.support(peer, now)
            out.answer(peer, HeartbeatAck(heartbeat.number, False, newer, "it is no member"))

    def on_leave(self, peer: Peer) -> None:
        """It has stopped believing, for good. Of one that was never let in this is known for as
        long as an earlier word of it, that it wants in, may still be under way.
        """
        self.joiners = tuple(joiner for joiner in self.joiners if joiner != peer)
        if peer in self.decided.members or any(entry[0] == peer for entry in self.supported):
            self.leavers = _with(self.leavers, peer)

    def refuses(self, heartbeat: Heartbeat) -> str:
        """Why a member is not renewed; nothing: it is."""
        peer, accepted = heartbeat.peer, self.accepted
        if heartbeat.epoch < self.decided.since:
            # It would not count anyway: with this answer it hears of the other voters, and forgets
            # what it has asked before.
            return "it does not know the voters of this epoch"
        if peer in self.leavers:
            return "it leaves"
        if peer in self.suspected or (accepted is not None and peer not in accepted[1].members):
            return f"it is about to be excluded from epoch {self.decided.epoch + 1}"
        if accepted is not None and accepted[1].voters != self.decided.voters:
            return f"the voters change with epoch {self.decided.epoch + 1}"
        return ""

    # -- voting ------------------------------------------------------------------------------------------

    def receive(self, source: str, message: Ballot, now: float, out: VoterOutput) -> None:
        match message:
            case Prepare():
                self.on_prepare(source, message, now, out)
            case Promise():
                self.on_promise(source, message, now, out)
            case Accept():
                self.on_accept(source, message, now, out)
            case Accepted(epoch, ballot):
                if self.is_ours(epoch, ballot) and self.value is not None:
                    self.on_vote(source, now, out)
            case Refused(epoch, ballot, promised):
                if self.is_ours(epoch, ballot):
                    self.promised = max(self.promised, promised)
                    self.give_up()
            case ViewDecided(view):
                self.learn(view, now, out)
            case NotYet() | Gossip():
                pass  # it is asked again, until it is decided; gossip is for the driver

    def on_prepare(self, source: str, message: Prepare, now: float, out: VoterOutput) -> None:
        self.learn(message.decided, now, out)
        if message.decided.epoch < self.decided.epoch:
            out.send(source, ViewDecided(self.decided))
        elif message.ballot < self.promised:
            out.send(source, Refused(self.decided.epoch + 1, message.ballot, self.promised))
        elif source in self.decided.electors and self.votes_here:
            self.promised = message.ballot
            out.send(source, self.promise(message.ballot))

    def promise(self, ballot: int) -> Promise:
        decided = self.decided
        supported = tuple(peer for peer in decided.members if self.supports(peer))
        leavers = tuple(peer for peer in decided.members if peer in self.leavers)
        return Promise(decided.epoch + 1, ballot, self.accepted, supported, leavers, self.joiners)

    def on_accept(self, source: str, message: Accept, now: float, out: VoterOutput) -> None:
        self.learn(message.decided, now, out)
        epoch, ballot = message.value.epoch, message.ballot
        if epoch <= self.decided.epoch:
            out.send(source, ViewDecided(self.decided))
        elif ballot < self.promised:
            out.send(source, Refused(epoch, ballot, self.promised))
        elif source in self.decided.electors and self.votes_here:
            if self.accept(ballot, message.value, message.leavers):
                out.send(source, Accepted(epoch, ballot))
            else:
                out.send(source, NotYet(epoch, ballot))

    def accept(self, ballot: int, value: View, leavers: tuple[Peer, ...]) -> bool:
        self.promised = ballot
        for peer in leavers:
            self.on_leave(peer)
        without = [peer for peer in self.decided.members if peer not in value.members]
        if any(self.supports(peer) for peer in without):
            self.suspect(without)
            return False
        self.accepted = ballot, value
        return True

    def suspect(self, peers: list[Peer]) -> None:
        for peer in peers:
            self.suspected = _with(self.suspected, peer)

    def learn(self, view: View, now: float, out: VoterOutput) -> bool:
        """A view was decided. True: that is news."""
        if view.epoch <= self.decided.epoch:
            return False
        before, self.decided = self.decided, view
        self.promised, self.accepted, self.suspected, self.renew = 0, None, (), False
        if view.voters != before.voters:
            self.wanted = ()
        self.joiners = ()  # a peer that is not in yet asks again
        self.leavers = tuple(peer for peer in self.leavers if peer in view.members)
        self.apart = tuple(pair for pair in self.apart if pair[0] in view.members and pair[1] in view.members)
        self.supported = tuple(entry for entry in self.supported if entry[0] is EVERYBODY or entry[0] in view.members)
        for peer in view.members:
            if peer not in before.members and not self.supports(peer):
                self.support(peer, now)  # it has a little time to be heard of
        if self.me not in before.electors or view.since > before.epoch + 1:
            self.support(EVERYBODY, now)  # it was no voter in the epoch before, or does not know whether it was
        self.give_up()
        out.decided(view)
        return True

    # -- proposing ---------------------------------------------------------------------------------------

    def wants(self, unsupported: tuple[Peer, ...] = ()) -> bool:
        """Is there something to decide? `unsupported`: members that a majority does not support, by
        what is known.
        """
        if not self.votes_here:
            return False
        if self.accepted is not None or self.suspected:
            return True  # rule 5
        members = self.decided.members
        some = any(peer in members for peer in (*self.leavers, *unsupported)) or self.renew or bool(self.wanted)
        return some or bool(self.joiners) or self.victim(members) is not None

    def propose(self, now: float, out: VoterOutput) -> None:
        """A new ballot, higher than any that is known here."""
        place = self.decided.electors.index(self.me)
        self.ballot = (self.promised // MOST_VOTERS + 1) * MOST_VOTERS + place
        self.answers, self.value, self.votes = (), None, ()
        self.promised = self.ballot
        self.to_others(Prepare(self.decided, self.ballot), out)
        self.on_promise(self.me, self.promise(self.ballot), now, out)

    def is_ours(self, epoch: int, ballot: int) -> bool:
        return ballot == self.ballot and epoch == self.decided.epoch + 1

    def on_promise(self, source: str, message: Promise, now: float, out: VoterOutput) -> None:
        if not self.is_ours(message.epoch, message.ballot) or self.value is not None:
            return
        self.answers = _put(self.answers, source, message)
        if len(self.answers) < self.decided.majority:
            return
        self.value = self.choice()
        if self.value is None:
            if len(self.answers) == len(self.decided.voters):
                self.give_up()  # else the next answer may name a member to be excluded
            return
        self.ask(out)
        self.vote_for_it(now, out)

    def ask(self, out: VoterOutput) -> None:
        """Ask all voters that have not accepted it to do so; again and again, for some must first
        wait.
        """
        assert self.value is not None
        message = Accept(self.decided, self.ballot, self.value, self.leaving())
        for name in self.decided.electors:
            if name != self.me and name not in self.votes:
                out.send(name, message)

    def vote_for_it(self, now: float, out: VoterOutput) -> None:
        if self.value is None or self.me in self.votes or self.ballot < self.promised:
            return
        if self.accept(self.ballot, self.value, self.leaving()):
            self.on_vote(self.me, now, out)

    def again(self, now: float, out: VoterOutput) -> None:
        """What was asked and not answered is asked again."""
        if self.value is not None:
            self.ask(out)
            self.vote_for_it(now, out)
        elif self.ballot:
            self.to_others(Prepare(self.decided, self.ballot), out)

    def on_vote(self, source: str, now: float, out: VoterOutput) -> None:
        self.votes = _with(self.votes, source)
        if len(self.votes) >= self.decided.majority and self.value is not None:
            value = self.value
            for name in sorted({*self.decided.electors, *value.electors} - {self.me}):
                out.send(name, ViewDecided(value))
            self.learn(value, now, out)

    def give_up(self) -> None:
        self.ballot, self.answers, self.value, self.votes = 0, (), None, ()

    def leaving(self) -> tuple[Peer, ...]:
        told = {peer for _, answer in self.answers for peer in answer.leavers}
        return tuple(peer for peer in self.decided.members if peer in told or peer in self.leavers)

    def choice(self) -> View | None:
        """What to propose, now that a majority has answered. None: there is nothing to decide."""
        accepted = [answer.accepted for _, answer in self.answers if answer.accepted is not None]
        if accepted:
            return max(accepted, key=lambda entry: entry[0])[1]
        decided = self.decided
        members = set(decided.members) - set(self.leaving()) - set(self.unsupported())
        victim = self.victim(tuple(sorted(members)))
        members -= {victim} if victim is not None else set()
        members |= {peer for peer in self.known() if peer not in self.leavers}
        voters = self.wanted or decided.voters
        same = members == set(decided.members) and voters == decided.voters
        if same and not self.renew and not self.suspected:
            return None
        since = decided.since if voters == decided.voters else decided.epoch + 1
        return View(decided.epoch + 1, tuple(sorted(members)), voters, since)

    def known(self) -> set[Peer]:
        """Joiners that a majority has heard of: one that reaches only a few voters would never have
        a lease.
        """
        wanting = {peer for _, answer in self.answers for peer in answer.joiners}
        return {
            peer
            for peer in wanting
            if sum(peer in answer.joiners for _, answer in self.answers) >= self.decided.majority
        }

    def unsupported(self) -> tuple[Peer, ...]:
        """Members that a majority does not support, by its answers."""
        needed = self.decided.majority
        return tuple(
            peer
            for peer in self.decided.members
            if sum(peer not in answer.supported for _, answer in self.answers) >= needed
        )

    def victim(self, members: tuple[Peer, ...]) -> Peer | None:
        """Of pairs that cannot talk to each other: the one that is in the most of them, else the
        last in order.
        """
        pairs = {frozenset(pair) for pair in self.apart if pair[0] in members and pair[1] in members}
        if not pairs:
            return None
        return max((peer for pair in pairs for peer in pair), key=lambda peer: (sum(peer in p for p in pairs), peer))

    def to_others(self, message: Any, out: VoterOutput) -> None:
        for name in self.decided.electors:
            if name != self.me:
                out.send(name, message)


def _with(names: tuple[Any, ...], name: Any) -> tuple[Any, ...]:
    return names if name in names else tuple(sorted((*names, name)))


def _put(book: tuple[tuple[Any, Any], ...], name: Any, value: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple(
        sorted((*(entry for entry in book if entry[0] != name), (name, value)), key=lambda entry: str(entry[0]))
    )


__all__ = ["EVERYBODY", "Voter", "VoterOutput", "VoterRecord"]
