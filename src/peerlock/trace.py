"""The events that every driver writes, and the file they are written to.

A driver tells a `Recorder` what happens, one method per event. The file below, the metrics and the
diagrams are recorders. A driver calls only the methods that a recorder overrides, so an event
without a listener costs nothing.

A trace file has one JSON object per line. The first line, `"event": "run"`, says what was run and
how, completely enough to run it again. The others have the time `t`, the `event` and its fields, in
the order in which they happened:

    requested   node, mode, since     asked to enter; `since`: when the work arrived
    sent        id, node, to, kind, fields, bytes, charged, asked
    broadcast   the same, `to` is a list: one message that reaches all of them
    received    id, node, source      the message with that id arrived
    entered     node, mode
    left        node                  left the critical section
    idle        node                  the invocation is over
    timeout     node, name
    crashed, paused, resumed          node
    restarted   node                  it is back, and remembers nothing
    joined, leaving                   node: is a member now; wants to leave
    rewired     node, neighbours
    lost        id, node              the network, or the dead `node`, dropped the message to it
    end                               nothing was left to do

Keys are in a fixed order, sets are sorted and numbers are written as they are: equal runs give
equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
from msgspec import Struct, defstruct
from msgspec.structs import asdict

from peerlock.contract import Mode, NodeId, Wire
from peerlock.errors import TraceError

FORMAT = 1
About: TypeAlias = Mapping[str, Any]  # the first line of a trace: what was run and how

_packed = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder(order="deterministic")


def size_of(message: Wire) -> int:
    """The bytes of a message's body on the wire."""
    return message.size if isinstance(message, _Told) else len(_packed.encode(message))


def told(message: Wire) -> str:
    """A message as a person writes it: REQUEST(n=0)."""
    fields = [
        f"{name}={sorted(value) if isinstance(value, frozenset) else value}" for name, value in asdict(message).items()
    ]
    return f"{message.kind}({', '.join(fields)})" if fields else message.kind


class Recorder:
    """Hears what happens in a run. Every method does nothing; override those of interest."""

    def run(self, about: About) -> None: ...
    def requested(self, t: float, node: NodeId, mode: Mode, since: float) -> None: ...
    def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None: ...
    def broadcast(self, t: float, id: int, node: NodeId, to: tuple[NodeId, ...], message: Wire) -> None: ...
    def received(self, t: float, id: int, node: NodeId, source: NodeId) -> None: ...
    def entered(self, t: float, node: NodeId, mode: Mode) -> None: ...
    def left(self, t: float, node: NodeId) -> None: ...
    def idle(self, t: float, node: NodeId) -> None: ...
    def timeout(self, t: float, node: NodeId, name: str) -> None: ...
    def crashed(self, t: float, node: NodeId) -> None: ...
    def paused(self, t: float, node: NodeId) -> None: ...
    def resumed(self, t: float, node: NodeId) -> None: ...
    def restarted(self, t: float, node: NodeId) -> None: ...
    def joined(self, t: float, node: NodeId) -> None: ...
    def leaving(self, t: float, node: NodeId) -> None: ...
    def rewired(self, t: float, node: NodeId, neighbours: tuple[NodeId, ...]) -> None: ...
    def lost(self, t: float, id: int, node: NodeId) -> None: ...
    def end(self, t: float) -> None: ...


class Event(Struct, omit_defaults=True):
    """One line of a trace. Only the fields of its kind of event are filled in."""

    event: str
    t: float = 0.0
    id: int | None = None
    node: NodeId = 0
    to: NodeId | list[NodeId] | None = None
    source: NodeId | None = None
    kind: str | None = None
    fields: dict[str, Any] | None = None
    bytes: int | None = None
    charged: NodeId | None = None
    asked: int | None = None
    mode: Mode | None = None
    since: float | None = None
    name: str | None = None
    neighbours: list[NodeId] | None = None
    about: About | None = None


class Collector(Recorder):
    """A recorder that hands every event, as an `Event`, to `see`."""

    def see(self, event: Event) -> None:
        raise NotImplementedError  # a subclass says what to do

    def run(self, about: About) -> None:
        self.see(Event("run", about={"format": FORMAT, **about}))

    def requested(self, t: float, node: NodeId, mode: Mode, since: float) -> None:
        self.see(Event("requested", t, node=node, mode=mode, since=since))

    def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None:
        self.see(_message("sent", t, id, node, to, message, to))

    def broadcast(self, t: float, id: int, node: NodeId, to: tuple[NodeId, ...], message: Wire) -> None:
        self.see(_message("broadcast", t, id, node, list(to), message, node))

    def received(self, t: float, id: int, node: NodeId, source: NodeId) -> None:
        self.see(Event("received", t, id, node, source=source))

    def entered(self, t: float, node: NodeId, mode: Mode) -> None:
        self.see(Event("entered", t, node=node, mode=mode))

    def left(self, t: float, node: NodeId) -> None:
        self.see(Event("left", t, node=node))

    def idle(self, t: float, node: NodeId) -> None:
        self.see(Event("idle", t, node=node))

    def timeout(self, t: float, node: NodeId, name: str) -> None:
        self.see(Event("timeout", t, node=node, name=name))

    def crashed(self, t: float, node: NodeId) -> None:
        self.see(Event("crashed", t, node=node))

    def paused(self, t: float, node: NodeId) -> None:
        self.see(Event("paused", t, node=node))

    def resumed(self, t: float, node: NodeId) -> None:
        self.see(Event("resumed", t, node=node))

    def restarted(self, t: float, node: NodeId) -> None:
        self.see(Event("restarted", t, node=node))

    def joined(self, t: float, node: NodeId) -> None:
        self.see(Event("joined", t, node=node))

    def leaving(self, t: float, node: NodeId) -> None:
        self.see(Event("leaving", t, node=node))

    def rewired(self, t: float, node: NodeId, neighbours: tuple[NodeId, ...]) -> None:
        self.see(Event("rewired", t, node=node, neighbours=list(neighbours)))

    def lost(self, t: float, id: int, node: NodeId) -> None:
        self.see(Event("lost", t, id, node))

    def end(self, t: float) -> None:
        self.see(Event("end", t))


def _message(
    event: str, t: float, id: int, node: NodeId, to: NodeId | list[NodeId], message: Wire, payer: NodeId
) -> Event:
    # Keys of a mapping are in the order of the fields, and a set becomes a sorted list.
    fields = {
        name: sorted(value) if isinstance(value, frozenset) else msgspec.to_builtins(value)
        for name, value in asdict(message).items()
    }
    return Event(
        event, t, id, node, to, kind=message.kind, fields=fields, bytes=size_of(message),
        charged=message.charged(node, payer), asked=message.asked(),
    )  # fmt: skip


class Writer(Collector):
    """Writes a trace file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def see(self, event: Event) -> None:
        self.stream.write(_json.encode(event) + b"\n")


class Keeper(Collector):
    """Keeps the events in memory."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def see(self, event: Event) -> None:
        self.events.append(event)


def read(path: str | Path) -> list[Event]:
    """The events of a trace file, the `run` line first."""
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise TraceError(f"{path} cannot be read: {problem.strerror}.") from None
    return parse(data, path)


def parse(data: bytes, path: str | Path) -> list[Event]:
    """The same, of what is in the file; `path` is what it is called in a complaint."""
    events = list(_parse(data, path))
    if not events or events[0].event != "run" or events[0].about is None:
        raise TraceError(f'{path} is not a trace: its first line is not an event "run".')
    if not isinstance(events[0].about.get("nodes", 0), int):
        raise TraceError(f"{path} is not a trace: the number of its nodes is {events[0].about['nodes']!r}.")
    if events[0].about.get("format") != FORMAT:
        raise TraceError(f"{path} has format {events[0].about.get('format')}; this version reads format {FORMAT}.")
    return events


_NEEDED = {
    "sent": ("id", "node", "to", "kind"),
    "broadcast": ("id", "node", "to", "kind"),
    "received": ("id", "node", "source"),
    "lost": ("id", "node"),
    **dict.fromkeys(
        ("requested", "entered", "left", "idle", "timeout", "crashed", "paused", "resumed", "restarted"), ("node",)
    ),
}


def _parse(data: bytes, path: str | Path) -> Iterator[Event]:
    decoder = msgspec.json.Decoder(Event)
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                event = decoder.decode(line)
            except msgspec.DecodeError as problem:
                raise TraceError(f"{path} is not a trace: line {number}: {problem}.") from None
            for field in _NEEDED.get(event.event, ()):
                if not getattr(event, field):
                    raise TraceError(f"{path} is not a trace: line {number}: {event.event} without {field}.")
            yield event


class _Told(Wire, frozen=True, tag="told"):
    """A message of which a trace file tells no more than this."""

    size: int
    payer: NodeId | None
    number: int | None

    def charged(self, source: NodeId, to: NodeId) -> NodeId | None:
        return self.payer

    def asked(self) -> int | None:
        return self.number


@cache
def _told(kind: str) -> type[_Told]:
    """One type per kind of message, as the messages themselves have."""
    made = defstruct(kind, [], bases=(_Told,), namespace={"called": kind}, frozen=True, tag=kind)
    assert issubclass(made, _Told)
    return made


def retell(events: Iterable[Event], recorder: Recorder) -> None:
    """Tell a recorder what a trace file says happened, as the driver told it."""
    at_node = {
        "left": recorder.left, "idle": recorder.idle, "crashed": recorder.crashed, "paused": recorder.paused,
        "resumed": recorder.resumed, "restarted": recorder.restarted, "joined": recorder.joined,
        "leaving": recorder.leaving,
    }  # fmt: skip
    for event in events:
        match event.event:
            case "run":
                recorder.run(event.about or {})
            case "requested":
                since = event.t if event.since is None else event.since
                recorder.requested(event.t, event.node, event.mode or "write", since)
            case "sent" | "broadcast":
                told = _told(event.kind or "?")(event.bytes or 0, event.charged, event.asked)
                if isinstance(event.to, list):
                    recorder.broadcast(event.t, event.id or 0, event.node, tuple(event.to), told)
                else:
                    recorder.sent(event.t, event.id or 0, event.node, event.to or 0, told)
            case "received":
                recorder.received(event.t, event.id or 0, event.node, event.source or 0)
            case "entered":
                recorder.entered(event.t, event.node, event.mode or "write")
            case "timeout":
                recorder.timeout(event.t, event.node, event.name or "")
            case "rewired":
                recorder.rewired(event.t, event.node, tuple(event.neighbours or ()))
            case "lost":
                recorder.lost(event.t, event.id or 0, event.node)
            case "end":
                recorder.end(event.t)
            case name if name in at_node:
                at_node[name](event.t, event.node)
            case other:
                raise TraceError(f"the trace has an event {other!r}, which this version does not know.")
