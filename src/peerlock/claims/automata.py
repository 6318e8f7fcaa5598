"""Finite automata, as far as the claims need them: learn, make small, compare, rewrite, print.

Words are strings of one-character letters. An automaton is deterministic; a letter without a
transition rejects. The languages here have a few dozen states, so clarity wins over speed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

State: TypeAlias = int
S = TypeVar("S", bound=Hashable)


class Automaton(Struct, frozen=True):
    """Starts in state 0."""

    edges: dict[tuple[State, str], State]
    accepting: frozenset[State]

    def run(self, word: str, start: State | None = 0) -> State | None:
        """Where the word leads to, or None."""
        state = start
        for letter in word:
            state = self.after(state, letter)
        return state

    def after(self, state: State | None, letter: str) -> State | None:
        return None if state is None else self.edges.get((state, letter))

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
    """The smallest automaton in which prefixes share a state if no known ending tells them apart.

    `member` says whether a word is in the language, None: not known. `words` are all known members,
    and their last letters, up to `window`, are the endings. Prefixes longer than `longest` are not
    looked at: if they are needed, the sample is too small, and that is an error. Words that are too
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
    """The minimal automaton of the same language, its states numbered breadth first."""
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
    """One step of an algorithm on words: at three places of a word, `was` becomes `becomes`.

    The word (first.was) x (inside.was) y (last.was) becomes (first.becomes) x (inside.becomes) y
    (last.becomes). With an empty `inside`, x y stays as it is.
    """

    name: str
    first: tuple[str, str] = ("", "")
    inside: tuple[str, str] = ("", "")
    last: tuple[str, str] = ("", "")


class Put(NamedTuple):
    """A state of an image."""

    phase: int  # 0 at the beginning, 1 before the inside, 2 in it, 3 after it, 4 at the end
    at: State  # in the source automaton
    left: str  # letters still to be put out


# Where a word leads to: in an image and a target; in a target, the images of rules and another
# automaton; in two automata.
Reached: TypeAlias = tuple[Put, State | None]
Places: TypeAlias = tuple[State, tuple[frozenset[Put], ...], State | None]
Pair: TypeAlias = tuple[State | None, State | None]


class Image:
    """What a rule makes of a language, as a nondeterministic automaton."""

    def __init__(self, automaton: Automaton, rule: Rule) -> None:
        self.source, self.rule = automaton, rule

    def start(self) -> frozenset[Put]:
        was, becomes = self.rule.first
        at = self.source.run(was)
        return frozenset() if at is None else self._settled(Put(0, at, becomes))

    def step(self, state: Put, letter: str) -> frozenset[Put]:
        phase, at, left = state
        if left:
            return self._settled(Put(phase, at, left[1:])) if left[0] == letter else frozenset()
        target = self.source.edges.get((at, letter)) if phase in (1, 3) else None
        return frozenset() if target is None else self._settled(Put(phase, target, ""))

    def accepts(self, state: Put) -> bool:
        return state.phase == 4 and not state.left

    def _settled(self, state: Put) -> frozenset[Put]:
        """All states that can be reached without putting out a letter."""
        found = [state]
        for one in found:
            if not one.left and (after := self._next_phase(one)) is not None:
                found.append(after)
        return frozenset(found)

    def _next_phase(self, state: Put) -> Put | None:
        inside, last = self.rule.inside, self.rule.last
        match state.phase:
            case 0:
                return Put(1, state.at, "")
            case 1 if inside[0]:
                target = self.source.run(inside[0], state.at)
                return None if target is None else Put(2, target, inside[1])
            case 1 | 2:
                return Put(3, state.at, "")
            case 3:
                target = self.source.run(last[0], state.at)
                return Put(4, target, last[1]) if target in self.source.accepting else None
        return None


def _shortest(
    first: Iterable[S], found: Callable[[S], bool], step: Callable[[S, str], Iterable[S]], letters: Sequence[str]
) -> str | None:
    """A shortest word that leads from a first state to one that is `found`; None: there is none."""
    came = dict.fromkeys(first, "")
    queue = list(came)
    for state in queue:
        if found(state):
            return came[state]
        for letter in letters:
            for new in step(state, letter):
                if new not in came:
                    came[new] = came[state] + letter
                    queue.append(new)
    return None


def escapes(automaton: Automaton, rule: Rule, target: Automaton) -> str | None:
    """A shortest word that `target` rejects and the rule makes of a word of `automaton`, if any."""
    image = Image(automaton, rule)

    def step(places: Reached, letter: str) -> list[Reached]:
        return [(new, target.after(places[1], letter)) for new in sorted(image.step(places[0], letter))]

    def rejected(places: Reached) -> bool:
        return image.accepts(places[0]) and places[1] not in target.accepting

    first: list[Reached] = [(state, 0) for state in sorted(image.start())]
    made = "".join(becomes for _, becomes in (rule.first, rule.inside, rule.last))
    return _shortest(first, rejected, step, sorted({*automaton.letters, *made, *target.letters}))


def uncovered(target: Automaton, images: Iterable[tuple[Automaton, Rule]], also: Automaton) -> str | None:
    """A shortest word of `target` that no rule makes and that is not in `also`, if any."""
    parts = [Image(automaton, rule) for automaton, rule in images]

    def missing(places: Places) -> bool:
        state, sets, other = places
        made = any(part.accepts(one) for part, some in zip(parts, sets, strict=True) for one in some)
        return state in target.accepting and not made and other not in also.accepting

    def step(places: Places, letter: str) -> list[Places]:
        state, sets, other = places
        following = target.edges.get((state, letter))
        if following is None:
            return []
        moved = tuple(
            frozenset(new for one in some for new in part.step(one, letter))
            for part, some in zip(parts, sets, strict=True)
        )
        return [(following, moved, also.after(other, letter))]

    first: Places = (0, tuple(part.start() for part in parts), 0)
    return _shortest([first], missing, step, target.letters)


def difference(one: Automaton, other: Automaton) -> str | None:
    """A shortest word that exactly one of them accepts; None: they are equal."""

    def step(pair: Pair, letter: str) -> list[Pair]:
        after = one.after(pair[0], letter), other.after(pair[1], letter)
        return [] if after == (None, None) else [after]

    def differ(pair: Pair) -> bool:
        return (pair[0] in one.accepting) != (pair[1] in other.accepting)

    first: Pair = (0, 0)
    return _shortest([first], differ, step, sorted({*one.letters, *other.letters}))


def drawn(automaton: Automaton) -> str:
    """A table of transitions, one line per state."""
    lines = []
    for state in automaton.states:
        by_target: dict[State, str] = {}
        for letter, target in automaton.following(state):
            by_target[target] = by_target.get(target, "") + letter
        arrows = ", ".join(f"{letters} -> {target}" for target, letters in by_target.items())
        lines.append(f"{'>' if state == 0 else ' '}{state:2}{'*' if state in automaton.accepting else ' '} {arrows}")
    return "\n".join(lines)
