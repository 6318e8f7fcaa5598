"""How long a message takes.

A model is a function of (source, to) that is called once a message, and its upper bound if it has
one. Written as text, `uniform:0.5,1.5`, it can be given on the command line and stands in the head
of a trace.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import TypeAlias

from msgspec import Struct

from peerlock.contract import NodeId
from peerlock.errors import UsageError

Draw: TypeAlias = Callable[[NodeId, NodeId], float]

LONGEST = 1e9

SYNTAX = (
    "constant:D, uniform:LEAST,MOST, exponential:MEAN, adversary:MOST (each message takes nearly nothing or MOST), "
    "matrix:FILE.json (a delay for every source and addressee)"
)


class Delay(Struct, frozen=True):
    """A delay model."""

    text: str
    bound: float | None  # no message takes longer; None: no such bound
    make: Callable[[Random], Draw]

    @property
    def is_constant(self) -> bool:
        return self.text.startswith("constant:")


def parse(text: str) -> Delay:
    """A delay model from its text; a number alone is a constant delay."""
    name, colon, rest = text.partition(":")
    if name == "matrix":
        return _matrix(text, rest)
    try:
        numbers = [float(part) for part in (rest if colon else name).split(",")]
    except ValueError:
        raise UsageError(f"{text!r} is not a delay. Use one of: {SYNTAX}.") from None
    _check(numbers, text)
    match name if colon else "constant", numbers:
        case "constant", [d]:
            return constant(d)
        case "uniform", [least, most]:
            if least > most:
                raise UsageError(f"{text!r}: the first number is the least, the second the most.")
            return uniform(least, most)
        case "exponential", [mean]:
            if not mean:
                raise UsageError(f"{text!r}: the mean must be above 0.")
            return exponential(mean)
        case "adversary", [most]:
            return adversary(most)
    raise UsageError(f"{text!r} is not a delay. Use one of: {SYNTAX}.")


def _check(numbers: Iterable[float], text: str) -> None:
    if not all(0 <= number <= LONGEST for number in numbers):
        raise UsageError(f"{text!r}: a delay is a number from 0 to {LONGEST:g}.")


def constant(d: float) -> Delay:
    return Delay(f"constant:{d:g}", d, lambda _: lambda source, to: d)


def uniform(least: float, most: float) -> Delay:
    def make(random: Random) -> Draw:
        draw, span = random.random, most - least
        return lambda source, to: least + span * draw()

    return Delay(f"uniform:{least:g},{most:g}", most, make)


def exponential(mean: float) -> Delay:
    def make(random: Random) -> Draw:
        draw, log = random.random, math.log
        return lambda source, to: -mean * log(1.0 - draw())

    return Delay(f"exponential:{mean:g}", None, make)


def adversary(most: float) -> Delay:
    """A network that reorders as much as a bound allows: half of the messages overtake all the
    others.
    """

    def make(random: Random) -> Draw:
        draw = random.random
        return lambda source, to: most if draw() < 0.5 else most * 0.01 * draw()

    return Delay(f"adversary:{most:g}", most, make)


def _matrix(text: str, path: str) -> Delay:
    try:
        table = json.loads(Path(path).read_text())
        matrix = {int(source): {int(to): float(d) for to, d in row.items()} for source, row in table.items()}
    except OSError as problem:
        raise UsageError(f"The delay matrix {path} cannot be read: {problem.strerror}.") from None
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'{path} is not a delay matrix: it must be JSON like {{"1": {{"2": 0.5}}, "2": {{"1": 3}}}}.'
        ) from None
    _check((d for row in matrix.values() for d in row.values()), text)
    if not any(matrix.values()):
        raise UsageError(f"{path} has no delays in it.")
    return per_link(matrix, text)


def per_link(matrix: Mapping[NodeId, Mapping[NodeId, float]], text: str = "matrix") -> Delay:
    """A delay of its own for every link and direction."""

    def draw(source: NodeId, to: NodeId) -> float:
        try:
            return matrix[source][to]
        except KeyError:
            raise UsageError(f"The delay matrix has no delay for messages from {source} to {to}.") from None

    return Delay(text, max(d for row in matrix.values() for d in row.values()), lambda _: draw)


def chosen_by(choose: Draw, bound: float | None = None, text: str = "chosen") -> Delay:
    """An adversary of your own: a function of (source, to), called once for every message in the
    order of sending.
    """
    return Delay(text, bound, lambda _: choose)
