"""One lock at one node: what its users want, and the algorithm that gets it for them.

The users want the lock, have it, or neither: `want` and `has`. The algorithm of the epoch is idle,
asked, inside or ending: `at`. `settle` makes the two agree, one step after the other, and is called
after each change of either. So three cases need no code of their own: a release during a view
change, a request that no caller waits for any more, and a request in another mode. The wish is
noted, and as soon as an epoch runs, `settle` acts on it.

    want, not has, at idle       ask the algorithm
    want, not has, at inside     the lock is ours: grant it, if this node may hold
    not want,      at inside     no caller wants it any more: leave
    has                          nothing to do until the users release

`clock` is the lower half of the fence: a Lamport clock that rides on every message of this lock and
goes up by one with each grant. Two holds of one epoch that exclude each other are linked by
messages (the token, the last permission), so the later one has the larger clock. A new epoch starts
again from 0, and the epoch is the upper half of the fence.

`may_hold` stands for what a node must make sure of before it acts on what its algorithm says: no
view without this node is decided meanwhile. Each registry makes sure of it in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal, Self, TypeAlias

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import Key, Members, Mode, Neighbours, NodeId, Out, Ring, Shape

AnyOut: TypeAlias = Out[Any]  # of whichever algorithm the lock has
At: TypeAlias = Literal["idle", "asked", "inside", "ending"]
Settled: TypeAlias = (
    Literal["granted", "request_hold"] | None
)  # ours now; ours as soon as the registry allows it; nothing new


def shape_for(spec: AlgorithmSpec, me: NodeId, size: int, home: NodeId) -> Shape:
    """The members 1 to `size` in the shape that an algorithm needs.

    Each member sees them in its own order, those after itself first. Where the papers say "for all
    j", the first one would else be the same for all: of the nodes that a holder of Suzuki's
    and Kasami's privilege finds waiting, the one with the lowest number.
    """
    if spec.needs.shape is Ring:
        return Ring(left=(me - 2) % size + 1, right=me % size + 1, home=home)
    members = (*range(me, size + 1), *range(1, me))
    if spec.needs.shape is Neighbours:
        return Neighbours(tuple(j for j in members if j != me), home)
    return Members(members, home)


class Participant:
    # Not a Struct: plain slots are written several times as fast, and every entry writes some.
    __slots__ = ("algorithm", "at", "clock", "has", "mode", "want")

    def __init__(self) -> None:
        self.want: Mode | None = None  # what the users of this node want, or have
        self.has = False  # they have it
        self.algorithm: Any = None  # of the epoch that runs
        self.at: At = "idle"  # where the algorithm is in its invocation
        self.mode: Mode = "write"  # in which it was asked
        self.clock = 0

    def __copy__(self) -> Self:
        made = type(self)()
        made.want, made.has, made.at, made.mode, made.clock = self.want, self.has, self.at, self.mode, self.clock
        made.algorithm = copy(self.algorithm)
        return made

    def key(self) -> Key:
        algorithm = self.algorithm.key() if self.algorithm is not None else None
        return self.want, self.has, algorithm, self.at, self.mode, self.clock

    def held(self) -> Mode | None:
        """What a report says of this lock."""
        return self.want if self.has else None

    def start(self, spec: AlgorithmSpec, me: NodeId, size: int, home: NodeId, inside: Mapping[NodeId, Mode]) -> None:
        """A new epoch. What the users want is as it was; `inside` is what was reported."""
        assert not self.has or inside.get(me) == self.want, f"{self.key()} was not reported: {inside}"
        self.algorithm = spec.start(me, shape_for(spec, me, size, home), inside)
        self.at, self.mode = ("inside", inside[me]) if me in inside else ("idle", "write")
        self.clock = 0

    def settle(self, may_hold: bool, out: AnyOut) -> Settled:
        """Make algorithm and users agree. Only while an epoch runs. `out` tells the participant of
        `enter` and `idle`.
        """
        while not self.has:
            if self.at == "inside":
                if self.want == self.mode:
                    if not may_hold:
                        return "request_hold"
                    self.has = True
                    self.clock += 1
                    return "granted"
                self.at = "ending"
                self.leave(out)
            elif self.at == "idle" and self.want is not None:
                self.at, self.mode = "asked", self.want
                self.ask(out)
            else:
                break
        return None

    def ask(self, out: AnyOut) -> None:
        self.algorithm.request(self.mode, out)

    def leave(self, out: AnyOut) -> None:
        self.algorithm.release(out)

    def receive(self, source: NodeId, clock: int, message: Any, out: AnyOut) -> None:
        """A message of this epoch; the caller settles."""
        if clock > self.clock:
            self.clock = clock
        self.algorithm.receive(source, message, out)

    def drop(self) -> None:
        """Nothing is held, and there is no group any more; the wish stays."""
        self.has, self.algorithm, self.at, self.clock = False, None, "idle", 0
