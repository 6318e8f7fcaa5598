"""Ricart and Agrawala 1981, variation: establishing priority.

Low-priority nodes count up by large increments, high-priority nodes by small ones. Any increment of
at least 1 keeps the algorithm safe: a request made after a REQUEST was received still has the
larger number. Without `increments`, node j counts up by j: node 1 has the highest priority.
"""

from __future__ import annotations

from typing import Self

from peerlock.algorithms.ricart_agrawala import RicartAgrawala
from peerlock.contract import NOBODY, Inside, Members, NodeId
from peerlock.errors import UsageError


class RicartAgrawalaPriority(RicartAgrawala):
    increment: int = 1

    @classmethod
    def start(
        cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *,
        own_counts: bool = False, increments: tuple[int, ...] | None = None,
    ) -> Self:  # fmt: skip
        """`increments`: one number a node, in the order of `shape.all`."""
        node = super().start(me, shape, inside, own_counts=own_counts)
        if increments is None:
            node.increment = me
            return node
        if len(increments) != len(shape.all) or min(increments) < 1:
            raise UsageError(
                f"increments must be one whole number of at least 1 for each of the {len(shape.all)} nodes; got {increments}."
            )
        node.increment = dict(zip(shape.all, increments, strict=True))[me]
        return node

    def after(self, older: int) -> None:
        """Increments differ by less than the number of nodes, unless the option says otherwise."""
        super().after(older * (len(self.others) + 1))

    def next_number(self) -> int:
        return self.highest_sequence_number + self.increment
