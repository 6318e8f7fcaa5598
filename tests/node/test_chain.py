"""Chains of successors: as few runs as need be, and the same turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from peerlock.node.attached.chain import Chain, Named, after, chain_of, first, next_of, turns


def turns_of(chain: Chain) -> list[Named]:
    found = []
    while chain:
        found.append(first(chain))
        chain = after(chain)
    return found


@given(some.lists(some.tuples(some.integers(1, 4), some.integers(1, 3), some.integers(0, 1)), max_size=30))
def test_a_chain_says_what_was_named(words: list[tuple[int, int, int]]) -> None:
    named, number = [], 10
    for process, fences, gap in words:
        named.append(Named(process, number + gap, number + gap + fences - 1))
        number += gap + fences
    chain = chain_of(named)
    assert turns_of(chain) == named
    assert turns(chain) == len(named) if chain else not named
    for process in range(1, 5):
        assert next_of(process, chain) == next((each.number for each in named if each.process == process), 0)


def test_a_ring_is_one_run() -> None:
    ring = [Named(process, 100 + 4 * turn, 103 + 4 * turn) for turn, process in enumerate([7, 8, 9] * 50)]
    assert len(chain_of(ring)) == 1
    assert len(chain_of(ring[1:])) == 1
