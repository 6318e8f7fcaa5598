"""One host: a process that is late between two of its system calls, and what the others do meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerlock.net.registries.host import HostRegistry
from processes import Member, members

IDLE_S = 1.5  # after so long without a hold a node stops believing
SOON_S = 0.5  # to take a lock; not long enough for another node to be suspected
SETTLED_S = 2.0  # for a second holder to come, if one comes
LATE = "delay_enter=60000000"  # until strace is ended


class Traced:
    """strace, attached to a process: something happens to the first of these calls."""

    def __init__(self, member: Member, calls: str, fault: str, log: Path, *more: str) -> None:
        self.log, self.calls = log, calls.replace("?", "").split(",")
        self.process = subprocess.Popen(
            ["strace", "-f", "-q", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}:when=1", *more,
             "-p", str(member.process.pid)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        status = Path(f"/proc/{member.process.pid}/status")
        wait(lambda: not re.search(r"^TracerPid:\t0$", status.read_text(), re.MULTILINE))

    def begun(self) -> bool:
        """The call was entered."""
        return self.log.exists() and any(f"{call}(" in self.log.read_text() for call in self.calls)

    def end(self) -> None:
        """The call goes on."""
        self.process.terminate()
        self.process.wait()


def wait(true: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


@contextlib.contextmanager
def traced(member: Member, calls: str, fault: str, log: Path, *more: str) -> Iterator[Traced]:
    made = Traced(member, calls, fault, log, *more)
    try:
        yield made
    finally:
        made.end()


def file_of(member: Member, directory: Path) -> Path:
    (found,) = [path for path in directory.glob("g/members/*") if b'"%s"' % member.name.encode() in path.read_bytes()]
    return found


def answered(member: Member) -> bool:
    assert member.process.stdout is not None
    return bool(select.select([member.process.stdout], [], [], 0.0)[0])


def idle_after_a_hold(member: Member) -> int:
    """The lock was its last, so it needs nobody's word to take it again; and it does not believe any more."""
    fence: int = member.ask("acquire", "x")["fence"]
    member.ask("release", "x")
    time.sleep(IDLE_S)
    return fence


def one_after_the_other(first: Member, second: Member, before: int) -> None:
    """The first one gets the lock. The second one has asked as well, and gets it later."""
    fence = first.answer()["fence"]
    time.sleep(SETTLED_S)
    assert not answered(second), "two holders"
    first.ask("release", "x")
    assert before < fence < second.answer()["fence"]


@pytest.mark.slow
def test_a_node_that_is_excluded_while_it_takes_its_lock_is_granted_nothing(tmp_path: Path) -> None:
    """b is late between asking to hold and the file lock that says so. It reads the view after it has that lock.

    a has decided a view without b, and is killed before it removes the file of b. So that file says nothing.
    """
    with members(tmp_path, "a", "b", "c") as (a, b, c), contextlib.ExitStack() as stack:
        before = idle_after_a_hold(b)
        file = file_of(b, tmp_path)
        b_is_late = stack.enter_context(traced(b, "fcntl", LATE, tmp_path / "b"))
        stack.enter_context(traced(a, "?unlink,unlinkat", "signal=SIGKILL", tmp_path / "a", "-P", str(file)))
        b.tell("acquire", "x")
        wait(b_is_late.begun)
        a.tell("acquire", "x")  # b does not answer, and does not hold
        a.process.wait(20.0)
        c.tell("acquire", "x")
        wait(lambda: answered(c))
        b_is_late.end()
        one_after_the_other(c, b, before)


@pytest.mark.slow
def test_a_node_that_is_about_to_be_excluded_cannot_hold_any_more(tmp_path: Path) -> None:
    """a is late between its proof that b does not hold and the view without b. b takes its lock in between."""
    with members(tmp_path, "a", "b") as (a, b), contextlib.ExitStack() as stack:
        before = idle_after_a_hold(b)
        b_is_late = stack.enter_context(traced(b, "fcntl", LATE, tmp_path / "b"))
        a_is_late = stack.enter_context(traced(a, "?link,linkat,?rename,renameat,renameat2", LATE, tmp_path / "a"))
        b.tell("acquire", "x")
        wait(b_is_late.begun)
        a.tell("acquire", "x")  # b does not answer, and does not hold
        wait(a_is_late.begun)
        b_is_late.end()
        time.sleep(SOON_S)
        a_is_late.end()
        one_after_the_other(a, b, before)


def present(tmp_path: Path, *names: str) -> list[HostRegistry]:
    """Registries of nodes that want to be members."""
    made = [HostRegistry("g", name, tmp_path) for name in names]
    for registry in made:
        registry.incarnate()
        for listener in registry.listeners():
            listener.close()
    return made


def test_an_incarnation_that_was_excluded_is_not_admitted_again(tmp_path: Path) -> None:
    """b was taken into a view, and excluded from the next one before it heard of either: its wish to join is gone with it."""
    made = a, b = present(tmp_path, "a", "b")
    assert a.me is not None
    assert b.me is not None
    first = a.change()
    assert first is not None
    assert first.members == tuple(sorted([a.me, b.me]))
    second, stay = a.exclude((b.me,))
    assert second is not None
    assert (second.members, stay) == ((a.me,), ())
    third = a.change(True)
    assert third is not None
    assert (third.epoch, third.members) == (second.epoch + 1, (a.me,))
    for registry in made:
        registry.close()


def test_a_view_of_an_epoch_that_was_removed_long_ago_is_not_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """a is so late with its view that the views of that epoch and of many after it were decided and removed."""
    with members(tmp_path, "b"):
        made = a, c = present(tmp_path, "a", "c")
        first = a.change()
        assert first is not None
        (b,) = [peer for peer in first.members if peer.name == "b"]
        link, many = os.link, 40

        def late(*words: Any, **more: Any) -> None:
            monkeypatch.setattr(os, "link", link)
            for _ in range(many):
                c.change(True)
            link(*words, **more)

        monkeypatch.setattr(os, "link", late)
        view, stay = a.exclude((b,))
        assert view is not None
        assert view.epoch > first.epoch + many
        assert b not in view.members, "its files are gone"
        assert not stay
        for registry in made:
            registry.close()
