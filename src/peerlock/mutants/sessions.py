"""Sessions with one of their rules taken away."""

from __future__ import annotations

from peerlock.node.session import Session


class KeepsNothing(Session):
    """What was sent once is forgotten: nothing waits for an acknowledgement."""

    __slots__ = ()

    def post(self, epoch: int, frame: bytes, about: str = "") -> None:
        linked = self.linked
        super().post(epoch, frame, about)
        if linked:
            self.kept.clear()


class TakesDuplicates(Session):
    __slots__ = ()

    def accept(self, seq: int, ack: int) -> bool:
        return super().accept(seq, ack) or True


class ForgetsNothing(Session):
    """What was acknowledged is kept, too."""

    __slots__ = ()

    def accept(self, seq: int, ack: int) -> bool:
        kept = self.kept.copy()
        news = super().accept(seq, ack)
        self.kept = kept
        return news
