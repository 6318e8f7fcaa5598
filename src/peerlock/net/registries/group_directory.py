"""The file system for the registry of one host: `node/membership/host.py` decides what is done,
this does it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from peerlock.net.attached.page import is_dead
from peerlock.net.files import make_for, write_all
from peerlock.net.processes.groups import end_process_groups
from peerlock.net.registries.liveness_lock import LivenessLock, forking
from peerlock.node.membership.files import DIRECTORIES, RECORD_BYTES

ATTACHED = b"attached "  # and the name of a directory: the member is a host node, and that is where its processes are
PROCESS_GROUP_BYTES = 2**20  # of a member's file, after its record: the process groups that work under its locks


class GroupDirectory:
    """`Files` in a directory.

    Every call names its file by path. A descriptor of the directory would be faster, and would be
    another file's after the program has closed descriptors that are not its own.
    """

    def __init__(self, directory: Path, shared: bool) -> None:
        self.directory, self.shared = directory, shared
        self.adopts = ""  # the directory of attached processes whose holds this member takes over
        # Other users of a shared directory read a member's file, to lock it. They do not write it:
        # it names processes.
        self.mode = 0o640 if shared else 0o600

    def make(self) -> None:
        make_for(self.directory, 0o2770 if self.shared else 0o700)
        new = [name for name in DIRECTORIES if make_for(self.directory / name, 0o2770 if self.shared else 0o700)]
        if new:  # else a loss of power could take the group with its epochs, and leave what they protect
            for directory in (self.directory, self.directory.parent):
                self.sync_directory(str(directory))

    def path(self, path: str) -> Path:
        return self.directory / path

    def names(self, directory: str) -> list[str]:
        return os.listdir(self.directory / directory)

    def exists(self, path: str) -> bool:
        try:
            os.lstat(self.directory / path)
        except FileNotFoundError:
            return False
        return True

    def read(self, path: str) -> bytes | None:
        descriptor = self._open(path, os.O_RDONLY)
        if descriptor is None:
            return None
        try:
            size = os.fstat(descriptor).st_size if path.startswith("views/") else RECORD_BYTES
            data = b""
            while len(data) < size and (more := os.pread(descriptor, size - len(data), len(data))):
                data += more
            return data
        finally:
            os.close(descriptor)

    def create(self, path: str) -> LivenessLock:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with forking:
            descriptor = os.open(self.directory / path, flags, self.mode)
            try:
                os.fchmod(descriptor, self.mode)
                return LivenessLock(descriptor)
            except BaseException:
                os.close(descriptor)
                self.unlink(path)
                raise

    def open(self, path: str) -> LivenessLock | None:
        with forking:
            descriptor = self._open(path, os.O_RDWR)
            if descriptor is None:
                return None
            try:
                return LivenessLock(descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    def _open(self, path: str, flags: int) -> int | None:
        """A regular file: a link or a pipe that another user of a shared directory puts there is no
        member's.
        """
        try:
            descriptor = os.open(self.directory / path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            if flags == os.O_RDONLY:
                raise
            return self._open(path, os.O_RDONLY)  # another user's: it can be locked shared, which is what probes do
        except OSError as problem:
            if isinstance(problem, FileNotFoundError):
                return None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return descriptor

    def lock(self, file: LivenessLock, byte: int, shared: bool = False) -> bool:
        return file.lock(byte, shared)

    def keep(self, file: LivenessLock) -> None:
        file.keep()

    def write(self, file: LivenessLock, data: bytes) -> None:
        write_all(file.descriptor, data)

    def sync(self, file: LivenessLock) -> None:
        os.fsync(file.descriptor)

    def close(self, file: LivenessLock) -> None:
        file.close()

    def is_at(self, file: LivenessLock, path: str) -> bool:
        return file.is_at(self.directory / path)

    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(self.directory / directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.rename(self.directory / old, self.directory / new)

    def link(self, old: str, new: str) -> bool:
        with contextlib.suppress(FileExistsError):
            os.link(self.directory / old, self.directory / new, follow_symlinks=False)
            return True
        return False

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.directory / path)

    def ended(self, file: LivenessLock) -> bool:
        """What worked under its locks has ended, or is ended now. What is attached to a host node is
        not ended: only the next host node may take its place, with what is held.
        """
        words = os.pread(file.descriptor, PROCESS_GROUP_BYTES, RECORD_BYTES).splitlines()
        for line in words:
            name = line.removeprefix(ATTACHED).decode(errors="replace")
            theirs = line.startswith(ATTACHED) and name != self.adopts and "/" not in name
            if theirs and has_living(self.directory / name / "pages"):
                return False
        groups = b"".join(line + b"\n" for line in words if not line.startswith(ATTACHED))
        return end_process_groups(groups, file.owner)

    def record_process_groups(self, path: str, words: bytes) -> None:
        """Write down the process groups that work under a member's locks."""
        descriptor = os.open(self.directory / path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            before = max(0, os.fstat(descriptor).st_size - RECORD_BYTES)
            # Written over what was there before anything is cut off: killed in between, we have
            # forgotten none.
            os.pwrite(descriptor, words.ljust(before, b"\n"), RECORD_BYTES)
            os.ftruncate(descriptor, RECORD_BYTES + len(words))
        finally:
            os.close(descriptor)


def has_living(pages: Path) -> bool:
    """Is one of the processes alive that have a page there, or something that worked under its locks?
    What cannot be looked at may be.
    """
    try:
        for path in [path for path in pages.iterdir() if not path.suffix]:
            with contextlib.suppress(FileNotFoundError):
                with forking:  # to lock it shared needs no more than to read it
                    lock = LivenessLock(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
                try:
                    if not is_dead(lock):
                        return True
                finally:
                    lock.close()
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    return False


__all__ = ["ATTACHED", "PROCESS_GROUP_BYTES", "GroupDirectory"]
