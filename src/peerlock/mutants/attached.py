"""The local protocol of a host node and its attached processes, with one rule taken away.

The numbers are those of the rules in `node/attached/__init__.py`.
"""

from __future__ import annotations

from peerlock.contract import Mode
from peerlock.node.attached.chain import Chain, Named, Number, ProcessId
from peerlock.node.attached.host import HostLock
from peerlock.node.attached.messages import Cancel, FromHost, Hand, Recall, Report, Successors, ToHost, Want
from peerlock.node.attached.process import ProcessLock


class TakesHandsOfOldGenerations(ProcessLock):  # 1
    def hear(self, generation: int, message: FromHost | Hand) -> None:
        self.take(message)


class UsesMoreFencesThanItHas(ProcessLock):  # 2
    def request(self, mode: Mode) -> None:
        if self.number:
            self.end = max(self.end, self.used + 1)
        super().request(mode)


class KeepsTheLockFromItsSuccessor(ProcessLock):  # 3
    def pass_on(self, wanted: bool) -> None:
        if not wanted:
            super().pass_on(wanted)


class DropsWhatNoCallerWants(ProcessLock):  # 3
    def pass_on(self, wanted: bool) -> None:
        if wanted:
            super().pass_on(wanted)
        else:
            self.forget()


class ReplacesASuccessor(HostLock):  # 3
    def hear(self, process: ProcessId, message: ToHost) -> None:
        if isinstance(message, Cancel):
            self.named = tuple(named for named in self.named if named.process != process)
        super().hear(process, message)


class ForgetsWhatCameEarly(ProcessLock):  # 4
    def on_order(self, order: Successors | Recall) -> None:
        if order.number <= self.last:
            super().on_order(order)


class AcceptsANumberTwice(ProcessLock):  # 5
    def arrive(self, number: Number, end: int, keep: bool, chain: Chain = (), mode: Mode = "write") -> None:
        self.last = min(self.last, number - 1)
        super().arrive(number, end, keep, chain, mode)


class GrantsANewNumber(HostLock):  # 6
    def ended(self, process: ProcessId) -> None:
        if self.named and len(self.owners) == 1:
            number, end = self.out.numbers(process)
            self.named = (Named(self.named[0].process, number, end), *self.named[1:])
        super().ended(process)


class TrustsTheHandOver(HostLock):  # 6
    def ended(self, process: ProcessId) -> None:
        named = self.named
        del self.owners[process]
        self.revoking -= {process}
        if not self.owners:
            self.recalled, self.handed_over = False, None
            if named:
                self.succeed()


class LooksBeforeItMarks(ProcessLock):  # 7
    def enter(self) -> None:
        self.at = "entering"

    def looked(self, revoked: Number) -> bool:
        self.out.mark(self.number)
        return super().looked(self.seen)

    seen = 0


class LooksBeforeItRevokes(HostLock):  # 7
    def revoke(self, process: ProcessId) -> None:
        self.revoking |= {process}

    def found(self, process: ProcessId, inside: Number, mode: Mode) -> None:
        if process in self.revoking and inside != self.owners[process] and process not in self.reading:
            self.reading |= {process}
        elif process in self.reading:
            self.reading -= {process}
            if process in self.revoking:
                self.out.revoke_page(process, self.owners[process])
                super().found(process, 0, mode)


class RevokesWhoeverIsInside(HostLock):  # 7
    def found(self, process: ProcessId, inside: Number, mode: Mode) -> None:
        super().found(process, 0 if process in self.revoking else inside, mode)


class WaitsForTheWordOfTheOwner(HostLock):  # 8
    def has_it(self, process: ProcessId, number: Number) -> None:
        pass


class RemembersOldSuccessors(ProcessLock):  # 9
    def begin(self, generation: int) -> Report:
        chain = self.chain
        report = super().begin(generation)
        self.chain = chain
        return report


class GrantsBeforeAllHaveReported(HostLock):  # 10
    def resolved(self, process: ProcessId, number: Number, mode: Mode) -> None:
        super().resolved(process, number, mode)
        self.unresolved = frozenset()


class TheFirstThatReportsOwns(HostLock):  # 10
    def resolved(self, process: ProcessId, number: Number, mode: Mode) -> None:
        super().resolved(process, number if not self.owners else 0, mode)


class ReadsWithoutRevoking(HostLock):  # 11
    def read(self, process: ProcessId, older: Number) -> None:
        self.reading |= {process}


class TakesASilentProcessForIdle(HostLock):  # 11
    def found(self, process: ProcessId, inside: Number, mode: Mode) -> None:
        super().found(process, 0 if process in self.reading else inside, mode)


class IgnoresALateReport(HostLock):  # 11
    def reported(self, process: ProcessId, report: Report) -> None:
        if process in self.unresolved:
            super().reported(process, report)
        elif report.wants is not None:
            self.want(process, report.wants)


class AsksWithoutReturning(ProcessLock):  # 12
    def looked(self, revoked: Number) -> bool:
        if revoked < self.number:
            return super().looked(revoked)
        self.out.mark(0)
        self.forget()
        self.at = "want"
        self.out.send(Want(self.mode))
        return False


class GrantsNothingAgain(HostLock):  # 13
    def died(self, process: ProcessId) -> None:
        self.handed_over = None
        super().died(process)


class EntersInItsOwnMode(ProcessLock):  # 14
    def arrive(self, number: Number, end: int, keep: bool, chain: Chain = (), mode: Mode = "write") -> None:
        super().arrive(number, end, keep, chain, self.mode)


class TakesANumberUnderWayForGone(HostLock):  # 15
    def compare(self, process: ProcessId, report: Report) -> None:
        super().compare(process, Report(report.number, last=self.owners.get(process, 0)))


class SaysNothingAgain(HostLock):  # 15
    def tell_again(self, process: ProcessId) -> None:
        pass
