"""Where a host node and the processes attached to it meet: a directory that only their user can
enter.

    host                 The host node locks it for as long as it lives.
    starting             A process has just started a host node; the others wait for it.
    generations/N        One per incarnation of the host node, in order, and where it listens. It is put in its place by
                         link(2), so a number is never given twice.
    pages/ID             What an attached process is inside of; locked for as long as the process lives.
    pages/ID.host        What the host node has revoked for it.
    hands/ID             A datagram socket. Other processes hand numbers over to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import msgspec
from msgspec import structs

from peerlock.errors import RegistryError
from peerlock.net.files import check_shared, directory_for, make_for, make_private, write_all
from peerlock.net.processes.groups import stat_of
from peerlock.net.registries.liveness_lock import LivenessLock, forking
from peerlock.node.attached.chain import ProcessId

KEPT_GENERATIONS = 4


class Generation(msgspec.Struct, frozen=True):
    """One incarnation of the host node."""

    socket: str
    pid: int = 0
    start: str = ""  # when the process was started, in the kernel's words
    service: bool = False  # it was started by `peerlock node`, and not on demand
    number: int = 0


_generation = msgspec.json.Decoder(Generation)


def start_of(pid: int) -> str:
    return stat_of(pid)[19]


def is_stopped(host: Generation) -> bool:
    """By a signal, or by a debugger."""
    found = stat_of(host.pid)
    return found[0] in "Tt" and found[19] == host.start


class AttachedDirectory:
    """Of one group, host and user."""

    def __init__(self, group: str, directory: str | Path | None = None) -> None:
        if directory is None:
            self.group_directory = directory_for(group)
            self.path = self.group_directory / "attached"
        else:
            check_shared(Path(directory))
            self.group_directory = Path(directory).absolute() / group
            self.path = self.group_directory / f"attached-{os.geteuid()}"
        self.shared = directory is not None

    def make(self) -> None:
        try:
            if self.shared:
                make_for(self.group_directory, 0o2770)
            else:
                make_private(self.group_directory)
            for name in ("", "generations", "pages", "hands"):
                # Other users of a shared directory may see whether a process lives: nothing else is theirs to look at.
                with contextlib.suppress(FileExistsError):
                    (self.path / name).mkdir(mode=0o700)
                    if self.shared and name in ("", "pages"):
                        (self.path / name).chmod(0o2750)
            found = os.lstat(self.path)
        except OSError as problem:
            raise RegistryError(f"{self.path} cannot be used: {problem.strerror}.") from None
        if found.st_uid != os.geteuid() or found.st_mode & (0o027 if self.shared else 0o077):
            raise RegistryError(f"{self.path} can be entered by others: remove it, or run: chmod go-w,o-rx {self.path}")

    def page(self, process: ProcessId) -> Path:
        return self.path / "pages" / f"{process:016x}"

    def hands(self, process: ProcessId) -> Path:
        return self.path / "hands" / f"{process:016x}"

    def processes(self) -> list[ProcessId]:
        """That have a page."""
        found = []
        for path in (self.path / "pages").iterdir():
            with contextlib.suppress(ValueError):
                found.append(int(path.name, 16))
        return found

    def remove(self, process: ProcessId) -> None:
        """The process is dead."""
        page = self.page(process)
        for path in (self.hands(process), page.with_suffix(".host"), page):
            path.unlink(missing_ok=True)

    def sweep_hands(self, living: set[ProcessId]) -> None:
        """Sockets of processes that have no page any more."""
        for path in (self.path / "hands").iterdir():
            with contextlib.suppress(ValueError):
                process = int(path.name, 16)
                if process not in living and not self.page(process).exists():
                    path.unlink(missing_ok=True)

    # -- generations -----------------------------------------------------------------------------------

    def lock_host(self) -> LivenessLock | None:
        """For the life of a host node. None: there is one."""
        with forking:
            lock = LivenessLock(os.open(self.path / "host", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not lock.lock(0):
            lock.close()
            return None
        lock.keep()
        (self.path / "starting").unlink(missing_ok=True)
        return lock

    def may_start(self, pause_s: float) -> bool:
        """True for one process: the others wait for what it starts, but for no longer than that."""
        path = self.path / "starting"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if 0 <= time.time() - path.stat().st_mtime < pause_s:
                    return False
                os.utime(path)
        return True

    def has_host(self) -> bool:
        found = locked(self.path / "host")
        return found is None and (self.path / "host").exists()

    def generations(self) -> list[int]:
        return sorted(int(path.name) for path in (self.path / "generations").iterdir() if path.name.isdigit())

    def begin(self, where: Path, service: bool = False) -> int:
        """A new generation, which listens there. Durable."""
        place = self.path / "generations"
        draft = place / f"draft-{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            made = Generation(str(where), os.getpid(), start_of(os.getpid()), service)
            write_all(descriptor, msgspec.json.encode(made))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            while True:
                known = self.generations()
                number = known[-1] + 1 if known else 1
                with contextlib.suppress(FileExistsError):
                    os.link(draft, place / str(number))
                    break
        finally:
            draft.unlink()
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for old in known[:-KEPT_GENERATIONS]:
            (place / str(old)).unlink(missing_ok=True)
        return number

    def newest(self) -> Generation | None:
        for number in reversed(self.generations()):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                said = (self.path / "generations" / str(number)).read_bytes()
                return structs.replace(_generation.decode(said), number=number)
        return None

    def signal_host(self, generation: Generation, number: signal.Signals) -> None:
        """If it lives, and is the newest one. Its process number may be another process's by now, so
        the process is held before that is looked at.
        """
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(generation.pid)
            try:
                if self.has_host() and self.newest() == generation and start_of(generation.pid) == generation.start:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)


def locked(path: Path) -> LivenessLock | None:
    """A shared lock on that file: no process has it for itself. None: one has, or there is no file."""
    try:
        with forking:
            lock = LivenessLock(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return None
    if lock.lock(0, shared=True):
        return lock
    lock.close()
    return None


__all__ = ["AttachedDirectory", "locked"]
