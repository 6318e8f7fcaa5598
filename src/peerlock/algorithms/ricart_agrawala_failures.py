"""Ricart and Agrawala 1981: handling partial failure.

A requester whose replies are not all in when its time runs out asks each silent node ARE_YOU_THERE.
A node that has deferred its reply says YES_I_AM_HERE, any other replies at once. A node that is
silent for a second time-out is taken for dead: all others are told, strike it off the list, and
pretend that it replied. Not in the slides: as long as a reply is awaited the question is asked
again, since a node may die after it has answered; and any message of a suspect clears it.

Safe only if a node that lives is never taken for dead: answers within twice the delay bound, the
time-out used here.

As printed there is one more flaw, and `RicartAgrawalaFailures` repairs it: the answer to
ARE_YOU_THERE is a second REPLY to one request whenever the first is under way, or was sent on
leaving just before the question came in. The surplus REPLY can then arrive after the next REQUEST
and pass for its answer: two nodes inside, with all delays within the bound and all nodes alive. The
same happens if ARE_YOU_THERE overtakes the REQUEST it asks about, to a node that is inside. Repair:
REQUEST, REPLY and ARE_YOU_THERE carry the number of the request they are about, own numbers count
so that no two requests of a node have the same, and a question about a request not yet seen is that
request.
"""

from __future__ import annotations

from typing import ClassVar, Self

from peerlock.algorithms.ricart_agrawala import Message, Reply, WithTimeout
from peerlock.contract import NOBODY, Book, Grant, Inside, Members, NodeId, Out, Wire, look, note
from peerlock.errors import UsageError


class AreYouThere(Wire, frozen=True, tag=3):
    """ARE_YOU_THERE; `n` is the repair's: the number of the request that waits."""

    n: int = 0


class YesIAmHere(Wire, frozen=True, tag=4):
    """YES_I_AM_HERE: alive, and the reply is deferred."""


class Failed(Wire, frozen=True, tag=5):
    """The notification that a node has failed."""

    node: NodeId


class ReplyTo(Grant, frozen=True, tag=6):
    """The repaired REPLY: it says which request it answers."""

    called: ClassVar[str] = "REPLY"

    n: int


class AsPrinted(WithTimeout):
    silent: frozenset[NodeId] = frozenset()  # asked ARE_YOU_THERE, no answer yet

    def ask(self, out: Out[Message]) -> None:
        super().ask(out)
        self.silent = frozenset()
        if self.awaited:
            out.timer("reply", self.timeout)

    def on_timeout(self, name: str, out: Out[Message]) -> None:
        """The first time-out since a node was asked makes it a suspect, the second a failed one."""
        for j in sorted(self.silent):
            self.strike_off(j)
            for k in self.others:
                out.send(k, Failed(j))
        self.enter_if_permitted(out)
        self.silent = self.awaited
        for j in sorted(self.awaited):
            out.send(j, AreYouThere(self.our_sequence_number))
        if self.awaited:
            out.timer("reply", self.timeout)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        self.silent -= {source}
        match message:
            case AreYouThere(n):
                self.on_are_you_there(source, n, out)
            case YesIAmHere():
                pass
            case Failed(node):
                self.on_failed(node, out)
            case _:
                super().receive(source, message, out)

    def on_are_you_there(self, j: NodeId, n: int, out: Out[Message]) -> None:
        """If a response is deferred, YES_I_AM_HERE; if not, REPLY."""
        out.send(j, YesIAmHere() if j in self.deferred else Reply())

    def on_failed(self, j: NodeId, out: Out[Message]) -> None:
        """Nodes waiting for a REPLY from the failed node pretend it was received."""
        self.strike_off(j)
        self.enter_if_permitted(out)

    def strike_off(self, j: NodeId) -> None:
        self.others = tuple(k for k in self.others if k != j)
        self.awaited, self.silent, self.deferred = self.awaited - {j}, self.silent - {j}, self.deferred - {j}


class RicartAgrawalaFailures(AsPrinted):
    """The repair: every message says which request it is about."""

    asked: Book[int] = ()  # by node: the number of its youngest request

    @classmethod
    def start(
        cls,
        me: NodeId,
        shape: Members,
        inside: Inside = NOBODY,
        *,
        own_counts: bool = True,
        timeout: float | None = None,
    ) -> Self:
        if not own_counts:
            raise UsageError("own_counts cannot be false here: two requests of one node need different numbers.")
        return super().start(me, shape, inside, own_counts=True, timeout=timeout)

    def receive(self, source: NodeId, message: Message, out: Out[Message]) -> None:
        if isinstance(message, ReplyTo):
            self.silent -= {source}
            if message.n == self.our_sequence_number:
                self.on_reply(source, out)
        else:
            super().receive(source, message, out)

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        self.highest_sequence_number = max(self.highest_sequence_number, n)
        self.asked = note(self.asked, j, max(n, look(self.asked, j, 0)))
        if self.defers(j, n):
            self.deferred |= {j}
        else:
            out.send(j, ReplyTo(n))

    def on_are_you_there(self, j: NodeId, n: int, out: Out[Message]) -> None:
        self.on_request(j, n, out)
        if j in self.deferred:
            out.send(j, YesIAmHere())

    def release(self, out: Out[Message]) -> None:
        self.phase, self.our_sequence_number = "idle", 0
        for j in sorted(self.deferred):
            out.send(j, ReplyTo(look(self.asked, j, 0)))
        self.deferred = frozenset()
        out.idle()
