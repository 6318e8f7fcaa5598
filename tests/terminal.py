"""A real terminal for tests: a command that is the leader of a session on a pseudo-terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


class Terminal:
    """A command at a terminal: what is typed, what is shown, how it ended."""

    def __init__(
        self, command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, columns: int = 100
    ) -> None:
        self.shown = ""
        self.code: int | None = None
        self.pid, self.screen = pty.fork()
        if not self.pid:
            try:
                if cwd is not None:
                    os.chdir(cwd)
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # it is ignored where the tests run in the background
                os.execvpe(command[0], list(command), {**os.environ, "TERM": "xterm-256color", **(env or {})})
            finally:
                os._exit(127)
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def read(self, seconds: float) -> bool:
        """What is shown within that time; False: there will be no more."""
        if not select.select([self.screen], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # Linux says EIO when the last process has closed the other side
            data = b""
        self.shown += data.decode(errors="replace")
        return bool(data)

    def until(self, text: str, seconds: float = 20.0) -> str:
        """Wait until this is shown. What was shown up to its end is dropped from `shown` and given back."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            left = end - time.monotonic()
            if left <= 0 or not self.read(min(left, 0.5)):
                raise AssertionError(f"{text!r} was not shown: {self.shown!r}")
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def wait(self, seconds: float = 60.0) -> int:
        """The exit status, as a shell would say it."""
        end = time.monotonic() + seconds
        while self.code is None:
            self.read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
            elif time.monotonic() > end:
                raise AssertionError(f"it has not ended: {self.shown!r}")
        while select.select([self.screen], [], [], 0)[0] and self.read(0):
            pass
        return self.code

    def close(self) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        os.close(self.screen)


@contextlib.contextmanager
def terminal(
    *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, columns: int = 100
) -> Iterator[Terminal]:
    made = Terminal(command, cwd, env, columns)
    try:
        yield made
    finally:
        made.close()
