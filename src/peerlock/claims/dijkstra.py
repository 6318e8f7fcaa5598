"""What Dijkstra claims for his ring, and the task that he left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from peerlock.check.model import ANY, Letter, Local, Model
from peerlock.check.properties import Property
from peerlock.claims import ring_language as ring_words
from peerlock.claims.automata import Automaton, compiled, difference, drawn, learn
from peerlock.claims.evidence import Evidence, Finding, Lab, Setup, judge, run
from peerlock.claims.registry import claim

PAPER = "dijkstra-1983"
RING = "dijkstra-ring"

# The automaton that is learned, as a person would write it. Held, nobody calls: every signal is still on its way. Held, called:
# the signal has come. In transit: the token goes left, to whoever waits first. Whether this is the language is computed.
EXPRESSION = "[cn].(n.|w(.[NW])*s)*|C.(n.)*w(.[NW]|s(n.)*w)*.|t(n.(n.)*w|w(.N)*(.W|s(n.)*w))(.[NW]|s(n.)*w)*"


def rings(lab: Lab) -> list[Setup]:
    return [Setup(RING, (ANY,) * n) for n in range(2, 8 if lab.full else 6)]


@claim("EWD-R0", PAPER, "one at a time")
def ewd_r0(lab: Lab) -> Finding:
    return judge(
        [lab.explore(rings(lab), ["mutual exclusion", "one token"], "rings of 2 and more, any number of entries")]
    )


@claim("EWD-R1", PAPER, "nobody waits for ever")
def ewd_r1(lab: Lab) -> Finding:
    found = lab.explore(
        rings(lab)[:5], ["no deadlock", "no starvation"], "every fair run of rings, any number of entries", True
    )
    return judge([found])


class Invariant(Property):
    """One invariant of the note: between steps of one process, of a process and its left neighbour, or of a recipient."""

    def __init__(
        self, model: Model, name: str, alone: Callable[[Any, bool, bool], bool], pair: Callable[[Any, Any], bool] | None
    ) -> None:
        super().__init__(model)
        self.name, self.alone, self.pair = name, alone, pair
        self.pairs: dict[int, Any] = {}

    def feature(self, at: int, local: Local, letters: Any) -> int:
        process = local.algorithm
        kinds = [type(one.message).__name__ for one in letters]
        ok = self.alone(process, "Signal" in kinds, "Token" in kinds)
        bits = (not ok) | (process.black << 1) | ((not process.black and process.section != "waiting") << 2)
        return int(bits) << (3 * at)

    def bad(self, sums: Any, enabled: Any) -> Any:
        n = len(self.model.nodes)
        bad = sums < 0
        for at in range(n):
            bad |= (sums >> (3 * at) & 1).astype(bool)
            if self.pair is not None:
                left = (at - 1) % n
                bad |= ((sums >> (3 * at + 1) & 1) & (sums >> (3 * left + 2) & 1)).astype(bool)
        return bad


def invariant(lab: Lab, name: str, alone: Callable[[Any, bool, bool], bool], pair: Any = None) -> Finding:
    states, good, script, count = 0, True, None, 0
    for setup in rings(lab):
        seen = lab.look(setup, watch=lambda model: [Invariant(model, name, alone, pair)])
        states, count = states + seen.states, count + 1
        good &= seen.finished and seen.verdicts[name] == "holds"
        script = script or seen.script
    words = f"{name} in every state of rings of 2 to {count + 1}, any number of entries"
    return judge([Evidence("exhaustive", words, good, configurations=count, states=states, counterexample=script)])


@claim("EWD-P0", PAPER, "who is critical holds the token (between steps)")
def ewd_p0(lab: Lab) -> Finding:
    return invariant(lab, "P0", lambda process, signal, token: process.section != "critical" or process.holds_token)


@claim("EWD-P1", PAPER, "who holds the token is not waiting (between steps)")
def ewd_p1(lab: Lab) -> Finding:
    return invariant(lab, "P1", lambda process, signal, token: not process.holds_token or process.section != "waiting")


@claim("EWD-P3", PAPER, "the white left-hand neighbour of a black process is waiting (between steps)")
def ewd_p3(lab: Lab) -> Finding:
    return invariant(lab, "P3", lambda process, signal, token: True, pair=True)


@claim("EWD-P4", PAPER, "who receives a signal is white (whoever one is under way to)")
def ewd_p4(lab: Lab) -> Finding:
    return invariant(lab, "P4", lambda process, signal, token: not signal or not process.black)


@claim("EWD-P5", PAPER, "who receives the token is black or waiting (whoever it is under way to)")
def ewd_p5(lab: Lab) -> Finding:
    return invariant(
        lab, "P5", lambda process, signal, token: not token or process.black or process.section == "waiting"
    )


@claim("EWD-P6", PAPER, "who holds the token while noncritical is white (between steps)")
def ewd_p6(lab: Lab) -> Finding:
    return invariant(
        lab,
        "P6",
        lambda process, signal, token: not (process.holds_token and process.section == "noncritical" and process.black),
    )


class Link(Property):
    """A connection carries at most one message: signals to its right end, the token to its left end."""

    name = "one message a connection"

    def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
        kinds = [type(one.message).__name__ for one in letters]
        signals, tokens = min(kinds.count("Signal"), 3), min(kinds.count("Token"), 3)
        # A field of three bits a connection; connection k is to the right of process k.
        left = (at - 1) % len(self.model.nodes)
        return (signals << (3 * left)) + (tokens << (3 * at))

    def bad(self, sums: Any, enabled: Any) -> Any:
        bad = sums < 0
        for at in range(len(self.model.nodes)):
            bad |= (sums >> (3 * at) & 7) > 1
        return bad


@claim("EWD-LINK", PAPER, "a connection never carries more than one message")
def ewd_link(lab: Lab) -> Finding:
    states, good, count = 0, True, 0
    for setup in rings(lab):
        seen = lab.look(setup, watch=lambda model: [Link(model)])
        states, count, good = states + seen.states, count + 1, good and seen.verdicts[Link.name] == "holds"
    return judge(
        [
            Evidence(
                "exhaustive",
                f"every connection in every state of rings of 2 to {count + 1}",
                good,
                configurations=count,
                states=states,
            )
        ]
    )


@claim("EWD-QUIET", PAPER, "no messages flow while nobody wants to enter")
def ewd_quiet(lab: Lab) -> Finding:
    from peerlock.check.properties import MutualExclusion

    class Quiet(Property):
        """If nobody waits or is inside and nothing is black, nothing is under way."""

        name = "quiet"

        def feature(self, at: int, local: Local, letters: Sequence[Letter]) -> int:
            return len(letters) + ((local.where in ("waiting", "inside")) << 16)

        def bad(self, sums: Any, enabled: Any) -> Any:
            return (sums >> 16 == 0) & (sums & 0xFFFF > 0)

    found = []
    for setup in rings(lab):
        seen = lab.look(setup, watch=lambda model: [Quiet(model), MutualExclusion(model)])
        good = seen.finished and seen.verdicts["quiet"] == "holds"
        found.append(
            Evidence(
                "exhaustive",
                f"nothing is under way while nobody waits or is inside, {setup.words}",
                good,
                configurations=1,
                states=seen.states,
                counterexample=seen.script,
            )
        )
    lone = run(algorithm=RING, nodes=5, load="nodes:1", entries=20)
    found.append(
        Evidence(
            "simulated", "the holder enters twenty times and nobody else wants to", lone.metrics.messages == 0, seeds=1
        )
    )
    return judge(found)


def language(largest: int = 5) -> Automaton:
    """The smallest automaton for the words of rings of 2 to `largest`."""
    known: set[str] = set()
    for n in range(2, largest + 1):
        known |= ring_words.words(n)[0]
    lengths = {2 * n for n in range(2, largest + 1)}
    return learn(lambda word: word in known if len(word) in lengths else None, known, window=4, longest=2 * largest - 4)


@claim("EWD-REGEX", PAPER, "the permissible ring states are a regular language: the task that Dijkstra left open")
def ewd_regex(lab: Lab) -> Finding:
    try:
        found = language()
    except ValueError as problem:
        return judge([Evidence("exhaustive", "learned from rings of 2 to 5", False, figures={"why not": str(problem)})])
    figures = {"states": len(found.states), "automaton": drawn(found), "expression": EXPRESSION}
    every = []
    largest = 10 if lab.full else 8
    for n in range(2, largest + 1):
        words, states = ring_words.words(n)
        accepted = found.words(2 * n)
        every.append(
            Evidence(
                "exhaustive",
                f"ring of {n}, {'learned from' if n <= 5 else 'not learned from'}: words too many, too few",
                accepted == words,
                configurations=1,
                states=states,
                figures={"words": len(words), "too many": len(accepted - words), "too few": len(words - accepted)},
            )
        )
    readable = difference(found, compiled(EXPRESSION))
    out, junk, first = ring_words.leaves(found), ring_words.unreachable(found), ring_words.not_initial(found)
    every += [
        Evidence(
            "proved",
            "the readable expression is the automaton",
            readable is None,
            figures={**figures, "differs in": readable},
        ),
        Evidence("proved", "every initial state, for every size of ring", first is None, figures={"but": first}),
        Evidence(
            "proved",
            "closed under every step of the algorithm, for every size of ring",
            out is None,
            figures={"but": out},
        ),
        Evidence("proved", "every word is reachable, for every size of ring", junk is None, figures={"but": junk}),
    ]
    return judge(every)
