"""Locks on bytes of files that last exactly as long as the process that took them.

Linux has two kinds of byte locks, and neither alone fits (docs/decisions/0010-liveness-locks.md):

- POSIX record locks belong to the process. Closing *any* descriptor of the file drops them: a
  backup of the home directory in the same process, a second copy of this library, `os.closerange`.
- Open-file-description (OFD) locks belong to the open file. They do not care about other
  descriptors, and two copies of the library in one process exclude each other. But a forked child
  shares the open file, and keeps the lock when its parent dies.

So a lock that is to last (`keep`) is an OFD lock whose open file has no descriptor any more, only a
mapping that is not given to forked children (`MADV_DONTFORK`). No descriptor can be closed or
inherited. The lock ends with the address space: when the process ends, however it ends, or executes
another program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import threading
import weakref
from typing import Any

from peerlock.errors import RegistryError

# struct flock, with 64-bit offsets: type, whence, start, length, pid (0 for an OFD lock)
FLOCK = struct.Struct("hhqqi")
# No other thread forks between the opening of a file and its `LivenessLock`: the child closes those
# that it knows.
forking = threading.RLock()
SET_OFD_LOCK = getattr(fcntl, "F_OFD_SETLK", None)
PROT_READ, MAP_PRIVATE, MADV_DONTFORK, PAGE = 1, 2, 10, 4096
FAILED = ctypes.c_void_p(-1).value

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def _failed() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


class LivenessLock:
    """An open file with OFD locks. It is closed when it is forgotten; in a forked child it is
    nothing.
    """

    pid, descriptor = 0, -1  # until it is made
    mapping: int | None = None

    def __init__(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.device, self.inode, self.owner = found.st_dev, found.st_ino, found.st_uid
        # Last: if a call above fails, the descriptor stays the caller's.
        self.pid, self.descriptor = os.getpid(), descriptor
        _open.add(self)

    def lock(self, byte: int, shared: bool = False) -> bool:
        """False: another open file has a lock on that byte which does not go together with this
        one.
        """
        if SET_OFD_LOCK is None:
            raise RegistryError("This system has no open-file-description locks: a group on one host needs Linux.")
        kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
        return self._set(kind, byte, 1)

    def _set(self, kind: int, start: int, length: int) -> bool:
        assert SET_OFD_LOCK is not None
        try:
            fcntl.fcntl(self.descriptor, SET_OFD_LOCK, FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True

    def keep(self) -> None:
        """From now on no descriptor holds the locks, but a mapping that forked children do not get."""
        where = libc.mmap(None, PAGE, PROT_READ, MAP_PRIVATE, self.descriptor, 0)
        if where == FAILED:
            raise _failed()
        if libc.madvise(where, PAGE, MADV_DONTFORK):
            problem = _failed()
            libc.munmap(where, PAGE)
            raise problem
        self.mapping = where
        with forking:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def is_at(self, path: Any) -> bool:
        """Does the path name this very file? The mapping, or the descriptor, keeps its inode from
        being used again.
        """
        try:
            found = os.stat(path, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)

    def close(self) -> None:
        """Give up the locks. In a forked child: nothing, for they are the parent's."""
        if os.getpid() != self.pid:
            return
        mapping, self.mapping = self.mapping, None
        if mapping is not None:
            libc.munmap(mapping, PAGE)
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            try:
                self.descriptor = descriptor
                self._set(fcntl.F_UNLCK, 0, 0)  # a child that was forked meanwhile has the file open, too
            finally:
                with forking:
                    self.descriptor = -1
                    os.close(descriptor)

    def __del__(self) -> None:
        self.close()


_open: weakref.WeakSet[LivenessLock] = weakref.WeakSet()


def _after_fork() -> None:
    """In the child: the descriptors that it has as well would keep the locks when the parent is
    dead.
    """
    for lock in list(_open):
        descriptor, lock.descriptor = lock.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
    _open.clear()
    forking.release()


os.register_at_fork(before=forking.acquire, after_in_parent=forking.release, after_in_child=_after_fork)
