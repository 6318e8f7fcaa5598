"""Which node is told of a request first. A heuristic: without it a lock works the same, with more
messages.

Suzuki and Kasami send a request to all nodes, since no node knows where the privilege is. But a
node that has just passed the privilege on knows, for a moment: the addressee has it, and then the
first node of the queue that went along, the *successor*. Where all members want a lock all the
time, each asks again right after it has passed the lock on. Then the request goes to the successor
at once. It goes to the others only if it was not granted within the time that all members need for
a turn each: a millisecond with five members. Where turns take longer, all are told at once.

An entry then costs two messages instead of N, and wakes one process needlessly instead of N - 2. To
the algorithm that is a slow network. A withheld request is dropped when it is granted: a request
that no node waits for any more says nothing (`Grant.successor` is an algorithm's promise of that;
most algorithms do not give it). If the successor has passed the lock on before the request arrives,
the request waits for that millisecond.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from peerlock.contract import Ask, NodeId, Wire
from peerlock.node.locks.participant import Participant

if TYPE_CHECKING:
    from peerlock.node.locks.table import LockTable

ENABLED = True
SUCCESSOR_KNOWN_S = 0.0001  # after it has passed a lock on a node knows where it is
# Turns that take so many times as long as all members need: then telling the successor first gains
# nothing.
SLOW_TURN_FACTOR = 4
SMALL_GROUP_MEMBERS = 3  # members: too few to spare messages


class ToldToTheSuccessor(Participant):
    """A participant whose requests may go to one node first."""

    __slots__ = ("left_at", "name", "successor", "table", "waited", "withheld")

    name: str
    table: LockTable

    def __init__(self) -> None:
        super().__init__()
        self.successor: NodeId | None = None  # the node that gets the lock after the one it was last passed on to
        self.left_at = 0.0  # when it was last left here
        self.waited = inf  # for how long this node waited, the last time that it had to
        self.withheld: list[tuple[NodeId, Wire]] = []  # requests that only the successor was told of

    def send(self, to: NodeId, message: Wire) -> None:
        raise NotImplementedError

    def still_the_successor(self, now: float) -> None:
        """Not for long, for later on others may have it; and where turns are slow, nothing is
        gained by telling it alone.
        """
        if now > self.left_at + SUCCESSOR_KNOWN_S or self.waited > SLOW_TURN_FACTOR * self.table.withhold_s:
            self.successor = None

    def withholds(self, to: NodeId, message: Wire) -> bool:
        """A request, and the successor hears of it. In a trace there is everything that the
        algorithm says.
        """
        table = self.table
        successor = table.sessions[self.successor or 0]
        if (
            not ENABLED
            or len(table.sessions) - 1 <= SMALL_GROUP_MEMBERS
            or successor is None
            or not successor.linked
            or self.name in table.observers
        ):
            return False
        if not isinstance(message, Ask):
            return False
        self.withheld.append((to, message))
        table.withhold(self)
        return True

    def withheld_until(self) -> float:
        """When the others are told. Not before twice the time that the last wait took: where turns
        are slow for a while, telling all nodes would make them slower still.
        """
        return self.left_at + max(self.table.withhold_s, 2 * self.waited)

    def send_withheld(self) -> None:
        self.successor = None
        withheld, self.withheld = self.withheld, []
        for to, message in withheld:
            self.send(to, message)
