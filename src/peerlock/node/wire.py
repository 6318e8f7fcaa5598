"""The messages between members.

A frame is a length of four bytes and a MessagePack array, validated as it is decoded. The first
frame in each direction of a link is `Hello`: which peer, in which group, with which versions.
`LockMessage`, `Report` and `Disagree` are numbered by the session and repeated until acknowledged;
the others are not missed when they are lost.

A group is upgraded one node at a time, so a node speaks its own version of the protocol and the one
before. A `Hello` says both. What keeps this cheap: fields are only ever added at the end, with a
default for nodes that do not send them; decoders skip what they do not know; a new kind of frame
goes only to nodes of the version that brought it (none has needed that yet: the first one must keep
the peer's version from its `Hello`). The code of the version before is kept in `tests/previous`, and
`tests/net/test_upgrade.py` puts old and new nodes into one group.

The body of a message of an algorithm stays packed until it is known for which lock it is and which
algorithm that lock has.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from peerlock.contract import Mode
from peerlock.errors import ProtocolError
from peerlock.node.attached.messages import Attach, Attached, FromHostNode, Group, ToHostNode
from peerlock.node.peer import Peer

VERSION = 2
OLDEST = 1  # that is spoken, too
LENGTH = struct.Struct(">I")
LARGEST = 16 * 2**20  # bytes of a frame
MOST_LOCKS = 50_000  # of a report or an answer, in one frame: 100 bytes each
LARGEST_HELLO = 4096  # bytes of the first one, from a peer that is not known yet


class Hello(Struct, frozen=True, array_like=True, tag=0):
    oldest: int  # version that the sender speaks
    group: str
    peer: Peer
    to: int = 0  # the id of the peer that this is meant for; 0: any that listens there
    received: int = 0  # the last number that came from you
    sentence: str = ""  # why this is the last frame, if it is
    gone: bool = False  # and the group goes on without that incarnation
    newest: int = 1  # version that the sender speaks


class LockMessage(Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A message of an algorithm."""

    seq: int
    ack: int
    epoch: int
    lock: str
    algorithm: int
    clock: int
    body: msgspec.Raw


class LockReport(Struct, frozen=True, array_like=True):
    """What a member says of one lock at the end of an epoch. Idle locks are not mentioned."""

    lock: str
    algorithm: int
    held: Mode | None
    waited_s: float = -1.0  # how long the first waiter has waited; below 0: none waits


class Report(Struct, frozen=True, array_like=True, tag=2):
    seq: int
    ack: int
    epoch: int
    members: tuple[Peer, ...]
    locks: tuple[LockReport, ...]


class ReportPart(Struct, frozen=True, array_like=True, tag=13):
    """The beginning of a report that one frame has no room for. `Report` is its end."""

    seq: int
    ack: int
    epoch: int
    locks: tuple[LockReport, ...]


class Disagree(Struct, frozen=True, array_like=True, tag=3):
    """Here that lock runs another algorithm."""

    seq: int
    ack: int
    epoch: int
    lock: str
    algorithm: int


class NewView(Struct, frozen=True, array_like=True, tag=9):
    """A view was decided. News for a peer that is not in it; members learn of it by its reports."""

    epoch: int
    members: tuple[Peer, ...]


class Ack(Struct, frozen=True, array_like=True, tag=4):
    ack: int


class Ping(Struct, frozen=True, array_like=True, tag=5):
    pass


class Pong(Struct, frozen=True, array_like=True, tag=6):
    pass


class Query(Struct, frozen=True, array_like=True, tag=7):
    """What is there with you? For the status."""

    number: int


class Answer(Struct, frozen=True, array_like=True, tag=8):
    number: int
    locks: tuple[LockStatus, ...]
    newest: int = 1  # version that the sender speaks


class WaiterStatus(Struct, frozen=True, array_like=True):
    mode: Mode
    waited_s: float
    by: str = ""  # a process that is attached to the node; nothing: the node itself


class LockStatus(Struct, frozen=True, array_like=True):
    """One lock at one node."""

    lock: str
    algorithm: str
    held: Mode | None
    fence: int | None
    held_s: float | None
    waiters: tuple[WaiterStatus, ...]
    by: str = ""  # the holder, if it is a process that is attached to the node


class StaticState(Struct, frozen=True, array_like=True, tag=10):
    """For a fixed list of nodes: what the sender knows. A new view needs this of all nodes."""

    epoch: int  # the newest that it has heard of
    absent: tuple[tuple[str, int], ...]  # nodes that are not waited for: name and incarnation
    seen: tuple[tuple[str, int], ...]  # the newest incarnation of each that the sender has heard of
    leaving: bool = False  # the sender itself
    renew: bool = False  # a view with the same members, please


class ClientCall(Struct, frozen=True, array_like=True, tag=11):
    """From a client, which is not a member: the command line."""

    number: int
    what: str
    said: dict[str, str | int | float | bool | None]


class ClientResult(Struct, frozen=True, array_like=True, tag=12):
    number: int
    ok: bool
    value: Any  # what was asked for, in plain values; or a sentence


# Tags 14 to 18 are those of attached processes (`node/attached/messages.py`). The next free tag is
# 19. A tag is never used again.
Frame: TypeAlias = (
    Hello
    | LockMessage
    | ReportPart
    | Report
    | Disagree
    | NewView
    | Ack
    | Ping
    | Pong
    | Query
    | Answer
    | StaticState
    | ClientCall
    | ClientResult
    | Attach
    | Attached
    | Group
    | ToHostNode
    | FromHostNode
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
packed = _encoder.encode
unpacked = _decoder.decode
UNREADABLE = msgspec.DecodeError, UnicodeDecodeError, RecursionError


def incompatible(oldest: int, newest: int) -> str:
    """Why a peer that speaks these versions is not understood here; nothing: it is."""
    if oldest <= VERSION and newest >= OLDEST:
        return ""
    theirs = f"versions {oldest} to {newest}" if oldest < newest else f"version {oldest}"
    return (
        f"it speaks {theirs} of the protocol, this node speaks {OLDEST} to {VERSION}: "
        f"upgrade {'this node' if oldest > VERSION else 'it'} first, one version at a time"
    )


def framed(message: Any) -> bytes:
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def opened(body: bytes | bytearray | memoryview) -> Frame:
    """A frame without its length; `ProtocolError` if it is none."""
    try:
        found: Frame = unpacked(body)
        return found
    except UNREADABLE as problem:
        raise ProtocolError(f"a frame of {len(body)} bytes is no message of this protocol: {problem}") from None


class FrameTooLong(ProtocolError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes; the limit is {limit}")
        self.length = length


def next_frame(buffer: bytearray, limit: int = LARGEST) -> bytes | None:
    """The first frame, taken out of what has come. None: the rest of it has not come yet.

    `net/transport/link.py` does the same in place, for the frames of locks.
    """
    if len(buffer) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffer)
    if length > limit:
        raise FrameTooLong(length, limit)
    end = LENGTH.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[LENGTH.size : end])
    del buffer[:end]
    return body
