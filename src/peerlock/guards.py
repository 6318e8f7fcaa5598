"""Resources that refuse a late holder.

A process can be stopped between its last look at the hold and its write. No lock can help there,
only the resource can. Each hold has a fence, and of two holds that exclude each other the later one
has the larger fence. So a resource that remembers the largest fence it has seen, and refuses
smaller ones, is never changed by a process whose lock was granted to another one since.

**Show the fence when you begin, not only when you write.** A holder that reads and then writes must
be the last one to have read. If the resource hears of a new holder only with its write, a late
holder can still write between the new holder's read and write, and that late write is lost. So a
holder first takes the resource with its fence.

    with node.lock("orders") as hold:
        data = guarded.take(hold.fence)  # from now on earlier holders are refused
        ...
        guarded.write(hold.fence, changed)

`GuardedFile` is for files. For SQL databases one condition in the statement is enough
(`examples/guards/sql.py`), for a service one comparison (`examples/guards/http_service.py`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from peerlock.errors import StaleFence, UsageError, shown
from peerlock.file_lock import give_up, open_locked

HEAD = b"peerlock fence "


class GuardedFile:
    """A file with a fence in its first line. All processes must write it through this class.

    The comparison and the write happen under a lock of the file system. If a process is stopped
    there, the others wait: nothing is lost. If it is killed there, the lock is free, even if a
    forked child lives on. The lock lies beside the file itself, so it is the same for all links to
    the file. A network file system without such locks gives no protection.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
            raise UsageError(f"A GuardedFile needs the path of a file; got {shown(path)}.")
        self.path = Path(path)

    def read(self) -> tuple[int, bytes]:
        """The fence of the last `take` or `write`, and the contents; 0 and nothing if there was
        none.
        """
        return self._read(self.path)

    def _read(self, path: Path) -> tuple[int, bytes]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return 0, b""
        head, newline, body = data.partition(b"\n")
        if not newline or not head.startswith(HEAD) or not head[len(HEAD) :].isdigit():
            raise UsageError(f"{self.path} has no fence in its first line: it was not written by a GuardedFile.")
        return int(head[len(HEAD) :]), body

    def take(self, fence: int) -> bytes:
        """The contents. From now on a smaller fence is refused. `StaleFence` if a larger one was
        seen before.
        """
        self._check(fence)
        with self._alone() as path:
            last, data = self._read(path)
            self._compare(fence, last)
            if fence > last:
                self._replace(path, fence, data)
            return data

    def write(self, fence: int, data: bytes) -> None:
        """Replace the contents. `StaleFence` if a larger fence was seen before: nothing is changed
        then.
        """
        self._check(fence, data)
        with self._alone() as path:
            self._compare(fence, self._read(path)[0])
            self._replace(path, fence, data)

    def _check(self, fence: int, data: bytes = b"") -> None:
        """Before anything is touched: a fence that cannot be read again would make the file
        useless.
        """
        if not isinstance(fence, int) or isinstance(fence, bool) or fence < 0:
            raise UsageError(f"A fence is the whole number hold.fence; got {shown(fence)}.")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"A GuardedFile holds bytes; got {type(data).__name__}. Nothing was written.")

    def _compare(self, fence: int, last: int) -> None:
        if fence < last:
            raise StaleFence(
                f"{self.path} was taken with fence {last}, and this is {fence}: the lock has had another holder since. "
                "Nothing was written."
            )

    def _replace(self, path: Path, fence: int, data: bytes) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}.new")
        with draft.open("wb") as stream:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
            stream.write(HEAD + str(fence).encode() + b"\n" + data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Path]:
        """The path of the file (a link stays a link), while no other process compares or writes."""
        path = self.path.resolve()
        fd = open_locked(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o666, wait=True)
        try:
            yield path
        finally:
            give_up(fd)


__all__ = ["GuardedFile"]
