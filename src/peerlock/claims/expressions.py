"""Regular expressions as automata, by Brzozowski's derivatives.

The derivative of an expression by a letter is an expression for what may follow that letter. An
expression has finitely many derivatives up to the equalities that `either` and `then` know: these
are the states of its automaton.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from peerlock.claims.automata import Automaton, smallest


class Nothing(Struct, frozen=True):
    """No word."""


class Empty(Struct, frozen=True):
    """The word without letters."""


class Letter(Struct, frozen=True):
    letter: str


class Star(Struct, frozen=True):
    one: Tree


class Either(Struct, frozen=True):
    options: frozenset[Tree]


class Then(Struct, frozen=True):
    first: Tree
    second: Tree


Tree: TypeAlias = Nothing | Empty | Letter | Star | Either | Then


def compiled(text: str) -> Automaton:
    """The automaton of an expression with letters, `|`, `*`, `?`, brackets and parentheses."""
    tree, rest = _parse_either(text)
    if rest:
        raise ValueError(f"cannot read {rest!r}")
    found, edges = [tree], {}
    letters = sorted(set(text) - set("()|*?[]"))
    for at, state in enumerate(found):
        for letter in letters:
            after = derivative(state, letter)
            if after == Nothing():
                continue
            if after not in found:
                found.append(after)
            edges[at, letter] = found.index(after)
    return smallest(Automaton(edges, frozenset(at for at, state in enumerate(found) if has_empty(state))))


def _parse_either(text: str) -> tuple[Tree, str]:
    tree, text = _parse_row(text)
    options = [tree]
    while text.startswith("|"):
        tree, text = _parse_row(text[1:])
        options.append(tree)
    return either(options), text


def _parse_row(text: str) -> tuple[Tree, str]:
    result: Tree = Empty()
    while text and text[0] not in "|)":
        part: Tree
        if text[0] == "(":
            part, text = _parse_either(text[1:])
            if not text.startswith(")"):
                raise ValueError("a parenthesis is not closed")
            text = text[1:]
        elif text[0] == "[":
            inside, _, text = text[1:].partition("]")
            part = either(map(Letter, inside))
        else:
            part, text = Letter(text[0]), text[1:]
        while text and text[0] in "*?":
            part = Star(part) if text[0] == "*" else either([Empty(), part])
            text = text[1:]
        result = then(result, part)
    return result, text


def either(options: Iterable[Tree]) -> Tree:
    flat: set[Tree] = set()
    for tree in options:
        flat |= tree.options if isinstance(tree, Either) else {tree}
    flat.discard(Nothing())
    if len(flat) > 1:
        return Either(frozenset(flat))
    return next(iter(flat), Nothing())


def then(one: Tree, other: Tree) -> Tree:
    match one, other:
        case (Nothing(), _) | (_, Nothing()):
            return Nothing()
        case Empty(), _:
            return other
        case _, Empty():
            return one
        case Then(first, second), _:
            return Then(first, then(second, other))
    return Then(one, other)


def has_empty(tree: Tree) -> bool:
    """Is the word without letters one of its words?"""
    match tree:
        case Empty() | Star():
            return True
        case Either(options):
            return any(map(has_empty, options))
        case Then(first, second):
            return has_empty(first) and has_empty(second)
        case Nothing() | Letter():
            return False


def derivative(tree: Tree, letter: str) -> Tree:
    match tree:
        case Letter(own):
            return Empty() if own == letter else Nothing()
        case Either(options):
            return either(derivative(part, letter) for part in options)
        case Star(one):
            return then(derivative(one, letter), tree)
        case Then(first, second):
            after = then(derivative(first, letter), second)
            return either([after, derivative(second, letter)]) if has_empty(first) else after
        case Nothing() | Empty():
            return Nothing()
