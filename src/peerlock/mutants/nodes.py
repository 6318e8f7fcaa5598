"""Whole nodes with one of their rules taken away. `sim/cluster/planted.py` has the list for the
simulator.
"""

from __future__ import annotations

from math import inf

from peerlock.mutants import views
from peerlock.node.core import Core
from peerlock.node.links import Links
from peerlock.node.membership.view import View
from peerlock.node.membership.view_change import ViewChange
from peerlock.node.peer import Peer
from peerlock.node.session import Session
from peerlock.node.wire import Frame


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

    def receive(self, peer: Peer, frame: Frame, now: float) -> View | None:
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
        early = self.delivery.early
        super().learn(epoch, members, now)
        self.delivery.early = early + self.delivery.early if self.delivery.early is not early else early


class RemembersTheDead(Core):
    """Sessions with peers that are gone are kept."""

    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        before = dict(self.links.sessions)
        super().learn(epoch, members, now)
        self.links.sessions.update({peer: before[peer] for peer in before.keys() - self.links.sessions.keys()})


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


def core_with(view_change: type[ViewChange] = ViewChange, session: type[Session] = Session) -> type[Core]:
    class ChangedLinks(Links):
        sessions_of = session

    class Changed(Core):
        views_of = view_change
        links_of = ChangedLinks

    return Changed


# For real processes (`peerlock verify --planted`).
PLANTED_CORES: dict[str, type[Core]] = {"lease not checked": LeaseNotChecked}
