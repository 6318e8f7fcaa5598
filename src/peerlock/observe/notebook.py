"""Traces in a notebook: they show themselves as diagrams."""

from __future__ import annotations

from pathlib import Path

from peerlock import trace
from peerlock.observe import diagram
from peerlock.trace import Event


class Trace(list[Event]):
    """The events of a trace."""

    def _repr_svg_(self) -> str:
        return diagram.svg(self)


def read(path: str | Path) -> Trace:
    """A trace file."""
    return Trace(trace.read(path))
