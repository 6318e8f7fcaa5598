"""A reliable channel between two incarnations, over links that break.

The papers assume that a message that was sent arrives, once. TCP keeps that promise while a
connection lasts; what was under way when it breaks is lost, or was it? So each message has a number
and is kept until the other side has acknowledged it; every message also acknowledges what came the
other way. After a reconnect both sides say in their `Hello` which number they have, the rest is
sent again, and a number that was seen before is a duplicate.

Numbers may have gaps: what belonged to an epoch that is over is forgotten here instead of being
sent again. Within one link nothing is lost or reordered, so a gap can be nothing else.

A side that only listens sends an `Ack` of its own every so often, so what is kept stays little. No
timer is needed.
"""

from __future__ import annotations

from collections import deque

from peerlock.errors import ProtocolError
from peerlock.node.peer import Peer
from peerlock.node.wire import Ack, framed

TIDY = 1000  # messages that are kept before those are looked for that later ones supersede
EVERY = 64  # messages that may come before they are acknowledged without an answer to ride on


class Session:
    __slots__ = (
        "acknowledged", "heard", "kept", "linked", "number", "outgoing", "peer", "pinged", "received", "seq", "tidy_at",
    )  # fmt: skip

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.number = 0  # of the peer in the epoch that runs; 0: it is not in it
        self.seq = 0  # of the last message sent
        self.received = 0  # number of the last message that came
        self.acknowledged = 0  # the last number that the peer knows to have come here
        self.kept: deque[tuple[int, int, bytes, str]] = (
            deque()
        )  # (number, epoch, frame, what about), not yet acknowledged
        self.tidy_at = TIDY
        self.linked = False
        self.outgoing: list[bytes] = []  # of this event, for one write
        self.heard = 0.0  # when something last came
        self.pinged = 0.0  # when it was asked whether it is there; 0: it has answered

    def post(self, epoch: int, frame: bytes, about: str = "") -> None:
        """A frame that was made with number `seq + 1` and acknowledgement `received`.

        `about`: a later frame about the same says everything that this one says.
        """
        self.seq += 1
        self.acknowledged = self.received
        self.kept.append((self.seq, epoch, frame, about))
        if self.linked:
            self.outgoing.append(frame)
        if len(self.kept) > self.tidy_at:
            self.tidy()

    def tidy(self) -> None:
        """Keep the last frame about each thing. A stopped peer would else fill the memory with
        requests that are over.
        """
        last = {(epoch, about): number for number, epoch, _, about in self.kept if about}
        self.kept = deque(entry for entry in self.kept if not entry[3] or last[entry[1], entry[3]] == entry[0])
        self.tidy_at = max(TIDY, 2 * len(self.kept))

    def accept(self, seq: int, ack: int) -> bool:
        """A numbered message came. Is it new?"""
        kept = self.kept
        if ack > self.seq:
            self.on_ack(ack)
        while kept and kept[0][0] <= ack:
            kept.popleft()
        if seq <= self.received:
            return False
        self.received = seq
        if seq - self.acknowledged >= EVERY and self.linked:
            self.acknowledged = seq
            self.outgoing.append(framed(Ack(seq)))
        return True

    def on_ack(self, ack: int) -> None:
        if ack > self.seq:
            raise ProtocolError(f"{self.peer} acknowledges message {ack}; only {self.seq} were sent")
        kept = self.kept
        while kept and kept[0][0] <= ack:
            kept.popleft()

    @property
    def stuck(self) -> bool:
        """There is something to say, and no link."""
        return not self.linked and bool(self.kept)

    def link(self, received: int) -> None:
        """A link is up, and this is what the peer has. The rest goes out again."""
        self.on_ack(received)
        self.linked = True
        self.outgoing = [frame for _, _, frame, _ in self.kept]

    def unlink(self) -> None:
        self.linked = False
        self.outgoing = []

    def forget(self, epoch: int) -> None:
        """Messages of epochs before this one would only be dropped."""
        if self.kept and self.kept[0][1] < epoch:
            self.kept = deque(entry for entry in self.kept if entry[1] >= epoch)

    def drain(self) -> bytes:
        out, self.outgoing = self.outgoing, []
        return out[0] if len(out) == 1 else b"".join(out)
