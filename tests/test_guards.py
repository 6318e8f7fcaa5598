"""Resources that refuse a late holder: each with a holder that is stopped between its check and its write."""

from __future__ import annotations

import runpy
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import peerlock.sync
from benchmarks.peers.servers import postgres
from etcds import Cluster, etcd
from peerlock.errors import StaleFence, UsageError
from peerlock.guards import GuardedFile

EXAMPLES = Path(__file__).parent.parent / "examples" / "guards"

# Takes the lock, looks at it, is stopped, and writes.
LATE = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[2])
import peerlock.sync
from peerlock.errors import LockLost, StaleFence
{imports}
node = peerlock.sync.join("g", **json.loads(sys.argv[1]))
hold = node.lock("x").acquire()
hold.check()
print(hold.fence, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    {write}
    print("written", flush=True)
except StaleFence as problem:
    print("refused", flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


def stopped_before_its_write(
    server: Cluster, directory: Path, imports: str, write: str, later: Callable[[int], object]
) -> str:
    """What becomes of the write of a holder that is stopped for longer than its lease; `later` is what the next holder does."""

    def words(name: str) -> dict[str, Any]:
        place = {"endpoints": server.clients, "prefix": f"/{directory.name}"}
        return {"name": name, "etcd": place, "lease_s": 1.0, "state": str(directory / name)}

    program = LATE.format(imports=imports, write=write)
    with subprocess.Popen(
        [sys.executable, "-c", program, msgspec.json.encode(words("late")).decode(), str(EXAMPLES)],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        fence = int(process.stdout.readline())
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert process.poll() is None, "it has ended instead of being stopped"
            time.sleep(0.01)
        with peerlock.sync.join("g", **words("next")) as node, node.lock("x") as hold:
            assert hold.fence > fence
            later(hold.fence)
        process.send_signal(signal.SIGCONT)
        return process.stdout.readline().strip()


def test_a_file(server: Cluster, tmp_path: Path) -> None:
    guarded = GuardedFile(tmp_path / "data")
    outcome = stopped_before_its_write(
        server, tmp_path, "from peerlock.guards import GuardedFile",
        f"GuardedFile({str(guarded.path)!r}).write(hold.fence, b'late')", lambda fence: guarded.write(fence, b"next"),
    )  # fmt: skip
    assert outcome == "refused"
    assert guarded.read()[1] == b"next"


def test_a_file_that_the_next_holder_has_only_read(server: Cluster, tmp_path: Path) -> None:
    """What a late holder wrote between the next one's reading and writing would be lost."""
    guarded = GuardedFile(tmp_path / "data")
    guarded.write(1, b"first")
    outcome = stopped_before_its_write(
        server, tmp_path, "from peerlock.guards import GuardedFile",
        f"GuardedFile({str(guarded.path)!r}).write(hold.fence, b'late')", lambda fence: guarded.take(fence) and None,
    )  # fmt: skip
    assert outcome == "refused"
    assert guarded.read()[1] == b"first"


def test_a_row_that_the_next_holder_has_only_read(server: Cluster, tmp_path: Path) -> None:
    sql = runpy.run_path(str(EXAMPLES / "sql.py"))
    connection = sqlite3.connect(tmp_path / "bank.db")
    connection.execute(sql["TABLE"])
    connection.execute("INSERT INTO account VALUES (1, 100, 0)")
    connection.commit()
    assert sql["take"](connection, 1, 7) == 100
    with pytest.raises(StaleFence):
        sql["set_balance"](connection, 1, 0, 6)
    connection.close()


def test_a_file_without_a_guard_is_overwritten(server: Cluster, tmp_path: Path) -> None:
    """So the others can fail."""
    path = tmp_path / "data"
    outcome = stopped_before_its_write(
        server,
        tmp_path,
        "",
        f"open({str(path)!r}, 'w').write('late')",
        lambda fence: path.write_text("next"),
    )
    assert outcome == "written"
    assert path.read_text() == "late"


def test_sqlite(server: Cluster, tmp_path: Path) -> None:
    sql = runpy.run_path(str(EXAMPLES / "sql.py"))
    database = tmp_path / "bank.db"
    connection = sqlite3.connect(database)
    connection.execute(sql["TABLE"])
    connection.execute("INSERT INTO account VALUES (1, 100, 0)")
    connection.commit()
    outcome = stopped_before_its_write(
        server, tmp_path, "import sqlite3, sql", f"sql.set_balance(sqlite3.connect({str(database)!r}), 1, 0, hold.fence)",
        lambda fence: sql["set_balance"](connection, 1, 80, fence),
    )  # fmt: skip
    assert outcome == "refused"
    assert connection.execute("SELECT balance FROM account").fetchone() == (80,)
    connection.close()


def test_postgresql(server: Cluster, tmp_path: Path) -> None:
    import psycopg

    sql = runpy.run_path(str(EXAMPLES / "sql.py"))
    with postgres(tmp_path) as where:
        connection: Any = None
        for _ in range(100):
            try:
                connection = psycopg.connect(where)
                break
            except psycopg.OperationalError:
                time.sleep(0.1)
        with connection:
            connection.execute(sql["TABLE"])
            connection.execute("INSERT INTO account VALUES (1, 100, 0)")
            connection.commit()
            outcome = stopped_before_its_write(
                server, tmp_path, "import psycopg, sql",
                f"sql.set_balance(psycopg.connect({where!r}), 1, 0, hold.fence, '%s')",
                lambda fence: sql["set_balance"](connection, 1, 80, fence, "%s"),
            )  # fmt: skip
            assert outcome == "refused"
            assert connection.execute("SELECT balance FROM account").fetchone() == (80,)


def test_a_service(server: Cluster, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "http_service.py"))
    service = example["Service"]()
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    try:
        outcome = stopped_before_its_write(
            server, tmp_path, "import http_service", f"http_service.call({service.server_port}, hold.fence, b'late')",
            lambda fence: example["call"](service.server_port, fence, b"next") and None,
        )  # fmt: skip
        assert outcome == "refused"
        assert service.value == b"next"
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


@pytest.mark.parametrize("name", ["file.py", "sql.py", "http_service.py"])
def test_the_examples_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Nothing was" in done.stdout
    assert "second" in done.stdout or "80" in done.stdout


def test_a_file_that_has_no_fence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("something")
    with pytest.raises(UsageError, match="has no fence in its first line"):
        GuardedFile(tmp_path / "data").write(1, b"")
    assert (tmp_path / "data").read_text() == "something"


def test_the_same_holder_may_write_again(tmp_path: Path) -> None:
    guarded = GuardedFile(tmp_path / "data")
    for fence in (5, 5, 6):
        guarded.write(fence, b"x")
    with pytest.raises(StaleFence):
        guarded.write(5, b"y")


def test_a_link_to_the_file_is_guarded_by_the_same_lock(tmp_path: Path) -> None:
    """A late writer is stopped between comparing and writing; the next holder comes by another path, and waits."""
    (tmp_path / "data").mkdir()
    path, link = tmp_path / "data" / "report.txt", tmp_path / "link.txt"
    link.symlink_to(path)
    compared, go = threading.Event(), threading.Event()

    class Stopped(GuardedFile):
        def _replace(self, path: Path, fence: int, data: bytes) -> None:
            compared.set()
            assert go.wait(20)
            super()._replace(path, fence, data)

    def next_holder() -> None:
        GuardedFile(link).take(2)
        GuardedFile(link).write(2, b"the next one")

    late = threading.Thread(target=lambda: Stopped(path).write(1, b"late"))
    late.start()
    assert compared.wait(20)
    following = threading.Thread(target=next_holder)
    following.start()
    following.join(0.2)
    assert following.is_alive(), "it waits: the other one may still write"
    go.set()
    late.join()
    following.join()
    assert GuardedFile(path).read() == (2, b"the next one")
    assert link.is_symlink()
