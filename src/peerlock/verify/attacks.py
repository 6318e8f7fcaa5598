"""The attacks of `peerlock verify --faults syscalls`: which system call, and what becomes of it.

The seed decides the calls, the faults and their order for each process. Each call meets each fault
once before any comes again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from msgspec import Struct

# Each kind of call: the names that it has on one architecture or another, and roughly how many of
# them a process makes between joining and leaving. The n-th call that is hit lies in that range.
CALLS: dict[str, tuple[tuple[str, ...], int]] = {
    "open": (("?open", "openat"), 35),
    "fcntl": (("fcntl",), 6),
    "flock": (("flock",), 2),
    "link": (("?link", "linkat"), 2),
    "rename": (("?rename", "?renameat", "renameat2"), 2),
    "unlink": (("?unlink", "unlinkat"), 9),
    "fsync": (("fsync", "fdatasync"), 4),
    "read": (("read",), 12),
    "pread": (("pread64",), 2),
    "write": (("write",), 3),
    "pwrite": (("pwrite64",), 2),
    "ftruncate": (("ftruncate",), 2),
    "chmod": (("?chmod", "fchmodat", "fchmod"), 4),
    "mkdir": (("?mkdir", "mkdirat"), 5),
    "getdents": (("getdents64",), 36),
    "stat": (("?newfstatat", "?fstatat64", "?fstat", "?stat", "?lstat", "statx"), 43),
    "socket": (("socket",), 3),
    "bind": (("bind",), 1),
    "connect": (("connect",), 2),
    "accept": (("?accept", "accept4"), 3),
    "send": (("sendto",), 33),
    "receive": (("recvfrom",), 32),
}
REGISTRY = ("open", "fcntl", "flock", "link", "rename", "unlink", "fsync", "write", "chmod", "mkdir", "bind", "stat")
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EINTR", "ENOMEM", "EACCES")
KINDS = ("late before", "late after", "fails", "fails", "killed", "stopped")


class Attack(Struct, frozen=True):
    """What is done to one process for a while."""

    number: int
    call: str
    kind: str
    inject: str  # as strace wants it
    slow_us: int  # delay of every other call of the registry
    seconds: float
    stopped_s: float  # a stopped process goes on after this time
    gap_s: float  # before the attack there is none for this time

    @property
    def rules(self) -> list[str]:
        others = ",".join(name for call in REGISTRY if call != self.call for name in CALLS[call][0])
        slow = [f"inject={others}:delay_enter={self.slow_us}"] if self.slow_us else []
        return [*slow, f"inject={self.inject}"]

    @property
    def once(self) -> bool:
        return "+" not in self.inject

    @property
    def label(self) -> str:
        fault = self.kind
        if self.kind == "fails":
            fault += " " + self.inject.partition("error=")[2].partition(":")[0]
        return f"{self.call} {fault}"


def attacks(seed: int, slot: int) -> Iterator[Attack]:
    """The attacks on one process, without end; the same seed gives the same attacks."""
    chance = random.Random(seed * 1000 + slot)
    deck: list[tuple[str, str]] = []
    for number in itertools.count(1):
        if not deck:
            deck = [(call, kind) for call in CALLS for kind in KINDS]
            chance.shuffle(deck)
        call, kind = deck.pop()
        yield Attack(
            number, call, kind, rule(chance, call, kind),
            slow_us=chance.choice((0, 0, 500, 2000, 10_000)), seconds=chance.uniform(0.5, 3.0),
            stopped_s=chance.choice((0.05, 0.5, 4.0)), gap_s=chance.expovariate(1 / 0.3),
        )  # fmt: skip


def rule(chance: random.Random, call: str, kind: str) -> str:
    names, often = CALLS[call]
    first = chance.randint(1, 3 * often)
    again = chance.choice(("", "", "+", f"+{chance.randint(2, 2 * often + 1)}"))  # once, from then on, every n-th
    if kind in ("killed", "stopped"):
        fault, again = f"signal={'SIGKILL' if kind == 'killed' else 'SIGSTOP'}", ""
    elif kind == "fails":
        fault = f"error={chance.choice(ERRORS)}"
        if fault.endswith("EINTR") and again == "+":
            again = "+2"  # Python calls again until the answer is another one
    else:
        longest = 0.1 if again else 3.0
        side = "enter" if kind == "late before" else "exit"
        fault = f"delay_{side}={int(1e6 * chance.uniform(longest / 10, longest))}"
    return f"{','.join(names)}:{fault}:when={first}{again}"
