"""A member's side of registries with leases: when it sends a heartbeat, and which members it must
reach before it is admitted.

`QuorumAgent` and `StoreAgent` have one interface to the shells:

    arrive(peer)            a new incarnation, which wants to be a member
    reached(peers)          members with which there are links
    suspect(peers)          members that do not answer
    wants_renewal(), leave()
    tick()

What they ask of the shell is `AgentIO`.

A heartbeat is due every quarter of a lease, so two may be lost and the lease still runs on. A node
that is not a member yet sends heartbeats more often.
"""

from __future__ import annotations

from typing import Any, Protocol

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.store.requests import Request

JOINING_S = 0.2  # between the heartbeats of a peer that is not a member yet
LOST = 1 / 3  # of a lease: after that an answer will not come
NO_VIEW = View(0, ())


class AgentIO(Protocol):
    """What an agent asks of its shell."""

    def learned(self, view: View) -> None: ...

    def leased(self, until: float) -> None: ...

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        """Links to these are needed, before we are admitted."""

    def left(self) -> None:
        """The group goes on without us, as we wished."""

    def wake_at(self, when: float) -> None: ...

    def send(self, to: str, message: Any) -> None:
        """To a voter."""

    def ask(self, request: Request) -> None:
        """Of a store."""

    def complain(self, sentence: str) -> None: ...

    def refuse(self, sentence: str) -> None:
        """This node cannot be a member, and waiting does not help."""

    def new_incarnation(self) -> None:
        """This incarnation may have been a member without knowing: another one is needed."""

    def steady(self) -> float:
        """The time by a clock that does not count suspension."""
        ...

    def may_send_heartbeat(self) -> bool:
        """Has the node answered of late? One that hangs loses its locks instead of keeping them
        from everybody.
        """
        ...


class MembershipAgent:
    """What both kinds do alike."""

    def __init__(self, io: AgentIO, lease_s: float) -> None:
        self.io, self.lease_s = io, lease_s
        self.heartbeat_at = 0.0
        self.links: frozenset[Peer] = frozenset()
        self.heard: dict[str, float] = {}  # of each voter, or the store: when it last answered
        self.since = 0.0  # this incarnation arrived
        self.started = False
        self.over = (
            False  # this incarnation must not become a member any more: it says nothing until the next one arrives
        )
        self.leaving = False
        self.goodbye = False  # the group knows that we are gone

    # -- what differs ------------------------------------------------------------------------------------

    @property
    def me(self) -> Peer:
        raise NotImplementedError

    @property
    def view(self) -> View:
        raise NotImplementedError

    def heartbeat(self, now: float) -> None:
        raise NotImplementedError

    def may_join(self, yes: bool) -> None:
        raise NotImplementedError

    def arrive(self, me: Peer, now: float) -> None:
        """A new incarnation wants to be a member."""
        raise NotImplementedError

    def suspect(self, peers: tuple[Peer, ...], now: float) -> None:
        """These members do not answer."""
        raise NotImplementedError

    def wants_renewal(self, epoch: int, now: float) -> None:
        """A view with the same members, newer than that of `epoch`."""
        raise NotImplementedError

    def leave(self, now: float) -> None:
        raise NotImplementedError

    def runs(self, now: float) -> bool:
        """The lease."""
        raise NotImplementedError

    def waits_for(self, now: float) -> tuple[str, ...]:
        """Those that do not answer, if that matters, and members that must be reached first."""
        raise NotImplementedError

    # -- what is the same --------------------------------------------------------------------------------

    def learned(self, view: View) -> None:
        """Of the member: a view was decided."""
        self.heartbeat_at = 0.0  # a member of it sends a heartbeat at once
        self.io.learned(view)

    def comes_back(self) -> None:
        """It may have been admitted and excluded again without hearing of it."""
        self.over = True
        self.io.new_incarnation()

    def leased(self, until: float) -> None:
        self.io.leased(until)

    def complain(self, sentence: str) -> None:
        self.io.complain(sentence)

    def refuse(self, sentence: str) -> None:
        self.io.refuse(sentence)

    def reached(self, peers: frozenset[Peer], now: float) -> None:
        self.links = peers
        if self.started and not self.over and self.me not in self.view.members and not self.leaving:
            self.to_dial_early()
            self.heartbeat_at = 0.0
            self.tick(now)

    def to_dial_early(self) -> None:
        """A node that cannot reach a member would stop the group: it waits outside until it can."""
        missing = tuple(peer for peer in self.view.members if peer not in self.links)
        self.may_join(not missing)
        if missing:
            self.io.dial_early(self.view.members)

    def unreached(self) -> tuple[Peer, ...]:
        if not self.started or self.me in self.view.members:
            return ()
        return tuple(peer for peer in self.view.members if peer not in self.links)

    @property
    def every_s(self) -> float:
        return self.lease_s / 4 if self.me in self.view.members else min(JOINING_S, self.lease_s / 4)

    def tick(self, now: float) -> None:
        if not self.started or self.over:
            return
        if now >= self.heartbeat_at:
            self.heartbeat_at = now + self.every_s
            if self.me not in self.view.members and not self.leaving:
                self.to_dial_early()
            if self.leaving or self.io.may_send_heartbeat():
                self.heartbeat(now)
        self.io.wake_at(self.next_at(now))

    def next_at(self, now: float) -> float:
        return max(now, self.heartbeat_at)

    def gone_yet(self, now: float) -> None:
        if self.leaving and not self.goodbye and self.me not in self.view.members:
            self.goodbye = True
            self.io.left()
