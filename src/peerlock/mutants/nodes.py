"""Whole nodes with one of their rules taken away, and the lists of mutants for the simulator.

Checker and simulator must find every one of them. What they cannot find they do not check.
"""

from __future__ import annotations

from math import inf
from typing import Any

from peerlock.mutants import quorum, sessions, store, views
from peerlock.node.core import Core
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer


class ReportsAnew(Core):
    """The lowest member gets a report that was made later than that of the others."""

    owed: Peer | None = None

    def report(self) -> None:
        view_change, locks = self.view_change, self.table.report(self.table.now)
        others = [peer for peer in view_change.coming if peer != self.me]
        for peer in others[1:]:
            self.send_report(peer, locks)
        self.owed = others[0] if others else None
        self.on_report(self.me, view_change.known, locks)

    def receive(self, peer: Peer, frame: Any, now: float) -> View | None:
        found = super().receive(peer, frame, now)
        self.pay()
        return found

    def tick(self, now: float) -> None:
        super().tick(now)
        self.pay()

    def pay(self) -> None:
        owed, self.owed = self.owed, None
        if owed is not None and owed in self.view_change.coming:
            self.send_report(owed, self.table.report(self.table.now))


class DeliversWhatWaited(Core):
    """What waited for an epoch that never started here is delivered in the next one.

    Sessions keep the order, so nothing else of an old epoch can come after the reports of a new
    one.
    """

    views_of = views.DeliversOldEpochs

    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        early = self.early
        super().learn(epoch, members, now)
        self.early = early + self.early if self.early is not early else early


class RemembersTheDead(Core):
    """Sessions with peers that are gone are kept."""

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
        self.deadline.until = inf


def _core(name: str, **parts: Any) -> type[Core]:
    return type(name, (Core,), parts)


PLANTED: dict[str, type[Core]] = {
    "no acknowledgement": _core("NoAcknowledgement", sessions_of=sessions.KeepsNothing),
    "no duplicate check": _core("NoDuplicateCheck", sessions_of=sessions.TakesDuplicates),
    "reports from a majority only": _core("MajorityReports", views_of=views.StartsWithAMajority),
    "report changed between two receivers": ReportsAnew,
    "old epochs delivered": DeliversWhatWaited,
    "newer epochs dropped": _core("NewerEpochs", views_of=views.DropsNewerEpochs),
    "no wedge before the report": _core("NoWedge", views_of=views.NeverWedges),
    "older epochs started": _core("OlderEpochs", views_of=views.StartsOlderEpochs),
    "holds without permission": BelievesAtOnce,
    "requests sent to the successor alone": TellsTheSuccessorAlone,
}
# With leases: which registry, and what is replaced. What is not here is for the checker. Whole
# nodes have a second guard against LeavesAndBelieves (holds are dropped before anything is said),
# RenewsInAnyView and BelievesWhatItKnew (each looks where the other does not);
# ForgetsWhatItPromised, RenewsWhileVotersChange, CountsOldAnswers, RenewsByName and
# RenewsByNameInAStore need a coincidence that 2,000 seeds do not have.
PLANTED_LEASED: dict[str, tuple[str, dict[str, Any]]] = {
    "lease not checked": ("voters", {"core": LeaseNotChecked}),
    "lease counted from the answer": ("voters", {"lease": quorum.LeaseFromTheAnswer}),
    "a minority confirms a lease": ("voters", {"lease": quorum.BelievesAMinority}),
    "voters accept before their promise has run out": ("voters", {"voter": quorum.AcceptsTooEarly}),
    "voters renew after accepting": ("voters", {"voter": quorum.RenewsAfterAccepting}),
    "a restarted voter votes at once": ("voters", {"voter": quorum.VotesAtOnce}),
    "a new voter votes at once": ("voters", {"voter": quorum.NewVotersVoteAtOnce}),
    "a voter forgets what it has accepted": ("voters", {"voter": quorum.ForgetsItsVote}),
    "what was accepted is not proposed again": ("voters", {"voter": quorum.ProposesItsOwn}),
    "one voter decides": ("voters", {"voter": quorum.NeedsNoMajority}),
    "an old wish admits a peer": ("voters", {"voter": quorum.TakesInWhoIsGone}),
    "who refuses does not propose": ("voters", {"voter": quorum.LeavesItToOthers}),
    "voters split no pairs": ("voters", {"voter": quorum.SplitsNoPairs}),
    "the asked voter keeps renewing": ("voters", {"voter": quorum.KeepsRenewing}),
    "what was acknowledged is kept": ("voters", {"core": _core("KeptForGood", sessions_of=sessions.ForgetsNothing)}),
    "sessions of the dead are kept": ("voters", {"core": RemembersTheDead}),
    "voters remember who left": ("voters", {"voter": quorum.RemembersWhoLeft}),
    "store: no patience": ("store", {"store_member": store.HasNoPatience}),
    "store: patience from the start": ("store", {"store_member": store.PatienceFromTheStart}),
    "store: heartbeats not compared": ("store", {"store_member": store.ComparesNoHeartbeats}),
    "store: views not compared": ("store", {"memory": store.SwapsAnyView}),
    "store: who is marked renews": ("store", {"store_member": store.RenewsWhenMarked}),
    "store: lease not checked": ("store", {"core": LeaseNotChecked}),
    "store: lease counted from the answer": ("store", {"lease": quorum.LeaseFromTheAnswer}),
}

__all__ = ["PLANTED", "PLANTED_LEASED"]
