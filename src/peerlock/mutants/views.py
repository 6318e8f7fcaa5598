"""The view change with one of its rules taken away."""

from __future__ import annotations

from typing import Literal

from peerlock.contract import note
from peerlock.node.membership.view_change import Reports, ViewChange, Who


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
    """Reports for a newer epoch, and still starts the one before with its reports."""

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

    def on_report(self, source: Who, epoch: int, report: object) -> bool:
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
