"""The processes that get a lock one after the other, and the number of each.

Where a lock is hot, the same processes take turns again and again. So a chain is a sequence of
*runs*: a ring of processes, and numbers at equal distances. A run of a thousand turns is as small on
the wire as one of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from peerlock.contract import NodeId

ProcessId: TypeAlias = NodeId  # given by the process itself, at random; never given again
Number: TypeAlias = int


class Named(Struct, frozen=True, array_like=True, gc=False):
    """A process that holds under this number when its turn comes."""

    process: ProcessId
    number: Number
    end: int  # the largest fence that may be used under it


class Run(Struct, frozen=True, array_like=True, gc=False):
    number: Number  # of the first turn
    step: int  # fences of each number
    ring: tuple[ProcessId, ...]
    at: int  # whose turn is the first
    turns: int


Chain: TypeAlias = tuple[Run, ...]


def first(chain: Chain) -> Named:
    run = chain[0]
    return Named(run.ring[run.at], run.number, run.number + run.step - 1)


def after(chain: Chain) -> Chain:
    """Without the first turn."""
    run = chain[0]
    if run.turns == 1:
        return chain[1:]
    at = run.at + 1
    left = Run(run.number + run.step, run.step, run.ring, at if at < len(run.ring) else 0, run.turns - 1)
    return (left, *chain[1:]) if len(chain) > 1 else (left,)


def turns(chain: Chain) -> int:
    return chain[0].turns if len(chain) == 1 else sum(run.turns for run in chain)


def next_of(process: ProcessId, chain: Chain) -> Number:
    """The number of its first turn; 0: it has none."""
    for run in chain:
        if process in run.ring:
            turn = (run.ring.index(process) - run.at) % len(run.ring)
            if turn < run.turns:
                return run.number + turn * run.step
    return 0


def chain_of(named: Sequence[Named]) -> Chain:
    """As few runs as are found from left to right."""
    runs: list[Run] = []
    begin = 0
    while begin < len(named):
        start = named[begin]
        step, ring, end = start.end - start.number + 1, [start.process], begin + 1
        closed = False  # the ring has come round
        while end < len(named):
            turn, process = end - begin, named[end].process
            if named[end].number != start.number + turn * step or named[end].end - named[end].number + 1 != step:
                break
            if not closed and process == ring[0]:
                closed = True
            if closed:
                if process != ring[turn % len(ring)]:
                    break
            elif process in ring:
                break
            else:
                ring.append(process)
            end += 1
        runs.append(Run(start.number, step, tuple(ring), 0, end - begin))
        begin = end
    return tuple(runs)


__all__ = ["Chain", "Named", "Number", "ProcessId", "Run", "after", "chain_of", "first", "next_of", "turns"]
