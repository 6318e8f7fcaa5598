"""A trace as a log that ShiViz reads: an event is a host, its vector clock and some words.

ShiViz's default expression fits: `(?<host>\\S*) (?<clock>{.*})\\n(?<event>.*)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from peerlock.contract import NodeId
from peerlock.trace import Event


def log(events: Iterable[Event]) -> str:
    """The whole log."""
    clocks: dict[NodeId, dict[NodeId, int]] = {}
    sent: dict[tuple[int, NodeId], tuple[dict[NodeId, int], str]] = {}
    lines: list[str] = []

    def tick(node: NodeId, words: str) -> dict[NodeId, int]:
        clock = clocks.setdefault(node, {})
        clock[node] = clock.get(node, 0) + 1
        shown = json.dumps({f"node{j}": count for j, count in sorted(clock.items())})
        lines.extend((f"node{node} {shown}", words))
        return dict(clock)

    for event in events:
        match event.event:
            case "sent" | "broadcast":
                to = event.to if isinstance(event.to, list) else [event.to or 0]
                name = f"{event.kind} to {', '.join(map(str, to))}"
                clock = tick(event.node, f"sends {name}")
                for j in to:
                    sent[event.id or 0, j] = (clock, event.kind or "?")
            case "received":
                theirs, kind = sent.get((event.id or 0, event.node), ({}, "?"))
                mine = clocks.setdefault(event.node, {})
                for j, count in theirs.items():
                    mine[j] = max(mine.get(j, 0), count)
                tick(event.node, f"receives {kind} from {event.source}")
            case "requested":
                tick(event.node, f"asks to {event.mode}")
            case "entered":
                tick(event.node, f"ENTERS to {event.mode}")
            case "left" | "idle" | "crashed" | "paused" | "resumed" | "restarted" | "joined" | "leaving":
                tick(event.node, {"left": "leaves", "idle": "is idle"}.get(event.event, event.event))
            case "timeout":
                tick(event.node, f"time-out {event.name}")
    return "\n".join(lines) + "\n"
