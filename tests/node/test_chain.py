"""Chains of successors: as few runs as need be, and the same turns. What becomes of a long one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from peerlock.node.attached.chain import Chain, Named, after, chain_of, first, next_of, turns
from peerlock.node.attached.host import HostLock
from peerlock.node.attached.messages import Granted, Want


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


class Heard:
    """What a host node asks for."""

    def __init__(self) -> None:
        self.said: list[tuple[int, object]] = []
        self.made = 0

    def send(self, process: int, message: object) -> None:
        self.said.append((process, message))

    def numbers(self, process: int) -> tuple[int, int]:
        self.made += 1
        return self.made, self.made

    def revoke_page(self, process: int, number: int) -> None: ...

    def give_back(self) -> None: ...


def test_a_thousand_successors_that_die_at_once() -> None:
    out = Heard()
    lock = HostLock(out)
    lock.gained()
    lock.hear(1, Want("write"))
    lock.append([*range(2, 1000), 5000])
    for process in range(999, 0, -1):
        lock.died(process)
    assert lock.owners == {5000: out.made}
    assert out.said[-1] == (5000, Granted(out.made, out.made))
