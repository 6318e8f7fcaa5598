"""Breadth first over the states of a protocol that is no `Model`: a plain loop over objects, for
protocols of some steps each.

States are told apart by 64 bits of their key. If there is a `goal`, every state must have a way to
it that takes no fault: else the protocol can come to where it stands still for ever.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from peerlock.check.search import Outcome, Progress

S = TypeVar("S")


class BreadthFirst(ABC, Generic[S]):
    no_way = "the group goes on"  # the property that a state without a way to the goal violates

    @abstractmethod
    def first(self) -> S: ...

    @abstractmethod
    def key(self, state: S) -> Hashable:
        """Equal for two states from which the same can happen."""

    @abstractmethod
    def steps(self, state: S) -> Iterator[tuple[S, bool]]:
        """The states that follow, and whether the step is a fault."""

    @abstractmethod
    def violated(self, state: S) -> str | None:
        """The property that this state violates, in words."""

    def goal(self, state: S) -> bool | None:
        """Is this where the protocol wants to get? None: it has no goal."""
        return None

    def run(self, max_states: int | None = None, progress: Progress | None = None) -> Outcome:
        began, outcome = time.monotonic(), Outcome(exact=False)
        first = self.first()
        numbers, level = {hash(self.key(first)): 0}, [first]
        goals, before = list[int](), dict[int, list[int]]()  # numbers of states; those from which a step leads there
        while level:
            following: list[S] = []
            for number, state in enumerate(level, outcome.states):
                outcome.violated = self.violated(state)
                if outcome.violated or (max_states and number >= max_states):
                    outcome.states, outcome.seconds = number + 1, time.monotonic() - began
                    return outcome
                goal = self.goal(state)
                if goal:
                    goals.append(number)
                for after, fault in self.steps(state):
                    outcome.transitions += 1
                    key = hash(self.key(after))
                    if key not in numbers:
                        numbers[key] = len(numbers)
                        following.append(after)
                    if goal is not None and not fault:
                        before.setdefault(numbers[key], []).append(number)
            outcome.states += len(level)
            outcome.depth += 1
            outcome.seconds = time.monotonic() - began
            if progress:
                progress(outcome)
            level = following
        if goals or before:
            outcome.violated = None if len(reach(goals, before)) == outcome.states else self.no_way
        outcome.finished = True
        outcome.collision_bound = outcome.states**2 / 2 / 2**61  # hash() has 61 bits
        return outcome


def reach(goals: Iterable[int], before: dict[int, list[int]]) -> set[int]:
    """All states with a way to one of these."""
    found = set(goals)
    edge = list(found)
    while edge:
        new = {number for at in edge for number in before.get(at, ())} - found
        found |= new
        edge = list(new)
    return found
