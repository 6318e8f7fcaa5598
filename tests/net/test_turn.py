"""What a task awaits until its lock is granted behaves as a future of asyncio's own does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from peerlock.net.turn import Turn

TASKS: dict[str, Any] = {"asyncio's task in C": asyncio.Task, "in Python": asyncio.tasks._PyTask}  # type: ignore[attr-defined]


@pytest.fixture(params=TASKS)
def within(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a coroutine whose tasks are of that kind."""

    def run(main: Callable[[], Any]) -> None:
        with asyncio.Runner(debug=True) as runner:
            runner.get_loop().set_task_factory(
                lambda loop, coro, **words: TASKS[request.param](coro, loop=loop, **words)
            )
            runner.run(main())

    return run


async def waiting(turn: Turn, seen: list[Any]) -> None:
    seen.append("waits")
    try:
        await turn
    except BaseException as problem:
        seen.append(problem)
        raise
    seen.append(mark.get())


mark: ContextVar[str] = ContextVar("mark")


def test_a_task_goes_on_where_its_turn_has_come(within: Callable[..., None]) -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[Any]()
        turn = Turn(loop)
        mark.set("its own context")
        task = asyncio.create_task(waiting(turn, seen))
        await asyncio.sleep(0)
        assert seen == ["waits"]
        mark.set("another one")
        came = loop.create_future()

        def arrives() -> None:  # as from a socket
            turn.has_come()
            assert task.done()
            came.set_result(None)

        loop.call_soon(arrives)
        await came
        assert seen == ["waits", "its own context"]

    within(main)


def test_not_in_the_middle_of_another_task(within: Callable[..., None]) -> None:
    async def main() -> None:
        seen = list[Any]()
        turn = Turn(asyncio.get_running_loop())
        mark.set("later")
        task = asyncio.create_task(waiting(turn, seen))
        await asyncio.sleep(0)
        turn.has_come()
        assert seen == ["waits"]
        await task
        assert seen == ["waits", "later"]

    within(main)


def test_it_comes_with_a_problem(within: Callable[..., None]) -> None:
    async def main() -> None:
        turn, seen = Turn(asyncio.get_running_loop()), list[Any]()
        task = asyncio.create_task(waiting(turn, seen))
        await asyncio.sleep(0)
        turn.comes(KeyError("lost"))
        turn.comes()  # too late: it has come
        with pytest.raises(KeyError, match="lost"):
            await task

    within(main)


@pytest.mark.parametrize("granted", [False, True], ids=["while it waits", "when it was granted and has not run"])
def test_a_task_is_cancelled(within: Callable[..., None], granted: bool) -> None:
    async def main() -> None:
        turn, seen = Turn(asyncio.get_running_loop()), list[Any]()
        task = asyncio.create_task(waiting(turn, seen))
        await asyncio.sleep(0)
        if granted:
            turn.comes()
        task.cancel("enough")
        turn.has_come()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(seen[1], asyncio.CancelledError)
        assert seen[1].args == ("enough",)
        assert not turn.cancel()

    within(main)


def test_what_is_meant_for_the_loop_does_not_hit_the_reader(within: Callable[..., None]) -> None:
    tasks, went_on = list[asyncio.Task[None]](), list[bool]()

    async def exits(turn: Turn) -> None:
        await turn
        sys.exit(7)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turn = Turn(loop)

        def arrives() -> None:
            turn.has_come()
            went_on.append(True)

        tasks.append(asyncio.create_task(exits(turn)))
        await asyncio.sleep(0)
        loop.call_soon(arrives)
        await asyncio.sleep(5)

    with pytest.raises(SystemExit, match="7"):
        within(main)
    assert isinstance(tasks[0].exception(), SystemExit)
    assert went_on


EXITS = """
import asyncio, sys, peerlock
async def other():
    async with peerlock.join("g", dir=sys.argv[1], name="b") as node:
        hold = await node.lock("x").acquire()
        there.set()
        await asyncio.sleep(0.2)
        hold.release()
        await asyncio.sleep(10)
async def main():
    global there
    there = asyncio.Event()
    async with peerlock.join("g", dir=sys.argv[1], name="a") as node:
        task = asyncio.create_task(other())
        await there.wait()
        async with node.lock("x"):
            {act}
run = asyncio.run
if sys.argv[2] == "uvloop":
    import uvloop
    run = uvloop.run
run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("act", "code", "said"),
    [("sys.exit(7)", 7, ""), ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"), ("1 / 0", 1, "ZeroDivisionError")],
)
def test_what_a_body_raises_first_thing_ends_the_program(
    tmp_path: Path, loop: str, act: str, code: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITS.format(act=act), str(tmp_path), loop], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr.splitlines()[-1] if said else done.stderr == ""
