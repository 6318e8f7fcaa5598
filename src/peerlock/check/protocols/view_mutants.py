"""The view change with one rule taken away at a time: two holders, or a group that stands still.

Each mutant names the rule, and the smallest group and the algorithm with which its absence shows.
`peerlock check-views` runs them all. The mutants of `ViewChange` are in `peerlock.mutants.nodes`:
the simulator plants them into whole nodes.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from peerlock.algorithms import choose
from peerlock.check.protocols.view_change import Group, Registry
from peerlock.check.protocols.view_member import Inner, Member, Report
from peerlock.contract import Mode, NodeId, Out, Wire
from peerlock.mutants import views
from peerlock.node.locks.participant import Participant
from peerlock.node.membership.view_change import ViewChange


class ReportsTwice(Member):
    """The last receiver gets the report at once; the others get one that is made later."""

    owed: tuple[NodeId, ...] = ()

    def report(self, out: Out[Wire]) -> None:
        *rest, first = [j for j in self.view_change.coming if j != self.me]
        mine = Report(self.view_change.known, self.view_change.coming, self.participant.held())
        out.send(first, mine)
        self.owed = tuple(rest)
        self.on_report(self.me, mine, out)

    def tell_the_others(self, out: Out[Wire]) -> None:
        for j in self.owed:
            out.send(j, Report(self.view_change.known, self.view_change.coming, self.participant.held()))
        self.owed = ()

    def release(self, out: Out[Wire]) -> None:
        super().release(out)
        self.tell_the_others(out)

    def receive(self, source: NodeId, message: Wire, out: Out[Wire]) -> None:
        super().receive(source, message, out)
        if isinstance(message, Report):
            self.tell_the_others(out)


class ReleasesWhileWedged(Member):
    """What was released after the report is not inside when the epoch starts, but only here."""

    def inside(self, reported: dict[NodeId, Mode]) -> dict[NodeId, Mode]:
        me = self.view_change.number(self.me)
        return {j: mode for j, mode in reported.items() if j != me or self.participant.has}


class RemembersWhatItWasGiven(Participant):
    """A joiner that still thinks it is about to enter."""

    __slots__ = ()

    def held(self) -> Mode | None:
        return self.want if self.has or self.at == "inside" else None

    def drop(self) -> None:
        pass


class BelievesAtOnce(Member):
    """A member holds as soon as its algorithm says so."""

    def settle(self, out: Out[Wire]) -> None:
        self.may_hold = True
        super().settle(out)


class KeepsItsHold(Member):
    """Its lease has run out, and it goes on."""

    def lose(self, out: Out[Wire]) -> None:
        pass


class LeavesOutBelievers(Registry):
    def protected(self) -> frozenset[NodeId]:
        return frozenset()


class RenewsByName(Registry):
    """Node 3 is the first one, started again; the old process is still there."""

    def may_hold(self, source: NodeId) -> bool:
        return source in self.members or (source == 1 and 3 in self.members)


def _viewed(kind: type[ViewChange]) -> type[Member]:
    class Mutant(Member):
        views: ClassVar[type[ViewChange]] = kind

        def on_inner(self, source: NodeId, message: Inner, out: Out[Wire]) -> None:
            if source in self.view_change.members or self.view_change.fate(message.epoch) != "deliver":
                super().on_inner(source, message, out)

        def ignores(self, message: Wire) -> bool:
            return False  # what such a view ignores now it may yet deliver

    Mutant.__name__ = kind.__name__
    return Mutant


class _Remembers(Member):
    participants: ClassVar[type[Participant]] = RemembersWhatItWasGiven


class ViewMutant(Struct, frozen=True):
    rule: str  # that it breaks
    group: Group


_SK = choose("suzuki-kasami-a")
MUTANTS = (
    ViewMutant("reports from all", Group(_SK, member=_viewed(views.StartsWithAMajority), renewals=1)),
    ViewMutant("report once", Group(_SK, member=ReportsTwice, renewals=1)),
    ViewMutant("wedge before the report", Group(_SK, member=_viewed(views.NeverWedges), renewals=1)),
    ViewMutant("old epochs are dropped", Group(_SK, member=_viewed(views.DeliversOldEpochs), renewals=1)),
    ViewMutant("newer messages wait", Group(_SK, member=_viewed(views.DropsNewerEpochs), renewals=1)),
    ViewMutant("never an epoch older than one you know", Group(_SK, member=_viewed(views.StartsOlderEpochs), renewals=2)),
    ViewMutant("a release while wedged waits for the start", Group(_SK, member=ReleasesWhileWedged, renewals=1)),
    ViewMutant("a joiner drops its holds", Group(_SK, member=_Remembers, stops=1)),
    ViewMutant("hold only when the registry allows it", Group(_SK, member=BelievesAtOnce, stops=1)),
    ViewMutant("what is held is lost with the lease", Group(_SK, member=KeepsItsHold, stops=1, lapsers=(1,))),
    ViewMutant("the promise runs out first", Group(_SK, decider=LeavesOutBelievers, stops=1, lapsers=(1,))),
    ViewMutant("renew by incarnation",
               Group(_SK, decider=RenewsByName, members=2, joiners=1, stops=1, lapsers=(1,), entries=(2, 1, 1))),
)  # fmt: skip
