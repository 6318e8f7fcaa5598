"""The progress of a command, on stderr: a bar on a terminal, one line per minute in a log.

A run of an hour that prints nothing looks like one that hangs. A command that ends within the first
minute leaves no line in a log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from peerlock.contract import Mode, NodeId
from peerlock.trace import Recorder

T = TypeVar("T")

LINE_EVERY_S = 60.0


def progress(items: Iterable[T], words: str, total: int) -> Iterator[T]:
    """The items; the bar counts them."""
    with bar(words, total) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def bar(words: str, total: int) -> Iterator[Callable[[int], None]]:
    """Call the result with the number of items done since the last call."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        show(words, done)

    with _shown(words, total) as show:
        yield advance


@contextmanager
def stepping(total: int) -> Iterator[Callable[[str], None]]:
    """The same for steps with names: call the result when a step begins."""
    begun = 0

    def step(words: str) -> None:
        nonlocal begun
        show(words, begun)
        begun += 1

    with _shown("", total) as show:
        yield step


@contextmanager
def _shown(words: str, total: int) -> Iterator[Callable[[str, int], None]]:
    err = Console(stderr=True)
    if not err.is_terminal:
        lines = Lines()
        yield lambda words, done: lines.tell(lambda: f"{words}: {done:,} of {total:,}{lines.left(done, total)}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as shown:
        task = shown.add_task(words, total=total)
        yield lambda words, done: shown.update(task, description=words, completed=done)


class Lines:
    """At most one line per minute."""

    def __init__(self) -> None:
        self.began = self.told = time.monotonic()

    def tell(self, line: Callable[[], str]) -> None:
        """Print the line, if it is time for one."""
        now = time.monotonic()
        if now - self.told >= LINE_EVERY_S:
            self.told = now
            print(f"{line()} ({(now - self.began) / 60:.0f} min so far)", file=sys.stderr, flush=True)

    def left(self, done: int, total: int) -> str:
        """The time for the rest at this pace, in words."""
        if not 0 < done < total:
            return ""
        return f", {(time.monotonic() - self.began) * (total - done) / done / 60:.0f} min left at this pace"


class Ticker(Recorder):
    """Advances a progress bar with every entry."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def entered(self, t: float, node: NodeId, mode: Mode) -> None:
        self.advance(1)
