"""The memory that a host node and an attached process share: one page per process.

For each lock that the process uses there is a *slot*. The process writes what it is inside of, and
which number it accepted last. The host node writes which number it has revoked, and about which one
it has something to say (`signals`), so that a process that does not read its messages still looks.

Both sides see them as arrays of unsigned 64-bit integers. In memory they are parts of mapped files
(`net/attached/page.py`); the simulator and the tests have lists.
"""

from __future__ import annotations

from typing import Protocol

from peerlock.contract import Mode
from peerlock.node.attached.chain import Number, ProcessId

SLOTS = 4096  # locks that one process can use at the same time


class Words(Protocol):
    def __getitem__(self, slot: int, /) -> int: ...

    def __setitem__(self, slot: int, word: int, /) -> None: ...


class Page(Protocol):
    """As the process sees it."""

    @property
    def inside(self) -> Words:
        """`marked`; 0: not inside."""
        ...

    @property
    def accepted(self) -> Words:
        """The number that it accepted last."""
        ...

    @property
    def revoked(self) -> Words:
        """Numbers up to this one. The host node writes it."""
        ...

    @property
    def signals(self) -> Words:
        """The largest number that the host node has something to say about."""
        ...

    def open(self, slot: int, lock: str, algorithm: int) -> None:
        """From now on the slot is that lock's."""


class Pages(Protocol):
    """Those of all attached processes, as the host node sees them."""

    def marks(self, process: ProcessId, slot: int) -> tuple[int, Number]:
        """What is marked, and which number was accepted, at some moment."""
        ...

    def signal(self, process: ProcessId, slot: int, number: Number) -> None: ...

    def revoke(self, process: ProcessId, slot: int, number: Number) -> int:
        """All numbers up to this one. Then, after a barrier on all processors: what is marked."""
        ...


def marked(number: Number, mode: Mode) -> int:
    return number << 1 | (mode == "read") if number else 0


def unmarked(word: int) -> tuple[Number, Mode]:
    return word >> 1, "read" if word & 1 else "write"


__all__ = ["SLOTS", "Page", "Pages", "Words", "marked", "unmarked"]
