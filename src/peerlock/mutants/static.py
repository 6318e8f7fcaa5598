"""Members of a fixed list with one of their rules taken away.

The numbers are those of the rules in `node/membership/static.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from peerlock.node.membership.static import StaticMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import StaticState


class UsesBeforeItIsDurable(StaticMember):  # 1
    def learned(self, view: View) -> None:
        self.record.epoch = max(self.record.epoch, view.epoch)
        self.view, self.wants_epoch = view, False


class EveryNodeDecides(StaticMember):  # 2
    def decides(self) -> bool:
        return True


class WaitsForNoNode(StaticMember):  # 3
    def decide(self) -> None:
        before = self.order
        self.order = tuple(name for name in before if name == self.name or name in self.present)
        super().decide()
        self.order = before


class AsksNoNodeWhoIsAbsent(StaticMember):  # 3
    def agree(self, others: Iterable[Peer]) -> bool:
        return all(peer in self.told for peer in others)


class CountsItsOwnEpochs(StaticMember):  # 4
    def on_state(self, peer: Peer, state: StaticState) -> None:
        super().on_state(peer, replace(state, epoch=0))


class TakesANameForAbsent(StaticMember):  # 5
    def is_absent(self, peer: Peer) -> bool:
        return peer.name in self.record.absent

    def saw(self, name: str, incarnation: int) -> None:
        self.record.seen[name] = max(incarnation, self.record.seen.get(name, 0))


class LetsTheAbsentIn(StaticMember):  # 6
    def is_absent(self, peer: Peer) -> bool:
        return False


class LetsAnOldIncarnationIn(StaticMember):  # 7
    def unwelcome(self, peer: Peer, answers: Callable[[Peer], bool]) -> str | None:
        return None if self.is_old(peer.name, peer.id) else super().unwelcome(peer, answers)


class HeedsALateFarewell(StaticMember):  # 5
    def on_state(self, peer: Peer, state: StaticState) -> None:
        if state.leaving:
            self.are_absent({peer.name: peer.id})
        super().on_state(peer, state)


class TellsNothingOnANewLink(StaticMember):  # 8
    def linked(self, peer: Peer) -> None:
        self.saw(peer.name, peer.id)
        self.present[peer.name] = peer
        self.unsaved = True
        self.publish()


class PassesNothingOver(StaticMember):  # 9
    def assume_dead(self, name: str, said_at: int) -> None:
        super().assume_dead(name, 0)


class TrustsItsOldRecord(StaticMember):  # 10
    def start(self, me: Peer) -> None:
        super().start(me)
        self.excused = set(self.record.absent)
