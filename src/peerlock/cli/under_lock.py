"""Running a command while a lock is held: signals, the terminal, and its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from types import FrameType
from typing import NoReturn

from peerlock.errors import LockLost, PeerlockError
from peerlock.net.processes.groups import Guardian

LOST = 75  # exit code
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
GRACE_S = 5.0  # between TERM and KILL when the lock is lost
PR_SET_PDEATHSIG = 1


class Held:
    """The lock of a command."""

    fence: int
    channel: int  # becomes readable when the lock is lost
    leased = False  # another process may have the lock the moment it is lost
    guardian: Guardian | None = None

    def record_process_groups(self, group: int) -> None:
        raise NotImplementedError

    def lost(self) -> str | None:
        """The channel is readable. Why the lock is lost; None: it is not."""
        raise NotImplementedError

    def pending(self) -> bool:
        """Is there a message that has been read from the channel already?"""
        return False

    def guard(self, group: int, until: float) -> Callable[[float], None]:
        """End the command's process group at that time, on the clock that counts suspensions. Call
        the result to move it.
        """
        self.guardian = Guardian(group)
        self.guardian.must_end_at(until)
        return self.guardian.must_end_at

    def dismiss(self) -> None:
        """The command has ended."""
        if self.guardian is not None:
            self.guardian.dismiss()

    def remaining(self) -> float:
        """Seconds for which the lock is certainly held."""
        return inf


def under_lock(command: list[str], held: Held, name: str) -> int:
    """Run the command and return its exit status. It starts once its process group is recorded, so
    that it can be ended.
    """
    ready, go = os.pipe()
    environment = {**os.environ, "PEERLOCK_LOCK": name, "PEERLOCK_FENCE": str(held.fence)}
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the exit status is lost
    terminal = Terminal()
    parent = os.getpid()
    libc = ctypes.CDLL(None)
    child = os.fork()
    if not child:
        become(command, environment, ready, go, parent, libc)
    os.close(ready)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    try:
        held.record_process_groups(child)
        with forwarding(child, terminal):
            if terminal.alone:
                terminal.give(child)
            if held.remaining() <= 0:
                raise LockLost(f"The lock {name} was lost before the command began.")
            os.write(go, b"!")
            os.close(go)
            ended = watch(child, held)
    except BaseException:
        signal_group(child, signal.SIGKILL)  # whatever went wrong: the command must not go on
        raise
    finally:
        terminal.take_back()
    held.dismiss()
    with contextlib.suppress(PeerlockError, OSError):
        held.record_process_groups(0)  # if the node with the record is still there
    return ended


def become(
    command: list[str], environment: dict[str, str], ready: int, go: int, parent: int, libc: ctypes.CDLL
) -> NoReturn:
    """In the child: wait for permission to start, then become the command."""
    code = 126
    try:
        os.close(go)
        os.setpgid(0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent or os.read(ready, 1) != b"!":
            os._exit(LOST)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and its child inherits that
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        code = 127
        os.write(2, f"peerlock: {command[0]}: command not found\n".encode())
    except OSError as problem:
        os.write(2, f"peerlock: {command[0]}: {problem.strerror}\n".encode())
    finally:
        os._exit(code)


def watch(child: int, held: Held) -> int:
    """Wait until the command ends, or end it when the lock is lost. The exit code."""
    watched = os.pidfd_open(child)
    deadline: float | None = None
    first = held.remaining()
    try:
        while True:
            wait = 0.0 if held.pending() else None
            wait = wait if deadline is None else max(0.0, deadline - time.monotonic())
            if deadline is None and first < inf:
                wait = min(0.05, wait or 0.05)
                left = held.remaining()
                if 0 < left < first / 3:
                    # The lease was not renewed three times. TERM gives the command the rest of the
                    # lease to end.
                    signal_group(child, signal.SIGTERM)
                    deadline = time.monotonic() + left
                    with contextlib.suppress(OSError):
                        print(f"peerlock: the lock is lost in {left:.1f} s. The command is ended.", file=sys.stderr)
                    continue
            ready, _, _ = select.select([watched] if deadline is not None else [watched, held.channel], [], [], wait)
            if deadline is None and held.pending():
                ready.append(held.channel)
            if watched in ready:
                if deadline is not None:
                    signal_group(child, signal.SIGKILL)  # the rest of the group, before its number is free
                _, status = os.waitpid(child, 0)
                ended = os.waitstatus_to_exitcode(status)
                if deadline is not None or (ended == -signal.SIGKILL and was_lost(held)):
                    return LOST
                return ended if ended >= 0 else 128 - ended
            if deadline is None and ready:
                why = held.lost()
                if why is not None:
                    signal_group(child, signal.SIGTERM)
                    deadline = time.monotonic() + (0.0 if held.leased else GRACE_S)
                    with contextlib.suppress(OSError):
                        print(f"peerlock: the lock is lost: {why.rstrip('.')}. The command is ended.", file=sys.stderr)
            elif deadline is not None and time.monotonic() >= deadline:
                signal_group(child, signal.SIGKILL)
                deadline += GRACE_S
    finally:
        os.close(watched)


def was_lost(held: Held) -> bool:
    """Was the command killed because of a lost lock, before this process heard of the loss?"""
    if held.remaining() <= 0:
        return True
    while held.pending() or select.select([held.channel], [], [], 0.1)[0]:
        if held.lost() is not None:
            return True
    return False


def signal_group(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, number)


@contextlib.contextmanager
def forwarding(child: int, terminal: Terminal) -> Iterator[None]:
    """The command gets the signals that this process gets. When the command is stopped, so is this
    process.
    """

    def stopped(number: int, frame: FrameType | None) -> None:
        by = stopped_by(child)
        if by is None or terminal.descriptor is None:
            return
        if by in (signal.SIGTTIN, signal.SIGTTOU) and not terminal.given:
            terminal.give(child)  # it needs the terminal after all
        else:
            given = terminal.given
            terminal.take_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            # here this process was continued
            if given:
                terminal.give(child)
        signal_group(child, signal.SIGCONT)

    numbers = FORWARDED if terminal.descriptor is None else (*FORWARDED, signal.SIGTSTP)
    before = {number: signal.signal(number, lambda got, _: signal_group(child, got)) for number in numbers}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, stopped)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped_by(child: int) -> int | None:
    """The signal that has stopped the child since the last call. None: it was not stopped, or has
    ended.
    """
    try:
        found = os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:  # the child has ended
        return None
    return found.si_status if found is not None else None


class Terminal:
    """The terminal, if this process is in its foreground. The command has a process group of its
    own.

    A command that has the terminal to itself gets the foreground at once, for it may read. In a
    pipeline (`| less`) other processes of the shell's job need the foreground as well. There the
    command gets it when it is stopped for the lack of it.
    """

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.given = False
        for descriptor in (0, 1, 2):
            with contextlib.suppress(OSError):
                if self.descriptor is None and os.tcgetpgrp(descriptor) == os.getpgrp():
                    self.descriptor = descriptor
        self.alone = os.isatty(0) and os.isatty(1)

    def give(self, group: int) -> None:
        if self.descriptor is not None:
            self.given = True
            give_terminal(self.descriptor, group)

    def take_back(self) -> None:
        if self.descriptor is not None and self.given:
            give_terminal(self.descriptor, os.getpgrp())
            self.given = False


def give_terminal(terminal: int, group: int) -> None:
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.tcsetpgrp(terminal, group)
    signal.signal(signal.SIGTTOU, before)
