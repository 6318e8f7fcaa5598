"""A node without input, output, clock or randomness.

`Core` puts the parts together: the view change, a session with every other member, and the lock table. A shell (asyncio,
threads, the simulator) tells it what happened and when, and carries out what it asks for. After every event the shell calls
`flush`, so each peer that gets something gets it in one write.

    shell -> core                                 core -> shell
    -------------                                 -------------
    learn(epoch, members)   a view was decided    write(peer, data)
    dialled, answered       a link that we made   dial(peer), hang_up(peer, sentence)
    linked, unlinked        one that came; an end refresh(), look(peer): ask the registry
    receive(peer, frame)                          suspect(peers), renew(), rejoin(): ask it to act
    holding_allowed()                             begin_holding(), end_holding()
    tick(), on_withheld_due()                     wake_at(when), withheld_due_at(when), spin(local_lock)
    (and acquire, release, cancel of local locks) learned(epoch, members), started(epoch), note(level, sentence)

**Links.** Of two members the one with the greater name dials, and a joiner dials all members. A link carries the frames of
one session, whichever side made it; a new link takes the place of the old one. A frame that makes no sense raises
`ProtocolError`: the shell closes that link, and nothing else happens.

**Failure detection** runs only while a caller waits or a view change lacks reports. A peer that was silent for 1 s is
pinged. If it does not answer within `patience_s`, it is named to the registry, which knows whether it may be excluded.

**Permission to hold.** A node asks the registry before it holds its first lock. A tick gives the permission back when
nothing was held since the tick before: between half a second and a second after the last hold. In groups with leases the
permission is the lease: `leased` says until when it runs, and `lapse` is its end, wherever it is noticed first. Then every hold
is lost, and left to other nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from peerlock.errors import NodeClosed, ProtocolError
from peerlock.node.locks.fence import CLOCK_BITS
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.table import NEAR_THE_END, LockTable, disagreement
from peerlock.node.locks.ticket import Limits, Ticket
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

TICK_S = 0.5
SILENCE_S = 1.0  # before a peer is pinged
PATIENCE_S = 1.5  # before who does not answer is named to the registry


class Shell(Protocol):
    """What a core asks of its caller."""

    def write(self, peer: Peer, data: bytes) -> None: ...

    def dial(self, peer: Peer) -> None: ...

    def hang_up(self, peer: Peer, sentence: str) -> None: ...

    def look(self, peer: Peer) -> None:
        """Its link went down. If it is dead, the group goes on without it."""

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        """A peer says that this view was decided. Was it, as far as can be known?"""
        ...

    def refresh(self) -> None:
        """Learn the newest view, if it can be known without waiting."""

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """Exclude those of them that are dead, or stopped and idle. Who may not be excluded, as far as is known."""
        ...

    def renew(self) -> None:
        """A view with the same members, please."""

    def waits_outside(self) -> bool:
        """Will the registry take in who waits, without being asked again?"""
        ...

    def rejoin(self) -> None:
        """The newest view is one without us."""

    def begin_holding(self) -> bool:
        """May we believe from now on? False: not now; `holding_allowed` or a new view will follow."""
        ...

    def end_holding(self) -> None: ...

    def lapsed(self, held: int) -> None:
        """The lease has run out; so many locks were lost with it."""

    def wake_at(self, when: float) -> None:
        """Call `tick` then."""

    def withheld_due_at(self, when: float) -> None:
        """Call `on_withheld_due` then."""

    def spin(self, local_lock: LocalLock) -> None:
        """A caller waits for this lock, and a message about it has just been sent or received: spin before sleeping."""

    def learned(self, epoch: int, members: tuple[Peer, ...]) -> None: ...

    def started(self, epoch: int) -> None: ...

    def note(self, level: str, sentence: str) -> None: ...


class Core:
    views_of: ClassVar[type[ViewChange]] = ViewChange
    sessions_of: ClassVar[type[Session]] = Session

    def __init__(self, me: Peer, group: str, shell: Shell, limits: Limits | None = None, now: float = 0.0) -> None:
        self.me, self.group, self.shell = me, group, shell
        self.now = now  # of the event that is being handled
        self.busy = False  # on an event loop: an event is being handled, and nothing else may be told to the core
        self.view_change = self.views_of(me)
        self.sessions: dict[Peer, Session] = {}
        self.numbers: dict[Peer, int] = {}  # of the members of the epoch that runs
        self.table = LockTable(
            limits or Limits(), self.alarm, self.request_hold, self.full, self.lapse, shell.withheld_due_at, shell.spin
        )
        self.parts: dict[
            Peer, tuple[int, tuple[LockReport, ...]]
        ] = {}  # of reports whose end is not here: of which epoch
        self.early: list[tuple[Peer, LockMessage]] = []  # of the epoch that has not started here
        self.answers: dict[int, dict[Peer, Answer]] = {}
        self.on_answer: Callable[[int], object] | None = None  # hears the number of the question
        self.query = 0
        self.blockers: tuple[Peer, ...] = ()  # silent, and may not be excluded
        self.alarmed = False  # a tick is under way
        self.due = 0.0  # for which time
        self.used = 0  # grants at the last tick
        self.views = 0  # epochs started here
        self.waiting_since: float | None = None
        self.renewing = False
        self.admitted = False  # some view had this incarnation in it
        self.closed = False
        self.leases = False  # `may_hold` is a lease
        self.patience_s = PATIENCE_S

    # -- views -------------------------------------------------------------------------------------------

    def learn(self, epoch: int, members: tuple[Peer, ...], now: float) -> None:
        self.now = now
        view_change = self.view_change
        if epoch <= view_change.known:
            return
        self.shell.learned(epoch, members)  # what must be durable is, before anything is done about it
        view_change.learn(epoch, members)
        self.table.wedge()
        self.early, self.renewing = [], False
        for peer in [peer for peer in self.sessions if peer not in members]:
            del self.sessions[peer]
            self.parts.pop(peer, None)
            self.shell.hang_up(peer, f"the group is at epoch {epoch} without you")
        if view_change.excluded and not self.admitted and self.shell.waits_outside():
            view_change.coming = ()  # no view has had this incarnation in it yet: this one is just not ours
            return
        self.admitted = not view_change.excluded
        if view_change.excluded:
            self.end_membership(f"the group went on to epoch {epoch} without this node")
            self.shell.rejoin()
            return
        for peer in members:
            if peer != self.me and not self.session(peer).linked and self.dials(peer):
                self.shell.dial(peer)
        self.report()
        self.alarm()

    def end_membership(self, why: str) -> None:
        """Nothing is held here any more, and what the others still say to this incarnation is not heard."""
        self.count(())
        self.table.drop(why)

    def report(self) -> None:
        """Made once; everybody gets the same."""
        view_change, locks = self.view_change, self.table.report(self.now)
        for peer in view_change.coming:
            if peer != self.me:
                self.send_report(peer, locks)
        self.on_report(self.me, view_change.known, locks)

    def send_report(self, peer: Peer, locks: tuple[LockReport, ...]) -> None:
        session, view_change = self.session(peer), self.view_change
        while len(locks) > MOST_LOCKS:
            part, locks = locks[:MOST_LOCKS], locks[MOST_LOCKS:]
            self.post(session, ReportPart(session.seq + 1, session.received, view_change.known, part))
        self.post(session, Report(session.seq + 1, session.received, view_change.known, view_change.coming, locks))

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
        self.blockers = ()
        self.views += 1
        if self.closed:
            return  # it has nothing to do in it, and its report has said so
        self.table.begin(
            view_change.epoch,
            self.numbers[self.me],
            sessions,
            [(self.numbers[peer], locks) for peer, locks in reports if peer in self.numbers],
            self.now,
        )
        self.shell.started(view_change.epoch)
        early, self.early = self.early, []
        for peer, message in early:
            if peer in self.sessions:
                self.on_lock_message(self.sessions[peer], message)

    def count(self, members: tuple[Peer, ...]) -> None:
        """The numbers of the members of an epoch."""
        self.numbers = {peer: number for number, peer in enumerate(members, 1)}
        for peer, session in self.sessions.items():
            session.number = self.numbers.get(peer, 0)

    def forget(self) -> None:
        """What was known of the group is worth nothing: its place is another group's by now, whose epochs start again."""
        for peer in list(self.sessions):
            self.shell.hang_up(peer, "the group's place is gone")
        self.sessions = {}
        self.view_change = self.views_of(self.me)
        self.alarmed = False

    def rejoined(self, me: Peer) -> None:
        """A new incarnation of this node, which knows what the old one knew of epochs, and nothing else."""
        known = self.view_change.known
        self.table.drop("this node has joined its group again")
        self.me = me
        self.admitted = False
        self.view_change = self.views_of(me)
        self.view_change.known = known
        self.sessions = {}

    # -- links -------------------------------------------------------------------------------------------

    def session(self, peer: Peer) -> Session:
        found = self.sessions.get(peer)
        if found is None:
            found = self.sessions[peer] = self.sessions_of(peer)
            found.heard, found.number = self.now, self.numbers.get(peer, 0)
        return found

    def dials(self, peer: Peer) -> bool:
        """Of two the greater one dials; but a joiner dials everybody, for nobody has heard of it."""
        return self.me > peer or not self.view_change.epoch

    def hello(self, peer: Peer) -> Hello:
        """Our first words on a link to that peer."""
        session = self.sessions.get(peer)
        received = session.received if session is not None else 0
        return Hello(OLDEST, self.group, self.me, peer.id, received, newest=VERSION)

    def dialled(self, peer: Peer, now: float) -> bytes:
        """We have reached a peer: what goes there first. What it may not have follows the hello at once."""
        self.now = now
        session = self.session(peer)
        session.heard, session.pinged = now, 0.0
        session.link(0)
        return framed(self.hello(peer)) + session.drain()

    def answered(self, peer: Peer, received: int, now: float) -> None:
        """The peer that we have dialled has greeted us; it had got that many of our messages."""
        self.now = now
        session = self.sessions.get(peer)
        if session is not None and not self.is_behind(peer, received):
            session.heard, session.pinged = now, 0.0
            session.on_ack(received)

    def linked(self, peer: Peer, received: int, now: float) -> None:
        """A peer that has dialled us was greeted; it has got that many of our messages."""
        self.now = now
        if self.is_behind(peer, received):
            return
        session = self.session(peer)
        session.heard, session.pinged = now, 0.0
        session.link(received)
        self.table.dirty[session] = None
        if self.view_change.known and peer not in self.view_change.coming:
            self.tell_the_view(session)

    def is_behind(self, peer: Peer, received: int) -> bool:
        """It had a session with us before the group went on without it, and does not know that yet: it is told."""
        session = self.sessions.get(peer)
        if received <= (session.seq if session is not None else 0) or peer in self.view_change.coming:
            return False
        self.shell.write(peer, framed(NewView(self.view_change.known, self.view_change.coming)))
        return True

    def tell_the_view(self, session: Session) -> None:
        """To a peer that seems to know only an older one."""
        if not self.view_change.coming:
            return  # we do not know who is in it: we have just joined again
        self.send(session, NewView(self.view_change.known, self.view_change.coming))

    def unlinked(self, peer: Peer, now: float) -> None:
        self.now = now
        session = self.sessions.get(peer)
        if session is not None:
            session.unlink()
            if session.stuck:
                self.alarm()
        if peer not in self.view_change.coming:
            self.sessions.pop(peer, None)  # it is in no view that we know of, and will say everything again
            return
        self.shell.look(peer)
        if peer in self.view_change.coming and self.dials(peer) and peer in self.sessions:
            self.shell.dial(peer)

    def receive(self, peer: Peer, frame: Frame, now: float) -> None:
        """A frame from a peer with which a link is up."""
        self.now = now
        session = self.sessions.get(peer)
        if session is None:
            return  # of a view that is over
        session.heard, session.pinged = now, 0.0
        if type(frame) is LockMessage:  # almost all are
            if session.accept(frame.seq, frame.ack):
                self.on_lock_message(session, frame)
            if session.outgoing:
                self.table.dirty[session] = None
            return
        match frame:
            case Report():
                if frame.seq > session.received:
                    # Before it is acknowledged: if it cannot be confirmed now, it must come again.
                    self.on_members(frame.epoch, frame.members)
                if peer in self.sessions and session.accept(frame.seq, frame.ack):
                    epoch, before = self.parts.pop(peer, (0, ()))
                    self.on_report(peer, frame.epoch, (*before, *frame.locks) if epoch == frame.epoch else frame.locks)
                    if frame.epoch < self.view_change.known and peer in self.sessions:
                        self.tell_the_view(session)
            case ReportPart():
                if session.accept(frame.seq, frame.ack):
                    epoch, before = self.parts.get(peer, (0, ()))
                    self.parts[peer] = frame.epoch, (*(before if epoch == frame.epoch else ()), *frame.locks)
            case Disagree():
                if session.accept(frame.seq, frame.ack):
                    self.on_disagree(peer, frame)
            case NewView():
                if self.view_change.known:  # who has not been in any view yet waits for one that has it in it
                    self.on_members(frame.epoch, frame.members)
            case Ack():
                session.on_ack(frame.ack)
            case Ping():
                self.send(session, Pong())
            case Pong():
                pass
            case Query():
                self.send(session, Answer(frame.number, self.table.status(now)[:MOST_LOCKS], VERSION))
            case Answer():
                if frame.number in self.answers:
                    self.answers[frame.number][peer] = frame
                    if self.on_answer is not None:
                        self.on_answer(frame.number)
            case _:
                raise ProtocolError(f"{peer} says hello in the middle of a link")
        if session.received and session not in self.table.dirty and session.outgoing:
            self.table.dirty[session] = None

    def on_members(self, epoch: int, members: tuple[Peer, ...]) -> None:
        if not members or len(set(members)) != len(members):
            raise ProtocolError(f"a view of epoch {epoch} with {len(members)} members, some of them twice")
        if epoch > self.view_change.known and not self.shell.confirms(epoch, members):
            raise ProtocolError(f"a view of epoch {epoch}, which the registry does not know")
        self.learn(epoch, members, self.now)

    def on_lock_message(self, session: Session, message: LockMessage) -> None:
        view_change = self.view_change
        if not message.epoch == view_change.epoch == view_change.known:  # which is almost always so
            match view_change.fate(message.epoch):
                case "wait":
                    self.early.append((session.peer, message))
                    return
                case "drop":
                    return
        if not session.number or self.closed:
            return
        local_lock = self.table.locks.get(message.lock)
        if local_lock is None or local_lock.wire_algorithm.number != message.algorithm:
            wanted = wire_algorithm(message.algorithm)
            local_lock = self.table.local_lock(message.lock, wanted)
            if local_lock.wire_algorithm is not wanted:
                self.disagree(session.peer, message.lock)
                return
        try:
            body = local_lock.wire_algorithm.message(message.body)
        except UNREADABLE as problem:
            raise ProtocolError(f"no message of {local_lock.wire_algorithm.name}: {problem}") from None
        if not 0 <= message.clock < 1 << CLOCK_BITS:
            self.shell.renew()  # what it carried is lost: a new epoch starts the lock afresh
            raise ProtocolError(f"{session.peer} says that the clock of the lock {message.lock} is {message.clock}")
        try:
            local_lock.hear(session.number, message.clock, body, message.seq, self.now)
        except (AssertionError, LookupError) as problem:
            # Well-formed nonsense. It may have left the algorithm in any state: a new epoch starts it afresh.
            self.shell.renew()
            raise ProtocolError(
                f"{local_lock.wire_algorithm.name} cannot be told {body} by {session.peer}: {problem}"
            ) from problem
        if local_lock.clock > NEAR_THE_END:
            self.full()

    def disagree(self, peer: Peer, lock: str) -> None:
        local_lock = self.table.locks[lock]
        session = self.session(peer)
        self.post(
            session,
            Disagree(session.seq + 1, session.received, self.view_change.epoch, lock, local_lock.wire_algorithm.number),
        )

    def on_disagree(self, peer: Peer, frame: Disagree) -> None:
        local_lock = self.table.locks.get(frame.lock)
        if (
            self.view_change.fate(frame.epoch) == "deliver"
            and local_lock is not None
            and local_lock.wire_algorithm.number != frame.algorithm
        ):
            error = disagreement(local_lock, wire_algorithm(frame.algorithm), str(peer))
            self.shell.note("warning", str(error))
            local_lock.fail(error)

    # -- out ---------------------------------------------------------------------------------------------

    def post(self, session: Session, message: ReportPart | Report | Disagree) -> None:
        """A numbered message."""
        session.post(message.epoch, framed(message))
        self.table.dirty[session] = None

    def send(self, session: Session, message: Any) -> None:
        """One that is not missed."""
        if session.linked:
            session.outgoing.append(framed(message))
            self.table.dirty[session] = None

    def flush(self) -> None:
        dirty = self.table.dirty
        if dirty:
            self.table.dirty = {}
            write = self.shell.write
            for session in dirty:
                out = session.outgoing  # what `drain` does, written out
                if out:
                    session.outgoing = []
                    write(session.peer, out[0] if len(out) == 1 else b"".join(out))

    # -- time, permission to hold, silence -------------------------------------------------------------------------

    def alarm(self) -> None:
        if not self.alarmed and not self.closed:
            self.alarmed = True
            self.due = self.now + TICK_S
            self.shell.wake_at(self.due)

    def request_hold(self) -> None:
        if not self.table.may_hold and self.shell.begin_holding():
            self.holding_allowed(self.now)

    def request_hold_if_needed(self) -> None:
        if (
            any(local_lock.at == "inside" and not local_lock.has for local_lock in self.table.busy())
            and self.table.running
        ):
            self.request_hold()

    def holding_allowed(self, now: float) -> None:
        self.now = now
        self.table.may_hold = True
        self.table.set_open()
        self.alarm()
        for local_lock in list(self.table.busy()):
            local_lock.settled(now)

    def leased(self, until: float, now: float) -> None:
        """The registry has made sure that nobody excludes us before `until`."""
        self.now = now
        if self.table.may_hold and now >= self.table.until:
            self.lapse(now)  # there was a time in between
        if self.closed or self.view_change.excluded or now >= until:
            return
        # What was renewed since this was said, while this thread was busy, stands.
        self.table.until = max(until, self.table.until) if self.table.may_hold else until
        if not self.table.may_hold:
            self.holding_allowed(now)
        if self.table.clocks_run_out():
            self.full()  # where nobody waits, no tick looks at them

    def lapse(self, now: float) -> None:
        """The lease is over: from now on others may hold what was held here."""
        self.now = now
        table = self.table
        busy = list(table.busy())
        lost = table.lose(f"the lease of {self.me.name} has run out, because the registry was not reached in time")
        for ticket in lost:
            ticket.woken()
        for local_lock in busy:
            local_lock.settled(now)
        self.shell.lapsed(len(lost))

    def full(self) -> None:
        if not self.renewing:
            self.renewing = True
            self.shell.renew()

    def on_withheld_due(self, now: float) -> None:
        """Requests that were held back are sent now, if they were not granted."""
        self.now = now
        self.table.send_withheld(now)

    def tick(self, now: float) -> None:
        self.now = now
        self.alarmed = False
        table = self.table
        if now - self.due > TICK_S:
            # It was we who slept: what the others said meanwhile has not been read yet.
            for session in self.sessions.values():
                session.heard, session.pinged = now, 0.0
        if table.may_hold and now >= table.until:
            self.lapse(now)
        elif table.may_hold and not self.leases:
            if table.grants == self.used and not any(local_lock.has for local_lock in table.busy()):
                table.may_hold = table.open = False
                self.shell.end_holding()
            self.used = table.grants
        # What cannot be said to a peer may be what a third node waits for: a token that must pass through here.
        waits = self.view_change.wedged or table.waiting() or any(session.stuck for session in self.sessions.values())
        if waits or (table.may_hold and not self.leases):
            self.alarm()
        if table.clocks_run_out():
            self.full()
        table.unchoke(now)
        if self.view_change.wedged:
            self.shell.refresh()
        if waits:
            self.look_for_silence(now)
        elif self.blockers:
            self.blockers = self.shell.suspect(())

    def look_for_silence(self, now: float) -> None:
        suspects = []
        for peer in self.view_change.missing() or self.view_change.coming:
            if peer == self.me:
                continue
            session = self.session(peer)
            if session.pinged:
                if now - session.pinged >= self.patience_s:
                    suspects.append(peer)
            elif now - session.heard >= SILENCE_S:
                session.pinged = now
                self.send(session, Ping())
        if suspects or self.blockers:
            self.blockers = self.shell.suspect(tuple(suspects))

    def close(self, now: float) -> None:
        """Nothing is granted here any more; who waits is told."""
        self.now = now
        self.closed = True
        self.table.wedge()
        error = NodeClosed(f"The node {self.me.name} has left the group {self.group}. The lock was never held.")
        lost: list[Ticket] = []
        for local_lock in self.table.busy():
            lost += local_lock.lose(f"The node left the group {self.group} while it held the lock {local_lock.name}.")
            local_lock.fail(error)
        for ticket in lost:
            ticket.woken()

    def farewell(self, epoch: int, members: tuple[Peer, ...]) -> None:
        """The view without us was decided; a peer that misses this sees the link end."""
        for session in self.sessions.values():
            if epoch and session.peer in members:
                self.send(session, NewView(epoch, members))
        self.flush()

    # -- looking at it -----------------------------------------------------------------------------------

    def ask_for_status(self) -> int:
        """Asks every other member; the answers come to `answers[number]`."""
        self.query += 1
        self.answers[self.query] = {}
        for peer in self.view_change.members:
            if peer != self.me and peer in self.sessions:
                self.send(self.sessions[peer], Query(self.query))
        return self.query
