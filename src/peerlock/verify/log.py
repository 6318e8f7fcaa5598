"""The lines that the processes of `peerlock verify` write: one JSON object for each thing that
happened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct


class Line(Struct, frozen=True):
    """Only the fields of its kind of line are filled in. `worker` says which kinds there are."""

    t: float  # on the kernel's monotonic clock, which is the same for all processes of a machine
    pid: int
    what: str
    round: int = 0
    fence: int = 0
    value: int = 0  # that was written
    until: float = 0.0  # of a lease
    since: float = 0.0  # of a check: it began then
    why: str = ""
    where: tuple[str, ...] = ()


def line(t: float, pid: int, what: str, more: dict[str, float | str | list[str] | None]) -> bytes:
    return msgspec.json.encode({"t": t, "pid": pid, "what": what, **more}) + b"\n"


def decoded(data: bytes) -> Iterator[Line]:
    """The lines of a log. Half a line is left out: its process was killed, or it was not read from
    its start.
    """
    for text in data.splitlines():
        if text.startswith(b"{"):
            try:
                yield msgspec.json.decode(text, type=Line)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                continue


def read(path: Path, last: int | None = None) -> list[Line]:
    """The lines of a log file, or of its last so many bytes. The process may be writing it."""
    try:
        with path.open("rb") as stream:
            if last is not None:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - last))
            return list(decoded(stream.read()))
    except FileNotFoundError:
        return []
