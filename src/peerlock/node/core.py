"""A node without input, output, clock or randomness.

`Core` puts the parts together: the view change (`membership/view_change.py`), a session with every
other member (`links.py`), what comes from their algorithms (`locks/delivery.py`) and the lock table
(`locks/table.py`). A shell (asyncio, threads, the simulator) tells it what happened and when. Each
input may queue effects (`effects.py`). The shell carries them out after each input: `take_writes`,
then `effects`.

    what the shell tells the core
    -----------------------------
    learn(epoch, members)              a view was decided, and what must be durable about it is
    receive(peer, frame)               a frame; the answer may be a view that must be confirmed and learned first
    acquire, release, cancel           of a local lock
    holding_allowed, holding_refused   the registry's answers
    leased(until), lapse               a lease runs until then; it is over
    tick, on_withheld_due              a timer is due
    close                              this node leaves

    and its links
    -------------
    dialled, answered                  a link that we made is up; the other end has said hello
    linked, unlinked, may_redial       one that came; an end of one; the registry was asked about its peer
    waits_for(peers)                   these do not answer, and may not be excluded
    farewell                           the view without this node is decided

**The core is never re-entered.** An input that comes in the middle of another one fails with an
assertion (`inputs.py`). A frame that makes no sense raises `ProtocolError`: the shell closes that
link, and nothing else happens.

**Permission to hold.** A node asks the registry before it holds its first lock. A tick gives the
permission back when nothing was held since the tick before: between half a second and a second
after the last hold. In groups with leases the permission is the lease: `leased` says until when it
runs, and `lapse` is its end, wherever it is noticed first. Then every hold is lost, and left to
other nodes.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar

from peerlock.errors import NodeClosed, ProtocolError
from peerlock.node.effects import (
    Answered,
    EndHolding,
    EpochStarted,
    RefreshView,
    Refuse,
    Rejoin,
    Suspect,
)
from peerlock.node.failure_detector import PATIENCE_S
from peerlock.node.inputs import Callers, an_input
from peerlock.node.links import Links
from peerlock.node.locks.deadline import Deadline
from peerlock.node.locks.delivery import Delivery
from peerlock.node.locks.table import TICK_S, LockTable
from peerlock.node.locks.ticket import Limits
from peerlock.node.membership.reports import PartialReports, split
from peerlock.node.membership.view import View
from peerlock.node.membership.view_change import ViewChange
from peerlock.node.peer import Peer
from peerlock.node.session import Session
from peerlock.node.wire import (
    MOST_LOCKS,
    VERSION,
    Ack,
    Answer,
    Disagree,
    Frame,
    LockMessage,
    LockReport,
    NewView,
    Ping,
    Pong,
    Query,
    Report,
    ReportPart,
)

NO_WRITES: list[tuple[Peer, bytes]] = []


class Core(Callers[LockTable]):
    views_of: ClassVar[type[ViewChange]] = ViewChange
    links_of: ClassVar[type[Links]] = Links

    def __init__(
        self,
        me: Peer,
        group: str,
        limits: Limits | None = None,
        now: float = 0.0,
        *,
        leases: bool = False,
        patience_s: float = PATIENCE_S,
        waits_outside: bool = False,
    ) -> None:
        self.me, self.group = me, group
        self.handling = False  # an input is being handled
        self.deadline = Deadline()
        self.table = LockTable(limits or Limits(), self.deadline, leases)
        self.table.now = now
        self.effects = self.table.effects
        self.view_change = self.views_of(me)
        self.links = self.links_of(self, patience_s)
        self.delivery = Delivery(self)
        self.on_lock_message = self.delivery.on_lock_message
        self.waits_outside = waits_outside  # the registry takes in a peer that waits, without being asked again
        self.partial_reports = PartialReports()
        self.answers: dict[int, dict[Peer, Answer]] = {}
        self.query = 0
        self.used = 0  # grants at the last tick
        self.views = 0  # epochs started here
        self.admitted = False  # some view had this incarnation in it

    # -- what is asked of the shell ----------------------------------------------------------------------

    def take_writes(self) -> list[tuple[Peer, bytes]]:
        """What each peer gets for all events since the last call: one write each."""
        dirty = self.table.dirty
        if not dirty:
            return NO_WRITES
        self.table.dirty = {}
        return [(session.peer, session.drain()) for session in dirty if session.outgoing]

    # -- views -------------------------------------------------------------------------------------------

    @an_input
    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        """A view was decided. What must be durable about it is."""
        self.table.now = now
        view_change = self.view_change
        if not view_change.learn(epoch, members):
            return
        self.table.wedge()
        self.delivery.early, self.table.renewing = [], False
        gone = [peer for peer in self.links.sessions if peer not in members]
        self.links.end(gone, f"the group is at epoch {epoch} without you")
        for peer in gone:
            self.partial_reports.forget(peer)
        if view_change.excluded and not self.admitted and self.waits_outside:
            view_change.coming = ()  # no view has had this incarnation in it yet: this one is just not ours
            return
        self.admitted = not view_change.excluded
        if view_change.excluded:
            self.drop(f"the group went on to epoch {epoch} without this node")
            self.effects.append(Rejoin())
            return
        self.links.need(members)
        self.report()
        self.table.alarm()

    @an_input
    def end_membership(self, why: str) -> None:
        self.drop(why)

    def drop(self, why: str) -> None:
        """Nothing is held here any more, and this incarnation is deaf."""
        self.links.count(())
        self.table.drop(why)

    def report(self) -> None:
        """Made once; every member gets the same."""
        view_change, locks = self.view_change, self.table.report(self.table.now)
        for peer in view_change.coming:
            if peer != self.me:
                self.send_report(peer, locks)
        self.on_report(self.me, view_change.known, locks)

    def send_report(self, peer: Peer, locks: tuple[LockReport, ...]) -> None:
        links, view_change = self.links, self.view_change
        session = links.session(peer)
        ahead, last = split(locks)
        for part in ahead:
            links.post(session, ReportPart(session.seq + 1, session.received, view_change.known, part))
        links.post(session, Report(session.seq + 1, session.received, view_change.known, view_change.coming, last))

    def on_report(self, source: Peer, epoch: int, locks: tuple[LockReport, ...]) -> None:
        if self.view_change.on_report(source, epoch, locks):
            self.begin()

    def begin(self) -> None:
        view_change = self.view_change
        reports = view_change.begin()
        links = self.links
        links.count(view_change.members)
        for session in links.sessions.values():
            session.forget(view_change.epoch)
        sessions = [None, *(links.sessions.get(peer) for peer in view_change.members)]
        links.failure_detector.blockers = ()
        self.views += 1
        if self.table.closed:
            return  # it has nothing to do in it, and its report has said so
        self.effects.append(EpochStarted(view_change.epoch, self.table.now))
        self.table.begin(
            view_change.epoch,
            links.numbers[self.me],
            sessions,
            [(links.numbers[peer], locks) for peer, locks in reports if peer in links.numbers],
            self.table.now,
        )
        for peer, message in self.delivery.take_early():
            try:
                if peer in links.sessions:
                    self.on_lock_message(links.sessions[peer], message)
            except ProtocolError as problem:
                self.effects.append(Refuse(peer, str(problem)))

    @an_input
    def forget(self) -> None:
        """The group's place is another group's by now, whose epochs start again."""
        self.links.end(list(self.links.sessions), "the group's place is gone")
        self.view_change = self.views_of(self.me)
        self.table.tick_at = inf

    @an_input
    def rejoined(self, me: Peer) -> None:
        """A new incarnation, which knows the epochs that the old one knew, and nothing else."""
        known = self.view_change.known
        self.table.drop("this node has joined its group again")
        self.me = me
        self.admitted = False
        self.view_change = self.views_of(me)
        self.view_change.known = known
        self.links.sessions.clear()

    @an_input
    def epoch_requested(self) -> None:
        """The registry was asked for a new epoch. If none comes, it may be asked again."""
        self.table.renewing = False

    # -- frames ------------------------------------------------------------------------------------------

    def receive(self, peer: Peer, frame: Frame, now: float) -> View | None:
        """A frame from a linked peer. If the answer is a view, nothing was done: the shell confirms
        that it was decided, lets the core learn it, and hands the frame in once more.
        """
        assert not self.handling, "receive was called in the middle of another input"
        self.handling = True  # what the decorator does, without its calls
        try:
            table = self.table
            table.now = now
            session = self.links.sessions.get(peer)
            if session is None:
                return None  # of a view that is over
            session.heard, session.pinged = now, 0.0
            if type(frame) is LockMessage:  # almost all are
                if session.accept(frame.seq, frame.ack):
                    self.on_lock_message(session, frame)
                if session.outgoing:
                    table.dirty[session] = None
                return None
            unknown = self.on_rare_frame(session, frame)
            if session.outgoing and session.received:
                table.dirty[session] = None
            return unknown
        finally:
            self.handling = False

    def on_rare_frame(self, session: Session, frame: Frame) -> View | None:
        peer = session.peer
        match frame:
            case Report():
                if frame.seq > session.received and self.is_unknown(frame):
                    return View(frame.epoch, frame.members)  # before it is acknowledged: it may have to come again
                if session.accept(frame.seq, frame.ack):
                    self.on_report(peer, frame.epoch, self.partial_reports.complete(peer, frame.epoch, frame.locks))
                    if frame.epoch < self.view_change.known and peer in self.links.sessions:
                        self.links.tell_the_view(session)
            case ReportPart():
                if session.accept(frame.seq, frame.ack):
                    self.partial_reports.add(peer, frame.epoch, frame.locks)
            case Disagree():
                if session.accept(frame.seq, frame.ack):
                    self.delivery.on_disagree(peer, frame)
            case NewView():
                # A node that no view has had in it yet waits for one that has.
                if self.view_change.known and self.is_unknown(frame):
                    return View(frame.epoch, frame.members)
            case Ack():
                session.on_ack(frame.ack)
            case Ping():
                self.links.send(session, Pong())
            case Pong():
                pass
            case Query():
                self.links.send(session, Answer(frame.number, self.table.status(self.table.now)[:MOST_LOCKS], VERSION))
            case Answer():
                if frame.number in self.answers:
                    self.answers[frame.number][peer] = frame
                    self.effects.append(Answered(frame.number))
            case _:
                raise ProtocolError(f"{peer} says hello in the middle of a link")
        return None

    def is_unknown(self, frame: Report | NewView) -> bool:
        """Does it tell of a view that is newer than what is known here?"""
        if not frame.members or len(set(frame.members)) != len(frame.members):
            raise ProtocolError(f"a view of epoch {frame.epoch} with {len(frame.members)} members, some of them twice")
        return frame.epoch > self.view_change.known

    @an_input
    def request_epoch(self) -> None:
        """A view with the same members, in which idle locks are forgotten."""
        self.table.request_epoch()

    # -- permission to hold, time, silence -----------------------------------------------------------------

    @an_input
    def holding_allowed(self, now: float) -> None:
        """No view without this node is decided until it gives the permission back."""
        self.table.now = now
        self.table.allow()

    @an_input
    def holding_refused(self) -> None:
        """Not now. The shell asks again after a moment (`request_hold_again`), or a newer view
        comes.
        """
        self.table.asked_to_hold = False

    @an_input
    def request_hold_again(self, now: float) -> None:
        table = self.table
        table.now = now
        if table.running and any(local_lock.at == "inside" and not local_lock.has for local_lock in table.busy()):
            table.request_hold()

    @an_input
    def leased(self, until: float, now: float) -> None:
        """The registry has made sure that no view excludes us before `until`."""
        table, deadline = self.table, self.deadline
        table.now = now
        if deadline.expired(now):
            table.lapse(now)  # there was a time in between
        if table.closed or self.view_change.excluded or now >= until:
            return
        if table.may_hold:
            deadline.until = max(until, deadline.until)  # it may have been extended while this thread was busy
        else:
            deadline.until = until
            table.allow()
        if table.clocks_run_out():
            table.request_epoch()  # where no caller waits, no tick looks at them

    @an_input
    def lapse(self, now: float) -> None:
        """The lease is over: from now on others may hold what was held here."""
        self.table.lapse(now)

    @an_input
    def on_withheld_due(self, now: float) -> None:
        """Requests that were withheld are sent now, if they were not granted."""
        self.table.now = now
        self.table.send_withheld(now)

    @an_input
    def tick(self, now: float) -> None:
        table = self.table
        table.now = now
        if now - table.tick_at > TICK_S:
            self.links.hear_all()
        table.tick_at = inf
        if self.deadline.expired(now):
            table.lapse(now)
        elif table.may_hold and not table.leases:
            if table.grants == self.used and not any(local_lock.has for local_lock in table.busy()):
                table.may_hold = table.open = False
                self.effects.append(EndHolding())
            self.used = table.grants
        view_change, links = self.view_change, self.links
        waits = view_change.wedged or table.waiting() or links.stuck
        if waits or (table.may_hold and not table.leases):
            table.alarm()
        if table.clocks_run_out():
            table.request_epoch()
        table.unchoke(now)
        if self.view_change.wedged:
            self.effects.append(RefreshView())
        if waits:
            links.look_for_silence(view_change.missing() or view_change.coming)
        elif links.failure_detector.blockers:
            links.failure_detector.blockers = ()
            self.effects.append(Suspect(()))

    # -- the end -----------------------------------------------------------------------------------------

    @an_input
    def close(self, now: float) -> None:
        """Nothing is granted here any more; callers that wait are told."""
        table = self.table
        table.now, table.closed = now, True
        table.wedge()
        error = NodeClosed(f"The node {self.me.name} has left the group {self.group}. The lock was never held.")
        for local_lock in table.busy():
            local_lock.lose(f"The node left the group {self.group} while it held the lock {local_lock.name}.")
            local_lock.fail(error)

    def abandon(self, why: str) -> None:
        """A thread was interrupted in the middle of an input: what is known here may be half of the
        truth. The holders lose their locks, and nothing else is left. The node joins again.
        """
        self.handling = False
        self.table.abandon(why)
        self.links.count(())

    # -- looking at it -----------------------------------------------------------------------------------

    @an_input
    def ask_for_status(self) -> int:
        """Asks every other member; the answers come to `answers[number]`."""
        self.query += 1
        self.answers[self.query] = {}
        for peer in self.view_change.members:
            if peer != self.me and peer in self.links.sessions:
                self.links.send(self.links.sessions[peer], Query(self.query))
        return self.query
