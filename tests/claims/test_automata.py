"""Automata, beside brute force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerlock.claims.automata import Automaton, Rule, difference, drawn, escapes, learn, smallest, uncovered
from peerlock.claims.expressions import compiled

WORDS = ["".join(letters) for length in range(7) for letters in product("ab", repeat=length)]


def automata() -> st.SearchStrategy[Automaton]:
    def build(targets: list[int], accepting: list[bool]) -> Automaton:
        n = len(accepting)
        edges = {
            (at, letter): target
            for (at, letter), target in zip(product(range(n), "ab"), targets, strict=False)
            if target < n
        }
        return Automaton(edges, frozenset(at for at, is_so in enumerate(accepting) if is_so))

    sizes = st.integers(1, 5)
    return sizes.flatmap(
        lambda n: st.builds(
            build,
            st.lists(st.integers(0, n), min_size=2 * n, max_size=2 * n),
            st.lists(st.booleans(), min_size=n, max_size=n),
        )
    )


def expression(automaton: Automaton) -> str:
    """A regular expression for an automaton, by elimination of states, cheapest first."""
    end = -1
    arcs: dict[tuple[int, int], str] = {}
    for (source, letter), target in sorted(automaton.edges.items()):
        arcs[source, target] = _either(arcs.get((source, target)), letter)
    for state in automaton.accepting:
        arcs[state, end] = ""
    states = [state for state in automaton.states if state != 0]
    arcs[-2, 0] = ""
    states.append(0)
    while states:
        state = min(states, key=lambda at: _price(arcs, at))
        states.remove(state)
        loop = _star(arcs.pop((state, state), None))
        before = {source: text for (source, target), text in arcs.items() if target == state}
        after = {target: text for (source, target), text in arcs.items() if source == state}
        arcs = {key: text for key, text in arcs.items() if state not in key}
        for source, left in before.items():
            for target, right in after.items():
                through = _grouped(left) + loop + _grouped(right)
                arcs[source, target] = _either(arcs.get((source, target)), through)
    return arcs.get((-2, end), "")


def _price(arcs: dict[tuple[int, int], str], state: int) -> int:
    into = [text for (source, target), text in arcs.items() if target == state and source != state]
    out = [text for (source, target), text in arcs.items() if source == state and target != state]
    return (
        sum(map(len, into)) * len(out)
        + sum(map(len, out)) * len(into)
        + len(arcs.get((state, state), "")) * len(into) * len(out)
    )


def _either(one: str | None, other: str) -> str:
    return other if one is None else f"{one}|{other}"


def _top_level_or(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and not depth:
            return True
    return False


def _grouped(text: str) -> str:
    return f"({text})" if _top_level_or(text) else text


def _star(text: str | None) -> str:
    if text is None:
        return ""
    return f"{text}*" if len(text) == 1 else f"({text})*"


def applied(rule: Rule, word: str) -> Iterator[str]:
    """Every word that a rule can make of a word."""
    (a, b), (c, d), (e, f) = rule.first, rule.inside, rule.last
    if not (word.startswith(a) and word.endswith(e) and len(word) >= len(a) + len(e)):
        return
    middle = word[len(a) : len(word) - len(e)]
    if not c:
        yield b + middle + f
        return
    for at in range(len(middle) - len(c) + 1):
        if middle.startswith(c, at):
            yield b + middle[:at] + d + middle[at + len(c) :] + f


@given(automata())
@settings(max_examples=150, deadline=None)
def test_a_smaller_automaton_and_its_expression_mean_the_same(one: Automaton) -> None:
    small = smallest(one)
    assert len(small.states) <= max(1, len(one.states))
    assert difference(one, small) is None
    if small.accepting:
        again = compiled(expression(small)) if expression(small) else compiled("")
        assert [word for word in WORDS if again.accepts(word)] == [word for word in WORDS if one.accepts(word)]


rules = st.builds(
    lambda a, b, c, d, e, f: Rule("some", (a, b), (c, d), (e, f)), *[st.text("ab", max_size=2) for _ in range(6)]
)


@given(automata(), automata(), rules)
@settings(max_examples=200, deadline=None)
def test_what_a_rule_makes_of_a_language(one: Automaton, other: Automaton, rule: Rule) -> None:
    made = {new for word in WORDS if one.accepts(word) for new in applied(rule, word)}
    found = escapes(one, rule, other)
    outside = [word for word in made if not other.accepts(word)]
    if found is None:
        assert not outside
    else:
        assert not other.accepts(found)
        if outside:
            assert len(found) <= min(map(len, outside))
    missing = uncovered(other, [(one, rule)], Automaton({}, frozenset()))
    if missing is not None:
        assert other.accepts(missing)
        assert missing not in made
    else:
        # Words of up to 3 letters come from words of up to 3 + 6.
        longer = ["".join(letters) for length in range(10) for letters in product("ab", repeat=length)]
        every = {new for word in longer if one.accepts(word) for new in applied(rule, word) if len(new) <= 3}
        assert all(word in every for word in WORDS if len(word) <= 3 and other.accepts(word))


def test_learning() -> None:
    """Words of even length with an even number of a: learned from those of up to 8 letters."""
    target = compiled("(bb|aa|(ab|ba)(bb|aa)*(ab|ba))*")
    known = {
        word
        for word in map("".join, (w for n in (2, 4, 6, 8) for w in product("ab", repeat=n)))
        if target.accepts(word)
    }
    found = learn(lambda word: word in known if len(word) in (2, 4, 6, 8) else None, known, window=3, longest=5)
    for length in (2, 4, 6, 8, 10):
        assert found.words(length) == target.words(length)
    with pytest.raises(ValueError, match="does not decide"):
        learn(lambda word: word in known if len(word) in (2, 4, 6, 8) else None, known, window=3, longest=0)


def test_expressions() -> None:
    one = compiled("a(b|[ab]a)*b?")
    assert one.accepts("a")
    assert one.accepts("abaab")
    assert not one.accepts("ba")
    with pytest.raises(ValueError, match="not closed"):
        compiled("(a")
    assert ">" in drawn(one)
