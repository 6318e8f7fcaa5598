"""Ricart and Agrawala 1981: insertion and removal of nodes, while the others go on.

*Insertion.* A newcomer with a number that nobody ever had asks a node it knows to be put on its list. The answer to INSERT
carries that node's list and the highest sequence number it knows; the newcomer asks everybody it hears of in this way,
and is a member when all have answered. Until then it only replies. Its first request is later than every request that
was under way when it was inserted, so those need no reply from it.

*Removal.* A leaving node tells all others, requests no more, and replies at once to every request until all have
acknowledged. A node acknowledges when it waits for no reply of the leaver.

The slides leave open what happens when several come and go at once. Two rules suffice, and every answer carries what they
need: an answer to INSERT or REMOVE lists the nodes known, so two newcomers, or a newcomer and a leaver, hear of each other
from anybody who knows both; and it lists those that have gone, so nobody waits for a node that is no longer there. This is
why a number must never be used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from peerlock.algorithms.ricart_agrawala import RicartAgrawala
from peerlock.contract import NOBODY, Members, Mode, Node, Out, Wire


class Insert(Wire, frozen=True, tag=3):
    """Put the sender on your list."""


class Inserted(Wire, frozen=True, tag=4):
    """Done; here is my list, who has gone, and the highest sequence number I know."""

    nodes: frozenset[Node]
    gone: frozenset[Node]
    highest_sequence_number: int


class Remove(Wire, frozen=True, tag=5):
    """The sender intends to leave."""


class Removed(Wire, frozen=True, tag=6):
    """ACK: the sender of REMOVE is on my list no more; these are."""

    nodes: frozenset[Node]
    gone: frozenset[Node]


class RicartAgrawalaDynamic(RicartAgrawala):
    """`others` is the list of nodes."""

    membership: Literal["outside", "joining", "member", "leaving", "gone"] = "member"
    unanswered: frozenset[Node] = frozenset()  # who has not yet answered our INSERT or REMOVE
    gone: frozenset[Node] = frozenset()  # who left
    leavers: frozenset[Node] = frozenset()  # whose REMOVE we acknowledge once they have replied

    @classmethod
    def start(cls, me: Node, shape: Members, inside: Mapping[Node, Mode] = NOBODY, *, own_counts: bool = False) -> Self:
        """A node that is not in `shape.all` is a newcomer: it knows these nodes, and `join` inserts it."""
        node = super().start(me, shape, inside, own_counts=own_counts)
        node.membership = "member" if me in shape.all else "outside"
        return node

    def join(self, out: Out[Any]) -> None:
        """Insertion: get the list, be placed on all lists, get the highest sequence number."""
        self.membership, nodes, self.others = "joining", frozenset(self.others), ()
        self.hear_of(nodes, frozenset(), out)

    def leave(self, out: Out[Any]) -> None:
        """Removal: notify all other nodes."""
        assert self.phase == "idle", f"node {self.me} is {self.phase}: leave after release"
        self.membership, self.unanswered = "leaving", frozenset(self.others)
        for j in self.others:
            out.send(j, Remove())
        self.settle(out)

    def receive(self, source: Node, message: Any, out: Out[Any]) -> None:
        if self.membership == "gone":
            return
        match message:
            case Insert():
                self.on_insert(source, out)
            case Inserted(nodes, gone, highest_sequence_number):
                self.highest_sequence_number = max(self.highest_sequence_number, highest_sequence_number)
                self.on_answer(source, nodes, gone, out)
            case Remove():
                self.leavers |= {source}
                self.acknowledge(out)
            case Removed(nodes, gone):
                self.on_answer(source, nodes, gone, out)
            case _:
                super().receive(source, message, out)
                self.acknowledge(out)

    def on_insert(self, j: Node, out: Out[Any]) -> None:
        # Our own pending request counts: the newcomer must be later than it.
        highest = max(self.highest_sequence_number, self.our_sequence_number)
        out.send(j, Inserted(frozenset(self.others), self.gone, highest))
        if self.membership == "leaving":
            self.hear_of(frozenset({j}), frozenset(), out)
        else:
            self.others = tuple(sorted({*self.others, j} - self.gone))

    def on_answer(self, j: Node, nodes: frozenset[Node], gone: frozenset[Node], out: Out[Any]) -> None:
        self.unanswered -= {j}
        self.hear_of(nodes, gone, out)
        self.acknowledge(out)

    def hear_of(self, nodes: frozenset[Node], gone: frozenset[Node], out: Out[Any]) -> None:
        """Ask, or tell, whom we did not know."""
        self.gone |= gone
        new = nodes - {self.me, *self.others} - self.gone
        if self.membership == "member":
            # A late answer of somebody who has left since. Whom it names hears of us from the others.
            new = frozenset()
        self.others = tuple(sorted({*self.others, *new} - self.gone))
        self.unanswered = (self.unanswered | new) - self.gone
        for j in sorted(new):
            out.send(j, Insert() if self.membership == "joining" else Remove())
        self.settle(out)

    def settle(self, out: Out[Any]) -> None:
        """Everybody has answered: a member, or gone."""
        if self.unanswered:
            return
        if self.membership == "joining":
            self.membership = "member"
            out.idle()
        elif self.membership == "leaving":
            self.membership, self.others = "gone", ()

    def acknowledge(self, out: Out[Any]) -> None:
        """ACK those who leave and owe us no reply, nor an answer to INSERT: it may name nodes that only they know."""
        owing = self.awaited | self.unanswered if self.membership == "joining" else self.awaited
        for j in sorted(self.leavers - owing):
            self.leavers -= {j}
            self.others = tuple(k for k in self.others if k != j)
            self.gone |= {j}
            out.send(j, Removed(frozenset(self.others), self.gone))
            self.hear_of(frozenset(), frozenset({j}), out)
