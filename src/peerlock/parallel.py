"""Work for several processes at once.

`multiprocessing.Pool` waits for ever if one of its processes is killed, and may do so when it is
closed. Here a killed process is an exception. If this process itself is killed, its workers end,
too; otherwise they would wait for their next job for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(
    work: Callable[[Job], Result], jobs: Iterable[Job], processes: int, *, lifetime: int | None = None, chunk: int = 1
) -> Iterator[Result]:
    """The result of each job, in order.

    A process gives its memory back only when it ends: with a `lifetime` the processes are replaced
    after so many jobs each.
    """
    left = list(jobs)
    while left:
        part = lifetime * processes if lifetime else len(left)
        now, left = left[:part], left[part:]
        with importing_nothing_from_here():
            pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_with_the_parent)
            try:
                results = pool.map(work, now, chunksize=chunk)  # all of them are started here
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        try:
            yield from results
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def importing_nothing_from_here() -> Iterator[None]:
    """Processes that multiprocessing starts meanwhile import nothing from the current directory.

    They run `python -c`, which looks there first, and another user's files may lie there. Once
    started they have the import path of this process.
    """
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _end_with_the_parent() -> None:
    def watch() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
