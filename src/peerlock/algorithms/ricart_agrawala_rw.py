"""Ricart and Agrawala 1981, variation: readers and writers.

Readers reply at once to every request of another reader, waiting or inside; writers behave as
usual. So the only pairs that exclude each other are those with a writer in them.
"""

from __future__ import annotations

from typing import ClassVar, Self

from peerlock.algorithms.ricart_agrawala import Message, Reply, RicartAgrawala
from peerlock.contract import NOBODY, Ask, Inside, Members, Mode, Needs, NodeId, Out


class Request(Ask, frozen=True, tag=1):
    """REQUEST, with the sender's sequence number and what it wants to do."""

    n: int
    mode: Mode


class RicartAgrawalaRW(RicartAgrawala):
    needs: ClassVar[Needs] = Needs(modes=("read", "write"))

    mode: Mode = "write"  # of our request; "write" when idle

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, own_counts: bool = False) -> Self:
        node = super().start(me, shape, inside, own_counts=own_counts)
        node.mode = inside.get(me, "write")
        return node

    def request(self, mode: Mode, out: Out[Message]) -> None:
        self.mode = mode
        super().request(mode, out)

    def ask(self, out: Out[Message]) -> None:
        request = Request(self.our_sequence_number, self.mode)
        for j in self.others:
            out.send(j, request)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, Request):
            self.on_rw_request(source, message.n, message.mode, out)
        else:
            self.on_reply(source, out)

    def on_rw_request(self, j: NodeId, n: int, mode: Mode, out: Out[Message]) -> None:
        """Readers REPLY at once to readers; writers behave as usual."""
        if mode == "read" and self.mode == "read":
            self.highest_sequence_number = max(self.highest_sequence_number, n)
            out.send(j, Reply())
        else:
            self.on_request(j, n, out)

    def release(self, out: Out[Message]) -> None:
        self.mode = "write"
        super().release(out)
