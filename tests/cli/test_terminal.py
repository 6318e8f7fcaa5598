"""`peerlock run` at a terminal, as a person uses it: on a pseudo-terminal, with job control."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from terminal import terminal

PEERLOCK = (sys.executable, "-m", "peerlock")


def run_words(directory: Path, *words: str) -> list[str]:
    return [*PEERLOCK, "run", "--dir", str(directory), "-g", "g", *words]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_command_ends_with_its_own_status(tmp_path: Path) -> None:
    with terminal(*run_words(tmp_path, "x", "--", "sh", "-c", "test -t 0 && echo at a terminal; exit 7")) as shown:
        assert shown.wait() == 7
        assert "at a terminal" in shown.shown
        assert "peerlock:" not in shown.shown


def test_a_command_reads_from_the_terminal(tmp_path: Path) -> None:
    with terminal(*run_words(tmp_path, "x", "--", "sh", "-c", "echo ready; read line; echo got $line")) as shown:
        shown.until("ready")
        shown.type("seven\n")
        shown.until("got seven")
        assert shown.wait() == 0


def test_what_a_command_leaves_in_the_background_goes_on(tmp_path: Path) -> None:
    # nohup: at a terminal the end of the session leader would end it, with or without a lock.
    script = "nohup sleep 30 >/dev/null 2>&1 & echo left $!"
    with terminal(*run_words(tmp_path, "x", "--", "sh", "-c", script)) as shown:
        shown.until("left ")
        assert shown.wait() == 0
        pid = int(shown.shown.split()[0])
    try:
        assert not gone(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_reaches_the_command_and_its_status_is_ours(tmp_path: Path) -> None:
    with terminal(*run_words(tmp_path, "x", "--", "sh", "-c", "echo ready; exec sleep 30")) as shown:
        shown.until("ready")
        shown.type("\x03")
        assert shown.wait(10) == 128 + signal.SIGINT


def test_ctrl_c_while_waiting(tmp_path: Path) -> None:
    with terminal(*run_words(tmp_path, "x", "--", "sh", "-c", "echo ready; exec sleep 30")) as holder:
        holder.until("ready")
        with terminal(*run_words(tmp_path, "x", "--", "echo", "never")) as waiter:
            time.sleep(1.0)  # it waits, and says nothing
            waiter.type("\x03")
            assert waiter.wait(10) == 130
            assert "never" not in waiter.shown
        holder.type("\x03")
        holder.wait(10)


def test_a_pager_behind_a_command(tmp_path: Path) -> None:
    """The pager needs the terminal. The command that it reads from had taken it, and the whole job was stopped."""
    words = " ".join(run_words(tmp_path, "x", "--", "sh", "-c", "'echo first; sleep 30'"))
    with terminal("bash", "--norc", "--noprofile", "-i", env={"PS1": "prompt> ", "LESS": ""}) as shell:
        shell.until("prompt> ")
        shell.type(f"{words} | (read line </dev/tty; echo read $line; cat)\n")
        time.sleep(1.0)
        shell.type("seven\n")
        shell.until("read seven")
        shell.until("first\r\n")
        shell.type("\x03")
        shell.until("prompt> ")
        shell.type("exit\n")
        shell.wait(10)


def test_a_command_in_front_of_a_pipe_reads_from_the_terminal(tmp_path: Path) -> None:
    words = " ".join(run_words(tmp_path, "x", "--", "sh", "-c", "'echo ready; read line; echo got $line'"))
    with terminal("bash", "--norc", "--noprofile", "-i", env={"PS1": "prompt> "}) as shell:
        shell.until("prompt> ")
        shell.type(f"{words} | cat\n")
        shell.until("ready\r\n")
        shell.type("seven\n")
        shell.until("got seven")
        shell.until("prompt> ")
        shell.type("exit\n")
        shell.wait(10)


def test_ctrl_z_and_fg_in_a_shell(tmp_path: Path) -> None:
    words = " ".join(run_words(tmp_path, "x", "--", "sh", "-c", "'echo ready; read line; echo got $line; exit 5'"))
    with terminal("bash", "--norc", "--noprofile", "-i", env={"PS1": "prompt> "}) as shell:
        shell.until("prompt> ")
        shell.type(words + "\n")
        shell.until("ready\r\n")  # not the echo of what was typed
        shell.type("\x1a")
        shell.until("Stopped")
        shell.until("prompt> ")
        shell.type("fg\n")
        time.sleep(0.5)
        shell.type("seven\n")
        shell.until("got seven")
        shell.until("prompt> ")
        shell.type("echo status $?\n")
        shell.until("status 5")
        shell.type("exit\n")
        shell.wait(10)
