"""What a host node and the processes attached to it tell each other about one lock.

To the host node: Want, Cancel, Return, Passed, Report. From it: Granted, Successor, Recall,
Revoked. From process to process: Hand.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from peerlock.contract import Mode

ProcessId: TypeAlias = int  # given by the host node when the process attaches; never given again
Number: TypeAlias = int


class Want(Struct, frozen=True, array_like=True, tag=0):
    """A caller of this process waits."""

    mode: Mode


class Cancel(Struct, frozen=True, array_like=True, tag=1):
    """No caller waits any more."""


class Return(Struct, frozen=True, array_like=True, tag=2):
    number: Number


class Passed(Struct, frozen=True, array_like=True, tag=3):
    number: Number
    to: Number  # the successor has this one


class Report(Struct, frozen=True, array_like=True, tag=4):
    """To a new generation: what this process has, and what it waits for."""

    number: Number = 0
    mode: Mode = "write"  # of the number
    wants: Mode | None = None


class Granted(Struct, frozen=True, array_like=True, tag=5):
    number: Number
    end: int  # the largest fence that may be used under this number
    mode: Mode = "write"
    keep: bool = True  # else it is returned at the release


class Successor(Struct, frozen=True, array_like=True, tag=6):
    """The process that has this number hands `next` to that process at its release."""

    number: Number
    process: ProcessId
    next: Number
    end: int


class Recall(Struct, frozen=True, array_like=True, tag=7):
    """The process that has this number returns it at its release."""

    number: Number


class Revoked(Struct, frozen=True, array_like=True, tag=8):
    """The process was not inside, and this number is taken from it."""

    number: Number


class Hand(Struct, frozen=True, array_like=True, tag=9):
    number: Number
    end: int


ToHost: TypeAlias = Want | Cancel | Return | Passed | Report
FromHost: TypeAlias = Granted | Successor | Recall | Revoked
