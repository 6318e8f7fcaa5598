"""What works under a lock: the process groups of commands, and how to end them.

A command that `peerlock run` has started must not work on when the lock is another's, even if the
process that held it for the command was killed. So a holder writes down the group before the
command starts, and a process that takes the lock from the dead ends the group first.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import struct
import subprocess
import time
from math import inf
from pathlib import Path

from peerlock.errors import UsageError
from peerlock.net.complaints import warn_once

DEADLINE = struct.Struct("d")


class Guardian:
    """A process that ends a process group at a deadline, or when we are gone without a word.

    It shares a page with us: the time, on the clock that counts suspension, at which the group must
    be gone. With a lease, others may have the lock then, whatever has become of us.
    """

    def __init__(self, group: int) -> None:
        self.page = mmap.mmap(-1, mmap.PAGESIZE)
        self.must_end_at(inf)
        theirs, self.word = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self.word)
                self._guard(group, theirs)
            finally:
                os._exit(0)
        os.close(theirs)

    def must_end_at(self, when: float) -> None:
        DEADLINE.pack_into(self.page, 0, when)

    def _guard(self, group: int, theirs: int) -> None:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        while True:
            (deadline,) = DEADLINE.unpack_from(self.page, 0)
            left = deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
            if left <= 0:
                break
            ready, _, _ = select.select([theirs], [], [], min(0.02, left))
            if ready:
                if os.read(theirs, 1):
                    return  # the command has ended
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self.word, b".")
        os.close(self.word)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def process_group_of(group: int, user: int | None = None) -> bytes:
    """A process group in words that no other group has: its leader's start, session and boot; and
    whose command it is.
    """
    if not group:
        return b""
    return f"{group} {stat_of(group)[19]} {os.getsid(group)} {BOOT or '-'} {os.geteuid() if user is None else user}".encode()


def group_of_a_client(group: int, user: int) -> bytes:
    """The same for a client of this node, which is a process of `user`. What it says of itself is
    not taken over.
    """
    try:
        if not group or (group > 1 and os.stat(f"/proc/{group}").st_uid == user):
            return process_group_of(group, user)
    except OSError:
        pass
    raise UsageError("A command under a lock must be a process group of the user who asks for the lock.")


def _boot() -> str:
    """Read once: later there may be no descriptor left for it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""  # unknown: then no group is taken for one of an earlier boot


BOOT = _boot()


def stat_of(pid: int | str) -> list[str]:
    """What the kernel says of a process, from its state on; X: there is none that we see. Another
    `OSError`: that is not known.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        fields = []
    return fields if len(fields) > 19 else ["X", *["0"] * 40]


def end_process_groups(words: bytes, owner: int) -> bool:
    """End the process groups that worked under the locks of a dead holder. True: they are gone.

    `owner` is the user that wrote the words down. Only what that user may end is ended, whatever
    user we are: else a member of a shared group could name any process, and root would kill it. A
    node of root also writes down the groups of its clients, each with its user, and each is ended
    with the rights of that user.
    """
    ended = [_ended(line, owner) for line in words.replace(b"\0", b"").splitlines()]
    return all(ended)  # each is tried, whatever comes of the others


def _ended(words: bytes, owner: int) -> bool:
    try:
        return end_process_group(words, owner)
    except OSError:
        return False  # without a look at the processes it is not known that they are gone


def end_process_group(words: bytes, owner: int) -> bool:
    try:
        group, start, session, boot, user = words.decode().split()
        number, rights = int(group), int(user)
    except ValueError:
        return True  # there is none
    if (boot not in (BOOT, "-") and BOOT) or number <= 1:
        return True
    rights = rights if owner == 0 else owner
    leader = stat_of(number)
    if leader[0] not in "ZX" and leader[19] != start:
        return True  # the number belongs to another process by now
    if leader[0] in "ZX" and any(fields[2] == group and fields[3] != session for _, fields in _all()):
        return True  # so does the group's number
    for _ in range(200):
        # Killed first, then looked for. Processes that fork and end at once are never seen; but
        # a process that has been killed cannot fork any more, so what is not seen afterwards is not
        # there.
        killed = _kill(number, rights)
        if not killed and not _exists(number):
            return True
        if not any(fields[2] == group and fields[3] == session and fields[0] not in "ZX" for _, fields in _all()):
            return killed
        if not killed:
            warn_once(
                f"The process group {number} worked under a lock, and the process that held the lock is dead. Nobody has the "
                f"lock before that group ends, and this process may not end it in the name of the user {rights}."
            )
            return False
        time.sleep(0.001)  # the kernel needs a moment
    return False


def _kill(group: int, owner: int) -> bool:
    """With the rights of `owner`. False: there is no such group, or none of it may be ended by that
    user.
    """
    me = os.geteuid()
    try:
        if owner < 0:
            return False
        if me == owner:
            os.killpg(group, signal.SIGKILL)
            return True
        if me == 0:
            words = ["/bin/sh", "-c", f"kill -KILL -{group}"]
            return not subprocess.run(words, user=owner, stderr=subprocess.DEVNULL, check=False).returncode
    except (ProcessLookupError, PermissionError):
        pass
    return False


def _exists(group: int) -> bool:
    """/proc may be told to hide the processes of other users. The kernel still knows whether there
    are any in the group.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _all() -> list[tuple[str, list[str]]]:
    return [(name, stat_of(name)) for name in os.listdir("/proc") if name.isdigit()]
