"""A store in memory: for tests, the simulator and the checker."""

from __future__ import annotations

from peerlock.node.store.requests import Renew, Request, Snapshot, StoredHeartbeat, Swap


class MemoryStore:
    """A store in memory: for tests, the simulator and the checker. What etcd does, in twenty lines."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot(1)

    def ask(self, request: Request) -> tuple[bool, Snapshot]:
        before = self.snapshot
        at, heartbeats = before.at + 1, {heartbeat.id: heartbeat for heartbeat in before.heartbeats}
        match request:
            case Renew(_, revision, who, apart):
                if revision != before.revision:
                    return False, before
                heartbeats[who] = StoredHeartbeat(who, at, apart)
                self.snapshot = Snapshot(at, before.revision, before.view, _sorted(heartbeats))
            case Swap(_, revision, seen, view, heartbeat, without):
                there = {who: heartbeats[who].revision if who in heartbeats else 0 for who, _ in seen}
                if revision != before.revision or there != dict(seen):
                    return False, before
                for who in without:
                    heartbeats.pop(who, None)
                if heartbeat:
                    heartbeats[heartbeat] = StoredHeartbeat(heartbeat, at)
                self.snapshot = Snapshot(at, at, view, _sorted(heartbeats))
        return True, self.snapshot


def _sorted(heartbeats: dict[int, StoredHeartbeat]) -> tuple[StoredHeartbeat, ...]:
    return tuple(heartbeats[who] for who in sorted(heartbeats))
