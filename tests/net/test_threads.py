"""The lock for threads."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import peerlock.sync
from peerlock.errors import AlreadyHeld, LockLost, LockTimeout, NodeClosed, UsageError
from peerlock.net.threads import ThreadNode


@contextlib.contextmanager
def group(directory: Path, *names: str):  # type: ignore[no-untyped-def]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(peerlock.sync.join("g", dir=directory, name=name)) for name in names]


def test_threads_of_several_nodes_exclude_each_other(tmp_path: Path) -> None:
    inside, entries, fences = [], [], []

    def work(node: ThreadNode) -> None:
        lock = node.lock("x")
        for _ in range(200):
            with lock as hold:
                inside.append(1)
                assert len(inside) == 1
                fences.append(hold.fence)
                inside.pop()
                entries.append(1)

    with group(tmp_path, "a", "b", "c") as nodes:
        threads = [threading.Thread(target=work, args=(node,)) for node in nodes for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(entries) == 1800
    assert fences == sorted(set(fences))


def test_the_same_words(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b", "c") as (a, b, c):
        hold = a.lock("x").acquire()
        assert b.lock("x").try_acquire(patience_s=0.05) is None
        with pytest.raises(LockTimeout, match="never held"):
            b.lock("x").acquire(timeout=0.05)
        assert b.status().locks[0].holders[0].node.startswith("a")
        hold.release()
        with pytest.raises(UsageError, match="released before"):
            hold.release()
        with b.lock("x") as hold:
            hold.detach()
        assert hold.held
        hold.release()
        with a.rwlock("y").read(), b.rwlock("y").read():
            assert c.rwlock("y").write().try_acquire(patience_s=0.05) is None
        with a.lock_all(["q", "p"]) as holds:
            assert [hold.name for hold in holds] == ["p", "q"]
        with a.lock("x"), pytest.raises(AlreadyHeld, match="This thread"):
            a.lock("x").acquire()


def test_leaving_while_others_wait(tmp_path: Path) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        hold = a.lock("x").acquire()
        failed = []

        def wait() -> None:
            try:
                b.lock("x").acquire()
            except NodeClosed as problem:
                failed.append(str(problem))

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.1)
        b.leave()
        waiter.join(5)
        assert "never held" in failed[0]
        a.leave()
        assert hold.lost.is_set()
        with pytest.raises(LockLost):
            hold.check()
        with pytest.raises(NodeClosed, match="join again"):
            a.lock("x").acquire()


def test_an_exception_while_waiting_gives_the_ticket_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with group(tmp_path, "a", "b") as (a, b):
        hold = a.lock("x").acquire()
        lock = b.lock("x")

        class Interrupted:
            def acquire(self, timeout: float = -1) -> bool:
                raise KeyboardInterrupt

            def locked(self) -> bool:
                return True

            def release(self) -> None:
                pass

        before = lock._wait
        monkeypatch.setattr(lock, "_wait", lambda hold, gate, *more: before(hold, Interrupted(), *more))
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
        hold.release()
        assert a.lock("x").acquire(timeout=5).held


def test_asyncio_and_threads_in_one_group(tmp_path: Path) -> None:
    import asyncio

    async def other() -> None:
        async with peerlock.join("g", dir=tmp_path, name="aio") as node:
            for _ in range(50):
                async with node.lock("x"):
                    pass

    with group(tmp_path, "a") as (a,):
        thread = threading.Thread(target=lambda: asyncio.run(other()))
        thread.start()
        for _ in range(50):
            with a.lock("x"):
                pass
        thread.join(30)
        assert not thread.is_alive()


def test_without_a_descriptor_left_the_reader_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener stays readable as long as nobody accepts: whoever only tries again does nothing else."""
    tries, real, full = list[float](), socket.socket.accept, [True]

    def accept(self: socket.socket) -> Any:
        tries.append(time.monotonic())
        if full[0]:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with group(tmp_path, "a") as (first,), contextlib.ExitStack() as stack:
        joining = threading.Thread(target=lambda: stack.enter_context(peerlock.sync.join("g", dir=tmp_path, name="b")))
        joining.start()
        time.sleep(1.0)
        assert 1 <= len(tries) <= 5
        full[0] = False
        joining.join(20)
        assert not joining.is_alive()
        assert set(first.members) == {"a", "b"}
