"""What an algorithm of another member says, brought to the local lock that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.errors import ProtocolError
from peerlock.node.effects import Warn
from peerlock.node.locks.fence import CLOCK_BITS
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.table import NEAR_THE_END, disagreement
from peerlock.node.peer import Peer
from peerlock.node.session import Session
from peerlock.node.wire import UNREADABLE, Disagree, LockMessage
from peerlock.node.wire_algorithms import wire_algorithm

if TYPE_CHECKING:
    from peerlock.node.core import Core


class Delivery:
    def __init__(self, core: Core) -> None:
        self.core, self.table = core, core.table
        self.early: list[tuple[Peer, LockMessage]] = []  # of the epoch that has not started here

    def on_lock_message(self, session: Session, message: LockMessage) -> None:
        view_change = self.core.view_change
        if not message.epoch == view_change.epoch == view_change.known:  # which is almost always so
            match view_change.fate(message.epoch):
                case "wait":
                    self.early.append((session.peer, message))
                    return
                case "drop":
                    return
        table = self.table
        if not session.number or table.closed:
            return
        local_lock = table.locks.get(message.lock)
        if local_lock is None or local_lock.wire_algorithm.number != message.algorithm:
            wanted = wire_algorithm(message.algorithm)
            local_lock = table.local_lock(message.lock, wanted)
            if local_lock.wire_algorithm is not wanted:
                self.disagree(session, local_lock)
                return
        try:
            body = local_lock.wire_algorithm.message(message.body)
        except UNREADABLE as problem:
            raise ProtocolError(f"no message of {local_lock.wire_algorithm.name}: {problem}") from None
        if not 0 <= message.clock < 1 << CLOCK_BITS:
            table.request_epoch()  # what it carried is lost: a new epoch starts the lock afresh
            raise ProtocolError(f"{session.peer} says that the clock of the lock {message.lock} is {message.clock}")
        try:
            local_lock.hear(session.number, message.clock, body, message.seq, table.now)
        except (AssertionError, LookupError) as problem:
            # Well-formed nonsense. It may have left the algorithm in any state: a new epoch starts
            # it afresh.
            table.request_epoch()
            raise ProtocolError(
                f"{local_lock.wire_algorithm.name} cannot be told {body} by {session.peer}: {problem}"
            ) from problem
        if local_lock.clock > NEAR_THE_END:
            table.request_epoch()

    def take_early(self) -> list[tuple[Peer, LockMessage]]:
        """What has waited for the epoch that starts now."""
        early, self.early = self.early, []
        return early

    def disagree(self, session: Session, local_lock: LocalLock) -> None:
        epoch, number = self.core.view_change.epoch, local_lock.wire_algorithm.number
        self.core.links.post(session, Disagree(session.seq + 1, session.received, epoch, local_lock.name, number))

    def on_disagree(self, peer: Peer, frame: Disagree) -> None:
        local_lock = self.table.locks.get(frame.lock)
        if (
            self.core.view_change.fate(frame.epoch) == "deliver"
            and local_lock is not None
            and local_lock.wire_algorithm.number != frame.algorithm
        ):
            error = disagreement(local_lock, wire_algorithm(frame.algorithm), str(peer))
            self.core.effects.append(Warn(str(error)))
            local_lock.fail(error)
