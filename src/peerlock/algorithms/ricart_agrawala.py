"""Ricart and Agrawala 1981: permission from all others.

A node that wants to enter sends REQUEST with a sequence number to all others and enters with the
last REPLY. A node that is asked replies at once, unless it is inside, or waits itself with the
smaller (sequence number, node number): then it defers its reply until it leaves. Two nodes that
want to enter compare the same two pairs, so exactly one of them defers.

A request takes the highest number *received*, plus one. Whether a node's own numbers count as seen
is left open by the slides; here they do not, unless `own_counts` is set. It makes no difference to
safety: what matters is that a request made after a REQUEST was answered has the larger number.

The variations of the same paper build on this class and replace a step of it: how to ask (`ask`),
by how much to count up (`next_number`), which nodes to defer (`defers`).
"""

from __future__ import annotations

from math import inf
from typing import ClassVar, Literal, Self, TypeAlias

from peerlock.contract import NOBODY, Ask, Grant, Inside, Members, Mode, Needs, NodeId, Out, State, Wire
from peerlock.errors import UsageError


class Request(Ask, frozen=True, tag=1):
    """REQUEST, with the sender's sequence number."""

    n: int


class Reply(Grant, frozen=True, tag=2):
    """REPLY: as far as the sender is concerned, enter."""


Message: TypeAlias = Wire  # Request, Reply, and those that the variations add


class RicartAgrawala(State):
    me: NodeId
    others: tuple[NodeId, ...]
    own_counts: bool = False
    phase: Literal["idle", "waiting", "inside"] = "idle"
    our_sequence_number: int = 0  # 0 when idle
    highest_sequence_number: int = 0
    awaited: frozenset[NodeId] = frozenset()  # nodes that have not yet replied
    deferred: frozenset[NodeId] = frozenset()  # nodes that we owe a reply

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, own_counts: bool = False) -> Self:
        # A node inside needs no number: it defers all others until it leaves.
        return cls(me, shape.others(me), own_counts, "inside" if me in inside else "idle")

    def request(self, mode: Mode, out: Out[Message]) -> None:
        """A node attempting the lock sends a REQUEST to all nodes."""
        self.phase = "waiting"
        self.our_sequence_number = self.next_number()
        if self.own_counts:
            self.highest_sequence_number = self.our_sequence_number
        self.awaited = frozenset(self.others)
        self.ask(out)
        self.enter_if_permitted(out)

    def after(self, older: int) -> None:
        self.highest_sequence_number = older

    def next_number(self) -> int:
        return self.highest_sequence_number + 1

    def ask(self, out: Out[Message]) -> None:
        request = Request(self.our_sequence_number)
        for j in self.others:
            out.send(j, request)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_request(source, message.n, out)
        else:
            self.on_reply(source, out)

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        """Reply at once if the requesting node has priority, otherwise defer the reply."""
        self.highest_sequence_number = max(self.highest_sequence_number, n)
        if self.defers(j, n):
            self.deferred |= {j}
        else:
            out.send(j, Reply())

    def defers(self, j: NodeId, n: int) -> bool:
        return self.phase == "inside" or (self.phase == "waiting" and (self.our_sequence_number, self.me) < (n, j))

    def on_reply(self, j: NodeId, out: Out[Message]) -> None:
        """With a REPLY from all nodes, enter."""
        self.awaited -= {j}
        self.enter_if_permitted(out)

    def enter_if_permitted(self, out: Out[Message]) -> None:
        if self.phase == "waiting" and not self.awaited:
            self.phase = "inside"
            out.enter()

    def release(self, out: Out[Message]) -> None:
        """Send the deferred replies."""
        self.phase, self.our_sequence_number = "idle", 0
        for j in sorted(self.deferred):
            out.send(j, Reply())
        self.deferred = frozenset()
        out.idle()


class WithTimeout(RicartAgrawala):
    """For the variations with a time-out: twice the delay bound, or what the option says."""

    needs: ClassVar[Needs] = Needs(delay_bound=True)

    timeout: float = 0.0

    @classmethod
    def start(
        cls,
        me: NodeId,
        shape: Members,
        inside: Inside = NOBODY,
        *,
        own_counts: bool = False,
        timeout: float | None = None,
    ) -> Self:
        node = super().start(me, shape, inside, own_counts=own_counts)
        assert timeout is not None or shape.delay_bound is not None, (
            "the driver did not say how long a message may take"
        )
        node.timeout = 2 * (shape.delay_bound or 0.0) if timeout is None else timeout
        if not 0 < node.timeout < inf:
            raise UsageError(f"The time-out must be a number above 0; got {node.timeout:g}.")
        return node
