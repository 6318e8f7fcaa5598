"""A store in memory: for tests, the simulator and the checker."""

from __future__ import annotations

from peerlock.node.store.requests import Heartbeat, Renew, Request, Snapshot, Swap


class Shelf:
    """A store in memory: for tests, the simulator and the checker. What etcd does, in twenty lines."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot(1)

    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        before = self.snapshot
        at, beats = before.at + 1, {beat.id: beat for beat in before.beats}
        match request:
            case Renew(_, revision, who, apart):
                if revision != before.revision:
                    return False, before
                beats[who] = Heartbeat(who, at, apart)
                self.snapshot = Snapshot(at, before.revision, before.decision, _sorted(beats))
            case Swap(_, revision, seen, decision, beat, without):
                there = {who: beats[who].revision if who in beats else 0 for who, _ in seen}
                if revision != before.revision or there != dict(seen):
                    return False, before
                for who in without:
                    beats.pop(who, None)
                if beat:
                    beats[beat] = Heartbeat(beat, at)
                self.snapshot = Snapshot(at, at, decision, _sorted(beats))
        return True, self.snapshot


def _sorted(beats: dict[int, Heartbeat]) -> tuple[Heartbeat, ...]:
    return tuple(beats[who] for who in sorted(beats))
