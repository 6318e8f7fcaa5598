"""What an algorithm is.

An algorithm is one node's half of a protocol, written as a state machine. A driver (simulator,
checker, real network) owns one such object per node, calls it when something happens, and carries
out what the object asked for. The object never waits, reads a clock, chooses at random or sends by
itself, so its driver decides everything that can vary, and every driver runs the same object.

    driver -> algorithm                       algorithm -> driver, through `out`
    -------------------                       ----------------------------------
    start(me, shape, inside)                  send(to, message)
    request(mode, out)                        broadcast(to, message)
    release(out)                              enter()
    receive(source, message, out)             timer(name, after)
    on_timeout(name, out)                     idle()

One invocation runs  idle --request--> waiting --enter--> inside --release--> ending --idle--> idle.
Most algorithms call `out.idle()` before `release` returns; Suzuki-Kasami B may first have to wait
for REPLYs. A request before `idle` is the driver's error; drivers queue.

An algorithm may have more inputs. `join(out)` and `leave(out)` put a node into a running group and
take it out; `idle` ends them too, and a driver lets one node at a time come or go.
`rewire(neighbours)` changes a node's neighbours while it runs.

**Starting with nodes inside.** `inside` maps the nodes that are in their critical section at the
start to the mode they hold: none, one writer, or several readers. A token starts with the node
inside, else at `shape.home`; in a permission algorithm the node inside starts inside, with priority
over every new request. The papers only ever start with no node inside. This one generalisation lets
a group be stopped and started again around a crash without touching any algorithm, so it is part of
the contract and every algorithm is checked from every legal `inside`.

**State is a value.** Fields are declared and hold immutable values only (ints, bools, tuples,
frozensets, nested states that are replaced and never changed), so `copy.copy` is a snapshot,
`astuple` is a key, and nothing hides. A handler replaces fields of `self`; the driver copies where
it needs the past.

**Nodes are numbers**, as in the papers: 1 to N, or any positive integers where an algorithm works
with names alone. What a number stands for (a host, a process, a city of a map) is the driver's
business.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

NodeId: TypeAlias = int
Mode: TypeAlias = Literal["read", "write"]
Row: TypeAlias = tuple[int, ...]  # an array of the papers, indexed by node number; slot 0 is unused
Key: TypeAlias = tuple[Hashable, ...]  # a state as a plain tuple: to hash, to compare, to store

Inside: TypeAlias = Mapping[NodeId, Mode]  # the nodes that start inside, and in which mode
NOBODY: Inside = {}


def row(nodes: Iterable[NodeId], value: int) -> Row:
    """An array with `value` at every index, long enough to be indexed by each of `nodes`."""
    return (value,) * (max(nodes) + 1)


def put(values: Row, index: NodeId, value: int) -> Row:
    """`values` with `value` at `index`: the papers' `values[index] := value`."""
    return values[:index] + (value,) + values[index + 1 :]  # noqa: RUF005 - this is the faster way


V = TypeVar("V")
Book: TypeAlias = tuple[tuple[NodeId, V], ...]  # an array indexed by name where no node knows all names; sorted


def look(book: Book[V], name: NodeId, absent: V) -> V:
    """`book[name]`, or `absent` if that name was never written down."""
    at = bisect_left(book, (name,))
    return book[at][1] if at < len(book) and book[at][0] == name else absent


def note(book: Book[V], name: NodeId, value: V) -> Book[V]:
    """`book` with `value` at `name`."""
    at = bisect_left(book, (name,))
    return (*book[:at], (name, value), *book[at + (at < len(book) and book[at][0] == name) :])


def strike(book: Book[V], name: NodeId) -> Book[V]:
    """`book` without `name`."""
    return tuple(entry for entry in book if entry[0] != name)


@cache
def kind_of(message: type[Wire]) -> str:
    return message.called or re.sub(r"(?<=.)(?=[A-Z])", "_", message.__name__).upper()


class Wire(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A message. Subclass `Ask` or `Grant` where they fit: they say which entry pays.

    A tag (`tag=1`) is the message's number on the wire; it outlives a change of name. Charging, for
    all algorithms alike: requests and their relays charge the entry of their origin, replies and
    hops of a token charge the node they are bound for, everything else is overhead.
    """

    called: ClassVar[str] = ""  # the paper's name, where the class's own name does not give it

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        """The node whose entry pays for this message; None: it is overhead."""
        return None

    def asked(self) -> int | None:
        """For requests that others pass on: tells the requests of one origin apart."""
        return None

    @property
    def kind(self) -> str:
        """The paper's name of the message: REQUEST, ARE_YOU_THERE."""
        return kind_of(type(self))


class Ask(Wire, frozen=True):
    """A request: its sender pays."""

    # Does a request say everything that earlier ones of its sender said? Then a node that does not
    # answer, and is not waited for, need not be kept more than the last one.
    supersedes: ClassVar[bool] = False

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return source


class Grant(Wire, frozen=True):
    """A reply, or the token: the node that it is bound for pays."""

    is_token: ClassVar[bool] = False  # requests that its new owner did not hear may wait for it

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return to

    def successor(self) -> NodeId | None:
        """The node that gets it after the one it is sent to, if the sender knows that.

        With an answer an algorithm promises that a request of that sender may be sent to the
        successor alone: the others hear of it late or, once it has been granted, not at all. `None`
        promises nothing.
        """
        return None


M_contra = TypeVar("M_contra", bound=Wire, contravariant=True)
M = TypeVar("M", bound=Wire)


class Out(Protocol[M_contra]):
    """What a handler may ask of its driver."""

    def send(self, to: NodeId, message: M_contra) -> None:
        """One message to one node, never to oneself."""

    def broadcast(self, to: Iterable[NodeId], message: M_contra) -> None:
        """The same message to all others: one where the network can do that, else one per node."""

    def enter(self) -> None:
        """The critical section is this node's from now on, until the driver calls `release`."""

    def timer(self, name: str, after: float) -> None:
        """Call `on_timeout(name)` once, after this time; the same name again replaces the earlier."""

    def idle(self) -> None:
        """The invocation is over: the driver may call `request` again."""


class Members(Struct, frozen=True):
    """A complete network: every node knows every other."""

    all: tuple[NodeId, ...]
    home: NodeId  # where a token starts when no node is inside
    delay_bound: float | None = None  # no message takes longer; None: nothing is known

    def others(self, me: NodeId) -> tuple[NodeId, ...]:
        return tuple(j for j in self.all if j != me)


class Ring(Struct, frozen=True):
    """A ring: a process knows its left and its right neighbour."""

    left: NodeId
    right: NodeId
    home: NodeId


class Neighbours(Struct, frozen=True):
    """Any connected network: a process knows the names of its neighbours."""

    names: tuple[NodeId, ...]
    home: NodeId


Shape: TypeAlias = Members | Ring | Neighbours


class Needs(Struct, frozen=True):
    """What an algorithm asks of the network it runs on."""

    shape: type[Members] | type[Ring] | type[Neighbours] = Members
    delay_bound: bool = False  # is correct only if no message takes longer than a known time
    broadcast: bool = False  # is meant for a network where one message reaches all nodes
    fifo: bool = False  # is correct only if messages between two nodes arrive in the order sent
    modes: tuple[Mode, ...] = ("write",)

    @property
    def network(self) -> str:
        return {Members: "complete network", Ring: "ring", Neighbours: "any connected network"}[self.shape]

    def __str__(self) -> str:
        extra = ("FIFO links", self.fifo), ("a delay bound", self.delay_bound), ("broadcast", self.broadcast)
        return ", ".join([self.network, *(name for name, needed in extra if needed)])


class State(Struct):
    """The base of an algorithm: the class body is the paper's list of variables."""

    needs: ClassVar[Needs] = Needs()

    def __hash__(self) -> int:
        return hash(astuple(self))

    def key(self) -> Key:
        return astuple(self)

    def on_timeout(self, name: str, out: Out[Wire]) -> None:
        raise AssertionError(f"{type(self).__name__} sets no timer, yet {name!r} fired")

    def after(self, older: int) -> None:
        """The next request of this node comes after so many older ones of others.

        They were made before the start. An algorithm that orders requests by numbers starts
        counting there. It is a matter of fairness alone: the algorithm must be safe whatever the
        nodes are told here.
        """


class Algorithm(Protocol[M]):
    """What every driver relies on. `State` gives the rest."""

    needs: ClassVar[Needs]

    @classmethod
    def start(cls, *args: Any, **options: Any) -> Self:
        """start(me, shape, inside=NOBODY, *, OPTION=VALUE ...), the shape as `needs` says."""
        ...

    def request(self, mode: Mode, out: Out[M]) -> None: ...

    def release(self, out: Out[M]) -> None: ...

    def receive(self, source: NodeId, message: M, out: Out[M]) -> None: ...

    def on_timeout(self, name: str, out: Out[M]) -> None: ...

    def after(self, older: int) -> None: ...

    def key(self) -> Key: ...


AnyAlgorithm: TypeAlias = Algorithm[Any]  # whatever its messages are


class Effects:
    """An `Out` that only remembers: for drivers that decide later what becomes of a message."""

    __slots__ = ("broadcasts", "ended", "entered", "sent", "timers")

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Wire]] = []
        self.broadcasts: list[tuple[tuple[NodeId, ...], Wire]] = []
        self.timers: list[tuple[str, float]] = []
        self.entered = False
        self.ended = False

    def send(self, to: NodeId, message: Wire) -> None:
        self.sent.append((to, message))

    def broadcast(self, to: Iterable[NodeId], message: Wire) -> None:
        nodes = tuple(to)
        self.broadcasts.append((nodes, message))
        self.sent += [(j, message) for j in nodes]

    def enter(self) -> None:
        self.entered = True

    def timer(self, name: str, after: float) -> None:
        self.timers.append((name, after))

    def idle(self) -> None:
        self.ended = True


__all__ = [
    "NOBODY", "Algorithm", "AnyAlgorithm", "Ask", "Book", "Effects", "Grant", "Inside", "Key", "Members", "Mode", "Needs",
    "Neighbours", "NodeId", "Out", "Ring", "Row", "Shape", "State", "Wire", "kind_of", "look", "note", "put", "row", "strike",
]  # fmt: skip
