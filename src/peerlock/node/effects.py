"""What a node asks its shell to do.

A node is told what happened by *inputs*: a frame has come, time has passed, a caller wants a lock.
An input never acts. It queues *effects*, and the shell carries them out, in order, when the input
has returned. What the shell finds out is the next input. So the core is never re-entered, and
everything that it wants done passes through one place.

    core                                    shell
    CheckLiveness(peer)                     asks the registry; learn(...) if there is a newer view; then may_redial(peer)
    RefreshView()                           asks the registry; learn(...) if there is a newer view
    Suspect(peers)                          tells the registry; waits_for(peers) with those that it may not exclude
    BeginHolding()                          asks the registry; holding_allowed() or holding_refused()
    RequestEpoch()                          epoch_requested(); asks the registry for a view with the same members

The bytes for other members are not in the queue: a peer gets one write for everything that an event
has for it (`Core.take_writes`). That is the one effect that almost every message has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from peerlock.node.peer import Peer

if TYPE_CHECKING:
    from peerlock.node.locks.local_lock import LocalLock
    from peerlock.node.locks.ticket import Ticket


class Wake(Struct, gc=False):
    """A caller's ticket was granted, lost, or cannot be granted any more: its `woken` is due."""

    ticket: Ticket


class OthersAsk(Struct, gc=False):
    """Another node asks for a lock that this ticket holds, and it stands for callers in other
    processes: its `others_ask` is due.
    """

    ticket: Ticket


class MaySpin(Struct, gc=False):
    """A caller waits for this lock, and a message about it has just been sent or received: it may
    spin before it sleeps.
    """

    local_lock: LocalLock
    soon: bool = False  # it is known to come soon, however long it has waited


class LookAtHost(Struct, frozen=True):
    """A caller of an attached process waits: is the host node stopped? Look in a moment, and say what
    was seen: `looked_at_host`.
    """


class WakeAt(Struct, frozen=True):
    """Call `tick` then."""

    when: float


class WithheldDueAt(Struct, frozen=True):
    """Call `on_withheld_due` then."""

    when: float


class Write(Struct, frozen=True):
    """To a peer with which there is a link but no session."""

    peer: Peer
    data: bytes


class Dial(Struct, frozen=True):
    peer: Peer


class HangUp(Struct, frozen=True):
    """The link with that peer is of no use any more."""

    peer: Peer
    sentence: str


class Refuse(Struct, frozen=True):
    """What that peer said made no sense: its link is closed, and made again."""

    peer: Peer
    sentence: str


class CheckLiveness(Struct, frozen=True):
    """The link with that peer went down. If the peer is dead, the group goes on without it."""

    peer: Peer


class RefreshView(Struct, frozen=True):
    """Learn the newest view, if it can be known without waiting."""


class Suspect(Struct, frozen=True):
    """These peers did not answer in time. None: those that were suspected answer again."""

    peers: tuple[Peer, ...]


class RequestEpoch(Struct, frozen=True):
    """A view with the same members is needed: every lock starts anew in it."""


class Rejoin(Struct, frozen=True):
    """The newest view is one without this node: it joins again as a new incarnation."""


class BeginHolding(Struct, frozen=True):
    """May this node hold locks from now on?"""


class EndHolding(Struct, frozen=True):
    """This node holds no lock, and asks before it holds the next one."""


class LeaseLapsed(Struct, frozen=True):
    """The lease has run out, and the holders were told."""

    lost: int  # holds


class EpochStarted(Struct, frozen=True):
    epoch: int
    at: float


class Answered(Struct, frozen=True):
    """A member has answered a question for the status (`Core.answers`)."""

    number: int  # of the question


class Warn(Struct, frozen=True):
    """A sentence for the log."""

    sentence: str


Effect: TypeAlias = (
    Wake
    | OthersAsk
    | MaySpin
    | LookAtHost
    | WakeAt
    | WithheldDueAt
    | Write
    | Dial
    | HangUp
    | Refuse
    | CheckLiveness
    | RefreshView
    | Suspect
    | RequestEpoch
    | Rejoin
    | BeginHolding
    | EndHolding
    | LeaseLapsed
    | EpochStarted
    | Answered
    | Warn
)
