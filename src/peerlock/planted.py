"""Bugs, planted: the rules of views, sessions and nodes, each taken away in turn.

Checker and simulator must find every one of them. What they cannot find they do not check.
"""

from __future__ import annotations

from math import inf
from typing import Any, Literal

from msgspec.structs import replace

from peerlock.contract import note
from peerlock.node.core import Core
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.view import View
from peerlock.node.membership.view_change import Reports, ViewChange, Who
from peerlock.node.peer import Peer
from peerlock.node.quorum.member import MemberOutput, QuorumMember
from peerlock.node.quorum.messages import MOST_VOTERS, Heartbeat, HeartbeatAck
from peerlock.node.quorum.voter import EVERYBODY, Voter, VoterOutput, VoterRecord
from peerlock.node.session import Session
from peerlock.node.store.member import StoreMember, StoreOutput
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Renew, Request, Snapshot, Swap


class StartsWithAMajority(ViewChange):
    def complete(self) -> bool:
        return len(self.reports) * 2 > len(self.coming) and any(who == self.me for who, _ in self.reports)


class NeverWedges(ViewChange):
    """Reports, and goes on in the old epoch until the new one starts."""

    @property
    def wedged(self) -> bool:
        return self.epoch == 0

    def fate(self, epoch: int) -> Literal["deliver", "drop", "wait"]:
        return "deliver" if epoch == self.epoch and self.epoch else super().fate(epoch)


class DeliversOldEpochs(ViewChange):
    def fate(self, epoch: int) -> Literal["deliver", "drop", "wait"]:
        return "deliver" if 0 < epoch <= self.epoch == self.known else super().fate(epoch)


class DropsNewerEpochs(ViewChange):
    def fate(self, epoch: int) -> Literal["deliver", "drop", "wait"]:
        return "deliver" if super().fate(epoch) == "deliver" else "drop"


class StartsOlderEpochs(ViewChange):
    """Learns of a newer epoch, reports for it, and still starts the one before when its reports are there."""

    older: int = 0
    older_members: tuple[Who, ...] = ()
    older_reports: Reports = ()
    in_older: bool = False

    @property
    def wedged(self) -> bool:
        return super().wedged and not self.in_older

    def learn(self, epoch: int, members: tuple[Who, ...]) -> bool:
        if self.known > self.epoch and epoch > self.known and self.me in self.coming:
            self.older, self.older_members, self.older_reports = self.known, self.coming, self.reports
        return super().learn(epoch, members)

    def on_report(self, source: Who, epoch: int, report: Any) -> bool:
        if epoch == self.older and self.epoch < epoch:
            self.older_reports = note(self.older_reports, source, report)
            return len(self.older_reports) == len(self.older_members)
        return super().on_report(source, epoch, report)

    def begin(self) -> Reports:
        if self.older > self.epoch and len(self.older_reports) == len(self.older_members):
            self.in_older = True
            self.epoch, self.members = self.older, self.older_members
            return self.older_reports
        self.older, self.older_members, self.older_reports, self.in_older = 0, (), (), False
        return super().begin()

    def fate(self, epoch: int) -> Literal["deliver", "drop", "wait"]:
        return "deliver" if self.in_older and epoch == self.epoch else super().fate(epoch)


# -- sessions ------------------------------------------------------------------------------------------


class KeepsNothing(Session):
    """What was sent once is forgotten: nothing waits for an acknowledgement."""

    __slots__ = ()

    def post(self, epoch: int, frame: bytes, about: str = "") -> None:
        linked = self.linked
        super().post(epoch, frame, about)
        if linked:
            self.kept.clear()


class TakesDuplicates(Session):
    __slots__ = ()

    def accept(self, seq: int, ack: int) -> bool:
        return super().accept(seq, ack) or True


class ForgetsNothing(Session):
    """What was acknowledged is kept, too."""

    __slots__ = ()

    def accept(self, seq: int, ack: int) -> bool:
        kept = self.kept.copy()
        news = super().accept(seq, ack)
        self.kept = kept
        return news


# -- voters and the members that they support ---------------------------------------------------------------------


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
    """Although somebody has accepted something."""

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
    """Supports whoever has the name of a member."""

    def on_heartbeat(self, heartbeat: Heartbeat, now: float, out: VoterOutput) -> None:
        namesakes = [peer for peer in self.decided.members if _name(peer) == _name(heartbeat.peer)]
        if not heartbeat.wish and namesakes and heartbeat.peer not in namesakes:
            out.answer(heartbeat.peer, HeartbeatAck(heartbeat.number, True))
        else:
            super().on_heartbeat(heartbeat, now, out)


def _name(peer: Any) -> str:
    """Without what tells its incarnations apart."""
    return peer.name if isinstance(peer, Peer) else str(peer).rstrip("'")


class KeepsRenewing(Voter):
    """Although it was asked to exclude a member."""

    def suspect(self, peers: list[Peer]) -> None:
        pass


class LeavesItToOthers(Voter):
    """Refuses renewals because of an epoch that is not decided, and does not propose in it."""

    def wants(self, unsupported: tuple[Peer, ...] = ()) -> bool:
        return self.accepted is None and not self.suspected and super().wants(unsupported)


class BelievesAMinority(Lease):
    def confirm(self, voter: Any, number: int, needed: int, now: float) -> bool:
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


# -- stores and those who write to them --------------------------------------------------------------------


class ComparesNoHeartbeats(StoreMember):
    """Leaves somebody out, whether or not it has renewed since."""

    def swap(self, steady: float, out: StoreOutput, take_in: bool = False) -> bool:
        blind: Any = _Blind(out)
        return super().swap(steady, blind, take_in)


class _Blind:
    def __init__(self, out: StoreOutput) -> None:
        self.out = out

    def ask(self, request: Request) -> None:
        assert isinstance(request, Swap)
        self.out.ask(replace(request, heartbeats=()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.out, name)


class HasNoPatience(StoreMember):
    def dead(self, steady: float) -> tuple[int, ...]:
        return tuple(who for who, _, _ in self.seen)


class RenewsWhenMarked(StoreMember):
    @property
    def is_marked(self) -> bool:
        return False


class LeavesTheStoreAndBelieves(StoreMember):
    def leave(self, steady: float, out: StoreOutput) -> None:
        self.wish = "leave"
        self.maintain_view(steady, out)


class RenewsInAnyView(MemoryStore):
    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        if isinstance(request, Renew):
            request = replace(request, revision=self.snapshot.revision)
        return super().ask(request)


class SwapsAnyView(MemoryStore):
    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        if isinstance(request, Swap):
            request = replace(request, revision=self.snapshot.revision)
        return super().ask(request)


class BelievesWhatItKnew(StoreMember):
    """A renewal counts, whatever became known since it was asked for."""

    @property
    def is_member(self) -> bool:
        return True


class LodgesByName(StoreMember):
    """Takes a view with its name for one with it."""

    @property
    def is_member(self) -> bool:
        return self.wish != "leave" and any(peer.name == self.me.name for peer in self.members)


# -- whole nodes -----------------------------------------------------------------------------------------


class ReportsAnew(Core):
    """The lowest member gets a report that was made later than that of the others."""

    owed: Peer | None = None

    def report(self) -> None:
        view_change, locks = self.view_change, self.table.report(self.now)
        others = [peer for peer in view_change.coming if peer != self.me]
        for peer in others[1:]:
            self.send_report(peer, locks)
        self.owed = others[0] if others else None
        self.on_report(self.me, view_change.known, locks)

    def receive(self, peer: Peer, frame: Any, now: float) -> None:
        super().receive(peer, frame, now)
        self.pay()

    def tick(self, now: float) -> None:
        super().tick(now)
        self.pay()

    def pay(self) -> None:
        owed, self.owed = self.owed, None
        if owed is not None and owed in self.view_change.coming:
            self.send_report(owed, self.table.report(self.now))


class DeliversWhatWaited(Core):
    """What waited for an epoch that never started here is delivered in the next one.

    Sessions keep the order, so nothing else of an old epoch can come after the reports of a new one.
    """

    views_of = DeliversOldEpochs

    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        early = self.early
        super().learn(epoch, members, now)
        self.early = early + self.early if self.early is not early else early


class RemembersTheDead(Core):
    """Sessions with those who are gone are kept."""

    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        before = dict(self.sessions)
        super().learn(epoch, members, now)
        self.sessions |= {peer: session for peer, session in before.items() if peer not in self.sessions}


class BelievesAtOnce(Core):
    """It holds without asking the registry."""

    def begin(self) -> None:
        self.table.may_hold = True
        super().begin()


class TellsTheSuccessorAlone(Core):
    """What was held back is never sent."""

    def on_withheld_due(self, now: float) -> None:
        self.table.withheld, self.table.withheld_timer_set = {}, False


class LeaseNotChecked(Core):
    """The first lease allows it to hold for good."""

    def leased(self, until: float, now: float) -> None:
        super().leased(until, now)
        self.table.until = inf


class LeaseFromTheAnswer(Lease):
    """Runs for D from when the answer came."""

    def confirm(self, voter: Any, number: int, needed: int, now: float) -> bool:
        self.sent = tuple((at, now if at == number else when) for at, when in self.sent)
        return super().confirm(voter, number, needed, now)


class PatienceFromTheStart(StoreMember):
    """Counts from when it looked at the store for the first time, not from the heartbeat that it saw."""

    @staticmethod
    def since(before: tuple[int, float] | None, revision: int, steady: float) -> float:
        return before[1] if before is not None else steady


def _core(name: str, **parts: Any) -> type[Core]:
    return type(name, (Core,), parts)


PLANTED: dict[str, type[Core]] = {
    "no acknowledgement": _core("NoAcknowledgement", sessions_of=KeepsNothing),
    "no duplicate check": _core("NoDuplicateCheck", sessions_of=TakesDuplicates),
    "reports from a majority only": _core("MajorityReports", views_of=StartsWithAMajority),
    "report changed between two receivers": ReportsAnew,
    "old epochs delivered": DeliversWhatWaited,
    "newer epochs dropped": _core("NewerEpochs", views_of=DropsNewerEpochs),
    "no wedge before the report": _core("NoWedge", views_of=NeverWedges),
    "older epochs started": _core("OlderEpochs", views_of=StartsOlderEpochs),
    "holds without permission": BelievesAtOnce,
    "requests sent to the successor alone": TellsTheSuccessorAlone,
}
# With leases: which registry, and what is replaced. What is not here is for the checker. Whole nodes have a second guard
# against LeavesAndBelieves (holds are dropped before anything is said), RenewsInAnyView and BelievesWhatItKnew (each looks
# where the other does not); ForgetsWhatItPromised, RenewsWhileVotersChange, CountsOldAnswers, RenewsByName and LodgesByName
# need a coincidence that 2,000 seeds do not have.
PLANTED_LEASED: dict[str, tuple[str, dict[str, Any]]] = {
    "lease not checked": ("voters", {"core": LeaseNotChecked}),
    "lease counted from the answer": ("voters", {"lease": LeaseFromTheAnswer}),
    "a minority confirms a lease": ("voters", {"lease": BelievesAMinority}),
    "voters accept before their promise has run out": ("voters", {"voter": AcceptsTooEarly}),
    "voters renew after accepting": ("voters", {"voter": RenewsAfterAccepting}),
    "a restarted voter votes at once": ("voters", {"voter": VotesAtOnce}),
    "a new voter votes at once": ("voters", {"voter": NewVotersVoteAtOnce}),
    "a voter forgets what it has accepted": ("voters", {"voter": ForgetsItsVote}),
    "what was accepted is not proposed again": ("voters", {"voter": ProposesItsOwn}),
    "one voter decides": ("voters", {"voter": NeedsNoMajority}),
    "an old wish admits a peer": ("voters", {"voter": TakesInWhoIsGone}),
    "who refuses does not propose": ("voters", {"voter": LeavesItToOthers}),
    "voters split no pairs": ("voters", {"voter": SplitsNoPairs}),
    "the asked voter keeps renewing": ("voters", {"voter": KeepsRenewing}),
    "what was acknowledged is kept": ("voters", {"core": _core("KeptForGood", sessions_of=ForgetsNothing)}),
    "sessions of the dead are kept": ("voters", {"core": RemembersTheDead}),
    "voters remember who left": ("voters", {"voter": RemembersWhoLeft}),
    "store: no patience": ("store", {"store_member": HasNoPatience}),
    "store: patience from the start": ("store", {"store_member": PatienceFromTheStart}),
    "store: heartbeats not compared": ("store", {"store_member": ComparesNoHeartbeats}),
    "store: views not compared": ("store", {"memory": SwapsAnyView}),
    "store: who is marked renews": ("store", {"store_member": RenewsWhenMarked}),
    "store: lease not checked": ("store", {"core": LeaseNotChecked}),
    "store: lease counted from the answer": ("store", {"lease": LeaseFromTheAnswer}),
}

__all__ = ["PLANTED", "PLANTED_LEASED"]
