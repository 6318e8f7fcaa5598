"""Finite automata, as far as the claims need them: learn one, make it small, compare, rewrite, and print it.

Words are strings of one-character letters. An automaton is deterministic; a letter without a transition rejects. Everything
here works on languages of a few dozen states, so clarity wins over speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

State = int
Edges = Mapping[tuple[State, str], State]


class Automaton(Struct, frozen=True):
    """Starts in state 0."""

    edges: dict[tuple[State, str], State]
    accepting: frozenset[State]

    def run(self, word: str, start: State | None = 0) -> State | None:
        """Where the word leads to, or None."""
        state = start
        for letter in word:
            if state is None:
                return None
            state = self.edges.get((state, letter))
        return state

    def accepts(self, word: str) -> bool:
        return self.run(word) in self.accepting

    @property
    def states(self) -> list[State]:
        return sorted({0, *self.edges.values(), *(state for state, _ in self.edges)})

    @property
    def letters(self) -> list[str]:
        return sorted({letter for _, letter in self.edges})

    def words(self, length: int) -> set[str]:
        """All accepted words of that length."""
        found = {("", 0)}
        for _ in range(length):
            found = {
                (word + letter, target)
                for word, at in found
                for (state, letter), target in self.edges.items()
                if state == at
            }
        return {word for word, state in found if state in self.accepting}

    def following(self, state: State) -> list[tuple[str, State]]:
        return [(letter, target) for (source, letter), target in sorted(self.edges.items()) if source == state]


def learn(member: Callable[[str], bool | None], words: Iterable[str], window: int, longest: int) -> Automaton:
    """The smallest automaton in which two prefixes share a state if no ending of up to `window` letters tells them apart.

    `member` says whether a word is in the language, None: not known. `words` are all known members. Prefixes longer than
    `longest` are never looked at: if they would be needed, the sample is too small, and that is an error. Words that are too
    short to be known may be accepted.
    """
    sample = sorted(words)
    prefixes = {word[:at] for word in sample for at in range(len(word) + 1)}
    endings = sorted({word[len(word) - at :] for word in sample for at in range(window + 1) if at <= len(word)})

    def alike(one: str, other: str) -> bool:
        if len(one) % 2 != len(other) % 2:
            return False
        told = [(member(one + ending), member(other + ending)) for ending in endings]
        known = [(a, b) for a, b in told if a is not None and b is not None]
        return bool(known) and all(a == b for a, b in known)

    found, edges, accepting = [""], {}, set()
    letters = sorted(set("".join(sample)))
    for state, word in enumerate(found):
        for letter in letters:
            longer = word + letter
            if longer not in prefixes:
                continue
            same = next((at for at, known in enumerate(found) if alike(longer, known)), None)
            if same is None:
                if len(longer) > longest:
                    raise ValueError(f"the sample does not decide what follows {longer!r}")
                same = len(found)
                found.append(longer)
            edges[state, letter] = same
            if member(longer):
                accepting.add(same)
    return smallest(Automaton(edges, frozenset(accepting)))


def smallest(automaton: Automaton) -> Automaton:
    """The minimal automaton of the same language, states numbered breadth first; states that lead nowhere are left out."""
    useful = set(automaton.accepting)
    while more := {state for (state, _), target in automaton.edges.items() if target in useful} - useful:
        useful |= more
    edges = {edge: target for edge, target in automaton.edges.items() if target in useful and edge[0] in useful}
    block = {state: int(state in automaton.accepting) for state in useful | {0}}
    while True:
        look = {
            state: (
                block[state],
                tuple((letter, block.get(edges.get((state, letter), -1), -1)) for letter in automaton.letters),
            )
            for state in block
        }
        numbers = {key: number for number, key in enumerate(dict.fromkeys(look.values()))}
        finer = {state: numbers[look[state]] for state in block}
        if len(set(finer.values())) == len(set(block.values())):
            break
        block = finer
    order, merged = [block[0]], {(block[state], letter): block[target] for (state, letter), target in edges.items()}
    for at in order:
        for (source, _), target in sorted(merged.items()):
            if source == at and target not in order:
                order.append(target)
    number = {name: at for at, name in enumerate(order)}
    return Automaton(
        {(number[source], letter): number[target] for (source, letter), target in merged.items() if source in number},
        frozenset(number[block[state]] for state in automaton.accepting if block.get(state) in number),
    )


class Rule(Struct, frozen=True):
    """One step of an algorithm on words: at the beginning, somewhere inside and at the end, `was` becomes `becomes`.

    The word (first.was) x (inside.was) y (last.was) becomes (first.becomes) x (inside.becomes) y (last.becomes). An empty
    `inside` means that nothing happens there. `shortest` letters must remain between beginning and end.
    """

    name: str
    first: tuple[str, str] = ("", "")
    inside: tuple[str, str] = ("", "")
    last: tuple[str, str] = ("", "")

    def applied(self, word: str) -> Iterator[str]:
        """Every word that this step can make of a word."""
        (a, b), (c, d), (e, f) = self.first, self.inside, self.last
        if not (word.startswith(a) and word.endswith(e) and len(word) >= len(a) + len(e)):
            return
        middle = word[len(a) : len(word) - len(e)]
        if not c:
            yield b + middle + f
            return
        for at in range(len(middle) - len(c) + 1):
            if middle.startswith(c, at):
                yield b + middle[:at] + d + middle[at + len(c) :] + f


class Put(NamedTuple):
    """A state of an image: 0 at the beginning, 1 before the inside, 2 in it, 3 after it, 4 at the end."""

    phase: int
    at: State  # in the source automaton
    left: str  # letters still to be put out


class Image:
    """What a rule makes of a language, as a nondeterministic automaton: states are read off lazily."""

    def __init__(self, automaton: Automaton, rule: Rule) -> None:
        self.automaton, self.rule = automaton, rule

    def words_like(self) -> tuple[set[Put], Callable[[Put, str], set[Put]], Callable[[Put], bool]]:
        """(start states, step, accepts). A state is (phase, where in the source automaton, letters still to be put out)."""
        (a, b), (c, d), (e, f) = self.rule.first, self.rule.inside, self.rule.last
        source = self.automaton

        def settle(states: set[Put]) -> set[Put]:
            """All states that can be reached without putting out a letter."""
            work, seen = list(states), set(states)
            while work:
                phase, at, left = work.pop()
                more: list[Put] = []
                if not left:
                    if phase == 0:
                        more.append(Put(1, at, ""))
                    elif phase == 1:
                        if not c:
                            more.append(Put(3, at, ""))
                        else:
                            target = source.run(c, at)
                            if target is not None:
                                more.append(Put(2, target, d))
                    elif phase == 2:
                        more.append(Put(3, at, ""))
                    elif phase == 3:
                        target = source.run(e, at)
                        if target is not None and target in source.accepting:
                            more.append(Put(4, target, f))
                for state in more:
                    if state not in seen:
                        seen.add(state)
                        work.append(state)
            return seen

        def step(state: Put, letter: str) -> set[Put]:
            phase, at, left = state
            if left:
                return settle({Put(phase, at, left[1:])}) if left[0] == letter else set()
            if phase in (1, 3):
                target = source.edges.get((at, letter))
                if target is not None:
                    return settle({Put(phase, target, "")})
            return set()

        first = source.run(a)
        start: set[Put] = settle({Put(0, first, b)}) if first is not None else set()
        return start, step, lambda state: state[0] == 4 and not state[2]


def escapes(automaton: Automaton, rule: Rule, target: Automaton) -> str | None:
    """A shortest word that the rule makes of a word of `automaton` and that `target` rejects; None: there is none."""
    start, step, done = Image(automaton, rule).words_like()
    made = "".join(becomes for _, becomes in (rule.first, rule.inside, rule.last))
    return _first_difference([(start, step, done)], target, [*automaton.letters, *made])


def uncovered(target: Automaton, images: Iterable[tuple[Automaton, Rule]], also: Automaton) -> str | None:
    """A shortest word of `target` that no rule makes and that is not in `also`; None: all are made."""
    parts = [Image(automaton, rule).words_like() for automaton, rule in images]
    letters = target.letters
    first = (0, tuple(frozenset(start) for start, _, _ in parts), 0)
    came: dict[Any, str] = {first: ""}
    queue: list[tuple[State, tuple[frozenset[Put], ...], State | None]] = [first]
    for state, sets, other in queue:
        word = came[state, sets, other]
        made = any(done(one) for (_, _, done), some in zip(parts, sets, strict=True) for one in some)
        if state in target.accepting and not made and other not in also.accepting:
            return word
        for letter in letters:
            following = target.edges.get((state, letter))
            if following is None:
                continue
            moved = tuple(
                frozenset(new for one in some for new in step(one, letter))
                for (_, step, _), some in zip(parts, sets, strict=True)
            )
            beside = None if other is None else also.edges.get((other, letter))
            key = (following, moved, beside)
            if key not in came:
                came[key] = word + letter
                queue.append(key)
    return None


def _first_difference(
    parts: list[tuple[set[Put], Callable[[Put, str], set[Put]], Callable[[Put], bool]]],
    target: Automaton,
    letters: Iterable[str],
) -> str | None:
    """A shortest word that one of the nondeterministic automata accepts and `target` does not."""
    alphabet = sorted(set(letters) | set(target.letters))
    first = [(at, state, 0) for at, (start, _, _) in enumerate(parts) for state in sorted(start, key=repr)]
    came: dict[Any, str] = dict.fromkeys(first, "")
    queue: list[tuple[int, Put, State | None]] = list(first)
    for at, state, other in queue:
        _, step, done = parts[at]
        word = came[at, state, other]
        if done(state) and other not in target.accepting:
            return word
        for letter in alphabet:
            beside = None if other is None else target.edges.get((other, letter))
            for new in sorted(step(state, letter), key=repr):
                if (at, new, beside) not in came:
                    came[at, new, beside] = word + letter
                    queue.append((at, new, beside))
    return None


def difference(one: Automaton, other: Automaton) -> str | None:
    """A shortest word that exactly one of them accepts; None: they are equal."""
    queue: list[tuple[State | None, State | None]] = [(0, 0)]
    came = {queue[0]: ""}
    for a, b in queue:
        if (a in one.accepting) != (b in other.accepting):
            return came[a, b]
        for letter in sorted({*one.letters, *other.letters}):
            pair = (
                None if a is None else one.edges.get((a, letter)),
                None if b is None else other.edges.get((b, letter)),
            )
            if pair not in came and pair != (None, None):
                came[pair] = came[a, b] + letter
                queue.append(pair)
    return None


# -- expressions ----------------------------------------------------------------------------------------


def expression(automaton: Automaton) -> str:
    """A regular expression by elimination of states, cheapest first; `|` is or, `*` any number, brackets one of."""
    end = -1
    arcs: dict[tuple[State, State], str] = {}
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


def _price(arcs: dict[tuple[State, State], str], state: State) -> int:
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


def compiled(text: str) -> Automaton:
    """The automaton of an expression with letters, `|`, `*`, `?`, brackets and parentheses (Brzozowski's derivatives)."""
    tree, rest = _parse_or(text)
    if rest:
        raise ValueError(f"cannot read {rest!r}")
    found, edges = [tree], {}
    letters = sorted(set(text) - set("()|*?[]"))
    for at, state in enumerate(found):
        for letter in letters:
            after = _derived(state, letter)
            if after == NOTHING:
                continue
            if after not in found:
                found.append(after)
            edges[at, letter] = found.index(after)
    return smallest(Automaton(edges, frozenset(at for at, state in enumerate(found) if _empty(state))))


Tree: TypeAlias = tuple[Any, ...]
NOTHING: Tree = ("nothing",)
EMPTY: Tree = ("empty",)


def _parse_or(text: str) -> tuple[Tree, str]:
    options = []
    tree, text = _parse_row(text)
    options.append(tree)
    while text.startswith("|"):
        tree, text = _parse_row(text[1:])
        options.append(tree)
    return _or(options), text


def _parse_row(text: str) -> tuple[Tree, str]:
    result = EMPTY
    while text and text[0] not in "|)":
        if text[0] == "(":
            part, text = _parse_or(text[1:])
            if not text.startswith(")"):
                raise ValueError("a parenthesis is not closed")
            text = text[1:]
        elif text[0] == "[":
            inside, _, text = text[1:].partition("]")
            part = _or([("letter", letter) for letter in inside])
        else:
            part, text = ("letter", text[0]), text[1:]
        while text and text[0] in "*?":
            part = ("star", part) if text[0] == "*" else _or([EMPTY, part])
            text = text[1:]
        result = _then(result, part)
    return result, text


def _or(options: list[Tree]) -> Tree:
    flat: set[Tree] = set()
    for tree in options:
        flat |= set(tree[1]) if tree[0] == "or" else {tree}
    flat.discard(NOTHING)
    if not flat:
        return NOTHING
    return next(iter(flat)) if len(flat) == 1 else ("or", frozenset(flat))


def _then(one: Tree, other: Tree) -> Tree:
    if NOTHING in (one, other):
        return NOTHING
    if one == EMPTY:
        return other
    if other == EMPTY:
        return one
    if one[0] == "then":
        return ("then", one[1], _then(one[2], other))
    return ("then", one, other)


def _empty(tree: Tree) -> bool:
    match tree[0]:
        case "empty" | "star":
            return True
        case "or":
            return any(_empty(part) for part in tree[1])
        case "then":
            return _empty(tree[1]) and _empty(tree[2])
    return False


def _derived(tree: Tree, letter: str) -> Tree:
    match tree[0]:
        case "letter":
            return EMPTY if tree[1] == letter else NOTHING
        case "or":
            return _or([_derived(part, letter) for part in tree[1]])
        case "star":
            return _then(_derived(tree[1], letter), tree)
        case "then":
            one: Tree = tree[1]
            other: Tree = tree[2]
            first = _then(_derived(one, letter), other)
            return _or([first, _derived(other, letter)]) if _empty(one) else first
    return NOTHING


def drawn(automaton: Automaton) -> str:
    """A table of transitions, one line a state."""
    lines = []
    for state in automaton.states:
        by_target: dict[State, str] = {}
        for letter, target in automaton.following(state):
            by_target[target] = by_target.get(target, "") + letter
        arrows = ", ".join(f"{letters} -> {target}" for target, letters in by_target.items())
        lines.append(f"{'>' if state == 0 else ' '}{state:2}{'*' if state in automaton.accepting else ' '} {arrows}")
    return "\n".join(lines)
