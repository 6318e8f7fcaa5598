"""What members say to each other.

A frame is a length of four bytes and a MessagePack array, validated as it is decoded. The first frame in each
direction of a link is `Hello`: who, in which group, with which versions. `Said`, `Report` and `Disagree` are numbered
by the session and repeated until acknowledged; the others are not missed when they are lost.

A group is upgraded one node at a time, so a node speaks its own version of the protocol and the one before. A `Hello`
says both; whoever listens only to the first number, as version 1 did, hears one that it knows. What keeps this cheap:
fields are only ever added at the end, with a value for those who do not send them, and decoders pass over what they
do not know; a new kind of frame goes only to those who speak the version that brought it. The code of version 1 is
kept with the tests, which put old and new nodes into one group.

The body of a message of an algorithm stays packed until it is known for which lock it is and which algorithm that
lock has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from peerlock.algorithms import (
    CATALOGUE,
    Chosen,
    carvalho_roucairol,
    choose,
    dijkstra_ring,
    helary_plouzeau_raynal,
    ricart_agrawala,
    ricart_agrawala_rw,
    ricart_agrawala_token,
    suzuki_kasami_a,
    suzuki_kasami_b,
    suzuki_kasami_b_as_printed,
)  # fmt: skip
from peerlock.contract import Mode, Wire
from peerlock.errors import ProtocolError, UsageError

VERSION = 2
OLDEST = 1  # that is spoken, too
LENGTH = struct.Struct(">I")
LARGEST = 16 * 2**20  # bytes of a frame
MOST_LOCKS = 50_000  # of a report or an answer, in one frame: 100 bytes each
LARGEST_HELLO = 4096  # bytes of the first one, from somebody we do not know


class Peer(Struct, frozen=True, order=True, array_like=True, cache_hash=True):
    """One incarnation of a member. A restart is somebody new: the name may be the same, the id never is."""

    name: str
    id: int
    address: str = ""
    pid: int = 0

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid and str(self.pid) not in self.name else self.name


class Hello(Struct, frozen=True, array_like=True, tag=0):
    oldest: int  # version that the sender speaks
    group: str
    peer: Peer
    to: int = 0  # the id of whom this is meant for; 0: whoever listens there
    received: int = 0  # the last number that came from you
    sentence: str = ""  # why this is the last frame, if it is
    gone: bool = False  # and the group goes on without that incarnation
    newest: int = 1  # version that the sender speaks; version 1 did not say


class Said(Struct, frozen=True, array_like=True, tag=1, gc=False):
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


class Decided(Struct, frozen=True, array_like=True, tag=9):
    """A view was decided. News from somebody who is not in it; members learn of it by its reports."""

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


class LockStatus(Struct, frozen=True, array_like=True):
    """One lock at one node."""

    lock: str
    algorithm: str
    held: Mode | None
    fence: int | None
    held_s: float | None
    waiters: tuple[WaiterStatus, ...]


class Tell(Struct, frozen=True, array_like=True, tag=10):
    """For a fixed list of nodes: what the sender knows. A new view needs this of everybody."""

    epoch: int  # the newest that it has heard of
    absent: tuple[tuple[str, int], ...]  # who need not be waited for: name and incarnation
    seen: tuple[tuple[str, int], ...]  # the newest incarnation of each that the sender has heard of
    leaving: bool = False  # the sender itself
    renew: bool = False  # a view with the same members, please


class Call(Struct, frozen=True, array_like=True, tag=11):
    """From a client, which is not a member: the command line."""

    number: int
    what: str
    said: dict[str, str | int | float | bool | None]


class Result(Struct, frozen=True, array_like=True, tag=12):
    number: int
    ok: bool
    value: Any  # what was asked for, in plain values; or a sentence


Frame: TypeAlias = (
    Hello | Said | ReportPart | Report | Disagree | Decided | Ack | Ping | Pong | Query | Answer | Tell | Call | Result
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
packed = _encoder.encode
unpacked = _decoder.decode
UNREADABLE = msgspec.DecodeError, UnicodeDecodeError, RecursionError


def incompatible(oldest: int, newest: int) -> str:
    """Why somebody who speaks these versions is not understood here; nothing: it is."""
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


# -- the algorithms on the wire ------------------------------------------------------------------------


class Spoken(Struct, frozen=True):
    """An algorithm as it is known on the wire."""

    number: int
    chosen: Chosen
    message: Callable[[msgspec.Raw], Wire]  # out of a body; it raises what is `UNREADABLE`


_PLAIN = ricart_agrawala.Request, ricart_agrawala.Reply
_MESSAGES: Mapping[str, tuple[int, tuple[type[Wire], ...]]] = {
    "suzuki-kasami-a": (1, (suzuki_kasami_a.Request, suzuki_kasami_a.Privilege)),
    "suzuki-kasami-b": (2, (
        suzuki_kasami_b_as_printed.Request, suzuki_kasami_b_as_printed.Reply, suzuki_kasami_b.PrivilegeWithRounds)),
    "helary-plouzeau-raynal": (3, (helary_plouzeau_raynal.Req, helary_plouzeau_raynal.Token)),
    "dijkstra-ring": (4, (dijkstra_ring.Signal, dijkstra_ring.Token)),
    "ricart-agrawala": (5, _PLAIN),
    "ricart-agrawala-broadcast": (6, _PLAIN),
    "ricart-agrawala-rw": (7, (ricart_agrawala_rw.Request, ricart_agrawala.Reply)),
    "ricart-agrawala-priority": (8, _PLAIN),
    "carvalho-roucairol": (9, (carvalho_roucairol.Request, carvalho_roucairol.Reply)),
    "ricart-agrawala-token": (10, (ricart_agrawala_token.Request, ricart_agrawala_token.Token)),
}  # fmt: skip
_REFUSED = {
    "ricart-agrawala-implicit": "it takes silence for permission, so it is safe only where no message is late",
    "ricart-agrawala-broadcast-implicit": "it takes silence for permission, so it is safe only where no message is late",
    "ricart-agrawala-failures": "it takes a slow node for a dead one; here the view of the group says who is dead",
    "ricart-agrawala-dynamic": "here the view of the group does its work: nodes join and leave with any algorithm",
}
DEFAULT = "suzuki-kasami-a"
DEFAULT_RW = "ricart-agrawala-rw"

_known: dict[str | int, Spoken] = {}


def spoken(algorithm: str | int) -> Spoken:
    """The algorithm of that name or number on the wire; a sentence if it is not to be used there."""
    found = _known.get(algorithm)
    if found is not None:
        return found
    name = algorithm
    if isinstance(name, int):
        name = next((known for known, (number, _) in _MESSAGES.items() if number == algorithm), "")
        if not name:
            raise ProtocolError(f"no algorithm has the number {algorithm}: is the other node of a newer version?")
    if name in _REFUSED:
        raise UsageError(f"{name} cannot be used for a real lock: {_REFUSED[name]}. Use {DEFAULT}.")
    chosen = choose(name)
    number, types = _MESSAGES[name]
    found = _known[name] = _known[number] = Spoken(number, chosen, msgspec.msgpack.Decoder(reduce(or_, types)).decode)
    return found


def is_spoken(number: int) -> bool:
    """Has an algorithm that number?"""
    return any(number == known for known, _ in _MESSAGES.values())


ON_THE_WIRE: tuple[str, ...] = tuple(_MESSAGES)
assert set(_MESSAGES) | set(_REFUSED) == set(CATALOGUE)
