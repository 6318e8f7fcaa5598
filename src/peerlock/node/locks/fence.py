"""Fences: strictly increasing numbers of the holds of one lock."""

from __future__ import annotations

CLOCK_BITS = 31  # of a fence of 63: it fits wherever a signed 64-bit number does


def fence(epoch: int, clock: int) -> int:
    return epoch << CLOCK_BITS | clock
