"""How long a lock is nobody's when its holder goes: killed, or leaving as one should.

Three members want one lock. One has it, another one waits; then the holder is killed with SIGKILL, or leaves the group. The
clock runs from there to the moment at which the waiter has the lock. On one host the kernel tells at once who is dead; with
voters, or in etcd, nobody can know, so a dead holder's lease has to run out first. The voters are processes of their own:
what is killed is a holder, not a voter.

The processes are on one machine and read one clock (CLOCK_MONOTONIC). A member does what it is told, line by line.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.peers.servers import etcd, free_port, is_installed
from peerlock.errors import Unfinished

REGISTRIES = ("host", "embedded", "etcd")
PATIENCE_S = 60.0

_MEMBER = """
import json, sys, time, peerlock.sync
node = peerlock.sync.join("takeover", share="never", **json.loads(sys.argv[1]))
lock, hold = node.lock("job"), None
print("there", flush=True)
for line in sys.stdin:
    began = time.monotonic()
    if line == "acquire\\n":
        hold = lock.acquire()
    elif line == "release\\n":
        hold.release()
    elif line == "leave\\n":
        node.leave()
    print(json.dumps([began, time.monotonic()]), flush=True)
"""


class Takeover(Struct, frozen=True):
    """Seconds, of every run, for one registry."""

    registry: str
    lease_s: float | None
    killed: list[float]  # from SIGKILL to the next holder
    left: list[float]  # from the call of leave to the next holder
    leaving: list[float]  # the call itself


class _Member:
    def __init__(self, options: dict[str, Any]) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115, it is closed in end
        self.heard = b""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _MEMBER, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, bufsize=0,
        )  # fmt: skip
        self.line()

    def line(self) -> bytes:
        assert self.process.stdout is not None
        end = time.monotonic() + PATIENCE_S
        while b"\n" not in self.heard:
            if not select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Unfinished(
                    f"A member has not answered for {PATIENCE_S:g} s: it waits for its group or for the lock."
                )
            more = self.process.stdout.read(4096)
            if not more:
                self.said.seek(0)
                raise Unfinished(f"A member has ended with {self.process.wait()}: {self.said.read()[-400:].strip()}")
            self.heard += more
        found, _, self.heard = self.heard.partition(b"\n")
        return found

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())

    def times(self) -> tuple[float, float]:
        began, ended = json.loads(self.line())
        return began, ended

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.said):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def _group(registry: str, lease_s: float) -> Iterator[Callable[[str], dict[str, Any]]]:
    """What a member called so must say to join."""
    with tempfile.TemporaryDirectory(prefix="peerlock-takeover-") as place:
        directory = Path(place)
        if registry == "host":
            yield lambda name: {"name": name, "dir": place}
        elif registry == "etcd":
            (directory / "etcd").mkdir()
            with etcd(directory / "etcd") as address:
                yield lambda name: {
                    "name": name, "etcd": {"endpoints": [address]}, "lease_s": lease_s,
                    "address": f"127.0.0.1:{free_port()}", "insecure": True,
                }  # fmt: skip
        else:
            voters = {f"v{number}": f"127.0.0.1:{free_port()}" for number in range(1, 4)}
            with _voters(directory, voters, lease_s):
                yield lambda name: {
                    "name": name, "voters": voters, "lease_s": lease_s,
                    "address": f"127.0.0.1:{free_port()}", "insecure": True,
                }  # fmt: skip


@contextlib.contextmanager
def _voters(directory: Path, voters: dict[str, str], lease_s: float) -> Iterator[None]:
    listed = "\n".join(f'{name} = "{address}"' for name, address in voters.items())
    config = directory / "group.toml"
    config.write_text(f"lease_s = {lease_s}\n\n[voters]\n{listed}\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "peerlock",
        "node",
        "--voter",
        "-g",
        "takeover",
        "--config",
        str(config),
        "--first-start",
    ]
    processes = []
    try:
        for name in voters:
            words = [*command, "--name", name, "--state", str(directory / name)]
            processes.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(10)


def _once(holder: _Member, waiter: _Member, kill: bool) -> tuple[float, float]:
    """Until the next holder is in, and the call of leave."""
    holder.tell("acquire")
    holder.times()
    waiter.tell("acquire")
    time.sleep(0.3)  # until it waits
    leaving = 0.0
    if kill:
        gone = time.monotonic()
        holder.process.kill()
    else:
        holder.tell("leave")
        gone, ended = holder.times()
        leaving = ended - gone
    _, entered = waiter.times()
    waiter.tell("release")
    waiter.times()
    return entered - gone, leaving


def takeover(registry: str, lease_s: float, runs: int, tell: Callable[[str], None] = lambda words: None) -> Takeover:
    """Measure it `runs` times each way."""
    killed: list[float] = []
    left: list[float] = []
    leaving: list[float] = []
    with _group(registry, lease_s) as options, contextlib.ExitStack() as ending:
        names = (f"m{number}" for number in range(1000))

        def join() -> _Member:
            made = _Member(options(next(names)))
            ending.callback(made.end)
            return made

        bystander, holder, waiter = join(), join(), join()
        for kill in (True, False) * runs:
            tell(f"{registry}: {'killed' if kill else 'left'}")
            seconds, call = _once(holder, waiter, kill)
            (killed if kill else left).append(seconds)
            if not kill:
                leaving.append(call)
            holder, waiter = waiter, join()
        bystander.end()
    return Takeover(registry, None if registry == "host" else lease_s, killed, left, leaving)


def missing(registry: str) -> str:
    """Why it cannot be measured here, if it cannot."""
    return "apt-get install etcd-server" if registry == "etcd" and not is_installed("etcd") else ""
