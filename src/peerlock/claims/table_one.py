"""Table I of the authors' response, as a machine computes it.

The table has fifteen figures: for each of three algorithms the messages per entry, and four delays
in round trips (one way is 0.5). Every message takes one *hop*, and N = 2 to 7. Each column is read
so:

- *messages*: of every entry, over seeds. CR-MSG, RA-MSG and RT-MSG count them over all
  interleavings of small groups.
- *Note 1*, an average after the previous node's release, with the initial REQUESTs fully overlapped
  by that node's acquisition and stay. Every node always waits and stays inside for long; the figure
  is the mean time from an exit to the next entry.
- *Note 2*, the minimum from a quiescent network after initialization. After each node has entered
  once in turn and the network is quiet, one node asks. The figure is the least over all nodes and
  all orders of entering.
- *Note 3*, the typical figure. It is the most frequent one in the same runs, over all nodes that
  did not enter last; the node that entered last is the subject of Note 2.
- *Note 4*, the maximum until ANY critical section is granted, from a quiescent network. Several
  nodes ask at times that are chosen to do harm; the figure is the longest time from the first
  request until any node is inside. Of a time only two things matter: its hop, and whether it is a
  moment before or after other times in that hop. So a time is a hop and one of a few *moments*, and
  the figure is the limit for moments that are infinitely close. For small N all such times are
  tried, after every order of entering. For larger N the figure is a lower bound: what a search from
  many starting points finds, and one schedule that was built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import permutations, product
from math import factorial
from random import Random
from statistics import fmean

from msgspec.structs import replace

from peerlock.algorithms import choose
from peerlock.claims.evidence import run
from peerlock.contract import Effects, Members, NodeId, Wire
from peerlock.sim.experiment import Experiment

NEVER = -1
ALGORITHMS = ("ricart-agrawala", "carvalho-roucairol", "ricart-agrawala-token")
SIZES = range(2, 8)


class Hops:
    """A complete network in which every message takes one hop; the caller says when nodes ask."""

    def __init__(self, name: str, n: int, history: Sequence[NodeId] = ()) -> None:
        spec, nodes = choose(name), tuple(range(1, n + 1))
        self.nodes = {j: spec.start(j, Members(nodes, 1)) for j in nodes}
        self.flight: list[tuple[int, NodeId, NodeId, Wire]] = []  # when it was sent, source, to, message
        self.now, self.moments = 0, 1  # a message takes so many moments
        self.entered: list[NodeId] = []
        for j in history:
            self.alone(j)

    def alone(self, j: NodeId) -> int:
        """One node asks, enters and leaves, and all comes to rest; how many hops it waited."""
        self.entered = []
        self.request(j)
        hops = 0
        while not self.entered:
            self.hop()
            hops += 1
        out = Effects()
        self.nodes[j].release(out)
        self.carry_out(j, out)
        while self.flight:
            self.hop()
        return hops

    def request(self, j: NodeId) -> None:
        out = Effects()
        self.nodes[j].request("write", out)
        self.carry_out(j, out)

    def carry_out(self, j: NodeId, out: Effects) -> None:
        self.flight += [(self.now, j, to, message) for to, message in out.sent]
        if out.entered:
            self.entered.append(j)

    def hop(self) -> None:
        """The next moment: what was sent a hop ago arrives."""
        self.now += 1
        due = [sent for sent in self.flight if sent[0] == self.now - self.moments]
        self.flight = [sent for sent in self.flight if sent[0] != self.now - self.moments]
        for _, source, to, message in due:
            out = Effects()
            self.nodes[to].receive(source, message, out)
            self.carry_out(to, out)

    def first_grant(self, times: Sequence[int], moments: int) -> float:
        """Round trips from the first request to the first entry.

        Node j asks at `times[j - 1]`, which is hop * moments + moment.
        """
        self.entered, self.moments, self.now = [], moments, -1
        asking = {j: time for j, time in enumerate(times, 1) if time != NEVER}
        first = min(asking.values())
        for time in range(first + 100 * moments):
            self.hop()
            for j, when in asking.items():
                if when == time:
                    self.request(j)
            if self.entered:
                return (time // moments - first // moments) / 2
        raise AssertionError("nobody ever enters")


def messages(name: str, n: int) -> list[int]:
    """The costs of entries that occur, over seeds."""
    plain, found = Experiment(algorithm=name, nodes=n, entries=6, delay="adversary:3", load="closed:1"), set[int]()
    for seed in range(1, 21):
        found |= set(run(replace(plain, seed=seed)).costs)
    return sorted(found)


def note_1(name: str, n: int) -> float:
    busy = run(Experiment(algorithm=name, nodes=n, entries=20, delay="constant:1", hold=f"constant:{3 * n}"))
    return round(fmean(busy.metrics.sync_delays) / 2, 6)


def alone_after(name: str, n: int) -> tuple[list[float], list[float]]:
    """Round trips of a lone request: of the node that entered last, and of the others.

    Over all orders of entering, or over at least sixty.
    """
    last: list[float] = []
    others: list[float] = []
    for history in list(permutations(range(1, n + 1)))[:: max(1, factorial(n) // 60)]:
        for j in range(1, n + 1):
            waited = Hops(name, n, history).alone(j) / 2
            (last if j == history[-1] else others).append(waited)
    return last, others


def note_2(name: str, n: int) -> float:
    last, others = alone_after(name, n)
    return min([*last, *others])


def note_3(name: str, n: int) -> float:
    return Counter(alone_after(name, n)[1]).most_common(1)[0][0]


def note_4(name: str, n: int, *, full: bool) -> tuple[float, bool]:
    """(the longest time to any grant that was found, were all times looked at?)"""
    if n <= 3:
        times = [NEVER, *range(n * (n + 1))]
        return max(_grants(name, n, product(times, repeat=n), n)), True
    return max(_climb(name, n, full), *_grants(name, n, _staircases(n), n)), False


def _climb(name: str, n: int, full: bool) -> float:
    """Change one node's time, keep what makes the wait no shorter, begin again elsewhere."""
    random, best = Random(f"{name} {n}"), 0.0
    for _ in range(12 if full else 3):
        history = tuple(random.sample(range(1, n + 1), n))
        here = [random.randrange(n * 3) for _ in range(n)]
        found = Hops(name, n, history).first_grant(here, n)
        for _ in range(60 * n if full else 15 * n):
            there = list(here)
            there[random.randrange(n)] = random.choice([NEVER, *range(n * n)])
            if any(time != NEVER for time in there):
                new = Hops(name, n, history).first_grant(there, n)
                if new >= found:
                    here, found = there, new
        best = max(best, found)
    return best


def _staircases(n: int) -> list[tuple[int, ...]]:
    """Each node asks a moment before it would hear of the one before.

    The second schedule hurts Carvalho and Roucairol most. After 1, 2, ..., N have entered in turn,
    j has the permissions of all below it. N-1 asks first. A moment before its answer comes, the
    request of N-2 takes one of its permissions away, so N-1 asks for it again, and so on down to 1.
    """
    at_once = tuple(n - 1 if j == n else n + j - 1 for j in range(1, n + 1))
    down = (*((n - 1 - j) * n + j for j in range(1, n)), NEVER)
    return [at_once, down]


def _grants(name: str, n: int, schedules: Iterable[tuple[int, ...]], moments: int) -> list[float]:
    histories = [(), *permutations(range(1, n + 1))] if n <= 4 else [(), tuple(range(1, n + 1)), tuple(range(n, 0, -1))]
    return [
        Hops(name, n, history).first_grant(times, moments)
        for times in schedules
        if any(time != NEVER for time in times) and min(time for time in times if time != NEVER) < moments
        for history in histories
    ]


def told(n: int) -> str:
    """The schedule that hurts Carvalho and Roucairol most, in words, and what it does."""
    times = _staircases(n)[1]
    asks = [f"node {j} asks at hop {time // n}, moment {time % n}" for j, time in enumerate(times, 1) if time != NEVER]
    waited = Hops("carvalho-roucairol", n, tuple(range(1, n + 1))).first_grant(times, n)
    words = ", ".join(reversed(asks))
    return f"N = {n}, after 1 to {n} have entered in turn: {words}; nobody is inside for {waited} round trips"
