"""The page of an attached process: two mapped files. One is written by the process, the other one by
its host node, and each side maps the other's file.

Both sides write and then read: a process marks that it is inside and then looks whether its number
was revoked; the host node revokes and then looks at the mark. A processor may do a read before an
earlier write of its own is seen elsewhere. So the host node puts a barrier between its two
(`membarrier(2)`, on all processors that run a registered process), and no process needs one.

Mapped files can fail with a signal where a disk is full. So the room is allocated first, and what
is rarely written (the names of the locks) is written with a system call.
"""

from __future__ import annotations

import ctypes
import os
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

from peerlock.errors import RegistryError
from peerlock.net.files import write_all
from peerlock.net.processes.groups import end_process_groups
from peerlock.net.registries.liveness_lock import FAILED, MADV_DONTFORK, PROT_READ, LivenessLock, forking, libc
from peerlock.node.attached.chain import Number, ProcessId
from peerlock.node.attached.pages import SLOTS

PROT_WRITE, MAP_SHARED = 2, 1
MAGIC = b"peerlock page 1\n"
HEAD = 4096  # bytes; the liveness lock is on the first one
GROUPS, GROUP_BYTES = 1024, 3072  # in the head: the process groups that work under locks of the process
WORDS = 8 * SLOTS
NAME = 1024  # bytes of a slot's name
MEMBARRIER = {"x86_64": 324, "aarch64": 283}.get(platform.machine())
QUERY, GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED = 0, 2, 4

libc.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_uint, ctypes.c_int)


def membarrier(command: int) -> int:
    if MEMBARRIER is None:
        raise OSError(0, f"no barrier for processors of the kind {platform.machine()}")
    found = int(libc.syscall(MEMBARRIER, command, 0, 0))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def register() -> None:
    """This process takes part in the host node's barriers."""
    try:
        if not membarrier(QUERY) & GLOBAL_EXPEDITED:
            raise OSError(0, "the kernel has no expedited barriers (Linux 4.16 has)")
        membarrier(REGISTER_GLOBAL_EXPEDITED)
    except OSError as problem:
        raise RegistryError(
            f'This process cannot be attached to a host node ({problem.strerror}): join with share="never".'
        ) from None


def _unmap(where: int, size: int, pid: int) -> None:
    if os.getpid() == pid:
        libc.munmap(where, size)


def mapped(descriptor: int, size: int, *, write: bool) -> memoryview:
    """A file as memory, until no part of it is used any more. It needs no descriptor, and forked
    children do not get it.
    """
    where = libc.mmap(None, size, PROT_READ | PROT_WRITE if write else PROT_READ, MAP_SHARED, descriptor, 0)
    if where == FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    libc.madvise(where, size, MADV_DONTFORK)
    memory = (ctypes.c_ubyte * size).from_address(where)
    weakref.finalize(memory, _unmap, where, size, os.getpid()).atexit = False
    return memoryview(memory).cast("B")


def words(memory: memoryview, first: int) -> memoryview:
    return memory[first : first + WORDS].cast("Q")


def _make(path: Path, size: int, mode: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        os.posix_fallocate(descriptor, 0, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class OwnPage:
    """As the process sees it. The process is alive for the others as long as `alive` is locked."""

    def __init__(self, path: Path, shared: bool = False) -> None:
        """`shared`: other users may see whether this process lives."""
        self.path, self.host_path = path, path.with_suffix(".host")
        register()
        with forking:
            descriptor = _make(path, HEAD + 2 * WORDS, 0o640 if shared else 0o600)
            self.alive = LivenessLock(descriptor)
        try:
            if not self.alive.lock(0):
                raise RegistryError(f"{path} is locked by another process.")
            write_all(descriptor, MAGIC)
            own = mapped(descriptor, HEAD + 2 * WORDS, write=True)
            self.alive.keep()
            descriptor = _make(self.host_path, HEAD + 2 * WORDS, 0o600)
            try:
                host = mapped(descriptor, HEAD + 2 * WORDS, write=False)
            finally:
                os.close(descriptor)
        except BaseException:
            self.close()
            raise
        self.inside, self.accepted = words(own, HEAD), words(own, HEAD + WORDS)
        self.revoked, self.signals = words(host, HEAD), words(host, HEAD + WORDS)

    def open(self, slot: int, lock: str, algorithm: int) -> None:
        self.inside[slot] = self.accepted[slot] = 0
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as problem:
            raise RegistryError(
                f"{self.path} cannot be used ({problem.strerror}): the directory of the group was removed, moved or closed to "
                "this process. Leave the group, and join again."
            ) from None
        try:
            os.pwrite(descriptor, f"{algorithm} {lock}".encode().ljust(NAME, b"\0"), HEAD + 2 * WORDS + NAME * slot)
        finally:
            os.close(descriptor)

    def record_process_groups(self, words: bytes) -> None:
        """They must be gone before a lock of this process is another's."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, words.ljust(GROUP_BYTES, b"\0"), GROUPS)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Nothing is held any more. The files go first: then the process is dead for the others."""
        if os.getpid() != self.alive.pid:
            return
        for path in (self.path, self.host_path):
            path.unlink(missing_ok=True)
        self.alive.close()


def is_dead(page: LivenessLock) -> bool:
    """Nothing of the process that has that page can go on."""
    if not page.lock(0, shared=True):
        return False
    return end_process_groups(os.pread(page.descriptor, GROUP_BYTES, GROUPS).rstrip(b"\0"), page.owner)


class HostPage:
    """The same, as the host node sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with forking:
            self.lock = LivenessLock(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
        descriptor = os.open(path.with_suffix(".host"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if min(os.fstat(each).st_size for each in (self.lock.descriptor, descriptor)) < HEAD + 2 * WORDS:
                raise RegistryError(f"{path} is too short for a page.")
            own = mapped(self.lock.descriptor, HEAD + 2 * WORDS, write=False)
            host = mapped(descriptor, HEAD + 2 * WORDS, write=True)
        finally:
            os.close(descriptor)
        self.inside, self.accepted = words(own, HEAD), words(own, HEAD + WORDS)
        self.revoked, self.signals = words(host, HEAD), words(host, HEAD + WORDS)

    def is_dead(self) -> bool:
        """Its process has ended, or executes another program, or has left; and what worked under its
        locks has ended, or is ended now.
        """
        return is_dead(self.lock)

    def slots(self) -> Iterator[tuple[int, str, int]]:
        """Those that are in use: the lock, and its algorithm."""
        with self.path.open("rb") as file:
            file.seek(HEAD + 2 * WORDS)
            for slot in range(SLOTS):
                algorithm, _, lock = file.read(NAME).rstrip(b"\0").decode().partition(" ")
                if lock:
                    yield slot, lock, int(algorithm)

    def close(self) -> None:
        self.lock.close()


class HostPages:
    """Those of all attached processes."""

    def __init__(self) -> None:
        self.pages: dict[ProcessId, HostPage] = {}

    def marks(self, process: ProcessId, slot: int) -> tuple[int, Number]:
        page = self.pages[process]
        return page.inside[slot], page.accepted[slot]

    def signal(self, process: ProcessId, slot: int, number: Number) -> None:
        page = self.pages[process]
        if page.signals[slot] < number:
            page.signals[slot] = number

    def revoke(self, process: ProcessId, slot: int, number: Number) -> int:
        page = self.pages[process]
        page.revoked[slot] = max(page.revoked[slot], number)
        self.signal(process, slot, number)
        membarrier(GLOBAL_EXPEDITED)
        return page.inside[slot]

    def close(self, process: ProcessId) -> None:
        page = self.pages.pop(process, None)
        if page is not None:
            page.close()


__all__ = ["HostPage", "HostPages", "OwnPage", "is_dead"]
