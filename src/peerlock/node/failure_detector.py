"""Which peers are silent.

It is asked only while a caller waits, or a view change lacks reports. A peer that was silent for
`SILENCE_S` is pinged. If it does not answer within `patience_s`, it is suspected: the registry is
told, and knows whether it may be excluded.
"""

from __future__ import annotations

from collections.abc import Iterable

from peerlock.node.peer import Peer
from peerlock.node.session import Session

SILENCE_S = 1.0  # before a peer is pinged
PATIENCE_S = 1.5  # before a peer that does not answer is suspected
# More for each peer above a few: where many processes share a few processors, one that is well has to wait for its turn.
FEW, PER_PEER_S = 16, 0.1


class FailureDetector:
    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.peers = 0
        self.blockers: tuple[Peer, ...] = ()  # suspected, and the registry may not exclude them

    def silent(self, sessions: Iterable[Session], now: float) -> tuple[list[Session], tuple[Peer, ...]]:
        """Those that are to be pinged, and the peers that are suspected."""
        to_ping, suspects = list[Session](), list[Peer]()
        patience_s = self.patience_s + PER_PEER_S * max(0, self.peers - FEW)
        for session in sessions:
            if session.pinged:
                if now - session.pinged >= patience_s:
                    suspects.append(session.peer)
            elif now - session.heard >= SILENCE_S:
                session.pinged = now
                to_ping.append(session)
        return to_ping, tuple(suspects)


def hears(session: Session, now: float) -> None:
    """Something has come from that peer."""
    session.heard, session.pinged = now, 0.0
