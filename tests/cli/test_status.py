"""`peerlock status` sees members inside programs, names those that do not answer, and never says more than it has checked."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peerlock.net.files import directory_for, make_private
from peerlock.node.peer import Peer
from peerlock.node.wire import OLDEST, VERSION, Hello, framed
from ports import free_port, free_ports
from terminal import terminal

PEERLOCK = (sys.executable, "-m", "peerlock")

THREADS = """
import json, sys, peerlock.sync
node = peerlock.sync.join(sys.argv[1], **json.loads(sys.argv[2]))
holds = [node.lock(name).acquire() for name in sys.argv[3:]]
print("in", flush=True)
sys.stdin.read()
"""
ASYNCIO = """
import asyncio, json, sys, peerlock
async def whole():
    node = await peerlock.join(sys.argv[1], **json.loads(sys.argv[2]))
    holds = [await node.lock(name).acquire() for name in sys.argv[3:]]
    print("in", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(whole())
"""


def status(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PEERLOCK, "status", *words], capture_output=True, text=True, timeout=30, check=False,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
    )  # fmt: skip


def at_a_terminal(*words: str) -> tuple[int, str]:
    with terminal(*PEERLOCK, "status", *words, columns=200) as shown:
        code = shown.wait(30)
        return code, shown.shown


@contextlib.contextmanager
def running(*command: str, ready: str = "in\n") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if ready:
            assert process.stdout.readline().endswith(ready), process.communicate()
        yield process
    finally:
        process.kill()
        process.send_signal(signal.SIGCONT)
        process.communicate()


def member(group: str, *locks: str, program: str = THREADS, ready: str = "in\n", **words: Any) -> Any:
    return running(sys.executable, "-c", program, group, json.dumps(words), *locks, ready=ready)


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)


class Voted:
    """A group with one voter, in a process of its own."""

    voter: subprocess.Popen[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.group = f"test-{secrets.token_hex(4)}"
        self.config = directory / "group.toml"
        self.config.write_text(f'lease_s = 1.0\n[voters]\nv1 = "127.0.0.1:{free_port()}"\n')
        self.words = ("-g", self.group, "--config", str(self.config))


@pytest.fixture
def voted(tmp_path: Path) -> Iterator[Voted]:
    made = Voted(tmp_path)
    voter = [
        *PEERLOCK,
        "node",
        "--voter",
        "--name",
        "v1",
        "--first-start",
        "--state",
        str(tmp_path / "v1"),
        *made.words,
    ]
    try:
        with running(*voter, ready="") as made.voter:
            yield made
    finally:
        shutil.rmtree(directory_for(made.group), ignore_errors=True)


# -- a group with voters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
def test_a_member_inside_a_program(voted: Voted, program: str) -> None:
    with member(voted.group, "x", program=program, config=str(voted.config), name="worker"):
        for words, env in (
            (voted.words, {}),
            (voted.words, {"PEERLOCK_NAME": "worker"}),
            (voted.words, {"PEERLOCK_NAME": "another"}),
            (("-g", voted.group), {}),  # nothing says what kind of group it is: it is found on this host
        ):
            done = status(*words, env=env)
            assert done.returncode == 0, done.stderr
            assert "worker" in done.stdout
            assert "x" in done.stdout
            assert "unknown" not in done.stdout
            found = json.loads(status(*words, "--json", env=env).stdout)
            assert [lock["name"] for lock in found["locks"]] == ["x"]
            assert found["complete"] is True
            assert found["kind"] == "embedded"
        code, shown = at_a_terminal(*voted.words)
        assert code == 0
        assert "worker" in shown


def test_files_for_tls_that_are_named_after_a_node_are_not_needed_to_look(voted: Voted, tmp_path: Path) -> None:
    config = tmp_path / "tls.toml"
    config.write_text(voted.config.read_text() + '[tls]\nca = "ca.pem"\ncert = "{name}.pem"\nkey = "{name}.key"\n')
    with member(voted.group, "x", config=str(voted.config), name="worker"):
        done = status("-g", voted.group, "--config", str(config))
        assert done.returncode == 0, done.stderr
        assert "worker" in done.stdout


def test_a_member_with_a_state_of_its_own(voted: Voted, tmp_path: Path) -> None:
    state = str(tmp_path / "mine")
    with member(voted.group, "x", config=str(voted.config), name="worker", state=state):
        done = status(*voted.words)
        assert done.returncode == 2
        assert "unknown" in done.stderr
        assert "--state" in done.stderr
        assert "nobody" not in done.stderr
        assert "no lock" not in done.stderr
        found = status(*voted.words, "--state", state)
        assert found.returncode == 0, found.stderr
        assert "worker" in found.stdout


def test_a_voter_alone_knows_no_locks(voted: Voted) -> None:
    done = status(*voted.words)
    assert done.returncode == 2
    assert "unknown" in done.stderr
    code, shown = at_a_terminal(*voted.words, "--json")
    assert code == 2
    assert "unknown" in shown


def test_members_that_are_stopped_are_named(voted: Voted) -> None:
    with member(voted.group, "x", config=str(voted.config), name="worker") as worker:
        stop(worker)
        done = status(*voted.words)
        assert done.returncode == 2
        assert "No answer from: worker" in done.stderr
        assert "unknown" in done.stderr
        worker.kill()
        worker.wait()  # its socket is still there
        assert "worker" not in status(*voted.words).stderr


def test_a_node_that_has_no_lease_does_not_know(voted: Voted) -> None:
    """It is cut off from the voters: the group may have gone on without it."""
    with member(voted.group, config=str(voted.config), name="worker"):
        end = time.monotonic() + 20
        assert json.loads(status(*voted.words, "--json").stdout)["complete"]
        voted.voter.kill()
        while json.loads(status(*voted.words, "--json").stdout)["complete"]:
            assert time.monotonic() < end
        done = status(*voted.words)
        assert "unknown" in done.stdout
        assert "no lock is held" not in done.stdout


def test_a_node_that_stops_answering_in_the_middle(tmp_path: Path) -> None:
    group = f"test-{secrets.token_hex(4)}"
    directory = directory_for(group)
    make_private(directory)
    listening = socket.socket(socket.AF_UNIX)
    hello = framed(Hello(OLDEST, group, Peer("mute", 7, "", 1), newest=VERSION))
    connected: list[socket.socket] = []

    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected.append(listening.accept()[0])
                connected[-1].sendall(hello)

    thread = threading.Thread(target=greet)
    try:
        listening.bind(str(directory / "embedded-mute.member.socket"))
        listening.listen()
        thread.start()
        done = status("-g", group, env={"PEERLOCK_VOTERS": "v1=127.0.0.1:1"})
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert "No answer from: mute" in done.stderr
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        for one in connected:
            one.close()
        shutil.rmtree(directory)


# -- one host ----------------------------------------------------------------------------------------------


def test_the_only_member_is_stopped_while_it_holds(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path), "-g", "g")
    with member("g", "x", dir=str(tmp_path), name="a") as holder:
        stop(holder)
        done = status(*words)
        assert done.returncode == 2
        assert f"No answer from: a (pid {holder.pid})" in done.stderr
        assert "unknown" in done.stderr
        assert "nobody" not in done.stderr
        code, shown = at_a_terminal(*words)
        assert code == 2
        assert "unknown" in shown
        assert f"a (pid {holder.pid})" in shown


def test_one_of_two_is_stopped_while_it_holds(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path), "-g", "g")
    with member("g", "x", dir=str(tmp_path), name="a") as holder, member("g", dir=str(tmp_path), name="b"):
        assert json.loads(status(*words, "--json").stdout)["complete"] is True
        stop(holder)
        code, shown = at_a_terminal(*words)
        assert code == 0
        assert f"no answer from: a (pid {holder.pid})" in shown
        assert "unknown" in shown
        assert "no lock is held" not in shown
        found = json.loads(status(*words, "--json").stdout)
        assert (found["complete"], found["silent"]) == (False, [f"a (pid {holder.pid})"])


def test_every_member_has_ended(tmp_path: Path) -> None:
    words = ("--dir", str(tmp_path), "-g", "g")
    with member("g", "x", dir=str(tmp_path), name="a") as holder:
        holder.kill()
        holder.wait()
        done = status(*words)
        assert done.returncode == 2
        assert f"have ended: a (pid {holder.pid})" in done.stderr
        assert "unknown" not in done.stderr


def test_nothing_has_joined_here(tmp_path: Path) -> None:
    done = status("--dir", str(tmp_path), "-g", "g")
    assert done.returncode == 2
    assert "No process has joined the group g" in done.stderr
    assert "--config" in done.stderr
    assert "nobody" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# As root the test becomes somebody else, with everything imported: the interpreter may be root's alone.
ANOTHER_USER = """
import contextlib, os, sys
from peerlock.cli import main
with contextlib.suppress(SystemExit):
    main()
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print("now", file=sys.stderr, flush=True)
main()
"""


def test_a_group_that_this_user_may_not_look_at() -> None:
    shared = Path(tempfile.mkdtemp(prefix="peerlock-test-"))
    shared.chmod(0o755)
    try:
        with member("g", "x", dir=str(shared), name="a"):
            shared.joinpath("g").chmod(0)
            done = subprocess.run(
                [sys.executable, "-c", ANOTHER_USER, "status", "--dir", str(shared), "-g", "g"],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            shared.joinpath("g").chmod(0o700)
            assert done.returncode == 2
            said = done.stderr.partition("now\n")[2]
            assert "cannot be looked at (Permission denied)" in said
            assert "unknown" in said
            assert "Traceback" not in done.stderr
    finally:
        shutil.rmtree(shared)


# -- a fixed list ------------------------------------------------------------------------------------------


class Listed:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = dict(zip("ab", [f"127.0.0.1:{port}" for port in free_ports(2)], strict=True))
        self.config = directory / "group.toml"
        self.config.write_text("[nodes]\n" + "".join(f'{name} = "{where}"\n' for name, where in self.nodes.items()))

    def member(self, name: str, *locks: str, ready: str = "in\n") -> Any:
        return member("g", *locks, ready=ready, config=str(self.config), name=name, state=self.state(name))

    def state(self, name: str) -> str:
        return str(self.directory / f"{name}.json")

    def words(self, name: str) -> tuple[str, ...]:
        return ("-g", "g", "--config", str(self.config), "--state", self.state(name))


def test_one_of_a_list_is_stopped_while_it_holds(tmp_path: Path) -> None:
    listed = Listed(tmp_path)
    # One waits for the other: neither can be waited for before the other one has begun.
    with listed.member("a", "x", ready="") as holder, listed.member("b", ready="") as other:
        for process in (holder, other):
            assert process.stdout.readline() == "in\n"
        stop(holder)
        done = status(*listed.words("b"))
        assert f"no answer from: a (pid {holder.pid})" in done.stdout
        assert "unknown" in done.stdout
        assert "no lock is held" not in done.stdout
        done = status(*listed.words("a"))
        assert done.returncode == 2
        assert "unknown" in done.stderr
        assert "No answer from: a" in done.stderr


def test_a_node_of_a_list_that_waits_for_the_others(tmp_path: Path) -> None:
    listed = Listed(tmp_path)
    with listed.member("a", ready=""):
        end = time.monotonic() + 20
        while (done := status(*listed.words("a"))).returncode:
            assert time.monotonic() < end
        assert "waiting for: b" in done.stdout
        assert "unknown" in done.stdout
        assert "no lock is held" not in done.stdout
        assert json.loads(status(*listed.words("a"), "--json").stdout)["complete"] is False


def test_a_trace_says_which_members_are_not_in_it(tmp_path: Path) -> None:
    listed = Listed(tmp_path)
    with listed.member("a", ready="") as one, listed.member("b", ready="") as other:
        for process in (one, other):
            assert process.stdout.readline() == "in\n"
        done = subprocess.run(
            [*PEERLOCK, "trace", "x", "-g", "g", "--config", str(listed.config), "-o", str(tmp_path / "t"), "--seconds", "0.1"],
            capture_output=True, text=True, timeout=30, check=False, env={**os.environ, "PEERLOCK_STATE": listed.state("a")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"Not in it, because they do not answer on this host: b (pid {other.pid})" in done.stdout
