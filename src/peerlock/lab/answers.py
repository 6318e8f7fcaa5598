"""The forms of the page's questions and of their answers."""

from __future__ import annotations

from typing import Any, NotRequired, TypeAlias, TypedDict

from msgspec import Struct

from peerlock.contract import NodeId
from peerlock.lab.film import Act


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    experiment: dict[str, Any]  # as an Experiment
    acts: tuple[Act, ...] = ()
    frames: int = 20_000
    frame: int = 0
    format: str = ""


# What, node, id, to or source, words: a trace of 20,000 frames goes over the wire in a second.
Compact: TypeAlias = list[str | int | list[NodeId]]
Frames: TypeAlias = list[tuple[float, list[Compact]]]  # the time, and what happened


class About(TypedDict):
    """What is run."""

    algorithm: str
    form: NotRequired[str]
    nodes: int
    edges: list[tuple[NodeId, NodeId]]  # none: every node is connected to every other
    labels: dict[str, str]
    claimed: str
    seed: NotRequired[int]
    fifo: NotRequired[bool]


class Procedure(TypedDict):
    says: str
    source: str


class Shown(TypedDict):
    """A run to watch."""

    about: About
    procedures: NotRequired[dict[str, Procedure]]
    frames: Frames
    ended: str
    refused: dict[str, str]  # by the number of the act
    finding: NotRequired[str]


class NodeState(TypedDict):
    phase: str
    state: dict[str, str]
    changed: NotRequired[list[str]]  # variables
    ran: NotRequired[list[str]]  # procedures
    timers: NotRequired[tuple[str, ...]]


class Counters(TypedDict):
    messages: int
    entries: int
    violations: int
    mean: float | None  # messages per entry


class AtFrame(TypedDict):
    frame: int
    nodes: dict[str, NodeState]
    counters: Counters


class Checked(TypedDict):
    """What the checker found, and the way to it."""

    verdicts: dict[str, str]
    states: int
    finished: bool
    violated: str | None
    steps: list[dict[str, Any]]
    entries: int
    from_start: bool
    finding: NotRequired[str]
    frames: NotRequired[Frames]
    about: NotRequired[About]
    procedures: NotRequired[dict[str, Procedure]]
    variables: NotRequired[list[dict[str, NodeState]]]
    itf: NotRequired[dict[str, Any]]


class Export(TypedDict):
    """A file, and its name."""

    text: str
    name: str


class Entry(TypedDict):
    """An algorithm of the catalogue."""

    name: str
    paper: str
    year: int
    as_printed: bool
    claimed: str
    shape: str
    fifo: bool
