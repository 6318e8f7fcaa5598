"""One host: what broke when it was attacked. Each test is a way to two holders, or to a group that stands still."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import LockLost, RegistryError
from peerlock.net.files import directory_for
from peerlock.net.processes.groups import end_process_groups, process_group_of
from peerlock.net.registries.group_directory import GroupDirectory
from peerlock.net.shell import Shell
from peerlock.node.locks.ticket import LOST
from peerlock.node.membership.files import RECORD_BYTES
from processes import Member, members

NOBODY = 65534


# -- the locks that prove that a member is alive ---------------------------------------------------------------

HOLDER = """
import os, sys, peerlock.sync
node = peerlock.sync.join("g", dir=sys.argv[1], name="a")
hold = node.lock("x").acquire()
{attack}
print("in", flush=True)
sys.stdin.readline()
hold.check()
print("held", flush=True)
sys.stdin.readline()
"""
ATTACKS = {
    "a backup reads every file": """
for where, _, names in os.walk(sys.argv[1]):
    for name in names:
        if not where.endswith("sockets"):
            open(os.path.join(where, name), "rb").read()
""",
    "a second copy of the library": """
for name in [name for name in sys.modules if name.startswith("peerlock")]:
    del sys.modules[name]
import peerlock.sync as again
assert again.join is not node and again.Lock is not type(hold._lock)
other = again.join("g", dir=sys.argv[1], name="c")
assert other.lock("x").try_acquire(patience_s=0.3) is None
other.leave()
""",
    "a sub-interpreter": """
import _xxsubinterpreters as interpreters
inner = interpreters.create(isolated=False)
interpreters.run_string(inner, f'''
import sys
import tempfile
sys.path[:] = {sys.path!r}
import peerlock.sync
other = peerlock.sync.join("g", dir={sys.argv[1]!r}, name="c")
assert other.lock("x").try_acquire(patience_s=0.3) is None
other.leave()
''')
interpreters.destroy(inner)
""",
    "a forked child closes everything": """
if not os.fork():
    os.closerange(3, 256)
    os._exit(0)
os.wait()
""",
}


@contextlib.contextmanager
def started(script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_holder_stays_the_only_one(attack: str, tmp_path: Path) -> None:
    with started(HOLDER.format(attack=attack), str(tmp_path)) as process, members(tmp_path, "b") as (b,):
        assert heard(process) == "in"
        b.tell("acquire", "x")
        time.sleep(0.5)
        say(process)
        assert heard(process) == "held"
        process.kill()
        assert b.answer()["fence"], "and the kernel says when it is dead"


CLOSES = """
import os, sys, time
from peerlock.net.registries.host import HostRegistry
made = HostRegistry("g", "a", sys.argv[1])
made.incarnate(), made.listeners(), made.change()
assert made.begin_holding()
os.closerange(3, 4096)
print("in", flush=True)
sys.stdin.readline()
"""


def test_closing_every_descriptor_drops_no_lock(tmp_path: Path) -> None:
    from peerlock.net.registries.host import HostRegistry

    with started(CLOSES, str(tmp_path)) as process:
        assert heard(process) == "in"
        b = HostRegistry("g", "b", tmp_path)
        b.incarnate()
        b.listeners()[0].close()
        view = b.change()
        assert view is not None
        (a,) = (peer for peer in view.members if peer.name == "a")
        assert b.lives(a) is True
        assert b.exclude((a,))[1] == (a,), "it may hold"
        process.kill()
        process.wait()
        assert b.lives(a) is False
        b.close()


# -- the place -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_machine_id_that_cannot_be_read_is_no_other_place(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_text", fails)
    with pytest.raises(RegistryError, match="cannot be read"):
        directory_for("g")


def test_a_user_database_that_cannot_be_read_is_no_other_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(uid: int) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/etc/passwd")

    monkeypatch.setattr("pwd.getpwuid", fails)
    with pytest.raises(RegistryError, match="Too many open files"):
        directory_for("g")


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_directory_that_goes_is_noticed_at_the_next_check(how: str, tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path, name="a") as node:
            hold = await node.lock("x").acquire()
            hold.check()
            remove(tmp_path / "g", how)
            with pytest.raises(LockLost, match="removed, moved or replaced"):
                hold.check()
            again = await node.lock("x").acquire(timeout=10)  # in the group that is there now
            assert again.held
            again.release()

    asyncio.run(whole())


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
@pytest.mark.parametrize("used", [False, True], ids=["first use", "used before"])
def test_a_directory_that_goes_is_noticed_at_the_next_grant(how: str, used: bool, tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path, name="a") as node:
            for _ in range(4 if used else 0):
                async with node.lock("y"):
                    pass
            hold = await node.lock("x").acquire()
            time.sleep(0.1)  # without a turn of the loop: no timer looks
            remove(tmp_path / "g", how)
            with pytest.raises(LockLost, match="removed, moved or replaced"):
                async with node.lock("y"):
                    pytest.fail("y was granted in a group that is gone")
            assert hold.state == LOST

    asyncio.run(whole())


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_directory_that_goes_is_noticed_at_the_next_grant_to_a_thread(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shell, "tick", lambda shell: None)  # no timer looks
    with peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        hold = node.lock("x").acquire()
        time.sleep(0.1)
        remove(tmp_path / "g", how)
        with pytest.raises(LockLost, match="removed, moved or replaced"):
            node.lock("y").acquire(timeout=0)
        assert hold.state == LOST


def test_views_that_go_are_noticed(tmp_path: Path) -> None:
    """Only they: a cleaner of old files. The next process founds a new group in the same directory."""
    with peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        hold = node.lock("x").acquire()
        for view in (tmp_path / "g" / "views").iterdir():
            view.unlink()
        with pytest.raises(LockLost, match="removed, moved or replaced"):
            hold.check()


def test_a_directory_that_goes_is_noticed_by_a_holder_that_never_checks(tmp_path: Path) -> None:
    with peerlock.sync.join("g", dir=tmp_path, name="a") as node:
        hold = node.lock("x").acquire()
        remove(tmp_path / "g", "removed")
        assert hold.lost.wait(10)
        with pytest.raises(LockLost, match="removed, moved or replaced"):
            hold.check()
        with peerlock.sync.join("g", dir=tmp_path, name="b") as other:
            with other.lock("x"):
                pass
            with node.lock("x"):
                assert node.members == ("a", "b")


def remove(directory: Path, how: str) -> None:
    if how == "moved":
        directory.rename(directory.with_name("away"))
    else:
        shutil.rmtree(directory)
    if how == "replaced":
        shutil.copytree(directory.parent, directory, ignore=lambda *_: ["g"])


FORKS = """
import os, sys, time
import peerlock.sync
from peerlock.net.registries.liveness_lock import LivenessLock
real, children = LivenessLock.keep, []
def keep(self):
    child = os.fork()  # by another thread, between the lock and the mapping
    if not child:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    children.append(child)
    real(self)
LivenessLock.keep = keep
node = peerlock.sync.join("g", dir=sys.argv[1], name="a")
hold = node.lock("x").acquire()
print(*children, flush=True)
sys.stdin.read()
"""


def test_a_child_that_was_forked_before_the_lock_was_kept_keeps_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKS, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert len(children) > 1
            parent.kill()
            parent.wait()
            with peerlock.sync.join("g", dir=tmp_path, name="b", timeout=2) as node:
                node.lock("x").acquire(timeout=2).release()
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)


# -- commands under locks ------------------------------------------------------------------------------------------

QUICK = """
import os, sys, time
os.setpgid(0, 0)
print("on", flush=True)
end = time.monotonic() + 60  # also if the test is killed
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""


def test_a_command_that_forks_and_exits_is_not_taken_for_gone() -> None:
    """No look at /proc sees its processes: each lives for some hundred microseconds."""
    with subprocess.Popen([sys.executable, "-c", QUICK], stdout=subprocess.PIPE, text=True) as command:
        words = process_group_of(command.pid)
        assert command.stdout is not None
        assert command.stdout.readline() == "on\n"
        words = process_group_of(command.pid) if Path(f"/proc/{command.pid}").exists() else words
        command.wait()
        assert end_process_groups(words, os.geteuid())
        with pytest.raises(ProcessLookupError):
            for _ in range(100):  # what was killed may be a zombie for a moment
                os.killpg(command.pid, 0)
                time.sleep(0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="the test acts for two users")
def test_only_what_belongs_to_the_owner_is_killed() -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0) as command:
        try:
            words = process_group_of(command.pid)
            assert not end_process_groups(words, NOBODY), "a file of another user named it"
            assert command.poll() is None
            of_a_client = process_group_of(command.pid, NOBODY)
            assert not end_process_groups(of_a_client, 0), "root's node wrote it down for a client of another user"
            assert command.poll() is None
        finally:
            command.kill()
    with subprocess.Popen(["sleep", "60"], process_group=0, user=NOBODY) as theirs:
        assert end_process_groups(process_group_of(theirs.pid), NOBODY)
        assert theirs.wait() == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="the test acts for two users")
def test_a_member_file_of_another_user_ends_nothing_of_root(tmp_path: Path) -> None:
    directory = GroupDirectory(tmp_path / "g", shared=True)
    directory.make()
    with subprocess.Popen(["sleep", "60"], process_group=0) as command:
        try:
            path = tmp_path / "g" / "members" / "theirs"
            path.write_bytes(b"\n\n".ljust(RECORD_BYTES, b"\0") + process_group_of(command.pid))
            os.chown(path, NOBODY, NOBODY)
            file = directory.open("members/theirs")
            assert file is not None
            assert not directory.ended(file)
            assert command.poll() is None
            file.close()
        finally:
            command.kill()


CLIENT = """
import os, sys
from pathlib import Path
from peerlock.errors import PeerlockError
from peerlock.net.control.client import Caller
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.setpgid(0, 0)
caller = Caller(Path(sys.argv[1]), "g")
for group in (int(sys.argv[2]), f"{os.getpid()}\\n{sys.argv[3]}", os.getpid()):
    try:
        caller.call("record_process_groups", group=group)
        print("taken", flush=True)
    except PeerlockError as problem:
        print("refused:", problem, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the test acts for two users")
def test_a_client_of_another_user_names_only_its_own_commands() -> None:
    """Root's node writes down the groups of its clients. A line break in one let root kill whatever the next line named."""
    with (
        tempfile.TemporaryDirectory() as made,
        subprocess.Popen(["sleep", "60"], process_group=0) as victim,
        subprocess.Popen(
            [sys.executable, "-m", "peerlock", "node", "--dir", made, "-g", "g", "--name", "root"],
            stdout=subprocess.PIPE, text=True,
        ) as resident,
    ):  # fmt: skip
        try:
            os.chown(made, 0, 65534)
            os.chmod(made, 0o2770)
            assert resident.stdout is not None
            assert resident.stdout.readline()
            (socket_path,) = (Path(made) / "g" / "sockets").iterdir()
            words = [
                sys.executable,
                "-c",
                CLIENT,
                str(socket_path),
                str(victim.pid),
                process_group_of(victim.pid).decode(),
            ]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
                assert client.stdout is not None
                said = [client.stdout.readline() for _ in range(3)]
                assert [line.split()[0] for line in said] == ["refused:", "refused:", "taken"], said
                resident.kill()
                with peerlock.sync.join("g", dir=made, timeout=20) as node, node.lock("x"):
                    assert client.wait(10) == -signal.SIGKILL, "its own command has ended"
            assert victim.poll() is None
        finally:
            victim.kill()
            resident.kill()


# -- files -----------------------------------------------------------------------------------------------------------


def test_a_failed_join_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host_files = importlib.import_module("peerlock.net.registries.group_directory")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for call in ("write_all", "listen_at"):
        room = host_files if hasattr(host_files, call) else importlib.import_module("peerlock.net.registries.host")
        with monkeypatch.context() as patched:
            patched.setattr(room, call, full)
            for _ in range(5):
                with pytest.raises(RegistryError, match="No space left"):
                    peerlock.sync.join("g", dir=tmp_path)
        assert [path for path in (tmp_path / "g").rglob("*") if not path.is_dir()] == []
    with peerlock.sync.join("g", dir=tmp_path) as node, node.lock("x"):
        pass


def test_a_joiner_that_is_stopped_in_the_middle_holds_nobody_up(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from peerlock.net.registries.liveness_lock import LivenessLock
from peerlock.net.registries.host import HostRegistry
real = LivenessLock.lock
def stopped(*words):
    print("stops", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return real(*words)
LivenessLock.lock = stopped
made = HostRegistry("g", "slow", sys.argv[1])
made.incarnate()
"""
    with started(script, str(tmp_path)) as process:
        assert heard(process) == "stops"
        for _ in range(3):
            a = Member("g", tmp_path, "a")
            a.ask("acquire", "x")
            a.end()
        os.kill(process.pid, signal.SIGCONT)
        with members(tmp_path, "b") as (b,):
            assert b.ask("acquire", "x")["fence"]
