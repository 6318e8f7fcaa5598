"""`peerlock.testing` ends every scenario: also one whose task polls, and one whose task refuses to be cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from peerlock.errors import UsageError
from peerlock.testing import Group, NothingHappens, run

FEW = 5_000  # turns; each test has its own reason to end


async def forever(pause_s: float) -> None:
    while True:
        await asyncio.sleep(pause_s)


def test_a_task_that_polls_is_ended() -> None:
    """In a process of its own: before, only a signal ended it."""
    program = (
        "import asyncio\nfrom peerlock.testing import run\n"
        "async def poll():\n    while True:\n        await asyncio.sleep(0)\nrun(poll(), limit_s=1)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 1
    assert "NothingHappens: After 1,000,000 turns of the event loop" in ended.stderr


def test_the_sentence_says_which_task_polls_and_what_to_do() -> None:
    async def polls_for_the_lock() -> None:
        group = Group()
        anna, ben = await group.join("anna"), await group.join("ben")
        hold = await anna.lock("x").acquire()
        while await ben.lock("x").try_acquire() is None:
            await asyncio.sleep(0)
        hold.release()

    with pytest.raises(NothingHappens) as found:
        run(polls_for_the_lock(), turns=FEW)
    words = str(found.value)
    assert "After 5,000 turns of the event loop" in words
    assert "polls_for_the_lock (test_testing.py:" in words
    assert "wait for an event instead of polling, or give run a larger turns=." in words


def test_virtual_time_ends_a_task_that_polls_now_and_then() -> None:
    with pytest.raises(NothingHappens, match=r"After 10\.\d* s of virtual time the scenario has not ended"):
        run(forever(0.01), limit_s=10)


async def stubborn(wait: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await wait()
        except asyncio.CancelledError:
            continue


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("pause_s", [0, 0.01, None])
def test_a_task_that_swallows_its_cancellation_is_ended(pause_s: float | None) -> None:
    wait = asyncio.Event().wait if pause_s is None else lambda: asyncio.sleep(pause_s)
    with pytest.raises(NothingHappens):
        run(stubborn(wait), limit_s=10, turns=FEW)


def test_a_scenario_that_ends_in_time_is_not_disturbed() -> None:
    async def works() -> float:
        for _ in range(FEW // 10):
            await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert run(works(), turns=FEW) == FEW // 10


@pytest.mark.parametrize(("name", "value"), [("limit_s", 0), ("limit_s", float("nan")), ("limit_s", "1"), ("turns", 0)])
def test_a_limit_that_is_none_is_refused(name: str, value: object) -> None:
    async def nothing() -> None:
        pass

    with pytest.raises(UsageError, match=f"{name} must be a number above 0; got {value!r}."):
        run(nothing(), **{name: value})  # type: ignore[arg-type]
