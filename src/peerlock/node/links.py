"""The links of a node with other members, as its core sees them: a session per peer, and which side
dials.

Of two members the one with the greater name dials, and a joiner dials all members. A link carries
the frames of one session, whichever side made it; a new link takes the place of the old one.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from peerlock.node.effects import CheckLiveness, Dial, HangUp, Suspect, Write
from peerlock.node.failure_detector import FailureDetector, hears
from peerlock.node.inputs import an_input
from peerlock.node.peer import Peer
from peerlock.node.session import Session
from peerlock.node.wire import (
    OLDEST,
    VERSION,
    Answer,
    Disagree,
    Hello,
    NewView,
    Ping,
    Pong,
    Query,
    Report,
    ReportPart,
    framed,
)

if TYPE_CHECKING:
    from peerlock.node.core import Core


class Links:
    sessions_of: ClassVar[type[Session]] = Session

    def __init__(self, core: Core, patience_s: float) -> None:
        self.core, self.table = core, core.table
        self.sessions: dict[Peer, Session] = {}
        self.numbers: dict[Peer, int] = {}  # of the members of the epoch that runs
        self.failure_detector = FailureDetector(patience_s)

    def session(self, peer: Peer) -> Session:
        found = self.sessions.get(peer)
        if found is None:
            found = self.sessions[peer] = self.sessions_of(peer)
            found.heard, found.number = self.table.now, self.numbers.get(peer, 0)
        return found

    def count(self, members: tuple[Peer, ...]) -> None:
        """The numbers of the members of an epoch."""
        self.numbers = {peer: number for number, peer in enumerate(members, 1)}
        for peer, session in self.sessions.items():
            session.number = self.numbers.get(peer, 0)

    def end(self, peers: list[Peer], why: str) -> None:
        for peer in peers:
            del self.sessions[peer]
            self.core.effects.append(HangUp(peer, why))

    def need(self, peers: tuple[Peer, ...]) -> None:
        """Links with all these are wanted."""
        for peer in peers:
            if peer != self.core.me and not self.session(peer).linked and self.dials(peer):
                self.core.effects.append(Dial(peer))

    def dials(self, peer: Peer) -> bool:
        """Of two members the greater one dials; but a joiner dials all members, for none has heard
        of it.
        """
        return self.core.me > peer or not self.core.view_change.epoch

    # -- links that are made and that end ------------------------------------------------------------------

    def hello(self, peer: Peer) -> Hello:
        """Our first words on a link to that peer."""
        session = self.sessions.get(peer)
        received = session.received if session is not None else 0
        return Hello(OLDEST, self.core.group, self.core.me, peer.id, received, newest=VERSION)

    @an_input
    def dialled(self, peer: Peer, now: float) -> bytes:
        """We have reached a peer: what goes there first. What it may not have follows the hello at
        once.
        """
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
        if self.core.view_change.known and peer not in self.core.view_change.coming:
            self.tell_the_view(session)

    def is_behind(self, peer: Peer, received: int) -> bool:
        """It had a session with us before the group went on without it, and does not know that yet:
        it is told.
        """
        session, view_change = self.sessions.get(peer), self.core.view_change
        if received <= (session.seq if session is not None else 0) or peer in view_change.coming:
            return False
        self.sessions.pop(peer, None)  # an earlier link has made one, which is not the one that the peer speaks of
        self.core.effects.append(Write(peer, framed(NewView(view_change.known, view_change.coming))))
        return True

    def tell_the_view(self, session: Session) -> None:
        """To a peer that seems to know only an older one."""
        view_change = self.core.view_change
        if view_change.coming:  # else its members are not known here: we have just joined again
            self.send(session, NewView(view_change.known, view_change.coming))

    @an_input
    def unlinked(self, peer: Peer, now: float) -> None:
        self.table.now = now
        session = self.sessions.get(peer)
        if session is not None:
            session.unlink()
            if session.stuck:
                self.table.alarm()
        if peer in self.core.view_change.coming:
            self.core.effects.append(CheckLiveness(peer))
        else:
            self.sessions.pop(peer, None)  # it is in no view that we know of, and will say everything again

    @an_input
    def may_redial(self, peer: Peer) -> None:
        """The registry was asked about a peer that cannot be reached. If it is still a member, a
        link to it is needed.
        """
        if peer in self.core.view_change.coming and self.dials(peer) and peer in self.sessions:
            self.core.effects.append(Dial(peer))

    # -- what is said on them ------------------------------------------------------------------------------

    def post(self, session: Session, message: ReportPart | Report | Disagree) -> None:
        """A numbered message."""
        session.post(message.epoch, framed(message))
        self.table.dirty[session] = None

    def send(self, session: Session, message: NewView | Ping | Pong | Query | Answer) -> None:
        """One that is not missed."""
        if session.linked:
            session.outgoing.append(framed(message))
            self.table.dirty[session] = None

    # -- silence -------------------------------------------------------------------------------------------

    @property
    def stuck(self) -> bool:
        """What cannot be said to a peer may be what a third node waits for: a token that must pass
        through here.
        """
        return any(session.stuck for session in self.sessions.values())

    def hear_all(self) -> None:
        """This node slept: what the others said meanwhile has not been read yet."""
        for session in self.sessions.values():
            hears(session, self.table.now)

    def look_for_silence(self, peers: tuple[Peer, ...]) -> None:
        sessions = [self.session(peer) for peer in peers if peer != self.core.me]
        self.failure_detector.peers = len(self.sessions)
        to_ping, suspects = self.failure_detector.silent(sessions, self.table.now)
        for session in to_ping:
            self.send(session, Ping())
        if suspects or self.failure_detector.blockers:
            self.core.effects.append(Suspect(suspects))

    @an_input
    def waits_for(self, peers: tuple[Peer, ...]) -> None:
        """The registry may not exclude these suspects."""
        self.failure_detector.blockers = peers

    @an_input
    def silent_for(self, peer: Peer, now: float) -> float:
        """Is it there? It is asked. For how long it has not answered; infinity: there is no link to
        ask on.
        """
        session = self.sessions.get(peer)
        if session is None or not session.linked:
            return inf
        if not session.pinged:
            session.pinged = now
            self.send(session, Ping())
        return now - session.pinged

    @an_input
    def farewell(self, epoch: int, members: tuple[Peer, ...]) -> None:
        """The view without us was decided; a peer that misses this sees the link end."""
        for session in self.sessions.values():
            if session.peer in members:
                self.send(session, NewView(epoch, members))
