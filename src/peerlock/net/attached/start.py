"""A host node is started by the first process that needs one.

The process that starts it forks twice, so the host node is nobody's child and leaves no zombie. It
gets nothing from its starter: no descriptor, no signal mask or handler, no working directory, no
import from it. Of several that start at once the first one to lock `host` stays; the others exit.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from peerlock.errors import RegistryError
from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.page import GLOBAL_EXPEDITED, QUERY, membarrier

Starter: TypeAlias = Callable[[], None]
AGAIN_S = 2.0  # between two starts, while none answers
TRIES = 5
MOST_LOG = 2**20  # bytes; then it begins anew
MODULE = "peerlock.net.attached.host_node"


def is_python(executable: str) -> bool:
    """A program that embeds Python, or was frozen, would be started once more itself."""
    return bool(executable) and Path(executable).name.startswith("python") and not getattr(sys, "frozen", False)


def can_attach() -> bool:
    """Can a host node be started by this process, and share memory with it?"""
    try:
        python = sys.executable  # it is started with "-P"
        return is_python(python) and bool(membarrier(QUERY) & GLOBAL_EXPEDITED)
    except OSError:
        return False


def starter(directory: AttachedDirectory, group: str, shared: str | None) -> Starter:
    """What starts a host node if none lives, now and then."""
    state = {"at": 0.0, "tries": 0}

    def start() -> None:
        now = time.monotonic()
        if directory.has_host() or now < state["at"] or not directory.may_start(AGAIN_S):
            return
        if state["tries"] >= TRIES:
            raise RegistryError(
                f"A host node of the group {group} was started {TRIES} times and never answered: {directory.path / 'log'} "
                "says why."
            )
        python = sys.executable  # it is started with "-P"
        if not is_python(python):
            raise RegistryError(
                f"A host node of the group {group} cannot be started by {python or 'this program'}, which is no "
                f'Python: run "peerlock node -g {group}" first, or join with share="never".'
            )
        state["at"], state["tries"] = now + AGAIN_S, state["tries"] + 1
        spawn(
            [python, "-P", "-m", MODULE, group, *([shared] if shared is not None else [])],
            directory.path / "log",
        )

    return start


def spawn(command: list[str], log: Path) -> None:
    """Start it as nobody's child."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > MOST_LOG:
            os.truncate(log, 0)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PEERLOCK_")}
        # The one that is spawned here starts the host node and ends at once.
        child = os.posix_spawn(
            command[0], [command[0], "-S", "-P", "-c", DETACH, *command], environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in ((nothing, 0), (nothing, 1), (errors, 2))],
            setsigmask=[], setsigdef=range(1, 32), setsid=True,
        )  # fmt: skip
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # the program ignores SIGCHLD
    finally:
        os.close(nothing)
        os.close(errors)


DETACH = """
import os, sys
os.chdir("/")
os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 65536 else 65536)
if not os.fork():
    os.execv(sys.argv[1], sys.argv[1:])
"""

__all__ = ["Starter", "can_attach", "is_python", "spawn", "starter"]
