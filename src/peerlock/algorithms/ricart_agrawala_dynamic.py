"""Ricart and Agrawala 1981: insertion and removal of nodes, while the others go on.

*Insertion.* A newcomer with a number that no node ever had asks the nodes it knows to be placed on
their lists. The answer to INSERT carries a node's list and the highest sequence number it knows,
its own pending request included; the newcomer asks every node it hears of, and is a member when all
have answered. Until then it only replies. Its first request is later than every request that was
under way when it was placed, so those need no reply from it.

*Removal.* A leaving node tells all others, requests no more, and replies at once to every request
until all have acknowledged. A node acknowledges when it waits for no reply of the leaver.

Requests go on all the while, but only one node at a time may come or go, and drivers see to that.
The slides do not say so. If newcomers learn of their peers from nodes that are leaving, no node may
be left that knows them all: two groups, each with a lock of its own.
`tests/scenarios/ricart-agrawala/come-and-go-at-once.txt` shows it.
"""

from __future__ import annotations

from typing import Literal, Self

from peerlock.algorithms.ricart_agrawala import Message, RicartAgrawala
from peerlock.contract import NOBODY, Inside, Members, NodeId, Out, Wire


class Insert(Wire, frozen=True, tag=3):
    """Place the sender on your list."""


class Inserted(Wire, frozen=True, tag=4):
    """Done; here are my list and the highest sequence number I know."""

    nodes: frozenset[NodeId]
    highest_sequence_number: int


class Remove(Wire, frozen=True, tag=5):
    """The sender intends to leave."""


class Removed(Wire, frozen=True, tag=6):
    """ACK: the sender of REMOVE is on my list no more."""


class RicartAgrawalaDynamic(RicartAgrawala):
    """`others` is the list of nodes."""

    membership: Literal["outside", "joining", "member", "leaving", "gone"] = "member"
    unanswered: frozenset[NodeId] = frozenset()  # nodes that have not yet answered our INSERT or REMOVE
    leavers: frozenset[NodeId] = frozenset()  # nodes whose REMOVE we acknowledge once they have replied

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, own_counts: bool = False) -> Self:
        """A node not in `shape.all` is a newcomer: it knows these nodes, and `join` inserts it."""
        node = super().start(me, shape, inside, own_counts=own_counts)
        node.membership = "member" if me in shape.all else "outside"
        return node

    def join(self, out: Out[Message]) -> None:
        """Insertion: get the list, be placed on all lists, get the highest sequence number."""
        self.membership, nodes, self.others = "joining", frozenset(self.others), ()
        self.ask_to_be_placed(nodes, out)

    def ask_to_be_placed(self, nodes: frozenset[NodeId], out: Out[Message]) -> None:
        new = nodes - {self.me, *self.others}
        self.others = tuple(sorted({*self.others, *new}))
        self.unanswered |= new
        for j in sorted(new):
            out.send(j, Insert())

    def leave(self, out: Out[Message]) -> None:
        """Removal: notify all other nodes."""
        assert self.phase == "idle", f"node {self.me} is {self.phase}: leave after release"
        self.membership, self.unanswered = "leaving", frozenset(self.others)
        for j in self.others:
            out.send(j, Remove())
        self.finish_if_answered(out)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if self.membership == "gone":
            return
        if isinstance(message, Insert):
            self.on_insert(source, out)
        elif isinstance(message, Inserted):
            self.highest_sequence_number = max(self.highest_sequence_number, message.highest_sequence_number)
            self.unanswered -= {source}
            self.ask_to_be_placed(message.nodes, out)
            self.finish_if_answered(out)
        elif isinstance(message, Remove):
            self.leavers |= {source}
        elif isinstance(message, Removed):
            self.unanswered -= {source}
            self.finish_if_answered(out)
        else:
            super().receive(source, message, out)
        self.acknowledge(out)

    def on_insert(self, j: NodeId, out: Out[Message]) -> None:
        # Our own pending request counts: the newcomer must be later than it.
        highest = max(self.highest_sequence_number, self.our_sequence_number)
        out.send(j, Inserted(frozenset(self.others), highest))
        self.others = tuple(sorted({*self.others, j}))

    def acknowledge(self, out: Out[Message]) -> None:
        """ACK the leavers that owe us no reply."""
        for j in sorted(self.leavers - self.awaited):
            self.leavers -= {j}
            self.others = tuple(k for k in self.others if k != j)
            out.send(j, Removed())

    def finish_if_answered(self, out: Out[Message]) -> None:
        """All have answered: a member, or gone."""
        if not self.unanswered and self.membership in ("joining", "leaving"):
            self.membership = "member" if self.membership == "joining" else "gone"
            out.idle()
