"""Real servers for the comparison: on loopback, with a fresh directory, ended by their process id."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from peerlock.errors import Unfinished

Starter: TypeAlias = "Callable[[Path], contextlib.AbstractContextManager[str]]"
ZOOKEEPER = "/usr/share/java/zookeeper.jar"
START_S = 30.0


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(
    directory: Path, name: str, words: list[str], ready: Callable[[], bool], user: str | None = None
) -> Iterator[None]:
    path = directory / f"{name}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, user=user)
    try:
        end = time.monotonic() + START_S
        while not ready():
            if process.poll() is not None or time.monotonic() > end:
                raise Unfinished(f"{name} did not start: {path.read_text(errors='replace')[-400:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _says(port: int, words: bytes, answer: bytes) -> bool:
    """Does whoever listens there answer so?"""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as made:
        made.sendall(words)
        return answer in made.recv(4096)
    return False


@contextlib.contextmanager
def redis(directory: Path) -> Iterator[str]:
    port, path = free_port(), directory / "redis.socket"
    words = [
        "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path), "--dir", str(directory),
        "--save", "",
    ]  # fmt: skip
    with _running(directory, "redis-server", words, lambda: _says(port, b"PING\r\n", b"PONG")):
        yield f"{port} {path}"


@contextlib.contextmanager
def postgres(directory: Path) -> Iterator[str]:
    """As another user if this is root, whom PostgreSQL refuses; in a directory of that user's own, for it may not see ours."""
    with tempfile.TemporaryDirectory(prefix="peerlock-postgres-") as place, _postgres(Path(place)) as address:
        yield address


@contextlib.contextmanager
def _postgres(directory: Path) -> Iterator[str]:
    port, data = free_port(), directory / "data"
    programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    where = Path(programs[-1]) if programs else Path(shutil.which("initdb") or "initdb").parent
    user = "postgres" if os.geteuid() == 0 else None
    data.mkdir(0o700)
    if user is not None:
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
        directory.chmod(directory.stat().st_mode | 0o011)  # it must get through
    made = subprocess.run(
        [str(where / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench"],
        capture_output=True, check=False, cwd=directory, user=user,
    )  # fmt: skip
    if made.returncode:
        raise Unfinished(f"PostgreSQL did not start: {made.stderr.decode(errors='replace')[-400:]}")
    words = [str(where / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(data)]

    def ready() -> bool:
        asked = subprocess.run(
            [str(where / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)], capture_output=True, check=False
        )
        return asked.returncode == 0

    with _running(directory, "postgres", words, ready, user):
        yield f"host=127.0.0.1 port={port} user=bench dbname=postgres"


@contextlib.contextmanager
def etcd(directory: Path) -> Iterator[str]:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    words = [
        "etcd", "--data-dir", str(directory / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
    ]  # fmt: skip

    def ready() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{client}/health", timeout=1.0) as answer:
            return bool(json.load(answer).get("health") == "true")
        return False

    with _running(directory, "etcd", words, ready):
        yield client


@contextlib.contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    port = free_port()
    (directory / "zoo.cfg").write_text(
        f"tickTime=2000\ndataDir={directory}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        "maxClientCnxns=0\n4lw.commands.whitelist=ruok\n"
    )
    words = ["java", "-cp", ZOOKEEPER, "org.apache.zookeeper.server.ZooKeeperServerMain", str(directory / "zoo.cfg")]
    with _running(directory, "zookeeper", words, lambda: _says(port, b"ruok", b"imok")):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def nats(directory: Path) -> Iterator[str]:
    port = free_port()
    words = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory)]
    with _running(directory, "nats-server", words, lambda: _says(port, b"PING\r\n", b"INFO")):
        yield f"nats://127.0.0.1:{port}"


@contextlib.contextmanager
def nothing(directory: Path) -> Iterator[str]:
    """It needs no server."""
    yield ""


@contextlib.contextmanager
def ports(directory: Path) -> Iterator[str]:
    """Free ports, for those who listen themselves."""
    yield " ".join(str(free_port()) for _ in range(8))


STARTERS: Mapping[str, Starter] = {
    "": nothing, "ports": ports, "redis": redis, "postgres": postgres, "etcd": etcd, "zookeeper": zookeeper, "nats": nats
}  # fmt: skip
# What Debian calls it, and what shows that it is there.
PACKAGES: Mapping[str, tuple[str, str]] = {
    "redis": ("redis-server", "/usr/bin/redis-server"),
    "postgres": ("postgresql", "/usr/lib/postgresql/*/bin/initdb"),
    "etcd": ("etcd-server", "/usr/bin/etcd"),
    "zookeeper": ("zookeeper", ZOOKEEPER),
    "nats": ("nats-server", "/usr/sbin/nats-server"),
}


def is_installed(server: str) -> bool:
    if server not in PACKAGES:
        return True
    package, shows = PACKAGES[server]
    return bool(glob.glob(shows)) or shutil.which(package) is not None
