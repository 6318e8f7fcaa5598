"""The members of the group, epoch after epoch, as one of them sees it.

The papers' algorithms know one fixed group that never fails. So every lock runs inside a *view*: an
epoch's number and the members of that epoch. When a member crashes, joins or leaves, a registry
decides the next view, and the group moves there:

    epoch e runs --learn(e+1)--> wedged --all reports of e+1--> epoch e+1 runs

1. A member that learns of e+1 is *wedged*: it delivers nothing and grants nothing in e, ever again.
2. Then it makes its report, what it holds and what it waits for. The report is made **once**, and
   every member of e+1 gets that same one. A release while wedged does not change it; it takes
   effect when e+1 has started.
3. With the reports of **all** members of e+1, every algorithm starts anew with those inside that
   were reported inside.
4. What was said in older epochs is dropped. What is said in e+1 before it has started here waits.
5. A member that knows of a newer epoch neither reports for an older one nor starts it. A joiner
   holds nothing.

Why no two members are inside at once: each epoch is a legal run of its algorithm, cut off at
different places at different members (1 and 4), and a prefix of a run that excludes, excludes. A
member that was inside at the cut and is in e+1 has said so before e+1 started anywhere (2, 3), and
entered at no later time (1); a member that is not in e+1 is dead, or the registry has made sure
that it does not believe to be inside. So e+1 starts from a legal `inside`. Numbers 2, 3, 5 leave no
second story of e+1.

This file is the bookkeeping of these rules and nothing else: it is the same for one lock, which
`peerlock.check` explores in every interleaving with each rule taken away in turn, and for a hundred
thousand.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from peerlock.contract import NodeId, note

Who: TypeAlias = Any  # a member: whatever names one incarnation, can be hashed and has an order
Reports: TypeAlias = tuple[tuple[Who, Any], ...]  # in the order of the members' names


class ViewChange(Struct):
    """One member's place in the succession of epochs."""

    me: Who
    epoch: int = 0  # the epoch that runs here, or ran last; 0: none has
    members: tuple[Who, ...] = ()  # of that epoch; the place in it is the number that algorithms know
    known: int = 0  # the newest epoch known to be decided
    coming: tuple[Who, ...] = ()  # its members
    reports: Reports = ()  # their reports for it, as far as they are here

    @property
    def wedged(self) -> bool:
        """Nothing is delivered and nothing is granted."""
        return self.known != self.epoch or self.epoch == 0

    @property
    def excluded(self) -> bool:
        """The newest view is one without us."""
        return self.known > 0 and self.me not in self.coming

    def learn(self, epoch: int, members: tuple[Who, ...]) -> bool:
        """A view was decided. True: it is news; the caller makes its report, once, for `on_report`
        and for everybody.
        """
        if epoch <= self.known:
            return False
        self.known, self.coming, self.reports = epoch, members, ()
        return True

    def on_report(self, source: Who, epoch: int, report: Any) -> bool:
        """A member's report. True: it was the last, so the caller starts the epoch with `begin`."""
        if epoch != self.known or self.epoch == self.known or source not in self.coming:
            return False  # of an epoch that is over here, or has started
        self.reports = note(self.reports, source, report)
        return self.complete()

    def complete(self) -> bool:
        return len(self.reports) == len(self.coming)

    def missing(self) -> tuple[Who, ...]:
        """Whose reports keep the next epoch from starting."""
        have = {who for who, _ in self.reports}
        return tuple(who for who in self.coming if who not in have) if self.wedged else ()

    def begin(self) -> Reports:
        """The epoch starts here. The reports of its members: what it starts from."""
        assert self.me in self.coming and self.complete(), f"epoch {self.known} started without the reports: {self}"
        reports, self.reports = self.reports, ()
        self.epoch, self.members = self.known, self.coming
        return reports

    def fate(self, epoch: int) -> Literal["deliver", "drop", "wait"]:
        """What becomes of a message of that epoch."""
        if epoch < self.known or self.excluded:
            return "drop"
        return "deliver" if epoch == self.epoch else "wait"

    # An algorithm knows its group as the numbers 1 to N; they are the places of the members in
    # their view.

    def number(self, who: Who) -> NodeId:
        return self.members.index(who) + 1

    def member(self, number: NodeId) -> Who:
        return self.members[number - 1]
