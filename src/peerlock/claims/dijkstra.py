"""The claims of Dijkstra's ring, and the task that he left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from peerlock.algorithms.dijkstra_ring import DijkstraRing
from peerlock.check.engine import Cells
from peerlock.check.model import ANY, Letter, Local, Model
from peerlock.check.properties import Bad, MutualExclusion, Property, Sums
from peerlock.claims import ring_language
from peerlock.claims.automata import Automaton, difference, drawn, learn
from peerlock.claims.evidence import Evidence, Figure, Finding, Lab, Setup, Watch, judge, run
from peerlock.claims.expressions import compiled
from peerlock.claims.registry import claim
from peerlock.sim.experiment import Experiment

PAPER = "dijkstra-1983"
RING = "dijkstra-ring"

# The learned automaton as a person would write it; whether both are the same language is computed.
# Its three cases: the token is held and no signal has come yet; it is held and the signal has come;
# it is in transit, to the first waiting process on its left.
EXPRESSION = "[cn].(n.|w(.[NW])*s)*|C.(n.)*w(.[NW]|s(n.)*w)*.|t(n.(n.)*w|w(.N)*(.W|s(n.)*w))(.[NW]|s(n.)*w)*"


def rings(lab: Lab) -> list[Setup]:
    return [Setup(RING, (ANY,) * n) for n in range(2, 8 if lab.full else 6)]


@claim("EWD-R0", PAPER, "one at a time")
def ewd_r0(lab: Lab) -> Finding:
    words = "rings of 2 and more, any number of entries"
    return judge([lab.explore(rings(lab), ["mutual exclusion", "one token"], words)])


@claim("EWD-R1", PAPER, "nobody waits for ever")
def ewd_r1(lab: Lab) -> Finding:
    words = "every fair run of rings, any number of entries"
    return judge([lab.explore(rings(lab)[:5], ["no deadlock", "no starvation"], words, True)])


class Around(NamedTuple):
    """A process, and what is under way to it."""

    process: DijkstraRing
    signals: int
    tokens: int

    @classmethod
    def of(cls, local: Local, letters: Sequence[Letter]) -> Around:
        kinds = [one.message.kind for one in letters]
        return cls(local.algorithm, kinds.count("SIGNAL"), kinds.count("TOKEN"))


Good: TypeAlias = Callable[[Around], bool]


class Invariant(Property):
    """One invariant of the note, of each process between its steps or at a receipt."""

    def __init__(self, model: Model, name: str, good: Good) -> None:
        super().__init__(model)
        self.name, self.good = name, good

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return int(not self.good(Around.of(local, letters)))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return sums > 0


class LeftWaits(Property):
    """P3: the left neighbour of a black process waits if it is white."""

    name = "P3"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        process = local.algorithm
        bits = process.black | (not process.black and process.section != "waiting") << 1
        return int(bits) << (2 * at)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        n = len(self.model.nodes)
        bad = sums < 0
        for at in range(n):
            left = (at - 1) % n
            bad |= (sums >> (2 * at) & sums >> (2 * left + 1) & 1) > 0
        return bad


def invariant(lab: Lab, name: str, watch: Watch) -> Finding:
    setups = rings(lab)
    words = f"{name} in every state of rings of 2 to {len(setups) + 1}, any number of entries"
    return judge([lab.watch(words, setups, watch)])


def alone(lab: Lab, name: str, good: Good) -> Finding:
    return invariant(lab, name, lambda model: [Invariant(model, name, good)])


@claim("EWD-P0", PAPER, "a critical machine holds the token (between steps)")
def ewd_p0(lab: Lab) -> Finding:
    return alone(lab, "P0", lambda at: at.process.section != "critical" or at.process.holds_token)


@claim("EWD-P1", PAPER, "the machine that holds the token is not waiting (between steps)")
def ewd_p1(lab: Lab) -> Finding:
    return alone(lab, "P1", lambda at: not at.process.holds_token or at.process.section != "waiting")


@claim("EWD-P3", PAPER, "the white left-hand neighbour of a black process is waiting (between steps)")
def ewd_p3(lab: Lab) -> Finding:
    return invariant(lab, "P3", lambda model: [LeftWaits(model)])


@claim("EWD-P4", PAPER, "the machine that a signal is under way to is white")
def ewd_p4(lab: Lab) -> Finding:
    return alone(lab, "P4", lambda at: not at.signals or not at.process.black)


@claim("EWD-P5", PAPER, "the machine that the token is under way to is black or waiting")
def ewd_p5(lab: Lab) -> Finding:
    return alone(lab, "P5", lambda at: not at.tokens or at.process.black or at.process.section == "waiting")


@claim("EWD-P6", PAPER, "a noncritical machine that holds the token is white (between steps)")
def ewd_p6(lab: Lab) -> Finding:
    def white(at: Around) -> bool:
        return not (at.process.holds_token and at.process.section == "noncritical" and at.process.black)

    return alone(lab, "P6", white)


class Connection(Property):
    """A connection carries at most one message: a signal to the right, or the token to the left."""

    name = "one message a connection"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        under_way = Around.of(local, letters)
        # A field of three bits for each connection; connection k is to the right of process k.
        left = (at - 1) % len(self.model.nodes)
        return (min(under_way.signals, 3) << (3 * left)) + (min(under_way.tokens, 3) << (3 * at))

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        bad = sums < 0
        for at in range(len(self.model.nodes)):
            bad |= (sums >> (3 * at) & 7) > 1
        return bad


@claim("EWD-LINK", PAPER, "a connection never carries more than one message")
def ewd_link(lab: Lab) -> Finding:
    setups = rings(lab)
    words = f"every connection in every state of rings of 2 to {len(setups) + 1}"
    return judge([lab.watch(words, setups, lambda model: [Connection(model)])])


class Quiet(Property):
    """If no node waits or is inside, no message is under way."""

    name = "quiet"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        return len(letters) + ((local.where in ("waiting", "inside")) << 16)

    def bad(self, sums: Sums, enabled: Cells) -> Bad:
        return np.asarray((sums >> 16 == 0) & (sums & 0xFFFF > 0), bool)


@claim("EWD-QUIET", PAPER, "no messages flow while nobody wants to enter")
def ewd_quiet(lab: Lab) -> Finding:
    def watch(model: Model) -> list[Property]:
        return [Quiet(model), MutualExclusion(model)]

    words = "nothing is under way while nobody waits or is inside"
    found = [lab.watch(f"{words}, {setup.words}", [setup], watch) for setup in rings(lab)]
    lone = run(Experiment(algorithm=RING, nodes=5, load="nodes:1", entries=20))
    words = "the holder enters twenty times and nobody else wants to"
    return judge([*found, Evidence("simulated", words, lone.metrics.messages == 0, seeds=1)])


def language(largest: int = 5) -> Automaton:
    """The smallest automaton for the words of rings of 2 to `largest`."""
    known: set[str] = set()
    for n in range(2, largest + 1):
        known |= ring_language.words(n)[0]
    lengths = {2 * n for n in range(2, largest + 1)}
    return learn(lambda word: word in known if len(word) in lengths else None, known, window=4, longest=2 * largest - 4)


@claim("EWD-REGEX", PAPER, "the permissible ring states are a regular language: the task that Dijkstra left open")
def ewd_regex(lab: Lab) -> Finding:
    try:
        found = language()
    except ValueError as problem:
        return judge([Evidence("exhaustive", "learned from rings of 2 to 5", False, figures={"why not": str(problem)})])
    every = [_as_learned(found, n) for n in range(2, 11 if lab.full else 9)]
    readable = difference(found, compiled(EXPRESSION))
    figures: dict[str, Figure] = {
        "states": len(found.states), "automaton": drawn(found), "expression": EXPRESSION, "differs in": readable,
    }  # fmt: skip
    every.append(Evidence("proved", "the readable expression is the automaton", readable is None, figures=figures))
    for words, but in (
        ("every initial state", ring_language.not_initial(found)),
        ("closed under every step of the algorithm", ring_language.leaves(found)),
        ("every word is reachable", ring_language.unreachable(found)),
    ):
        every.append(Evidence("proved", f"{words}, for every size of ring", but is None, figures={"but": but}))
    return judge(every)


def _as_learned(found: Automaton, n: int) -> Evidence:
    """The words of the automaton beside those of all states of a ring of n."""
    words, states = ring_language.words(n)
    accepted = found.words(2 * n)
    figures = {"words": len(words), "too many": len(accepted - words), "too few": len(words - accepted)}
    what = f"ring of {n}, {'learned from' if n <= 5 else 'not learned from'}: words too many, too few"
    return Evidence("exhaustive", what, accepted == words, configurations=1, states=states, figures=figures)
