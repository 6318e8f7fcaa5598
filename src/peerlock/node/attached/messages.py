"""What a host node and the processes attached to it tell each other.

About one lock, to the host node: Open, Want, Cancel, Return, Passed, Report. From it: Granted,
Successors, Recall, Revoked, Refused, Lost. From process to process: Hand.

Each of these says for itself which lock it is about in the frames that carry it: `ToHostNode` and
`FromHostNode` hold everything that one event has for the other side, in order.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from peerlock.contract import Mode
from peerlock.node.attached.chain import Chain, Number, ProcessId


class Open(Struct, frozen=True, array_like=True, tag=10):
    """The first word about a lock in a generation: where its marks are, and which algorithm it has."""

    slot: int  # of the process's page
    algorithm: int
    priority: int = 0


class Want(Struct, frozen=True, array_like=True, tag=0):
    """A caller of this process waits."""

    mode: Mode


class Cancel(Struct, frozen=True, array_like=True, tag=1):
    """No caller waits any more."""


class Return(Struct, frozen=True, array_like=True, tag=2):
    number: Number


class Passed(Struct, frozen=True, array_like=True, tag=3):
    number: Number
    to: Number  # the successor has this one
    used: bool = True  # a caller has held under the number


class Report(Struct, frozen=True, array_like=True, tag=4):
    """The first word about a lock on a connection: what this process has, and what it waits for."""

    number: Number = 0
    mode: Mode = "write"  # of the number
    wants: Mode | None = None
    last: Number = 0  # the largest number that has arrived


class Granted(Struct, frozen=True, array_like=True, tag=5):
    number: Number
    end: int  # the largest fence that may be used under this number
    mode: Mode = "write"
    keep: bool = True  # else it is returned at the release


class Successors(Struct, frozen=True, array_like=True, tag=6):
    """The process that has this number hands it over to the first of these at its release, and tells
    that one of the others.
    """

    number: Number
    chain: Chain


class Recall(Struct, frozen=True, array_like=True, tag=7):
    """The process that has this number returns it at its release."""

    number: Number


class Revoked(Struct, frozen=True, array_like=True, tag=8):
    """The process was not inside, and this number is taken from it."""

    number: Number


class Hand(Struct, frozen=True, array_like=True, tag=9):
    number: Number
    end: int
    chain: Chain = ()  # which processes come after


class Refused(Struct, frozen=True, array_like=True, tag=11):
    """The lock cannot be used like this, and what was wanted is forgotten."""

    algorithm: int  # that the group uses for it


class Lost(Struct, frozen=True, array_like=True, tag=12):
    """The host node has lost the lock, and so has every process that is attached to it."""

    sentence: str


class Reported(Struct, frozen=True, array_like=True, tag=13):
    """The new generation has heard of every lock that this process has or waits for."""


ToHost: TypeAlias = Open | Want | Cancel | Return | Passed | Report | Reported
FromHost: TypeAlias = Granted | Successors | Recall | Revoked


class Handed(Struct, frozen=True, array_like=True):
    """One datagram from process to process."""

    generation: int
    lock: str
    hand: Hand | None  # None: you are the one after the next


class Attach(Struct, frozen=True, array_like=True, tag=14):
    """The first frame after the hello: a process of this host wants to be attached."""

    process: ProcessId
    name: str
    pid: int  # its page is called after `process`


class Attached(Struct, frozen=True, array_like=True, tag=15):
    """It is. With a sentence: it is not, and that is why."""

    generation: int
    name: str  # of the host node
    sentence: str = ""


class Group(Struct, frozen=True, array_like=True, tag=16):
    """The view that the group is in."""

    epoch: int
    members: tuple[str, ...]


class ToHostNode(Struct, frozen=True, array_like=True, tag=17):
    said: tuple[tuple[str, ToHost], ...]


class FromHostNode(Struct, frozen=True, array_like=True, tag=18):
    said: tuple[tuple[str, Granted | Successors | Recall | Revoked | Refused | Lost], ...]
