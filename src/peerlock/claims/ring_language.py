"""Dijkstra's open task: his ring's states as words, and the genuine invariant that he asked for.

A ring state is written as a word that begins at the token, held or in transit, and runs to the
right. A process is n, w or c (noncritical, waiting, critical) if it is white and N, W or C if it is
black. A connection is . (unused), s (a signal, to the right) or t (the token, to the left). The
first letter is the process that holds the token, else the connection that carries it: `c.w.Ns` is a
ring of three whose first process is critical, `tw.W` one of two. States that differ by a rotation
of the ring are one word.

Three steps, all of them computations:

1. Learn the smallest automaton from the words of small rings, and compare it with all words of
   larger ones.
2. Take the algorithm itself, one process with its two connections, in every state and with every
   event, and write down what it does as rules that rewrite words (`rules`). No step of any rule may
   lead out of the language, the words of all initial states must be in it, and in no word of it may
   a process put a second message on a connection. Then the language is an invariant of every ring.
3. Give letters weights such that some rules only ever make words heavier. Let every word of the
   language be the word of an initial state, or be made by such a rule from a word of the language.
   Then, by induction on the weight, every word is reachable. Then the language is exact for every
   size of ring: no word too many, none too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from itertools import product
from types import FunctionType
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from peerlock.algorithms import choose
from peerlock.algorithms.dijkstra_ring import DijkstraRing, Message, Signal, Token
from peerlock.check.model import ANY, Model
from peerlock.check.properties import Checks, MutualExclusion
from peerlock.check.search import Search
from peerlock.claims.automata import Automaton, Rule, escapes, uncovered
from peerlock.claims.expressions import compiled
from peerlock.contract import Algorithm, Effects, NodeId, Ring, Shape

Happening: TypeAlias = Literal["request", "release", "signal", "token"]
PROCESSES = "nwcNWC"
SECTIONS = {"noncritical": "n", "waiting": "w", "critical": "c"}
INITIAL = "n.(n.)*"
# Under these weights a rule that is used to reach a word makes it heavier. Any weights would do
# that let the check pass.
WEIGHTS = {".": 0, "s": 1, "t": 4, "n": 0, "w": 1, "c": 1, "N": 1, "W": 3, "C": 3}


def letter(process: DijkstraRing) -> str:
    """The letter of a process."""
    found = SECTIONS[process.section]
    return found.upper() if process.black else found


def words(n: int) -> tuple[set[str], int]:
    """The words of all reachable states of a ring of n, and how many states there are."""
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
    kinds = {one.message.kind for one in model.inbox(at, cell)}
    return _Cell(letter(process), process.holds_token, "SIGNAL" in kinds, "TOKEN" in kinds)


def _word(ring: list[_Cell]) -> str:
    """Connection k is to the right of process k: signals on it are for k + 1, the token for k."""
    n = len(ring)
    links = ["s" if ring[(at + 1) % n].signal else "t" if ring[at].token else "." for at in range(n)]
    text = "".join(cell.letter + link for cell, link in zip(ring, links, strict=True))
    held = [2 * at for at in range(n) if ring[at].holds_token]
    begin = held[0] if held else max(text.find("t"), 0)
    return text[begin:] + text[:begin]


# -- the algorithm as rules ------------------------------------------------------------------------


class Collision(Struct, frozen=True):
    """The language must not have a word like this: in it a process breaks a rule of the ring."""

    what: str
    like: Rule


def rules() -> tuple[list[Rule], list[Collision]]:
    """What one process of the shipped algorithm does, in every state and with every event."""
    every = [
        one
        for process, holds, event in product(PROCESSES, (True, False), get_args(Happening))
        if _can_happen(process, holds, event)
        for one in _on_words(_step(process, holds, event))
    ]
    return [one for one in every if isinstance(one, Rule)], [one for one in every if isinstance(one, Collision)]


def _can_happen(process: str, holds: bool, event: Happening) -> bool:
    match event:
        case "request":
            return process in "nN"
        case "release":
            return process in "cC"
        case "token":
            return not holds
        case "signal":
            return True


class _Step(Struct, frozen=True):
    """What one process did at an event."""

    was: str  # the letter of the process before and after
    now: str
    held: bool  # the token, before and after
    holds: bool
    event: Happening
    signal: bool  # sent to the right
    token: bool  # sent to the left
    broken: str  # why the event must not happen here

    @property
    def name(self) -> str:
        return f"{self.event} at {'the holder ' if self.held else ''}{self.was}"


def _step(process: str, holds: bool, event: Happening) -> _Step:
    spec = choose("dijkstra-ring")
    node = spec.start(2, Ring(1, 3, 1))
    node.section = next(section for section, short in SECTIONS.items() if short == process.lower())
    node.black, node.holds_token = process.isupper(), holds
    out = Effects()
    broken = "critical without the token" if event == "release" and not holds else ""
    try:
        after = copy(node)
        match event:
            case "request":
                after.request("write", out)
            case "release":
                after.release(out)
            case "signal":
                after.receive(1, _own(spec.algorithm, Signal), out)
            case "token":
                after.receive(3, _own(spec.algorithm, Token), out)
    except AssertionError as problem:
        broken = broken or str(problem) or "an assertion fails"
        after = node
    sent = [(to, message.kind) for to, message in out.sent]
    signals, tokens = sent.count((3, "SIGNAL")), sent.count((1, "TOKEN"))
    strange = len(sent) > signals + tokens or signals > 1 or tokens > 1
    if strange or (tokens and (after.holds_token or not (holds or event == "token"))):
        broken = broken or "a message that must not be"
    return _Step(process, letter(after), holds, after.holds_token, event, bool(signals), bool(tokens), broken)


def _own(algorithm: type[Algorithm[Message]], kind: type[Message]) -> Message:
    """A message as the algorithm's own module has it: a mutant is a module of its own."""
    receive = algorithm.receive
    assert isinstance(receive, FunctionType)
    made: Message = receive.__globals__[kind.__name__]()
    return made


def _on_words(step: _Step) -> Iterator[Rule | Collision]:
    """The step as rules, one for each place in a word where it can happen."""
    name, was, now = step.name, step.was, step.now
    if step.held:
        # The first letter; its left connection is the last one, its right connection the second.
        arrived = "s" if step.event == "signal" else ""
        right = (".", "s") if step.signal else ("", "")
        if step.broken or not (step.holds or step.token):
            yield Collision(step.broken or "the token is lost", Rule(name, (was, was), last=(arrived, arrived)))
        elif step.token:
            yield Rule(name, (was + right[0], "t" + now + right[1]), last=(arrived or ".", ""))
            if not arrived:
                yield Collision("the token onto a signal", Rule(name, (was, was), last=("s", "s")))
        else:
            yield Rule(name, (was + right[0], now + right[1]), last=(arrived, "." if arrived else ""))
        if step.signal:
            yield Collision("a second signal", Rule(name, (was + "s", was + "s"), last=(arrived, arrived)))
    elif step.event == "token":
        # The last letter; the token is on its right connection, which is the first letter.
        right_after = "s" if step.signal else "."
        if step.broken or not (step.holds or step.token):
            yield Collision(step.broken or "the token is lost", Rule(name, ("t", "t"), last=(was, was)))
        elif step.token:
            yield Rule(name, ("t", "t" + now + right_after), last=("." + was, ""))
            yield Collision("the token onto a signal", Rule(name, ("t", "t"), last=("s" + was, "s" + was)))
        else:
            yield Rule(name, ("t", now + right_after), last=(was, ""))
    else:
        before, then = ("s", ".") if step.event == "signal" else ("", "")
        word = before + was
        for first in PROCESSES + "t":
            if step.broken or step.holds:
                yield Collision(step.broken or "a second token", Rule(name, (first, first), (word, word)))
            elif step.signal:
                yield Rule(name, (first, first), (word + ".", then + now + "s"))
                yield Collision("a second signal", Rule(name, (first, first), (word + "s", word + "s")))
                if first == "t":
                    yield Collision("a signal onto the token", Rule(name, ("t", "t"), last=(word, word)))
            else:
                yield Rule(name, (first, first), (word, then + now))


# -- the three checks ------------------------------------------------------------------------------

NONE = Automaton({}, frozenset())


def leaves(language: Automaton) -> str | None:
    """A step that leaves the language or breaks a rule of the ring; None: an invariant."""
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
    def weight(parts: Iterable[str]) -> int:
        return sum(WEIGHTS[one] for part in parts for one in part)

    was, becomes = zip(rule.first, rule.inside, rule.last, strict=True)
    return weight(becomes) > weight(was)


def unreachable(language: Automaton) -> str | None:
    """A word that is not initial and that no rule makes of a lighter word, if any."""
    return uncovered(language, [(language, rule) for rule in rules()[0] if heavier(rule)], compiled(INITIAL))


def not_initial(language: Automaton) -> str | None:
    """The word of an initial state that is not in the language; None: all are."""
    return escapes(compiled(INITIAL), Rule("nothing happens"), language)
