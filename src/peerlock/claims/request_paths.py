"""The ways of requests through a network, and of the token back, in the events of a run."""

from __future__ import annotations

from collections import Counter

from peerlock.claims.evidence import Run
from peerlock.contract import NodeId
from peerlock.trace import Event


def requests(events: list[Event]) -> dict[tuple[NodeId, int], list[Event]]:
    """The REQ messages of every request."""
    found: dict[tuple[NodeId, int], list[Event]] = {}
    for event in events:
        if event.kind == "REQ" and event.fields:
            found.setdefault((event.fields["req_origin"], event.fields["req_time"]), []).append(event)
    return found


def first_receipts(events: list[Event], messages: list[Event]) -> dict[NodeId, NodeId]:
    """For each process the neighbour from which a request reached it first."""
    by_id, first = {event.id: event for event in messages}, dict[NodeId, NodeId]()
    for event in events:
        if event.event == "received" and event.id in by_id:
            first.setdefault(event.node, event.source or 0)
    return first


def reaches_everybody(one: Run) -> bool:
    """Lemma 1: on an elementary path, unless a younger request of its origin overtook it."""
    every, nodes = requests(one.events), set(one.prepared.topology.nodes)
    for (origin, time), messages in every.items():
        first = first_receipts(one.events, messages)
        younger = [key for key in every if key[0] == origin and key[1] > time]
        overtaken = {node for key in younger for node in first_receipts(one.events, every[key])}
        if nodes - set(first) - {origin} - overtaken:
            return False
        for node in set(first) - {origin}:
            path = [node]
            while path[-1] != origin and len(path) <= len(nodes):
                path.append(first.get(path[-1], origin))
            if len(path) != len(set(path)) or path[-1] != origin:
                return False
    return True


def retraces(one: Run) -> bool:
    """Lemma 2: the token goes back the way of the request, at most once through each process."""
    first: dict[tuple[NodeId, int], dict[NodeId, NodeId]] = {}
    by_id = {event.id: event for event in one.events if event.kind == "REQ" and event.event == "sent"}
    visited: list[NodeId] = []
    for event in one.events:
        if event.event == "received" and event.id in by_id:
            fields = by_id[event.id].fields or {}
            first.setdefault((fields["req_origin"], fields["req_time"]), {}).setdefault(event.node, event.source or 0)
        elif event.event == "sent" and event.kind == "TOKEN":
            elec = (event.fields or {})["elec"]
            heard = {
                time: via[event.node] for (origin, time), via in first.items() if origin == elec and event.node in via
            }
            from_whom = {heard[max(heard)]} if heard else set()
            visited = [*visited, event.node]
            if event.to not in from_whom or len(visited) != len(set(visited)):
                return False
        elif event.event == "entered":
            visited = []
    return True


def request_counts(one: Run) -> list[int]:
    return [len(messages) for messages in requests(one.events).values()]


def crossings(one: Run) -> int:
    """The most often that a request crosses one line."""
    most = 0
    for messages in requests(one.events).values():
        lines = Counter(frozenset((event.node, event.to)) for event in messages)
        most = max(most, *lines.values())
    return most


def longest_wait(one: Run, node: NodeId) -> float:
    """The longest time from a request of this node to its entry, rounded."""
    asked, longest = 0.0, 0.0
    for event in one.events:
        if event.node == node and event.event == "requested":
            asked = event.t
        elif event.node == node and event.event == "entered":
            longest = max(longest, event.t - asked)
    return round(longest, 2)
