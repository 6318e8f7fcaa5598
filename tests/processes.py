"""Real processes for tests: a member that does what it is told, line by line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMBER = """
import sys, json, peerlock.sync
node = peerlock.sync.join(sys.argv[1], dir=sys.argv[2], name=sys.argv[3], share=sys.argv[4])
holds = {}
print(json.dumps({"members": node.members}), flush=True)
for line in sys.stdin:
    what, *words = line.split()
    if what == "acquire":
        holds[words[0]] = node.lock(words[0]).acquire(timeout=float(words[1]) if words[1:] else None)
        print(json.dumps({"fence": holds[words[0]].fence}), flush=True)
    elif what == "release":
        holds.pop(words[0]).release()
        print("{}", flush=True)
    elif what == "status":
        import msgspec
        print(msgspec.json.encode(node.status(0.3)).decode(), flush=True)
    elif what == "leave":
        node.leave()
        print("{}", flush=True)
    elif what == "exit":
        sys.exit()
"""


class Member:
    def __init__(self, group: str, directory: Path, name: str, share: str = "never") -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, group, str(directory), name, share],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.hello = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the member has ended: {self.process.wait()}"
        return json.loads(line)

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def ask(self, *words: object) -> Any:
        self.tell(*words)
        return self.answer()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            self.wait_until_stopped()

    def wait_until_stopped(self) -> None:
        """A thread that is not scheduled goes on for a while after the signal was sent."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            if {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}:
                return
            time.sleep(0.001)
        raise AssertionError(f"{self.name} was not stopped within 30 s")

    def end(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


@contextlib.contextmanager
def members(directory: Path, *names: str, group: str = "g", share: str = "never") -> Iterator[list[Member]]:
    found: list[Member] = []
    try:
        for name in names:
            found.append(Member(group, directory, name, share))
        yield found
    finally:
        for member in found:
            member.end()


def within(seconds: float, began: float) -> bool:
    return time.monotonic() - began < seconds
