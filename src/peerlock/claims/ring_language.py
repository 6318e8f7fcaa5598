"""Dijkstra's open task: the states of his ring as words, and the genuine invariant that he asked for.

A ring state is written as a word that begins at the token, held or in transit, and runs to the right. A process is n, w or c
(noncritical, waiting, critical) if it is white and N, W or C if it is black. A connection is . (unused), s (a signal, to the
right) or t (the token, to the left). Who holds the token is the first letter; if nobody does, the first letter is the
connection that carries it: `c.w.Ns` is a ring of three whose first process is critical, `tw.W` one of two. All that differ by a
rotation of the ring are one word.

Three steps, all of them computations:

1. Learn the smallest automaton from the words of small rings, and compare it with all words of larger ones.
2. Take the algorithm itself, one process with its two connections, in every state and with every event, and write down what
   it does as rules that rewrite words (`rules`). No step of any rule may lead out of the language, and no word of the
   language may be one in which a process would put a second message on a connection. Then it is an invariant of every ring.
   (And the words of all initial states are in it.)
3. Give letters weights such that some rules only ever make words heavier. If every word of the language is the word of an
   initial state or is made by such a rule from a word of the language, then, by induction on the weight, every word is
   reachable. Then the language is exact: no word too many, none too few, for every size of ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from msgspec import Struct

from peerlock.algorithms import choose
from peerlock.algorithms.dijkstra_ring import Signal, Token
from peerlock.check.model import ANY, Model
from peerlock.check.properties import Checks, MutualExclusion
from peerlock.check.search import Search
from peerlock.claims.automata import Automaton, Rule, compiled, escapes, uncovered
from peerlock.contract import Effects, NodeId, Ring, Shape

PROCESSES = "nwcNWC"
SECTIONS = {"noncritical": "n", "waiting": "w", "critical": "c"}
INITIAL = "n.(n.)*"
# Under these weights a rule that is used to reach a word makes it heavier; any weights would do that let the check pass.
WEIGHTS = {".": 0, "s": 1, "t": 4, "n": 0, "w": 1, "c": 1, "N": 1, "W": 3, "C": 3}


def letter(process: object) -> str:
    """The letter of a process."""
    found = SECTIONS[getattr(process, "section")]  # noqa: B009 - of a Dijkstra ring, or of a mutant of it
    return found.upper() if getattr(process, "black") else found  # noqa: B009


def words(n: int) -> tuple[set[str], int]:
    """The words of all reachable states of a ring of n, whatever the number of entries; and how many states there are."""
    shapes: dict[NodeId, Shape] = {j: Ring((j - 2) % n + 1, j % n + 1, 1) for j in range(1, n + 1)}
    model = Model(choose("dijkstra-ring"), shapes, (ANY,) * n)
    search = Search(model, Checks([MutualExclusion(model)]))
    outcome = search.run(5_000_000)
    if not outcome.finished or outcome.violated:
        raise ValueError(f"the states of a ring of {n} are not finitely many, or two are critical in one")
    cells = [[_cell(model, at, cell) for cell in range(len(column.cells))] for at, column in enumerate(model.columns)]
    found: set[str] = set()
    for level in search.levels:
        columns = [column.tolist() for column in search.rows(level, slice(None))]
        found |= {_word([cells[at][cell] for at, cell in enumerate(row)]) for row in zip(*columns, strict=True)}
    return found, outcome.states


class _Cell(Struct, frozen=True):
    letter: str
    holds_token: bool
    signal: bool  # under way to it
    token: bool


def _cell(model: Model, at: int, cell: int) -> _Cell:
    process = model.local(at, cell).algorithm
    kinds = {type(one.message).__name__ for one in model.inbox(at, cell)}
    return _Cell(letter(process), process.holds_token, "Signal" in kinds, "Token" in kinds)


def _word(ring: list[_Cell]) -> str:
    """Connection number k is to the right of process number k: signals on it are for k + 1, the token for k."""
    n = len(ring)
    links = ["s" if ring[(at + 1) % n].signal else "t" if ring[at].token else "." for at in range(n)]
    text = "".join(cell.letter + link for cell, link in zip(ring, links, strict=True))
    held = [2 * at for at in range(n) if ring[at].holds_token]
    begin = held[0] if held else max(text.find("t"), 0)
    return text[begin:] + text[:begin]


# -- the algorithm as rules ----------------------------------------------------------------------------


class Collision(Struct, frozen=True):
    """A word like this must not be in the language: in it a process would break the rules of the ring."""

    what: str
    like: Rule


def rules() -> tuple[list[Rule], list[Collision]]:
    """What one process of the shipped algorithm does, in every state and with every event."""
    found: list[Rule] = []
    excluded: list[Collision] = []
    for process in PROCESSES:
        for holds in (True, False):
            for event in ("request", "release", "signal", "token"):
                if event == "request" and process not in "nN":
                    continue
                if event == "release" and process not in "cC":
                    continue
                if event == "token" and holds:
                    continue
                for one in _step(process, holds, event):
                    (found if isinstance(one, Rule) else excluded).append(one)  # type: ignore[arg-type]
    return found, excluded


def _step(process: str, holds: bool, event: str) -> Iterator[Rule | Collision]:
    name = f"{event} at {'the holder ' if holds else ''}{process}"
    spec = choose("dijkstra-ring")
    node = spec.start(2, Ring(1, 3, 1))
    node.section = next(section for section, short in SECTIONS.items() if short == process.lower())
    node.black, node.holds_token = process.isupper(), holds
    out = Effects()
    broken = "critical without the token" if event == "release" and not holds else ""
    try:
        after = copy(node)
        if event == "request":
            after.request("write", out)
        elif event == "release":
            after.release(out)
        else:
            kind = Signal() if event == "signal" else Token()
            after.receive(1 if event == "signal" else 3, _own(spec.algorithm, kind), out)
    except AssertionError as problem:
        broken = broken or str(problem) or "an assertion fails"
        after = node
    sent = [(to, type(message).__name__) for to, message in out.sent]
    signals, tokens = sent.count((3, "Signal")), sent.count((1, "Token"))
    strange = len(sent) - signals - tokens
    if (
        strange
        or signals > 1
        or tokens > 1
        or (tokens and after.holds_token)
        or (tokens and not holds and event != "token")
    ):
        broken = broken or "a message that must not be"
    yield from _on_words(
        name, process, letter(after), holds, event, bool(signals), bool(tokens), after.holds_token, broken
    )


def _own(algorithm: Any, message: Signal | Token) -> object:
    """A mutant is a module of its own, with messages of its own."""
    return algorithm.receive.__globals__[type(message).__name__]()


def _on_words(
    name: str, was: str, now: str, holds: bool, event: str, signal: bool, token: bool, has_token: bool, broken: str
) -> Iterator[Rule | Collision]:
    """The step as rules, one for each place in a word where it can happen."""
    if holds:
        # The first letter; its left connection is the last one, its right connection the second.
        arrived = "s" if event == "signal" else ""
        left = arrived or "."
        right = (".", "s") if signal else ("", "")
        if broken or not (has_token or token):
            yield Collision(broken or "the token is lost", Rule(name, (was, was), last=(arrived, arrived)))
        elif token:
            yield Rule(name, (was + right[0], "t" + now + right[1]), last=(left, ""))
            if not arrived:
                yield Collision("the token onto a signal", Rule(name, (was, was), last=("s", "s")))
        else:
            yield Rule(name, (was + right[0], now + right[1]), last=(arrived, "." if arrived else ""))
        if signal:
            yield Collision("a second signal", Rule(name, (was + "s", was + "s"), last=(arrived, arrived)))
    elif event == "token":
        # The last letter; the token is on its right connection, which is the first letter.
        right_after = "s" if signal else "."
        if broken or not (has_token or token):
            yield Collision(broken or "the token is lost", Rule(name, ("t", "t"), last=(was, was)))
        elif token:
            yield Rule(name, ("t", "t" + now + right_after), last=("." + was, ""))
            yield Collision("the token onto a signal", Rule(name, ("t", "t"), last=("s" + was, "s" + was)))
        else:
            yield Rule(name, ("t", now + right_after), last=(was, ""))
    else:
        before, then = ("s", ".") if event == "signal" else ("", "")
        for first in PROCESSES + "t":
            if broken or has_token:
                word = before + was
                yield Collision(broken or "a second token", Rule(name, (first, first), (word, word)))
            elif signal:
                yield Rule(name, (first, first), (before + was + ".", then + now + "s"))
                yield Collision("a second signal", Rule(name, (first, first), (before + was + "s", before + was + "s")))
                if first == "t":
                    end = before + was
                    yield Collision("a signal onto the token", Rule(name, ("t", "t"), last=(end, end)))
            else:
                yield Rule(name, (first, first), (before + was, then + now))


# -- the three checks ----------------------------------------------------------------------------------


NONE = Automaton({}, frozenset())


def leaves(language: Automaton) -> str | None:
    """A step that leads out of the language, or a word in which a process breaks the ring's rules; None: it is an invariant."""
    every, excluded = rules()
    for rule in every:
        word = escapes(language, rule, language)
        if word is not None:
            return f"{rule.name} leads to {word}"
    for collision in excluded:
        word = escapes(language, collision.like, NONE)
        if word is not None:
            return f"{collision.like.name} in {word}: {collision.what}"
    return None


def heavier(rule: Rule) -> bool:
    parts = (rule.first, rule.inside, rule.last)
    return sum(WEIGHTS[one] for _, becomes in parts for one in becomes) > sum(
        WEIGHTS[one] for was, _ in parts for one in was
    )


def unreachable(language: Automaton) -> str | None:
    """A word of the language that is not initial and that no rule which adds weight makes of another; None: all are made."""
    return uncovered(language, [(language, rule) for rule in rules()[0] if heavier(rule)], compiled(INITIAL))


def not_initial(language: Automaton) -> str | None:
    """The word of an initial state that is not in the language; None: all are."""
    return escapes(compiled(INITIAL), Rule("nothing happens"), language)
