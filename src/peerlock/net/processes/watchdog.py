"""A process that ends another one whose lease is over, if that one does not notice.

Python may be stuck: in C code that keeps the interpreter's lock, in a signal that stopped it, in a
machine that swaps. Its lease runs out meanwhile, no other process can tell it, and when it goes on
it may write once more before it looks. With `watchdog=True` it is killed at its deadline instead,
with its process group if it leads one.

The two share a page of memory with one number: the time, on the clock that counts suspension, at
which the holder must be dead if it has said nothing else. That is a tenth of a lease after its end,
so that a holder that notices by itself is not killed while it does. The holder moves it with each
lease, and takes it away when it has noticed that a lease is over. They also share a socket: the
watchdog says on it that it is there, and ends when the other end is closed, by an exit or an exec.

    python -P -S watchdog.py PID PAGE SOCKET

This file is the program, and it imports nothing but the standard library. So neither the current
directory nor PYTHONPATH decides what runs in the watchdog. It starts wherever the package was
found, in a virtual environment or by PYTHONPATH.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from math import inf

DEADLINE = struct.Struct("d")
LOOK_S = 0.01
START_S = 10.0


class Watchdog:
    """The holder's side."""

    def __init__(self) -> None:
        page = os.memfd_create("peerlock-lease", os.MFD_CLOEXEC)
        os.ftruncate(page, mmap.PAGESIZE)
        self.page = mmap.mmap(page, mmap.PAGESIZE)
        self.must_be_dead_at(inf)
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-S", __file__, str(os.getpid()), str(page), str(theirs.fileno())],
                pass_fds=[page, theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True, env=_environment(),
            )  # fmt: skip
        os.close(page)
        self.channel.settimeout(START_S)
        try:
            ready = self.channel.recv(1)
        except OSError:
            ready = b""
        if not ready:
            self.close()
            from peerlock.errors import RegistryError  # the watchdog's own process does not have it

            raise RegistryError("The watchdog did not start: nothing would end this process if its lease were over.")

    def must_be_dead_at(self, when: float) -> None:
        DEADLINE.pack_into(self.page, 0, when)

    def is_there(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.must_be_dead_at(inf)
        self.channel.close()
        self.process.terminate()
        self.process.wait()
        self.page.close()


def _environment() -> dict[str, str]:
    """Without PYTHONPATH, whose relative entries mean the current directory; with PYTHONHOME, where
    the library is.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON") or key == "PYTHONHOME"}


def watch(pid: int, page_fd: int, channel: int) -> None:
    page = mmap.mmap(page_fd, mmap.PAGESIZE, prot=mmap.PROT_READ)
    there = os.pidfd_open(pid)
    leads = os.getpgid(pid) == pid
    os.write(channel, b"!")
    ends = select.poll()
    ends.register(there, select.POLLIN)  # it has exited
    ends.register(channel, select.POLLIN)  # it has closed its end
    while True:
        (deadline,) = DEADLINE.unpack_from(page, 0)
        left = deadline - time.clock_gettime(time.CLOCK_BOOTTIME)
        if left <= 0:
            break
        if ends.poll(1000 * min(LOOK_S, left)):
            return
    print(
        f"peerlock: the lease of process {pid} is over and it did not notice: it is ended", file=sys.stderr, flush=True
    )
    if leads:
        os.killpg(pid, signal.SIGKILL)
    else:
        signal.pidfd_send_signal(there, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
