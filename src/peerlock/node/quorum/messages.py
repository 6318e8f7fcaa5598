"""What members and voters say to each other.

    member -> voter     Heartbeat      I am there; what I want
    voter  -> member    HeartbeatAck   yes, and I will not exclude you for D; or no; and the newest view
    voter  -> voter     Prepare, Promise, Accept, Accepted, NotYet, Refused: single-decree Paxos, once for each epoch
    voter  -> any peer  ViewDecided    this view was decided
    voter  -> voter     Gossip         the members that I support, for voters that consider excluding one

Each frame of a voter is in an envelope with the counter of the sender's record and the highest one
that it has seen of the addressee: a voter whose record was replaced by an old copy is found out by
a peer that has talked to it before.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from peerlock.errors import ProtocolError
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import LENGTH

MOST_VOTERS = 16  # a ballot is a round times this, plus the place of the voter that proposes


class Heartbeat(Struct, frozen=True, array_like=True, tag=0):
    number: int
    peer: Peer
    epoch: int  # the newest that it knows to be decided
    wish: str = ""  # join, look (not yet), leave, renew (a view with the same members), or nothing
    apart: tuple[Peer, ...] = ()  # members that it cannot reach
    lease_s: float = 0.0  # what it takes a lease to be


class HeartbeatAck(Struct, frozen=True, array_like=True, tag=1):
    number: int  # of the heartbeat; numbers go on from one incarnation of a node to the next
    ok: bool  # that member is not excluded by this voter for D from now on
    view: View | None = None  # if it is newer than what the member knew
    why: str = ""  # not ok


class Prepare(Struct, frozen=True, array_like=True, tag=2):
    decided: View  # the newest; the next one is to be decided
    ballot: int


class Promise(Struct, frozen=True, array_like=True, tag=3):
    epoch: int
    ballot: int
    accepted: tuple[int, View] | None  # the newest ballot in which this voter has accepted something
    supported: tuple[Peer, ...]  # members that this voter supports
    leavers: tuple[Peer, ...]
    joiners: tuple[Peer, ...] = ()  # peers that have asked this voter to be members


class Accept(Struct, frozen=True, array_like=True, tag=4):
    decided: View
    ballot: int
    value: View
    leavers: tuple[Peer, ...]  # of those that are excluded: by their own word


class Accepted(Struct, frozen=True, array_like=True, tag=5):
    epoch: int
    ballot: int


class NotYet(Struct, frozen=True, array_like=True, tag=6):
    """The view excludes a member that the sender supports; it will for no longer than D."""

    epoch: int
    ballot: int


class Refused(Struct, frozen=True, array_like=True, tag=7):
    epoch: int
    ballot: int
    promised: int  # to a higher one


class ViewDecided(Struct, frozen=True, array_like=True, tag=8):
    view: View


class Gossip(Struct, frozen=True, array_like=True, tag=9):
    epoch: int
    supported: tuple[Peer, ...]


class VoterHello(Struct, frozen=True, array_like=True, tag=10):
    """The first frame each way: who, in which group, which version."""

    oldest: int  # version that the sender speaks
    group: str
    name: str
    voter: bool
    run: int = 0  # of a voter: a number that each start of it chooses anew
    lease_s: float = 0.0  # the same for all members: a lease must be over before a promise is
    epoch: int = -1  # of a voter: the newest that it knows
    sentence: str = ""  # why this is the last frame, if it is
    newest: int = 1  # version that the sender speaks


class ReplaceVoter(Struct, frozen=True, array_like=True, tag=11):
    """The operator: put this voter in the place of that one."""

    old: str
    new: str
    address: str


class Outcome(Struct, frozen=True, array_like=True, tag=12):
    ok: bool
    sentence: str


Ballot: TypeAlias = Prepare | Promise | Accept | Accepted | NotYet | Refused | ViewDecided | Gossip
Word: TypeAlias = Heartbeat | HeartbeatAck | Ballot | VoterHello | ReplaceVoter | Outcome


class Envelope(Struct, frozen=True, array_like=True):
    counter: int  # of the sender's record; 0: it has none
    seen: int  # the highest ballot that the sender has seen of the addressee
    word: Word


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Envelope)


def enveloped(counter: int, seen: int, word: Word) -> bytes:
    body = _encoder.encode(Envelope(counter, seen, word))
    return LENGTH.pack(len(body)) + body


def unsealed(body: bytes) -> Envelope:
    try:
        found: Envelope = _decoder.decode(body)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise ProtocolError(f"{len(body)} bytes are no frame of voters: {problem}") from None
