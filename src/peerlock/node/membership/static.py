"""The registry of a fixed list as a protocol: the papers' assumption, stated.

Every node on the list is a member. A node that is down is waited for, as in the papers, until it is
back or the operator says that it is dead. So no node ever has to guess, and a decision needs every
node that is present.

Each node keeps a record: the newest epoch that it has heard of, the newest incarnation of every
node, and which incarnations are *absent*. A node is absent if it has left, by its own word, or if
the operator says that it is dead. The operator must be right: a node that is taken for dead and is
not may hold a lock. And a node that was taken for dead may be started again only where it reaches
the nodes that went on without it.

Each rule below is one method or one line. `peerlock check-registries` explores this class, as it
ships, in every interleaving of links, crashes, restarts and leaves, with all rules and without each
of them.

1. *An epoch is durable before it is used*, by the node that decides it and by every node that
   learns it. Else it, and its fences, may come a second time.
2. *The first of the list decides*: of the nodes that are not absent, the one whose name comes
   first. So one node decides.
3. *It decides when all agree*: it has a link to every node that is not absent, and each of them has
   told the same nodes to be absent. Which node is first changes only with the absent nodes.
4. *A new epoch is larger* than any of which a node has told, also one that has gone since.
5. *An incarnation is absent, not a name.* A node that starts again is present again, and old news
   about it is not heeded.
6. *What is absent stays absent*: an incarnation that has left, or was said to be dead, is not let
   in any more. This is for an operator who was wrong; while the operator is right the checker finds
   nothing without it.
7. *An old incarnation is not let in*: one that is older than another of that name, of which any
   node has told.
8. *A node tells what it knows on every new link*, and again whenever that changes. Else a node that
   was cut off waits for ever.
9. *What a dead node decided alone is passed over.* A node that is said to be dead may have been the
   only one to know the newest epochs. So the next epoch is larger by more than it can have decided.
10. *A node that starts waits for the whole list.* Which nodes are absent it hears from a node that
   runs, or from the operator, and never from its own record: while it was down they may have come
   back, and been told that it is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import StaticState

ALONE = 1 << 20  # epochs that a node may have decided without the others


class NodeRecord(Struct):
    """What a node must not forget."""

    group: str
    name: str
    epoch: int = 0
    starts: int = 0  # how often this node was started
    absent: dict[str, int] = {}  # nodes that are not let in, in this incarnation and older ones
    seen: dict[str, int] = {}  # the newest incarnation of each node that any node has told of


class StaticOutput(Protocol):
    """What a member of a fixed list asks of its caller."""

    def write(self, record: NodeRecord) -> None:
        """Make it durable. An error ends the input: nothing that follows from it is done."""

    def tell(self, peer: Peer, state: StaticState) -> None: ...

    def dial(self, name: str) -> None:
        """A link to that node is needed."""

    def hang_up(self, peer: Peer, why: str) -> None: ...

    def decided(self, view: View) -> None:
        """`learned` follows, if it can be made durable."""

    def complain(self, sentence: str) -> None: ...


class StaticMember:
    """One node's half of the agreement."""

    def __init__(self, name: str, names: Iterable[str], record: NodeRecord, out: StaticOutput) -> None:
        self.name, self.order = name, tuple(sorted(names))
        self.record, self.out = record, out
        self.me: Peer | None = None
        self.present: dict[str, Peer] = {}  # nodes with a link to this one
        self.told: dict[Peer, StaticState] = {}  # what they have said on it
        self.view: View | None = None  # the newest that this incarnation has learned
        self.excused: set[str] = set()  # nodes that are absent, and are not waited for
        self.unsaved, self.untold = False, False  # the record has changed, and must be written; and told to the others
        self.wants_epoch = False  # a view with the same members is wanted
        self.leaving = False

    # -- this node ---------------------------------------------------------------------------------------

    def count_start(self) -> int:
        """A new incarnation. Later ones have larger numbers, so that old news can be told from new."""
        self.record.starts += 1
        self.out.write(self.record)
        return self.record.starts

    def start(self, me: Peer) -> None:
        if self.me is not None:
            self.excused.clear()  # else these are what the operator has said with the start
        self.present, self.told, self.view = {}, {}, None
        self.me = me

    def dial(self) -> None:
        """A node that starts dials all others: one may still have a link to an earlier incarnation
        of this node.
        """
        for name in self.order:
            self.redial(name)

    def redial(self, name: str) -> None:
        """Of two nodes the one with the greater name dials, and one that is in no view yet."""
        if name not in self.present and (name < self.name or (self.view is None and name != self.name)):
            self.out.dial(name)

    def leave(self) -> None:
        self.leaving = True
        self.tell()

    # -- links -------------------------------------------------------------------------------------------

    def unwelcome(self, peer: Peer, answers: Callable[[Peer], bool]) -> str | None:
        """Why a peer that is on the list is not let in; None: it is."""
        if self.is_absent(peer):
            return f"{peer.name} was said to be dead, or has left, in this incarnation"
        if self.is_old(peer.name, peer.id):
            return f"this is an old incarnation of {peer.name}, or it has lost its file and counts from the beginning"
        present = self.present.get(peer.name)
        if present is not None and present.id != peer.id and answers(present):
            return f"{peer.name} is here already, with another process ({present.pid}): there can be one of that name"
        return None

    def linked(self, peer: Peer) -> None:
        self.saw(peer.name, peer.id)
        self.present[peer.name] = peer
        self.unsaved = self.untold = True
        self.publish()

    def unlinked(self, peer: Peer) -> None:
        if self.present.get(peer.name) == peer:
            del self.present[peer.name]
        self.told.pop(peer, None)
        self.redial(peer.name)
        self.heed()
        self.publish()

    # -- what the nodes tell each other ------------------------------------------------------------------

    def publish(self) -> None:
        """What has changed is made durable, and then told. If it cannot be written, the caller
        tries again later.
        """
        if self.unsaved:
            self.out.write(self.record)
            self.unsaved = False
        if self.untold:
            self.untold = False
            self.tell()
        self.decide()

    def tell(self, renew: bool = False) -> None:
        """Every node with a link to this one hears what it knows."""
        seen = tuple(sorted(self.record.seen.items()))
        state = StaticState(self.record.epoch, self.absent(), seen, self.leaving, renew)
        for peer in tuple(self.present.values()):
            self.out.tell(peer, state)

    def on_state(self, peer: Peer, state: StaticState) -> None:
        if state.epoch > self.record.epoch:
            self.record.epoch, self.unsaved = state.epoch, True
        if not state.leaving:
            self.told[peer] = state
            self.wants_epoch = self.wants_epoch or state.renew
            self.heed()
        elif not self.is_old(peer.name, peer.id):  # else it has come on a link that a later incarnation has outrun
            self.are_absent({peer.name: peer.id})
        self.publish()

    def heed(self) -> None:
        """What the others have told of who is there and who is not, in the newest incarnation that
        any node knows of.
        """
        before = (self.absent(), dict(self.record.seen))
        gone: dict[str, int] = {}
        for state in self.told.values():
            for name, incarnation in state.seen:
                if name in self.order and name != self.name:
                    self.saw(name, incarnation)
        for state in self.told.values():
            for name, incarnation in state.absent:
                if name not in self.order or name == self.name or self.is_old(name, incarnation):
                    continue
                if name in self.present:
                    self.out.complain(f"{name} is said to be dead, but it has a link to this node: it is waited for")
                elif name not in self.excused or self.record.absent[name] < incarnation:
                    gone[name] = incarnation
        self.are_absent(gone)
        if before != (self.absent(), self.record.seen):
            self.unsaved = self.untold = True

    def is_old(self, name: str, incarnation: int) -> bool:
        """Has any node told of a later incarnation of that name?"""
        return incarnation < self.record.seen.get(name, 0)

    def saw(self, name: str, incarnation: int) -> None:
        """There is, or was, that incarnation. A node that is absent in an older one is not absent
        any more.
        """
        self.record.seen[name] = max(incarnation, self.record.seen.get(name, 0))
        if self.record.absent.get(name, incarnation) < incarnation:
            del self.record.absent[name]
            if name in self.excused:
                self.excused.remove(name)
                self.redial(name)

    def absent(self) -> tuple[tuple[str, int], ...]:
        return tuple((name, self.record.absent[name]) for name in sorted(self.excused))

    def are_absent(self, names: Mapping[str, int]) -> None:
        for name, incarnation in names.items():
            self.record.absent[name] = incarnation
            self.excused.add(name)
            self.unsaved = self.untold = True
            peer = self.present.pop(name, None)
            if peer is not None:
                self.told.pop(peer, None)
                self.out.hang_up(peer, f"{name} is not waited for any more")

    def is_absent(self, peer: Peer) -> bool:
        return peer.name in self.order and peer.id <= self.record.absent.get(peer.name, -1)

    def assume_dead(self, name: str) -> None:
        """The operator says so, of the newest incarnation of that node that any node has told of. A
        new epoch must follow.
        """
        self.record.absent[name] = self.record.seen.get(name, 0)
        self.excused.add(name)
        self.record.epoch += ALONE
        self.unsaved = self.untold = True

    # -- views -------------------------------------------------------------------------------------------

    def expected(self) -> list[str]:
        """All nodes that are waited for, if they are not present."""
        return [name for name in self.order if name not in self.excused]

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.expected() if name != self.name and name not in self.present)

    def decides(self) -> bool:
        return self.expected()[:1] == [self.name]

    def agree(self, others: Iterable[Peer]) -> bool:
        """Has each of them told the same nodes to be absent as this node does?"""
        mine = self.absent()
        return all(peer in self.told and self.told[peer].absent == mine for peer in others)

    def decide(self) -> None:
        """If this node is the one that decides, and all are present and agree, and there is
        something to decide.
        """
        if self.me is None or self.leaving or not self.decides() or self.missing():
            return
        others = [self.present[name] for name in self.expected() if name != self.name]
        if not self.agree(others):
            return
        members = tuple(sorted([self.me, *others]))
        if self.view is not None and self.view.members == members and not self.wants_epoch:
            return
        self.wants_epoch = False
        self.out.decided(View(self.record.epoch + 1, members))

    def request_epoch(self) -> None:
        """A view with the same members is wanted."""
        self.wants_epoch = True
        self.tell(renew=True)
        self.publish()

    def learned(self, view: View) -> None:
        """Made durable before anything is done in that epoch."""
        if view.epoch > self.record.epoch:
            before, self.record.epoch = self.record.epoch, view.epoch
            try:
                self.out.write(self.record)
            except BaseException:
                self.record.epoch = before
                raise
        self.view = view
