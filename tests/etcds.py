"""Real etcd servers for tests: on loopback, in a temporary directory, one or three."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ports import free_ports


class Cluster:
    def __init__(self, directory: Path, count: int, *more: str) -> None:
        self.directory, self.more = directory, more
        ports = free_ports(2 * count)
        self.clients = [f"http://127.0.0.1:{port}" for port in ports[:count]]
        self.peers = [f"http://127.0.0.1:{port}" for port in ports[count:]]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * count
        for at in range(count):
            self.start(at)
        self.wait()

    def start(self, at: int) -> None:
        cluster = ",".join(f"e{number}={peer}" for number, peer in enumerate(self.peers))
        with (self.directory / f"etcd-{at}.log").open("ab") as log:
            self.processes[at] = subprocess.Popen(
                ["etcd", "--name", f"e{at}", "--data-dir", str(self.directory / f"etcd-{at}"),
                 "--listen-client-urls", self.clients[at], "--advertise-client-urls", self.clients[at],
                 "--listen-peer-urls", self.peers[at], "--initial-advertise-peer-urls", self.peers[at],
                 "--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500", *self.more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def call(self, path: str, body: dict[str, object], at: int = 0) -> dict[str, object]:
        request = urllib.request.Request(f"{self.clients[at]}/v3{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=2.0) as answer:
            found: dict[str, object] = json.load(answer)
            return found

    def wait(self) -> None:
        for _ in range(300):
            with contextlib.suppress(OSError):
                self.call("/kv/range", {"key": "eA=="})
                return
            time.sleep(0.1)
        raise AssertionError(f"etcd did not start: {(self.directory / 'etcd-0.log').read_text()[-500:]}")

    def leader(self) -> int:
        for at in range(len(self.clients)):
            with contextlib.suppress(OSError):
                found = self.call("/maintenance/status", {}, at)
                header = found["header"]
                assert isinstance(header, dict)
                if found.get("leader") == header["member_id"]:
                    return at
        raise AssertionError("no leader")

    def send(self, at: int, number: int) -> None:
        process = self.processes[at]
        assert process is not None
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()

    def close(self) -> None:
        for process in self.processes:
            if process is not None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def etcd(directory: Path, count: int = 1, *more: str) -> Iterator[Cluster]:
    cluster = Cluster(directory, count, *more)
    try:
        yield cluster
    finally:
        cluster.close()
