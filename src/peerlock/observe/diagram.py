"""Space-time diagrams of a trace: in the terminal, and as SVG.

Each node is a line; time runs down the page in the terminal and to the right in the SVG. The line
is thin while the node is idle, broken while it waits and thick while it is inside. An arrow is a
message. Events beyond a limit are left out, and their number is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from peerlock.contract import Mode, NodeId
from peerlock.errors import TraceError
from peerlock.trace import Event


class Arrow(Struct):
    source: NodeId
    to: NodeId
    sent: float
    arrived: float | None  # None: lost, or still under way at the end
    label: str
    lost: float | None = None


class Span(Struct):
    node: NodeId
    start: float
    end: float
    what: str  # waiting, read, write, paused or dead


class Picture(Struct):
    """What there is to draw."""

    title: str
    nodes: list[NodeId]
    labels: dict[NodeId, str]
    arrows: list[Arrow]
    spans: list[Span]
    end: float
    left_out: int = 0


def picture(events: Sequence[Event], most: int = 400) -> Picture:
    """Read a trace; at most `most` messages, the first ones."""
    about = events[0].about or {}
    there = {event.node for event in events if event.node}
    there |= {to for event in events for to in (event.to if isinstance(event.to, list) else [event.to]) if to}
    nodes = sorted({*range(1, about.get("nodes", 0) + 1), *there})
    if not nodes:
        raise TraceError("The trace has no nodes to draw.")
    labels = {int(node): str(label) for node, label in about.get("labels", {}).items()}
    order, end, left_out = _arrows(events, most)
    title = f"{about.get('algorithm', 'trace')}, {len(nodes)} nodes"
    title += f", seed {about['seed']}" if "seed" in about else ""
    if about.get("form") == "as_printed":
        title = title.replace(",", " as printed,", 1)
    return Picture(title, nodes, labels, order, _spans(events, end), end, left_out)


def _arrows(events: Sequence[Event], most: int) -> tuple[list[Arrow], float, int]:
    flights: dict[tuple[int, NodeId], Arrow] = {}
    order: list[Arrow] = []
    end, left_out = events[-1].t, 0
    for event in events:
        if event.event in ("sent", "broadcast"):
            for to in event.to if isinstance(event.to, list) else [event.to or 0]:
                if len(order) >= most:
                    left_out += 1
                    continue
                arrow = Arrow(event.node, to, event.t, None, label(event.kind or "?", event.fields or {}))
                flights[event.id or 0, to] = arrow
                order.append(arrow)
        elif event.event == "received" and (event.id or 0, event.node) in flights:
            flights[event.id or 0, event.node].arrived = event.t
        elif event.event == "lost" and (event.id or 0, event.node) in flights:
            flights[event.id or 0, event.node].lost = event.t
    if left_out:
        # Draw time only as far as the messages go.
        end = max(arrow.arrived or arrow.sent for arrow in order)
    return order, end, left_out


def label(kind: str, fields: Mapping[str, object]) -> str:
    """REQUEST 3: the name, and the numbers that tell it from others of its kind."""
    numbers = [str(value) for value in fields.values() if isinstance(value, int) and not isinstance(value, bool)]
    return " ".join([kind, *numbers])


def _spans(events: Iterable[Event], end: float) -> list[Span]:
    spans: list[Span] = []
    open_: dict[tuple[NodeId, str], Span] = {}

    def begin(node: NodeId, t: float, what: str, slot: str) -> None:
        span = open_[node, slot] = Span(node, t, end, what)
        spans.append(span)

    def finish(node: NodeId, t: float, slot: str) -> None:
        span = open_.pop((node, slot), None)
        if span is not None:
            span.end = min(t, end)

    for event in events:
        node, t = event.node, event.t
        if t > end:
            continue
        match event.event:
            case "requested":
                begin(node, t, "waiting", "use")
            case "entered":
                finish(node, t, "use")
                mode: Mode = event.mode or "write"
                begin(node, t, mode, "use")
            case "left":
                finish(node, t, "use")
            case "paused":
                begin(node, t, "paused", "fault")
            case "resumed" | "restarted":
                finish(node, t, "fault")
            case "crashed":
                finish(node, t, "use")
                begin(node, t, "dead", "fault")
    return spans


# -- the terminal ----------------------------------------------------------------------------------

Look: TypeAlias = Literal["", "waiting", "read", "write", "paused", "dead"]
_LINE: dict[Look, str] = {"": "│", "waiting": "┊", "read": "▒", "write": "█", "paused": "┆", "dead": " "}


def text(events: Sequence[Event], most: int = 60) -> str:
    """The diagram as text, one line per event, time downwards."""
    drawn = picture(events, most=10**9)
    width = max(12, *(len(arrow.label) + 5 for arrow in drawn.arrows)) if drawn.arrows else 12
    if width * len(drawn.nodes) > 150:
        width = max(6, 150 // len(drawn.nodes))
    column = {node: 11 + at * width for at, node in enumerate(drawn.nodes)}
    rows = list(_rows(events))
    names = _place({column[node]: drawn.labels.get(node, str(node))[: width - 1] for node in drawn.nodes}, "     time")
    lines = [drawn.title, names]
    state: dict[NodeId, Look] = dict.fromkeys(drawn.nodes, "")
    paused: dict[NodeId, Look] = {}
    for row in rows[:most]:
        if row.became == "resumed":
            state[row.node] = paused.pop(row.node, "")
        elif row.became is not None:
            if row.became == "paused":
                paused[row.node] = state[row.node]
            state[row.node] = row.became
        lines.append(_row(row, state, column))
    if len(rows) > most:
        lines.append(f"... {len(rows) - most} more events; --most N shows more.")
    return "\n".join(line.rstrip() for line in lines) + "\n"


class Row(NamedTuple):
    """An event with a line of its own: a message that arrives, or what a node does."""

    t: float
    node: NodeId  # or the source of the message
    words: str
    to: NodeId | None = None  # of the message
    became: Look | Literal["resumed"] | None = None  # the node; None: it stays as it was


def _rows(events: Sequence[Event]) -> Iterator[Row]:
    sent: dict[int, Event] = {}
    for event in events:
        t, node = event.t, event.node
        match event.event:
            case "sent" | "broadcast":
                sent[event.id or 0] = event
            case "received":
                origin = sent.get(event.id or 0)
                if origin is not None:
                    yield Row(t, origin.node, label(origin.kind or "?", origin.fields or {}), node)
            case "requested":
                yield Row(t, node, _words(event), became="waiting")
            case "entered":
                yield Row(t, node, _words(event), became=event.mode)
            case "left" | "restarted":
                yield Row(t, node, _words(event), became="")
            case "paused" | "resumed" as now:
                yield Row(t, node, _words(event), became=now)
            case "crashed":
                yield Row(t, node, _words(event), became="dead")
            case "timeout" | "joined" | "leaving":
                yield Row(t, node, _words(event))
            case "lost":
                yield Row(t, node, "never gets a message")


def _words(event: Event) -> str:
    match event.event:
        case "requested":
            return "asks" if event.mode == "write" else "asks (read)"
        case "entered":
            return "ENTERS" if event.mode == "write" else "ENTERS (read)"
        case "left":
            return "leaves"
        case "timeout":
            return f"time-out {event.name}"
        case other:
            return other


def _row(row: Row, state: Mapping[NodeId, Look], column: Mapping[NodeId, int]) -> str:
    line = {at: _LINE[state[node]] for node, at in column.items()}
    a = column[row.node]
    if row.to is not None:
        b = column[row.to]
        left, right = min(a, b), max(a, b)
        shaft = ["─"] * (right - left - 1)
        name = f" {row.words} "
        if len(name) <= len(shaft):
            at = (len(shaft) - len(name)) // 2
            shaft[at : at + len(name)] = name
        line |= {left + 1 + at: mark for at, mark in enumerate(shaft)}
        line[b - 1 if b > a else b + 1] = "▶" if b > a else "◀"
    else:
        line |= {a + 2 + at: mark for at, mark in enumerate(row.words)}
    return _place(line, f"{row.t:9.2f}")


def _place(marks: dict[int, str], start: str) -> str:
    line = list(start.ljust(max(at + len(mark) for at, mark in marks.items()) + 1))
    for at, mark in sorted(marks.items()):
        line[at : at + len(mark)] = mark
    return "".join(line)


# -- SVG -------------------------------------------------------------------------------------------

_STYLE = """
  svg { background: #fff; font: 12px system-ui, sans-serif; }
  .line { stroke: #b8bec6; stroke-width: 1.5 } .node { fill: #20262d; font-weight: 600; text-anchor: end }
  .tick { fill: #7a828c; font-size: 10px; text-anchor: middle } .grid { stroke: #edf0f3 }
  .waiting { fill: #f3c969 } .write { fill: #2f7d5b } .read { fill: #58a6d6 } .paused { fill: #cfcfe8 } .dead { fill: #d66 }
  .arrow { stroke: #51607a; stroke-width: 1; fill: none; marker-end: url(#head) }
  .lost { stroke-dasharray: 3 3; marker-end: none }
  .name { fill: #51607a; font-size: 9px; text-anchor: middle; paint-order: stroke; stroke: #fff; stroke-width: 3px }
  .title { fill: #20262d; font-size: 14px; font-weight: 600 } .legend, .note { fill: #51607a; font-size: 11px }
  @media (prefers-color-scheme: dark) {
    svg { background: #14181d } .line { stroke: #46505c } .node, .title { fill: #e6eaef } .grid { stroke: #222830 }
    .arrow { stroke: #93a4bd } .name { fill: #b5c1d3; stroke: #14181d } .legend, .note, .tick { fill: #93a4bd }
  }
"""


def svg(events: Sequence[Event], most: int = 400) -> str:
    """The diagram as an SVG document."""
    drawn = picture(events, most)
    left = 24 + 8 * max(len(_name(drawn, node)) for node in drawn.nodes)
    crowded = len(drawn.arrows) > 150 or len(drawn.nodes) > 30
    gap, scale = (26, 40.0) if crowded else (64, 130.0)
    width, height = max(640.0, left + drawn.end * scale + 40), 96 + gap * (len(drawn.nodes) - 1)
    y = {node: 60 + gap * at for at, node in enumerate(drawn.nodes)}
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        f"<title>{escape(drawn.title)}</title><style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#6b7a93"/></marker></defs>',
        f'<text class="title" x="12" y="22">{escape(drawn.title)}</text>',
        *_legend(drawn),
        *_ticks(drawn, left, scale, height),
    ]
    for node in drawn.nodes:
        out.append(f'<text class="node" x="{left - 10:.0f}" y="{y[node] + 4}">{escape(_name(drawn, node))}</text>')
        out.append(f'<line class="line" x1="{left}" y1="{y[node]}" x2="{width - 20:.0f}" y2="{y[node]}"/>')
    for span in drawn.spans:
        tall = 12 if span.what in ("read", "write") else 5
        x, wide = left + span.start * scale, max(1.5, (span.end - span.start) * scale)
        words = f"node {_name(drawn, span.node)}: {span.what}, {span.start:.3f} to {span.end:.3f}"
        out.append(
            f'<rect class="{span.what}" x="{x:.1f}" y="{y[span.node] - tall / 2:.1f}" width="{wide:.1f}" '
            f'height="{tall}" rx="2">'
            f"<title>{escape(words)}</title></rect>"
        )
    for arrow in drawn.arrows:
        out.append(_svg_arrow(arrow, left, scale, y, crowded, drawn.end))
    return "\n".join([*out, "</svg>"]) + "\n"


def _name(drawn: Picture, node: NodeId) -> str:
    return f"{node} {drawn.labels[node]}" if node in drawn.labels else str(node)


def _legend(drawn: Picture) -> Iterable[str]:
    words = {"waiting": "waits", "write": "inside", "read": "inside, reading", "paused": "paused", "dead": "dead"}
    used, x = {span.what for span in drawn.spans}, 12
    for what, meaning in words.items():
        if what in used:
            yield f'<rect class="{what}" x="{x}" y="32" width="14" height="8" rx="2"/>'
            yield f'<text class="legend" x="{x + 18}" y="40">{meaning}</text>'
            x += 34 + 7 * len(meaning)
    if drawn.left_out:
        yield f'<text class="note" x="{x + 10}" y="40">{drawn.left_out} later messages are not drawn</text>'


def _ticks(drawn: Picture, left: float, scale: float, height: float) -> Iterable[str]:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000, 10_000, 10**9) if step * scale >= 40)
    for t in range(0, int(drawn.end) + 1, step):
        x = left + t * scale
        yield f'<line class="grid" x1="{x:.1f}" y1="46" x2="{x:.1f}" y2="{height - 22:.0f}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{height - 8:.0f}">{t}</text>'


def _svg_arrow(arrow: Arrow, left: float, scale: float, y: dict[NodeId, int], crowded: bool, end: float) -> str:
    arrived = arrow.arrived if arrow.arrived is not None else max(arrow.lost or end, arrow.sent)
    x1, x2, y1, y2 = left + arrow.sent * scale, left + min(arrived, end) * scale, y[arrow.source], y[arrow.to]
    lost = "" if arrow.arrived is not None else " lost"
    words = f"{arrow.label}: {arrow.source} to {arrow.to}, {arrow.sent:.3f} to " + (
        f"{arrow.arrived:.3f}" if arrow.arrived is not None else "never"
    )
    name = ""
    if not crowded:
        # A third of the way along, arrows of one broadcast have parted and arrows to one node have
        # not met.
        x, at = x1 + (x2 - x1) * 0.36, y1 + (y2 - y1) * 0.36
        name = f'<text class="name" x="{x:.1f}" y="{at:.1f}">{escape(arrow.label)}</text>'
    return (
        f'<g><path class="arrow{lost}" d="M{x1:.1f} {y1}L{x2:.1f} {y2}"><title>{escape(words)}</title></path>{name}</g>'
    )
