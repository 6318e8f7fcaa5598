"""Naimi, Trehel and Arnold 1996: what they claim, as far as simulation can decide it."""

from __future__ import annotations

from random import Random

import pytest

from peerlock.algorithms.naimi_trehel import NaimiTrehel
from peerlock.contract import Effects, Members
from running import run_seeds


@pytest.mark.parametrize("n", [2, 4, 8])
def test_nt_msg(n: int) -> None:
    """0 to N messages, and both ends are reached."""
    costs: set[int] = set()
    for ran in run_seeds("naimi-trehel", range(1, 51), nodes=n, delay="adversary:3", load="closed:2"):
        costs |= set(ran.costs)
    assert min(costs) == 0
    assert max(costs) == n


def messages_an_entry(n: int, entries: int) -> float:
    """One request at a time, of a node that is chosen evenly."""
    random, messages = Random(1), 0
    members = tuple(range(1, n + 1))
    nodes = {j: NaimiTrehel.start(j, Members(members, 1)) for j in members}
    for _ in range(entries):
        me = random.choice(members)
        out = Effects()
        nodes[me].request("write", out)
        source = me
        while not out.entered:
            ((to, message),) = out.sent
            messages += 1
            out = Effects()
            nodes[to].receive(source, message, out)  # type: ignore[arg-type]
            source = to
        nodes[me].release(Effects())
    return messages / entries


@pytest.mark.parametrize(("n", "entries"), [(2, 20_000), (20, 20_000), (100, 20_000), (1000, 40_000)])
def test_nt_avg(n: int, entries: int) -> None:
    """H(N-1) messages on average: 3.55 with 20 nodes, 5.18 with 100, 7.48 with 1,000."""
    harmonic = sum(1 / k for k in range(1, n))
    # From the star of the start it takes some thousand entries until the tree has its usual depth.
    assert messages_an_entry(n, entries) == pytest.approx(harmonic, rel=0.05)


def test_nt_path() -> None:
    """A request makes its origin the father of every node on its way, and of no other."""
    members = (1, 2, 3, 4)
    nodes = {j: NaimiTrehel.start(j, Members(members, 1)) for j in members}
    nodes[2].father, nodes[3].father = 1, 2  # 3's request goes by 2 to 1
    out = Effects()
    nodes[3].request("write", out)
    while not out.entered:
        ((to, message),) = out.sent
        out = Effects()
        nodes[to].receive(0, message, out)  # type: ignore[arg-type]
    assert [nodes[j].father for j in members] == [3, 3, None, 1]
