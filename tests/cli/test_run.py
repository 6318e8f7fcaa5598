"""`peerlock run` and its relatives, with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerlock.net.attached.directory import AttachedDirectory
from processes import members

PEERLOCK = [sys.executable, "-m", "peerlock"]


def peerlock(*words: str, timeout: float = 30.0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PEERLOCK, *words], capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}
    )


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*PEERLOCK, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(params=["member", "resident", "attached", "attached to a service"])
def group(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every test as a member of its own, through a node that runs anyway, and as users do: attached to the host's node."""
    words = ["--dir", str(tmp_path), "-g", "g"]
    if request.param.startswith("attached"):
        monkeypatch.delenv("PEERLOCK_SHARE")
    if request.param in ("member", "attached"):
        yield words
        end_host_node(tmp_path)
        return
    with started("node", *words) as node:
        assert node.stdout is not None
        assert "is a member of g" in node.stdout.readline()
        yield words


def end_host_node(directory: Path) -> None:
    """It would stay for half a minute."""
    host = AttachedDirectory("g", directory).newest() if [*(directory / "g").glob("attached-*")] else None
    if host is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(host.pid, signal.SIGTERM)


def test_the_name_of_this_node_stands_on_the_command_line(tmp_path: Path) -> None:
    """For files of TLS that are named after it."""
    config = tmp_path / "shop.toml"
    config.write_text(
        '[voters]\nanna = "127.0.0.1:7100"\n[tls]\nca = "ca.pem"\ncert = "{name}.pem"\nkey = "{name}.key"\n'
    )
    (tmp_path / "ca.pem").touch()
    words = ("run", "x", "-n", "-g", "named", "--config", str(config))
    nameless = peerlock(*words, "--", "true")
    assert (nameless.returncode, "with name=, --name or PEERLOCK_NAME" in nameless.stderr) == (2, True)
    named = peerlock(*words, "--name", "zoe", "--", "true")
    assert (named.returncode, "zoe.pem" in named.stderr) == (2, True)


def test_commands_that_share_a_lock_do_not_starve_one_that_excludes_them(tmp_path: Path) -> None:
    """Four loops of readers, and a writer whose name is the last of all. Each command is a member that comes and goes."""
    words = ["--dir", str(tmp_path), "-g", "g"]
    loop = ["sh", "-c", f"while :; do {shlex.join(PEERLOCK)} run -s x {shlex.join(words)} -- sleep 1; done"]
    readers = [subprocess.Popen(loop, start_new_session=True, stderr=subprocess.DEVNULL) for _ in range(4)]
    try:
        time.sleep(3.0)
        began = time.monotonic()
        assert peerlock("run", "-x", "x", *words, "--name", "zzz", "--", "true", timeout=60).returncode == 0
        waited = time.monotonic() - began
        assert all(reader.poll() is None for reader in readers)
        assert waited < 25.0, waited
    finally:
        for reader in readers:
            os.killpg(reader.pid, signal.SIGKILL)
            reader.wait()


def test_the_exact_status_and_the_environment(group: list[str]) -> None:
    script = "echo $PEERLOCK_LOCK $PEERLOCK_FENCE; cat; exit 7"
    done = subprocess.run(
        [*PEERLOCK, "run", "backup", *group, "--", "sh", "-c", script],
        input="typed",
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 7
    name, fence = done.stdout.split("\n")[0].split()
    assert name == "backup"
    assert int(fence) > 0
    assert done.stdout.endswith("typed"), "stdin is inherited"
    again = peerlock("run", "backup", *group, "--", "sh", "-c", "echo $PEERLOCK_FENCE")
    assert int(again.stdout) > int(fence)
    assert peerlock("run", "backup", *group, "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["x", "printf", "[%s]", "a", "--", "b"], "[a][--][b]"),
        (["x", "printf", "[%s]", "-n", "-g", "--help"], "[-n][-g][--help]"),
        (["x", "-n", "printf", "[%s]", "-n"], "[-n]"),
        (["x", "-nw1", "--", "printf", "[%s]", "--"], "[--]"),
        (["-n", "--", "x", "printf", "[%s]", "a"], "[a]"),
        (["-w", "1", "x", "--", "printf", "[%s]", "a", "--", "--"], "[a][--][--]"),
    ],
)
def test_what_belongs_to_the_command_is_left_to_it(words: list[str], shown: str, tmp_path: Path) -> None:
    done = peerlock("run", "--dir", str(tmp_path), "-g", "g", *words)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.parametrize("words", [[], ["x"], ["x", "--"], ["x", "--bad", "true"], ["--bad", "x", "true"], ["-w"]])
def test_wrong_words_are_answered_with_a_sentence(words: list[str], tmp_path: Path) -> None:
    done = peerlock("run", "--dir", str(tmp_path), "-g", "g", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("peerlock: ")
    assert "Traceback" not in done.stderr


def test_busy(group: list[str]) -> None:
    with started("run", "x", *group, "--", "sh", "-c", "echo in; exec sleep 20") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        assert peerlock("run", "-n", "x", *group, "--", "true").returncode == 1
        assert peerlock("run", "-w", "0.2", "-E", "9", "x", *group, "--", "true").returncode == 9
        assert peerlock("run", "-n", "other", *group, "--", "true").returncode == 0
        status = peerlock("status", *group, "--json")
        (lock,) = json.loads(status.stdout)["locks"]
        assert lock["name"] == "x"
        assert "fence" in peerlock("status", *group).stdout
        holder.send_signal(signal.SIGTERM)  # forwarded to the command
        assert holder.wait(10) == 128 + signal.SIGTERM
    assert peerlock("run", "-n", "x", *group, "--", "true").returncode == 0


def test_readers_share(group: list[str]) -> None:
    with started("run", "-s", "x", *group, "--", "sh", "-c", "echo in; exec sleep 20") as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        assert peerlock("run", "-s", "-w", "5", "x", *group, "--", "true").returncode == 0
        assert peerlock("run", "-x", "-w", "0.2", "x", *group, "--", "true").returncode == 1


def test_killed_with_nine_nothing_works_on_without_the_lock(group: list[str], tmp_path: Path) -> None:
    heartbeat = tmp_path / "heartbeat"
    script = f"(while :; do echo x >> {heartbeat}; sleep 0.01; done) & echo in; wait"  # a grandchild
    with started("run", "x", *group, "--", "sh", "-c", script) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        time.sleep(0.2)
        holder.kill()
        holder.wait()
        # Whoever has the lock next sees nobody at work any more.
        script = f"a=$(wc -c < {heartbeat}); sleep 0.3; b=$(wc -c < {heartbeat}); test $a = $b && test $a -gt 0"
        assert peerlock("run", "-w", "10", "x", *group, "--", "sh", "-c", script).returncode == 0


def test_lost(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    with started("node", *words) as node:
        assert node.stdout is not None
        node.stdout.readline()
        with started(
            "run", "x", *words, "--", "sh", "-c", "trap 'echo ended; exit' TERM; echo in; sleep 20 & wait"
        ) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            node.kill()
            out, err = holder.communicate(timeout=20)
            assert holder.returncode == 75
            assert "the lock is lost" in err
            assert out == "ended\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_resident_ends_what_worked_under_its_locks_ends_first(tmp_path: Path, how: signal.Signals) -> None:
    words, heartbeat = ["--dir", str(tmp_path), "-g", "g"], tmp_path / "heartbeat"
    script = f"trap '' TERM; echo in; while :; do echo x >> {heartbeat}; sleep 0.01; done"
    with started("node", *words) as node:
        assert node.stdout is not None
        node.stdout.readline()
        with started("run", "x", *words, "--", "sh", "-c", script) as holder:
            assert holder.stdout is not None
            holder.stdout.readline()
            time.sleep(0.2)
            node.send_signal(how)
            script = f"a=$(wc -c < {heartbeat}); sleep 0.3; b=$(wc -c < {heartbeat}); test $a = $b && test $a -gt 0"
            assert peerlock("run", "-w", "10", "x", *words, "--", "sh", "-c", script).returncode == 0


def test_no_wait_at_all_for_a_free_lock(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    assert peerlock("run", "-w", "0", "x", *words, "--", "true").returncode == 0
    with started("node", *words) as node:
        assert node.stdout is not None
        node.stdout.readline()
        assert peerlock("run", "-w", "0", "x", *words, "--", "true").returncode == 0


def test_commands_that_cannot_be_run(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    missing = peerlock("run", "x", *words, "--", "no-such-command")
    assert (missing.returncode, missing.stderr) == (127, "peerlock: no-such-command: command not found\n")
    (tmp_path / "file").write_text("")
    assert peerlock("run", "x", *words, "--", str(tmp_path / "file")).returncode == 126


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["x"], 2, "There is no command"),
        (["-s", "-x", "x", "--", "true"], 2, "exclude each other"),
        (["a b", "--", "true"], 2, "cannot be the name of a lock"),
        (["x", "-g", "../y", "--", "true"], 2, "cannot be the name of a group"),
        (["x", "--dir", "/no/such/place", "--", "true"], 69, "make it first"),
    ],
)
def test_bad_usage(words: list[str], code: int, says: str, tmp_path: Path) -> None:
    more = [] if "--dir" in words else ["--dir", str(tmp_path)]
    done = peerlock("run", *more, *words)
    assert done.returncode == code
    assert says in done.stderr


def test_no_node_of_a_fixed_list_runs(tmp_path: Path) -> None:
    env = {"PEERLOCK_NODES": "a=127.0.0.1:1", "PEERLOCK_NAME": "a", "PEERLOCK_STATE": str(tmp_path / "a.json")}
    done = peerlock("run", "x", "--", "true", env=env)
    assert done.returncode == 69
    assert "start one with peerlock node" in done.stderr


def test_a_thousand_runs_are_no_views(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    with started("node", *words) as node:
        assert node.stdout is not None
        node.stdout.readline()
        before = json.loads(peerlock("status", *words, "--json").stdout)["epoch"]
        for _ in range(5):
            assert peerlock("run", "x", *words, "--", "true").returncode == 0
        assert json.loads(peerlock("status", *words, "--json").stdout)["epoch"] == before


def test_trace_draw_and_replay(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    loop = "while :; do " + " ".join([*PEERLOCK, "run", "x", *words, "--", "true"]) + "; done"
    with started("node", *words) as node, members(tmp_path, "other"):
        assert node.stdout is not None
        node.stdout.readline()
        busy = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
        try:
            done = peerlock("trace", "x", *words, "-o", str(tmp_path / "t.jsonl"), "--seconds", "2")
        finally:
            os.killpg(busy.pid, signal.SIGKILL)
            busy.wait()
        assert done.returncode == 0, done.stderr
        assert "events of x at 2 nodes" in done.stdout
        assert "suzuki-kasami-a" in peerlock("diagram", str(tmp_path / "t.jsonl")).stdout
        replay = peerlock("replay", str(tmp_path / "t.jsonl"))
        assert replay.returncode == 0, replay.stderr
        assert "the same" in replay.stdout
    assert peerlock("status", *words).returncode == 2, "nobody is there"


def test_kick_on_one_host(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    with started("node", *words, "--name", "a") as node:
        assert node.stdout is not None
        node.stdout.readline()
        done = peerlock("kick", "a", *words)
        assert done.returncode == 2
        assert f"kill {node.pid}" in done.stderr
        assert "has no member z" in peerlock("kick", "z", *words).stderr


@pytest.mark.parametrize("moment", ["__init__", "record_process_groups"])
def test_a_node_that_is_killed_before_the_command_begins(tmp_path: Path, moment: str) -> None:
    """Whenever that is: the command does not run, and the status says that there is nobody."""
    with started("node", "--dir", str(tmp_path), "-g", "g") as node:
        assert node.stdout is not None
        node.stdout.readline()
        script = f"""
import os, sys
from peerlock.cli import main, run
real = run.ThroughResident.{moment}
def killed(self, *words):
    os.kill({node.pid}, 9)
    return real(self, *words)
run.ThroughResident.{moment} = killed
sys.argv = ["peerlock", "run", "x", "--dir", {str(tmp_path)!r}, "-g", "g", "--", "echo", "ran"]
main()
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (69, "")
    assert "is gone" in done.stderr


def test_a_command_may_join_the_group_itself(tmp_path: Path) -> None:
    script = "import peerlock.net.settings as g; print(g.gather().name)"
    words = ["run", "x", "--dir", str(tmp_path), "-g", "g", "--", sys.executable, "-c", script]
    assert peerlock(*words).stdout == "None\n"
    assert peerlock(*words, env={"PEERLOCK_NAME": "anna"}).stdout == "anna\n"


def test_a_command_that_cannot_be_written_down_is_not_started(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "-g", "g"]
    script = f"""
import sys
from peerlock.cli import main
from peerlock.net.registries.host import HostRegistry
record = HostRegistry.record_process_groups
def full(self, words):
    if not all(line.startswith(b"attached ") for line in words.splitlines()):
        raise OSError(28, "No space left on device")
    record(self, words)
HostRegistry.record_process_groups = full
sys.argv = ["peerlock", "node", *{words!r}]
main()
"""
    node = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        node.stdout.readline()
        done = peerlock("run", "x", *words, "--", "echo", "ran")
        assert done.stdout == ""
        assert done.returncode == 2
        assert "No space left on device. The command was not started." in done.stderr
    finally:
        node.terminate()
        node.communicate()
