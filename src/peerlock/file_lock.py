"""A lock on a file that belongs to one process, and to none of the children that it forks.

`flock` locks an open file, and a forked child shares the open files of its parent. Two things
follow. To close the file does not give the lock up while a child lives, so `give_up` unlocks it
explicitly. And the lock of a process that is killed would pass to its children, so a forked child
drops its copies before it does anything else.

A POSIX lock (`fcntl`) has no copies in children. But it is lost as soon as any code of the process
closes the same file, and it does not keep the threads of one process apart. So `flock` is the
better of the two.

A child that C code forks behind Python's back, and that runs no other program, keeps its copies. It
matters only if its parent is killed while it has the lock: then the lock is free when that child
ends.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from peerlock.errors import RegistryError

_locked: set[int] = set()  # descriptors of ours
_forking = threading.RLock()  # nobody forks between the opening of a file and its entry in the set


def open_locked(path: str | Path, flags: int, mode: int = 0o600, *, wait: bool) -> int:
    """A descriptor of that file, locked. `BlockingIOError` if another one has the lock and we do
    not wait.
    """
    with _forking:
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
        _locked.add(fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        give_up(fd)
        raise
    return fd


def lock_for_one(path: Path, who: str) -> int:
    """The lock on a file beside `path`, which is never replaced: one process at a time is `who`."""
    try:
        return open_locked(f"{path}.lock", os.O_RDWR | os.O_CREAT, wait=False)
    except BlockingIOError:
        raise RegistryError(f"{who} runs already on this host ({path}.lock is taken).") from None
    except OSError as problem:
        raise RegistryError(f"{path}.lock cannot be opened and locked: {problem.strerror}.") from None


def give_up(fd: int) -> None:
    """Unlock and close it. In a forked child the lock stays as it is: it is the parent's."""
    if fd in _locked:
        fcntl.flock(fd, fcntl.LOCK_UN)
        _locked.discard(fd)
    os.close(fd)


def _after_fork() -> None:
    """In the child. The descriptors stay taken: code that goes on here may still close them."""
    if _locked:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in _locked:
            os.dup2(nothing, fd, inheritable=False)
        os.close(nothing)
        _locked.clear()
    _forking.release()


os.register_at_fork(before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_after_fork)

__all__ = ["give_up", "lock_for_one", "open_locked"]
