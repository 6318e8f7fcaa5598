"""Voters, members and leases with one of their rules taken away."""

from __future__ import annotations

from msgspec.structs import replace

from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.member import MemberOutput, QuorumMember
from peerlock.node.quorum.messages import MOST_VOTERS, Heartbeat, HeartbeatAck
from peerlock.node.quorum.voter import EVERYBODY, Voter, VoterOutput, VoterRecord


class AcceptsTooEarly(Voter):
    def accept(self, ballot: int, value: View, leavers: tuple[Peer, ...]) -> bool:
        self.promised = ballot
        self.accepted = ballot, value
        return True


class RenewsAfterAccepting(Voter):
    def refuses(self, heartbeat: Heartbeat) -> str:
        why = super().refuses(heartbeat)
        return "" if "excluded" in why and heartbeat.peer not in self.suspected else why


class VotesAtOnce(Voter):
    """After a restart, although it does not know what it has promised."""

    @classmethod
    def restarted(cls, me: str, lease_s: float, record: VoterRecord, now: float) -> Voter:
        return cls(me, lease_s, record.decided, record.promised, record.accepted)


class ForgetsItsVote(Voter):
    """What it has accepted is not in its record."""

    @classmethod
    def restarted(cls, me: str, lease_s: float, record: VoterRecord, now: float) -> Voter:
        made = cls(me, lease_s, record.decided, record.promised)
        made.support(EVERYBODY, now)
        return made


class ForgetsWhatItPromised(Voter):
    @classmethod
    def restarted(cls, me: str, lease_s: float, record: VoterRecord, now: float) -> Voter:
        made = cls(me, lease_s, record.decided, 0, record.accepted)
        made.support(EVERYBODY, now)
        return made


class ProposesItsOwn(Voter):
    """Although a voter has accepted something."""

    def choice(self) -> View | None:
        self.answers = tuple((name, replace(answer, accepted=None)) for name, answer in self.answers)
        return super().choice()


class NeedsNoMajority(Voter):
    def on_vote(self, source: str, now: float, out: VoterOutput) -> None:
        self.votes = self.decided.electors
        super().on_vote(source, now, out)


class NewVotersVoteAtOnce(Voter):
    def learn(self, view: View, now: float, out: VoterOutput) -> bool:
        news = super().learn(view, now, out)
        self.supported = tuple(entry for entry in self.supported if entry[0] is not EVERYBODY)
        return news


class RenewsWhileVotersChange(Voter):
    def refuses(self, heartbeat: Heartbeat) -> str:
        why = super().refuses(heartbeat)
        return "" if "the voters change" in why else why


class CountsOldAnswers(Voter):
    """Answers to an earlier ballot of its own are as good as those to this one."""

    def is_ours(self, epoch: int, ballot: int) -> bool:
        mine = ballot % MOST_VOTERS == self.ballot % MOST_VOTERS
        return bool(self.ballot) and mine and epoch == self.decided.epoch + 1


class TakesInWhoIsGone(Voter):
    """An old wish is as good as a new one."""

    def on_heartbeat(self, heartbeat: Heartbeat, now: float, out: VoterOutput) -> None:
        if heartbeat.wish == "join":
            heartbeat = Heartbeat(heartbeat.number, heartbeat.peer, self.decided.epoch, "join")
        super().on_heartbeat(heartbeat, now, out)


class RenewsByName(Voter):
    """Supports any peer that has the name of a member."""

    def on_heartbeat(self, heartbeat: Heartbeat, now: float, out: VoterOutput) -> None:
        namesakes = [peer for peer in self.decided.members if peer.name == heartbeat.peer.name]
        if not heartbeat.wish and namesakes and heartbeat.peer not in namesakes:
            out.answer(heartbeat.peer, HeartbeatAck(heartbeat.number, True))
        else:
            super().on_heartbeat(heartbeat, now, out)


class KeepsRenewing(Voter):
    """Although it was asked to exclude a member."""

    def suspect(self, peers: list[Peer]) -> None:
        pass


class LeavesItToOthers(Voter):
    """Refuses renewals because of an epoch that is not decided, and does not propose in it."""

    def wants(self, unsupported: tuple[Peer, ...] = ()) -> bool:
        return self.accepted is None and not self.suspected and super().wants(unsupported)


class BelievesAMinority(Lease):
    def confirm(self, voter: str, number: int, needed: int, now: float) -> bool:
        return super().confirm(voter, number, 1, now)


class LeavesAndBelieves(QuorumMember):
    def leave(self, now: float, out: MemberOutput) -> None:
        self.wish = "leave"
        self.heartbeat(now, out)


class RemembersWhoLeft(Voter):
    def learn(self, view: View, now: float, out: VoterOutput) -> bool:
        leavers = self.leavers
        news = super().learn(view, now, out)
        self.leavers = tuple(sorted({*leavers, *self.leavers}))
        return news


class SplitsNoPairs(Voter):
    def victim(self, members: tuple[Peer, ...]) -> Peer | None:
        return None


class LeaseFromTheAnswer(Lease):
    """Runs for D from when the answer came."""

    def confirm(self, voter: str, number: int, needed: int, now: float) -> bool:
        self.sent = tuple((at, now if at == number else when) for at, when in self.sent)
        return super().confirm(voter, number, needed, now)
