"""A node without input, output, clock or randomness.

`Core` puts the parts together: the view change, a session with every other member, and the lock table. A shell (asyncio,
threads, the simulator) tells it what happened and when. Every input may queue effects (`effects.py`), and every input must be
followed by carrying them out: `take_writes`, then `effects`.

    what the shell tells the core
    -----------------------------
    learn(epoch, members)              a view was decided, and what must be durable about it is
    dialled, answered                  a link that we made is up; the other end has said hello
    linked, unlinked, may_redial       one that came; an end of one; the registry was asked about its peer
    receive(peer, frame)               a frame; the answer may be a view that must be confirmed and learned first
    acquire, release, cancel           of a local lock
    holding_allowed, holding_refused   the registry's answers
    leased(until), lapse               a lease runs until then; it is over
    tick, on_withheld_due              a timer is due
    waits_for(peers)                   these do not answer, and may not be excluded
    close, farewell                    this node leaves; the view without it is decided

**The core is never re-entered.** An input that comes in the middle of another one fails with an assertion.

**Links.** Of two members the one with the greater name dials, and a joiner dials all members. A link carries the frames of
one session, whichever side made it; a new link takes the place of the old one. A frame that makes no sense raises
`ProtocolError`: the shell closes that link, and nothing else happens.

**Permission to hold.** A node asks the registry before it holds its first lock. A tick gives the permission back when
nothing was held since the tick before: between half a second and a second after the last hold. In groups with leases the
permission is the lease: `leased` says until when it runs, and `lapse` is its end, wherever it is noticed first. Then every hold
is lost, and left to other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import inf
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

from peerlock.errors import NodeClosed, ProtocolError
from peerlock.node.effects import (
    Answered,
    CheckLiveness,
    Dial,
    EndHolding,
    EpochStarted,
    HangUp,
    RefreshView,
    Refuse,
    Rejoin,
    Suspect,
    Warn,
    Write,
)
from peerlock.node.failure_detector import PATIENCE_S, FailureDetector, hears
from peerlock.node.locks.deadline import Deadline
from peerlock.node.locks.fence import CLOCK_BITS
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.table import NEAR_THE_END, TICK_S, LockTable, disagreement
from peerlock.node.locks.ticket import Limits, Ticket
from peerlock.node.membership.reports import PartialReports, split
from peerlock.node.membership.view import View
from peerlock.node.membership.view_change import ViewChange
from peerlock.node.peer import Peer
from peerlock.node.session import Session
from peerlock.node.wire import (
    MOST_LOCKS,
    OLDEST,
    UNREADABLE,
    VERSION,
    Ack,
    Answer,
    Disagree,
    Frame,
    Hello,
    LockMessage,
    LockReport,
    NewView,
    Ping,
    Pong,
    Query,
    Report,
    ReportPart,
    framed,
)
from peerlock.node.wire_algorithms import wire_algorithm

NO_WRITES: list[tuple[Peer, bytes]] = []
P = ParamSpec("P")
T = TypeVar("T")


def an_input(method: Callable[Concatenate[Core, P], T]) -> Callable[Concatenate[Core, P], T]:
    """One event for the core, which must not be in the middle of another one."""

    @wraps(method)
    def handle(core: Core, /, *words: P.args, **named: P.kwargs) -> T:
        assert not core.handling, f"{method.__name__} was called in the middle of another input"
        core.handling = True
        try:
            return method(core, *words, **named)
        finally:
            core.handling = False

    return handle


class Core:
    views_of: ClassVar[type[ViewChange]] = ViewChange
    sessions_of: ClassVar[type[Session]] = Session

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
        self.failure_detector = FailureDetector(patience_s)
        self.waits_outside = waits_outside  # the registry takes in a peer that waits, without being asked again
        self.view_change = self.views_of(me)
        self.sessions: dict[Peer, Session] = {}
        self.numbers: dict[Peer, int] = {}  # of the members of the epoch that runs
        self.partial_reports = PartialReports()
        self.early: list[tuple[Peer, LockMessage]] = []  # of the epoch that has not started here
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
        self.early, self.table.renewing = [], False
        for peer in [peer for peer in self.sessions if peer not in members]:
            del self.sessions[peer]
            self.partial_reports.forget(peer)
            self.effects.append(HangUp(peer, f"the group is at epoch {epoch} without you"))
        if view_change.excluded and not self.admitted and self.waits_outside:
            view_change.coming = ()  # no view has had this incarnation in it yet: this one is just not ours
            return
        self.admitted = not view_change.excluded
        if view_change.excluded:
            self.drop(f"the group went on to epoch {epoch} without this node")
            self.effects.append(Rejoin())
            return
        for peer in members:
            if peer != self.me and not self.session(peer).linked and self.dials(peer):
                self.effects.append(Dial(peer))
        self.report()
        self.table.alarm()

    @an_input
    def end_membership(self, why: str) -> None:
        self.drop(why)

    def drop(self, why: str) -> None:
        """Nothing is held here any more, and what the others still say to this incarnation is not heard."""
        self.count(())
        self.table.drop(why)

    def report(self) -> None:
        """Made once; every member gets the same."""
        view_change, locks = self.view_change, self.table.report(self.table.now)
        for peer in view_change.coming:
            if peer != self.me:
                self.send_report(peer, locks)
        self.on_report(self.me, view_change.known, locks)

    def send_report(self, peer: Peer, locks: tuple[LockReport, ...]) -> None:
        session, view_change = self.session(peer), self.view_change
        ahead, last = split(locks)
        for part in ahead:
            self.post(session, ReportPart(session.seq + 1, session.received, view_change.known, part))
        self.post(session, Report(session.seq + 1, session.received, view_change.known, view_change.coming, last))

    def on_report(self, source: Peer, epoch: int, locks: tuple[LockReport, ...]) -> None:
        if self.view_change.on_report(source, epoch, locks):
            self.begin()

    def begin(self) -> None:
        view_change = self.view_change
        reports = view_change.begin()
        self.count(view_change.members)
        for session in self.sessions.values():
            session.forget(view_change.epoch)
        sessions = [None, *(self.sessions.get(peer) for peer in view_change.members)]
        self.failure_detector.blockers = ()
        self.views += 1
        if self.table.closed:
            return  # it has nothing to do in it, and its report has said so
        self.effects.append(EpochStarted(view_change.epoch, self.table.now))
        self.table.begin(
            view_change.epoch,
            self.numbers[self.me],
            sessions,
            [(self.numbers[peer], locks) for peer, locks in reports if peer in self.numbers],
            self.table.now,
        )
        early, self.early = self.early, []
        for peer, message in early:
            try:
                if peer in self.sessions:
                    self.on_lock_message(self.sessions[peer], message)
            except ProtocolError as problem:
                self.effects.append(Refuse(peer, str(problem)))

    def count(self, members: tuple[Peer, ...]) -> None:
        """The numbers of the members of an epoch."""
        self.numbers = {peer: number for number, peer in enumerate(members, 1)}
        for peer, session in self.sessions.items():
            session.number = self.numbers.get(peer, 0)

    @an_input
    def forget(self) -> None:
        """What was known of the group is worth nothing: its place is another group's by now, whose epochs start again."""
        self.effects += [HangUp(peer, "the group's place is gone") for peer in self.sessions]
        self.sessions = {}
        self.view_change = self.views_of(self.me)
        self.table.tick_at = inf

    @an_input
    def rejoined(self, me: Peer) -> None:
        """A new incarnation of this node, which knows what the old one knew of epochs, and nothing else."""
        known = self.view_change.known
        self.table.drop("this node has joined its group again")
        self.me = me
        self.admitted = False
        self.view_change = self.views_of(me)
        self.view_change.known = known
        self.sessions = {}

    @an_input
    def epoch_requested(self) -> None:
        """The registry was asked for a new epoch. If none comes, it may be asked again."""
        self.table.renewing = False

    # -- links -------------------------------------------------------------------------------------------

    def session(self, peer: Peer) -> Session:
        found = self.sessions.get(peer)
        if found is None:
            found = self.sessions[peer] = self.sessions_of(peer)
            found.heard, found.number = self.table.now, self.numbers.get(peer, 0)
        return found

    def dials(self, peer: Peer) -> bool:
        """Of two members the greater one dials; but a joiner dials all members, for none has heard of it."""
        return self.me > peer or not self.view_change.epoch

    def hello(self, peer: Peer) -> Hello:
        """Our first words on a link to that peer."""
        session = self.sessions.get(peer)
        received = session.received if session is not None else 0
        return Hello(OLDEST, self.group, self.me, peer.id, received, newest=VERSION)

    @an_input
    def dialled(self, peer: Peer, now: float) -> bytes:
        """We have reached a peer: what goes there first. What it may not have follows the hello at once."""
        self.table.now = now
        session = self.session(peer)
        hears(session, now)
        session.link(0)
        return framed(self.hello(peer)) + session.drain()

    @an_input
    def answered(self, peer: Peer, received: int, now: float) -> None:
        """The peer that we have dialled has greeted us; it had got that many of our messages."""
        self.table.now = now
        session = self.sessions.get(peer)
        if session is not None and not self.is_behind(peer, received):
            hears(session, now)
            session.on_ack(received)

    @an_input
    def linked(self, peer: Peer, received: int, now: float) -> None:
        """A peer that has dialled us was greeted; it has got that many of our messages."""
        self.table.now = now
        if self.is_behind(peer, received):
            return
        session = self.session(peer)
        hears(session, now)
        session.link(received)
        self.table.dirty[session] = None
        if self.view_change.known and peer not in self.view_change.coming:
            self.tell_the_view(session)

    def is_behind(self, peer: Peer, received: int) -> bool:
        """It had a session with us before the group went on without it, and does not know that yet: it is told."""
        session = self.sessions.get(peer)
        if received <= (session.seq if session is not None else 0) or peer in self.view_change.coming:
            return False
        self.effects.append(Write(peer, framed(NewView(self.view_change.known, self.view_change.coming))))
        return True

    def tell_the_view(self, session: Session) -> None:
        """To a peer that seems to know only an older one."""
        if not self.view_change.coming:
            return  # we do not know who is in it: we have just joined again
        self.send(session, NewView(self.view_change.known, self.view_change.coming))

    @an_input
    def unlinked(self, peer: Peer, now: float) -> None:
        self.table.now = now
        session = self.sessions.get(peer)
        if session is not None:
            session.unlink()
            if session.stuck:
                self.table.alarm()
        if peer in self.view_change.coming:
            self.effects.append(CheckLiveness(peer))
        else:
            self.sessions.pop(peer, None)  # it is in no view that we know of, and will say everything again

    @an_input
    def may_redial(self, peer: Peer) -> None:
        """The registry was asked about a peer that cannot be reached. If it is still a member, a link to it is needed."""
        if peer in self.view_change.coming and self.dials(peer) and peer in self.sessions:
            self.effects.append(Dial(peer))

    def receive(self, peer: Peer, frame: Frame, now: float) -> View | None:
        """A frame from a peer with which a link is up. A view: nothing was done about the frame. The shell confirms that the
        view was decided, lets the core learn it, and hands the frame in once more.
        """
        assert not self.handling, "receive was called in the middle of another input"
        self.handling = True  # what the decorator does, without its calls
        try:
            table = self.table
            table.now = now
            session = self.sessions.get(peer)
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
                    if frame.epoch < self.view_change.known and peer in self.sessions:
                        self.tell_the_view(session)
            case ReportPart():
                if session.accept(frame.seq, frame.ack):
                    self.partial_reports.add(peer, frame.epoch, frame.locks)
            case Disagree():
                if session.accept(frame.seq, frame.ack):
                    self.on_disagree(peer, frame)
            case NewView():
                # A node that no view has had in it yet waits for one that has.
                if self.view_change.known and self.is_unknown(frame):
                    return View(frame.epoch, frame.members)
            case Ack():
                session.on_ack(frame.ack)
            case Ping():
                self.send(session, Pong())
            case Pong():
                pass
            case Query():
                self.send(session, Answer(frame.number, self.table.status(self.table.now)[:MOST_LOCKS], VERSION))
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

    def on_lock_message(self, session: Session, message: LockMessage) -> None:
        view_change = self.view_change
        if not message.epoch == view_change.epoch == view_change.known:  # which is almost always so
            match view_change.fate(message.epoch):
                case "wait":
                    self.early.append((session.peer, message))
                    return
                case "drop":
                    return
        table = self.table
        if not session.number or table.closed:
            return
        local_lock = table.locks.get(message.lock)
        if local_lock is None or local_lock.wire_algorithm.number != message.algorithm:
            wanted = wire_algorithm(message.algorithm)
            local_lock = table.local_lock(message.lock, wanted)
            if local_lock.wire_algorithm is not wanted:
                self.disagree(session, local_lock)
                return
        try:
            body = local_lock.wire_algorithm.message(message.body)
        except UNREADABLE as problem:
            raise ProtocolError(f"no message of {local_lock.wire_algorithm.name}: {problem}") from None
        if not 0 <= message.clock < 1 << CLOCK_BITS:
            table.request_epoch()  # what it carried is lost: a new epoch starts the lock afresh
            raise ProtocolError(f"{session.peer} says that the clock of the lock {message.lock} is {message.clock}")
        try:
            local_lock.hear(session.number, message.clock, body, message.seq, table.now)
        except (AssertionError, LookupError) as problem:
            # Well-formed nonsense. It may have left the algorithm in any state: a new epoch starts it afresh.
            table.request_epoch()
            raise ProtocolError(
                f"{local_lock.wire_algorithm.name} cannot be told {body} by {session.peer}: {problem}"
            ) from problem
        if local_lock.clock > NEAR_THE_END:
            table.request_epoch()

    def disagree(self, session: Session, local_lock: LocalLock) -> None:
        epoch, number = self.view_change.epoch, local_lock.wire_algorithm.number
        self.post(session, Disagree(session.seq + 1, session.received, epoch, local_lock.name, number))

    def on_disagree(self, peer: Peer, frame: Disagree) -> None:
        local_lock = self.table.locks.get(frame.lock)
        if (
            self.view_change.fate(frame.epoch) == "deliver"
            and local_lock is not None
            and local_lock.wire_algorithm.number != frame.algorithm
        ):
            error = disagreement(local_lock, wire_algorithm(frame.algorithm), str(peer))
            self.effects.append(Warn(str(error)))
            local_lock.fail(error)

    def post(self, session: Session, message: ReportPart | Report | Disagree) -> None:
        """A numbered message."""
        session.post(message.epoch, framed(message))
        self.table.dirty[session] = None

    def send(self, session: Session, message: NewView | Ping | Pong | Query | Answer) -> None:
        """One that is not missed."""
        if session.linked:
            session.outgoing.append(framed(message))
            self.table.dirty[session] = None

    # -- local locks ---------------------------------------------------------------------------------------

    # Without the decorator, which would cost a tenth of an entry.

    def acquire(self, local_lock: LocalLock, ticket: Ticket, now: float) -> None:
        """The ticket is HELD afterwards, or it waits: then `Wake` follows."""
        assert not self.handling, "acquire was called in the middle of another input"
        self.handling = True
        try:
            local_lock.acquire(ticket, now)
        finally:
            self.handling = False

    def release(self, ticket: Ticket, now: float) -> None:
        """The ticket is DONE afterwards, or LOST if the lease was over."""
        assert not self.handling, "release was called in the middle of another input"
        assert ticket.local_lock is not None
        self.handling = True
        try:
            ticket.local_lock.release(ticket, now)
        finally:
            self.handling = False

    @an_input
    def cancel(self, ticket: Ticket, now: float) -> None:
        """A ticket that waits is not wanted any more."""
        assert ticket.local_lock is not None
        ticket.local_lock.cancel(ticket, now)

    @an_input
    def request_epoch(self) -> None:
        """A view with the same members, in which idle locks are forgotten."""
        self.table.request_epoch()

    # -- permission to hold, time, silence -----------------------------------------------------------------

    @an_input
    def holding_allowed(self, now: float) -> None:
        """The registry makes sure that no view without this node is decided, until this node gives the permission back."""
        self.table.now = now
        self.table.allow()

    @an_input
    def holding_refused(self) -> None:
        """Not now. The shell asks again after a moment (`request_hold_again`), or a newer view comes."""
        self.table.asked_to_hold = False

    @an_input
    def request_hold_again(self, now: float) -> None:
        table = self.table
        table.now = now
        if table.running and any(local_lock.at == "inside" and not local_lock.has for local_lock in table.busy()):
            table.request_hold()

    @an_input
    def leased(self, until: float, now: float) -> None:
        """The registry has made sure that nobody excludes us before `until`."""
        table, deadline = self.table, self.deadline
        table.now = now
        if now >= deadline.until:
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
            # It was we who slept: what the others said meanwhile has not been read yet.
            for session in self.sessions.values():
                hears(session, now)
        table.tick_at = inf
        if now >= self.deadline.until:
            table.lapse(now)
        elif table.may_hold and not table.leases:
            if table.grants == self.used and not any(local_lock.has for local_lock in table.busy()):
                table.may_hold = table.open = False
                self.effects.append(EndHolding())
            self.used = table.grants
        # What cannot be said to a peer may be what a third node waits for: a token that must pass through here.
        waits = self.view_change.wedged or table.waiting() or any(session.stuck for session in self.sessions.values())
        if waits or (table.may_hold and not table.leases):
            table.alarm()
        if table.clocks_run_out():
            table.request_epoch()
        table.unchoke(now)
        if self.view_change.wedged:
            self.effects.append(RefreshView())
        if waits:
            self.look_for_silence()
        elif self.failure_detector.blockers:
            self.failure_detector.blockers = ()
            self.effects.append(Suspect(()))

    def look_for_silence(self) -> None:
        peers = self.view_change.missing() or self.view_change.coming
        sessions = [self.session(peer) for peer in peers if peer != self.me]
        to_ping, suspects = self.failure_detector.silent(sessions, self.table.now)
        for session in to_ping:
            self.send(session, Ping())
        if suspects or self.failure_detector.blockers:
            self.effects.append(Suspect(suspects))

    @an_input
    def waits_for(self, peers: tuple[Peer, ...]) -> None:
        """The registry may not exclude these suspects."""
        self.failure_detector.blockers = peers

    @an_input
    def silent_for(self, peer: Peer, now: float) -> float:
        """Is it there? It is asked. For how long it has not answered; infinity: there is no link to ask on."""
        session = self.sessions.get(peer)
        if session is None or not session.linked:
            return inf
        if not session.pinged:
            session.pinged = now
            self.send(session, Ping())
        return now - session.pinged

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

    @an_input
    def farewell(self, epoch: int, members: tuple[Peer, ...]) -> None:
        """The view without us was decided; a peer that misses this sees the link end."""
        for session in self.sessions.values():
            if session.peer in members:
                self.send(session, NewView(epoch, members))

    def abandon(self, why: str) -> None:
        """A thread was interrupted in the middle of an input: what is known here may be half of the truth. The holders lose
        their locks, and nothing else is left. The node joins again.
        """
        self.handling = False
        self.table.abandon(why)
        self.count(())

    # -- looking at it -----------------------------------------------------------------------------------

    @an_input
    def ask_for_status(self) -> int:
        """Asks every other member; the answers come to `answers[number]`."""
        self.query += 1
        self.answers[self.query] = {}
        for peer in self.view_change.members:
            if peer != self.me and peer in self.sessions:
                self.send(self.sessions[peer], Query(self.query))
        return self.query
