"""A process that ends another one whose lease is over, if that one does not notice.

Python may be stuck: in C code that keeps the interpreter's lock, in a signal that stopped it, in a machine that swaps. Its lease
runs out meanwhile, nobody can tell it, and when it goes on it may write once more before it looks. With `watchdog=True` it
is killed at its deadline instead, with its process group if it leads one.

The two share a page of memory with one number: the time, on the clock that counts suspension, at which the holder must be dead
if it has said nothing else. The holder moves it with each lease, and takes it away when it has noticed that a lease is over.

    python -m peerlock.net.watchdog PID DESCRIPTOR
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from math import inf

DEADLINE = struct.Struct("d")
LOOK_S = 0.01


class Watchdog:
    """The holder's side."""

    def __init__(self) -> None:
        fd = os.memfd_create("peerlock-lease", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        self.page = mmap.mmap(fd, mmap.PAGESIZE)
        self.must_be_dead_at(inf)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peerlock.net.watchdog", str(os.getpid()), str(fd)],
            pass_fds=[fd], stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(fd)

    def must_be_dead_at(self, when: float) -> None:
        DEADLINE.pack_into(self.page, 0, when)

    def close(self) -> None:
        self.must_be_dead_at(inf)
        self.process.terminate()
        self.process.wait()
        self.page.close()


def watch(pid: int, fd: int) -> None:
    page = mmap.mmap(fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
    there = os.pidfd_open(pid)
    leads = os.getpgid(pid) == pid
    while _lives(there):
        (deadline,) = DEADLINE.unpack_from(page, 0)
        left = deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            print(f"peerlock: the lease of process {pid} is over and it did not notice: it is ended", file=sys.stderr)
            if leads:
                os.killpg(pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(there, signal.SIGKILL)
            return
        time.sleep(min(LOOK_S, left))


def _lives(there: int) -> bool:
    try:
        signal.pidfd_send_signal(there, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
