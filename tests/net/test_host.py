"""One host, without configuration: real processes, real record locks."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import AfterFork, LockLost, PeerlockError, RegistryError, UsageError
from peerlock.net.files import directory_for, make_private
from peerlock.net.processes.groups import end_process_groups, process_group_of
from peerlock.net.registries.host import HostRegistry
from peerlock.net.threads.node import Node
from peerlock.node.membership.files import ALIVE, path_of
from peerlock.node.membership.host import KEPT_VIEWS
from processes import Member, members
from shells import member


def test_processes_come_and_go_in_any_order(tmp_path: Path) -> None:
    with members(tmp_path, "b", "c") as (b, c):
        first = b.ask("acquire", "x")["fence"]
        c.tell("acquire", "x")
        a = Member("g", tmp_path, "a")  # joins while the lock is held, and sorts before the others
        try:
            assert a.hello["members"] == ["a", "b", "c"]
            b.ask("release", "x")
            assert c.answer()["fence"] > first
            c.ask("release", "x")
            assert a.ask("acquire", "x")["fence"] > first
        finally:
            a.end()


def test_a_crash_is_noticed_at_once(tmp_path: Path) -> None:
    with members(tmp_path, "a", "b") as (a, b):
        fence = a.ask("acquire", "x")["fence"]
        b.tell("acquire", "x")
        time.sleep(0.2)
        began = time.monotonic()
        a.kill()
        assert b.answer()["fence"] > fence
        assert time.monotonic() - began < 2.0, "sooner than silence would have told"


def test_an_idle_stopped_process_holds_nobody_up_for_long(tmp_path: Path) -> None:
    with members(tmp_path, "a", "b", "c") as (a, b, _):
        a.ask("acquire", "x")  # the token of x is at a, which does not need it any more
        a.ask("release", "x")
        time.sleep(1.2)
        a.kill(signal.SIGSTOP)
        began = time.monotonic()
        b.ask("acquire", "x")
        assert time.monotonic() - began < 5.0
        b.ask("release", "x")
        a.kill(signal.SIGCONT)
        assert a.ask("acquire", "x")["fence"], "it has joined again by itself"


def test_a_process_that_is_stopped_right_after_a_release_blocks_the_others(tmp_path: Path) -> None:
    """For a second after a release its permission to hold stays, which saves it asking again. So no other member can
    tell that it is inside no lock.
    """
    with members(tmp_path, "a", "b") as (a, b):
        for _ in range(3):
            a.ask("acquire", "x")
            a.ask("release", "x")
        a.kill(signal.SIGSTOP)
        b.tell("acquire", "x")
        assert b.process.stdout is not None
        assert not select.select([b.process.stdout], [], [], 6.0)[0]
        a.kill(signal.SIGCONT)
        assert b.answer()["fence"]


def test_a_stopped_holder_blocks_and_status_names_its_pid(tmp_path: Path) -> None:
    with members(tmp_path, "a") as (a,), peerlock.sync.join("g", dir=tmp_path, name="b") as b:
        a.ask("acquire", "x")
        a.kill(signal.SIGSTOP)
        waiter = threading.Thread(target=_try, args=(b,))
        waiter.start()
        time.sleep(3.5)
        status = b.status(0.3)
        assert status.waits_for == (f"a (pid {a.process.pid})",)
        assert status.silent == (f"a (pid {a.process.pid})",)
        a.kill(signal.SIGCONT)
        waiter.join()


def _try(node: Node) -> None:
    node.lock("x").try_acquire(patience_s=5)


def test_the_end_of_the_interpreter_releases(tmp_path: Path) -> None:
    with members(tmp_path, "a", "b") as (a, b):
        a.ask("acquire", "x")
        a.tell("exit")
        assert b.ask("acquire", "x")["fence"]


def test_the_epoch_survives_everybody(tmp_path: Path) -> None:
    fences = []
    for _ in range(3):
        with members(tmp_path, "a") as (a,):
            fences.append(a.ask("acquire", "x")["fence"])
    assert fences == sorted(set(fences))


def test_two_nodes_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-link"
    other.symlink_to(tmp_path)

    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path) as a, peerlock.join("g", dir=other, name="second") as b:
            assert len(a.members) == 2
            async with a.lock("x"):
                assert await b.lock("x").try_acquire(patience_s=0.2) is None
            async with b.lock("x"):
                assert await a.lock("x").try_acquire(patience_s=0.2) is None

    asyncio.run(whole())


def test_a_loop_that_ended_without_leaving_is_dead(tmp_path: Path) -> None:
    async def forgetful() -> None:
        node = await peerlock.join("g", dir=tmp_path, name="a")
        await node.lock("x").acquire()
        member(node)._unlisten()
        for link in member(node).links.by_peer.values():
            link.close()

    async def next_one() -> None:
        async with peerlock.join("g", dir=tmp_path, name="b") as node:
            assert (await node.lock("x").acquire(timeout=5)).held

    asyncio.run(forgetful())
    asyncio.run(next_one())


def test_a_cached_lock_does_not_outlive_the_view(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path, name="b") as b:
            lock = b.lock("x")
            for _ in range(3):
                async with lock:
                    pass
            async with peerlock.join("g", dir=tmp_path, name="c") as c, c.lock("x"):
                assert await lock.try_acquire(patience_s=0.1) is None

    asyncio.run(whole())


def test_use_in_a_forked_child_raises_a_sentence(tmp_path: Path) -> None:
    with peerlock.sync.join("g", dir=tmp_path) as node:
        hold = node.lock("x").acquire()
        child = os.fork()
        if not child:
            code = 1
            try:
                node.lock("x").acquire(timeout=1)
            except AfterFork as problem:
                code = 0 if "Call join in the child" in str(problem) else 2
                try:
                    hold.release()
                except AfterFork:
                    pass
                else:
                    code = 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert hold.held
        hold.release()


FORKER = """
import os, sys, time, peerlock.sync
node = peerlock.sync.join("g", dir=sys.argv[1], name="a")
hold = node.lock("x").acquire()
if not os.fork():
    time.sleep(20)  # a child that outlives its parent, with the parent's sockets
    os._exit(0)
print("in", flush=True)
time.sleep(60)
"""


def test_a_child_that_outlives_its_parent_keeps_nothing(tmp_path: Path) -> None:
    with members(tmp_path, "b") as (b,):
        parent = subprocess.Popen(
            [sys.executable, "-c", FORKER, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert parent.stdout is not None
            parent.stdout.readline()
            b.tell("acquire", "x")
            time.sleep(0.2)
            began = time.monotonic()
            parent.kill()
            assert b.answer()["fence"]
            assert time.monotonic() - began < 2.0, "sooner than silence would have told"
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
            parent.communicate()


# -- the directory -------------------------------------------------------------------------------------------


def test_the_place_depends_on_machine_user_and_group_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = directory_for("shop")
    for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "USER", "LOGNAME"):
        monkeypatch.setenv(name, "/somewhere/else")
    assert directory_for("shop") == before
    assert directory_for("other") != before
    out = subprocess.run(
        [sys.executable, "-c", "from peerlock.net.files import directory_for; print(directory_for('shop'))"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert out.stdout.strip() == str(before), "the same under cron"


def test_the_directory_is_private(tmp_path: Path) -> None:
    private = tmp_path / "a" / "b" / "c" / "d" / "group"
    make_private(private)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.chmod(0o755)
    with pytest.raises(RegistryError, match="chmod 700"):
        make_private(private)
    private.chmod(0o700)
    private.parent.chmod(0o777)
    with pytest.raises(RegistryError, match="chmod go-w"):
        make_private(private)


def test_a_shared_directory_must_not_be_open_to_everybody(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="make it first"):
        HostRegistry("g", directory=tmp_path / "missing")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(RegistryError, match="chmod o-w"):
        HostRegistry("g", directory=tmp_path / "open")


@pytest.mark.parametrize("name", ["", "a b", "../x", ".hidden", "x" * 65, "ü"])
def test_bad_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a group"):
        HostRegistry(name, directory=tmp_path)


# -- the registry alone ----------------------------------------------------------------------------------------


def registry(directory: Path, name: str) -> HostRegistry:
    made = HostRegistry("g", name, directory)
    made.incarnate()
    for listener in made.listeners():
        listener.close()
    return made


def test_a_view_cannot_be_decided_twice(tmp_path: Path) -> None:
    a = registry(tmp_path, "a")
    view = a.change()
    assert view is not None
    assert view.epoch == 1
    assert not a.member.decide(view)
    assert a.change() == view, "nothing has changed"
    again = a.change(True)
    assert again is not None
    assert (again.epoch, again.members) == (2, view.members)
    a.leave()


def test_who_believes_is_not_left_out_and_who_does_not_is(tmp_path: Path) -> None:
    a, b = registry(tmp_path, "a"), registry(tmp_path, "b")
    a.change()
    assert a.me is not None
    assert b.me is not None
    assert b.begin_holding()
    _, stay = a.exclude((b.me,))
    assert stay == (b.me,)
    b.end_holding()
    view, stay = a.exclude((b.me,))
    assert not stay
    assert view is not None
    assert view.members == (a.me,)
    assert not b.begin_holding(), "it is not in the newest view"
    a.leave()
    b.close()


def test_a_missing_file_is_unknown_and_never_dead(tmp_path: Path) -> None:
    with members(tmp_path, "b") as (b,):
        a = registry(tmp_path, "a")
        view = a.change()
        assert view is not None
        (other,) = [peer for peer in view.members if peer.name == "b"]
        a.files.path(path_of("members", other.id)).rename(tmp_path / "away")
        assert a.lives(other) is None
        b.kill()
        b.process.wait()
        assert a.lives(other) is None
        (tmp_path / "away").rename(a.files.path(path_of("members", other.id)))
        assert a.lives(other) is False
        after = a.change()
        assert after is not None
        assert after.members == (a.me,)
        a.leave()


def test_old_views_and_files_of_the_dead_are_swept(tmp_path: Path) -> None:
    a = registry(tmp_path, "a")
    for _ in range(5):
        with members(tmp_path, "b") as (b,):
            b.kill()
            b.process.wait()
        a.change()
    for _ in range(40):
        a.change(True)
    directory = a.directory
    assert len(os.listdir(directory / "views")) <= KEPT_VIEWS
    assert len(os.listdir(directory / "members")) == 1
    assert len(os.listdir(directory / "sockets")) <= 1
    a.leave()


def test_a_view_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    a = registry(tmp_path, "a")
    a.change()
    (a.directory / "views" / "7").write_text("nonsense")
    with pytest.raises(RegistryError, match="cannot be read"):
        a.newest()
    (a.directory / "views" / "7").unlink()
    a.leave()


# -- what a reviewer found ---------------------------------------------------------------------------------------


def test_a_lock_whose_loop_has_ended_grants_nothing(tmp_path: Path) -> None:
    """Also the way on which nobody is asked; neither before nor after others have taken the node for dead."""
    kept: list[Any] = []

    async def one() -> None:
        node = await peerlock.join("g", dir=tmp_path)
        lock = node.lock("x")
        for _ in range(6):
            async with lock:
                pass
        assert lock._local_lock.free
        kept.append(lock)
        kept.append(await node.lock("y").acquire())
        member(node)._unlisten()  # so that nothing is open that nobody closes

    async def two() -> None:
        with pytest.raises(UsageError, match="belongs to the event loop"):
            async with kept[0]:
                raise AssertionError("granted")
        async with peerlock.join("g", dir=tmp_path) as node, node.lock("x"), node.lock("y"):
            with pytest.raises(PeerlockError):
                async with kept[0]:
                    raise AssertionError("granted")
            assert not kept[1].held
            with pytest.raises(LockLost, match="event loop of its node has ended"):
                kept[1].check()

    loop = asyncio.new_event_loop()  # by hand: `asyncio.run` would let the node leave
    loop.run_until_complete(one())
    loop.close()
    asyncio.run(two())


def test_who_looks_whether_somebody_is_dead_does_not_seem_to_be_it(tmp_path: Path) -> None:
    """The dead one's command is ended before it is excluded, also while another process is looking at it."""
    script = """
import subprocess, sys
from peerlock.net.processes.groups import process_group_of
from peerlock.net.registries.host import HostRegistry
made = HostRegistry("g", "d", sys.argv[1])
made.incarnate()
made.listeners()
made.change()
command = subprocess.Popen(["sleep", "60"], process_group=0)
made.record_process_groups(process_group_of(command.pid))
print(command.pid, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    command = int(process.stdout.readline())
    a = registry(tmp_path, "a")
    view = a.change()
    assert view is not None
    (dead,) = (peer for peer in view.members if peer.name == "d")
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    looks = os.open(a.files.path(path_of("members", dead.id)), os.O_RDWR | os.O_CLOEXEC)
    ready, ours = os.pipe()
    looker = os.fork()
    if not looker:
        fcntl.lockf(looks, fcntl.LOCK_SH, 1, ALIVE)  # what a probe of an older version does; and then it is stopped
        os.write(ours, b"!")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(ready, 1)
        view, stay = a.exclude((dead,))
        assert not stay
        assert view is not None
        assert dead not in view.members
        assert (
            Path(f"/proc/{command}/stat").read_text().split()[2] in "ZX" if Path(f"/proc/{command}").exists() else True
        )
    finally:
        os.kill(looker, signal.SIGKILL)
        os.waitpid(looker, 0)
        for descriptor in (looks, ready, ours):
            os.close(descriptor)
    a.leave()


def test_a_directory_whose_maker_was_killed_gets_its_mode(tmp_path: Path) -> None:
    (tmp_path / "g").mkdir(0o755)
    (tmp_path / "g" / "members").mkdir(0o755)
    with peerlock.sync.join("g", dir=tmp_path):
        for path in (tmp_path / "g", tmp_path / "g" / "members", tmp_path / "g" / "views"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o2770


def test_what_works_under_our_locks_is_never_forgotten_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = registry(tmp_path, "a")
    assert a.me is not None
    descriptor = os.open(a.files.path(path_of("members", a.me.id)), os.O_RDONLY)  # drops no lock when it is closed
    seen: list[bytes] = []
    real = os.ftruncate

    def look_and_cut(fd: int, size: int) -> None:
        seen.append(os.pread(descriptor, 1000, 4096))
        real(fd, size)

    monkeypatch.setattr(os, "ftruncate", look_and_cut)
    a.record_process_groups(b"1 2 3 boot\n4 5 6 boot\n")
    a.record_process_groups(b"4 5 6 boot\n")
    assert [words.split(b"\n")[0] for words in seen] == [b"1 2 3 boot", b"4 5 6 boot"]
    assert seen[1].strip() == b"4 5 6 boot"
    assert os.pread(descriptor, 1000, 4096) == b"4 5 6 boot\n"
    os.close(descriptor)
    a.leave()


def test_without_a_look_at_the_processes_nobody_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"], process_group=0) as command:
        words = process_group_of(command.pid)

        def full(*_: object, **__: object) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", full)
            assert not end_process_groups(words, os.geteuid())
        assert command.poll() is None
        assert end_process_groups(words, os.geteuid())
        assert command.wait() == -signal.SIGKILL


HIDDEN = """
import os, sys
from peerlock.net.processes.groups import _all, end_process_groups
os.setgid(65534)
os.setuid(65534)
print(sys.argv[1] in dict(_all()), end_process_groups(sys.argv[2].encode(), 65534))
"""


def test_who_does_not_see_a_process_of_another_user_does_not_take_it_for_gone() -> None:
    elsewhere = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=invisible proc /proc && exec "$@"', "sh"]
    if os.geteuid() or subprocess.run([*elsewhere, "true"], capture_output=True, check=False).returncode:
        pytest.skip("it takes root to become somebody else and to mount another /proc")
    with subprocess.Popen(["sleep", "60"], process_group=0) as command:
        try:
            question = [sys.executable, "-c", HIDDEN, str(command.pid), process_group_of(command.pid).decode()]
            asked = subprocess.run([*elsewhere, *question], capture_output=True, text=True, check=False)
            assert asked.stdout == "False False\n", asked.stderr
            assert command.poll() is None
        finally:
            command.kill()


def test_a_group_that_cannot_be_written_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("peerlock.net.registries.group_directory.write_all", full)
    with pytest.raises(RegistryError, match=r"The group g cannot be joined: No space left on device\."):
        peerlock.sync.join("g", dir=tmp_path)


STOPPED_IN_X = """
import sys, peerlock.sync
node = peerlock.sync.join("g", dir=sys.argv[1], name="c")
hold = node.lock("x").acquire()
print("in", flush=True)
sys.stdin.read()
"""


def test_a_stopped_holder_of_one_lock_does_not_stop_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often: what is kept for it does not grow with the entries of others."""
    monkeypatch.setattr("peerlock.node.locks.local_lock.MAX_UNACKED", 3000)

    async def whole() -> None:
        async with (
            peerlock.join("g", dir=tmp_path, name="a") as a,
            peerlock.join("g", dir=tmp_path, name="b") as b,
        ):
            words = [sys.executable, "-P", "-c", STOPPED_IN_X, str(tmp_path)]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
                try:
                    assert holder.stdout is not None
                    assert await asyncio.to_thread(holder.stdout.readline) == "in\n"
                    while "c" not in a.members or "c" not in b.members:
                        await asyncio.sleep(0.01)
                    holder.send_signal(signal.SIGSTOP)
                    async with asyncio.timeout(60):
                        for _ in range(5000):
                            for node in (a, b):
                                async with node.lock("y"):
                                    pass
                finally:
                    holder.kill()

    asyncio.run(whole())
