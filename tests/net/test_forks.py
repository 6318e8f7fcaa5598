"""Locks of files and forked children: a lock that was given up is free, and one whose holder was killed is, too.

A forked child shares the open files of its parent, and with them their locks. Here a child lives on and does nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# A child that lives until the test ends it.
FORK = """
import os, signal, sys
def fork():
    there, here = os.pipe()
    if not os.fork():
        os.closerange(0, 3)
        os.write(here, b"!")
        while True:
            signal.pause()
    os.read(there, 1)
"""

GUARDED = """
from peerlock.guards import GuardedFile
class Forks(GuardedFile):
    def _replace(self, path, fence, data):
        fork()
        {fate}
        super()._replace(path, fence, data)
Forks(sys.argv[1]).write(1, b"first")
"""

# The child goes on where it was forked, and leaves what its parent is still in.
GOES_ON = """
import fcntl
from peerlock.guards import GuardedFile
there, here = os.pipe()
class Forks(GuardedFile):
    def _replace(self, path, fence, data):
        if os.fork():
            os.read(there, 1)
            with open(f"{path}.lock") as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    print("free", flush=True)
                except BlockingIOError:
                    print("taken", flush=True)
            super()._replace(path, fence, data)
Forks(sys.argv[1]).write(1, b"first")
os.write(here, b"!")
if os.getpgrp() != os.getpid():
    os.closerange(0, 3)
    signal.pause()
"""

RECORD = """
from pathlib import Path
from peerlock.net.voters.record_file import RecordFile
file = RecordFile(Path(sys.argv[1]), "g", "anna")
fork()
{fate}
"""

LISTED = """
from peerlock.net.registries.static import StaticRegistry
from peerlock.errors import UsageError
class Forks(StaticRegistry):
    def _read(self):
        fork()
        return super()._read()
try:
    registry = Forks("g", "anna", {{"anna": "127.0.0.1:7100"}}, state=sys.argv[1], assume_dead={dead})
except UsageError:
    pass
else:
    registry.close()
"""

# A command works under a lock of a node that is killed; its next incarnation ends the command.
CHARGED = """
import subprocess
from peerlock.net.processes.groups import process_group_of
from peerlock.net.registries.etcd import Etcd, EtcdRegistry
from peerlock.net.threads.shell import ThreadShell
registry = EtcdRegistry("g", Etcd(("http://127.0.0.1:1",)), "anna", state=sys.argv[1])
shell = ThreadShell(registry, "g")
command = subprocess.Popen(["sleep", "77.7"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
registry.record_process_groups(process_group_of(command.pid))
fork()
print(command.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
NEXT = """
import sys
from peerlock.net.registries.etcd import Etcd, EtcdRegistry
EtcdRegistry("g", Etcd(("http://127.0.0.1:1",)), "anna", state=sys.argv[1])._end_orphans()
"""


@contextlib.contextmanager
def ended(program: str, *words: str) -> Iterator[str]:
    """Run a program to its end; what it said. Its child lives on meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-c", FORK + program, *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.wait(30) in (0, -signal.SIGKILL)
            os.killpg(process.pid, 0)  # the child is there
            yield process.stdout.readline() if select.select([process.stdout], [], [], 0)[0] else ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *words], timeout=10, check=False, capture_output=True, text=True
    )


def is_alive(pid: int) -> bool:
    """A zombie is dead: its parent, which was killed, cannot wait for it."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize("fate", ["pass", KILLED], ids=["the writer ends", "the writer is killed"])
def test_a_guarded_file(tmp_path: Path, fate: str) -> None:
    path = str(tmp_path / "data")
    with ended(GUARDED.format(fate=fate), path):
        done = run("import sys; from peerlock.guards import GuardedFile; GuardedFile(sys.argv[1]).write(2, b'x')", path)
        assert done.returncode == 0, done.stderr


def test_a_child_does_not_give_up_the_lock_of_its_parent(tmp_path: Path) -> None:
    with ended(GOES_ON, str(tmp_path / "data")) as said:
        assert said == "taken\n"


def test_a_record_of_a_voter(tmp_path: Path) -> None:
    path = str(tmp_path / "record")
    with ended(RECORD.format(fate="file.close()"), path):
        done = run("import sys\nfork = int\n" + RECORD.format(fate="file.close()"), path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dead", ["()", "('nobody',)"], ids=["closed", "not made, for a mistake"])
def test_a_node_of_a_fixed_list(tmp_path: Path, dead: str) -> None:
    path = str(tmp_path / "state")
    with ended(LISTED.format(dead=dead), path):
        done = run("import sys\nfork = int\n" + LISTED.format(dead="()"), path)
        assert done.returncode == 0, done.stderr


def test_what_works_under_locks_of_a_node_that_was_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    with ended(CHARGED, path) as said:
        command = int(said)
        try:
            assert run(NEXT, path).returncode == 0
            assert not is_alive(command)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(command, signal.SIGKILL)
