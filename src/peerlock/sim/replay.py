"""A trace of real nodes, computed again.

The trace says what each node's algorithm was told, and in which order. An algorithm is a pure state
machine, so from the same start it must send the same messages and enter at the same moments; if it
does not, the trace is not of that algorithm, or the node has a defect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from peerlock.algorithms import choose
from peerlock.contract import Effects, NodeId, Wire
from peerlock.errors import TraceError
from peerlock.node.locks.participant import shape_for
from peerlock.trace import Event


def replay(events: Sequence[Event]) -> int:
    """Run it again; the number of events that were the same. `TraceError` at the first that is not."""
    about = events[0].about or {}
    try:
        spec = choose(str(about["algorithm"]))
        inside = {int(node): mode for node, mode in about["inside"].items()}
        size, home = int(about["nodes"]), int(about["home"])
        waits = [int(node) for node in about.get("waits", ())]
    except (KeyError, TypeError, ValueError) as problem:
        raise TraceError(f"The trace does not say how it began: {problem}.") from None
    nodes: dict[NodeId, Any] = {
        me: spec.start(me, shape_for(spec, me, size, home), inside) for me in range(1, size + 1)
    }
    for me, node in nodes.items():
        if older := waits.index(me) if me in waits else len(waits):
            node.after(older)
    due: dict[NodeId, deque[tuple[str, Any]]] = {me: deque() for me in nodes}  # what each must do next
    flight: dict[int, Wire] = {}
    for number, event in enumerate(events[1:], 1):
        node, out = nodes[event.node], Effects()
        match event.event:
            case "requested":
                _call(node.request, event.mode, out)
            case "left":
                _call(node.release, out)
            case "received":
                if event.id not in flight:
                    raise TraceError(f"Event {number}: a message is received that no node has sent.")
                _call(node.receive, event.source, flight.pop(event.id or 0), out)
            case "sent":
                what, (to, message) = due[event.node].popleft() if due[event.node] else ("", (None, None))
                fields = (
                    {}
                    if message is None
                    else {name: _plain(getattr(message, name)) for name in message.__struct_fields__}
                )
                if (what, to, getattr(message, "kind", None), fields) != ("sent", event.to, event.kind, event.fields):
                    raise TraceError(
                        f"Event {number}: node {event.node} sent {event.kind}; computed again it would not."
                    )
                assert message is not None
                flight[event.id or 0] = message
            case "entered" | "idle":
                if not due[event.node] or due[event.node].popleft()[0] != event.event:
                    raise TraceError(f"Event {number}: node {event.node}: {event.event}; computed again it is not.")
        due[event.node] += [("sent", sent) for sent in out.sent]
        due[event.node] += [("entered", None)] * out.entered + [("idle", None)] * out.ended
    return len(events) - 1


def _call(handler: Any, *words: Any) -> None:
    try:
        handler(*words)
    except AssertionError as problem:
        raise TraceError(f"The algorithm cannot be told that: {problem}") from problem


def _plain(value: Any) -> Any:
    """As it looks in a trace file."""
    return msgspec.json.decode(msgspec.json.encode(sorted(value) if isinstance(value, frozenset) else value))
