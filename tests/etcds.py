"""Real etcd servers for tests: on loopback, in a temporary directory, one or three."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ports import free_ports


class Cluster:
    def __init__(self, directory: Path, count: int, *more: str, certs: Path | None = None) -> None:
        """With certificates in `certs` (ca, localhost): TLS, and clients must show one of that authority."""
        self.directory, self.more, self.certs = directory, more, certs
        ports = free_ports(2 * count)
        where = "https://localhost" if certs is not None else "http://127.0.0.1"
        self.clients = [f"{where}:{port}" for port in ports[:count]]
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
                 "--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500",
                 *self.tls(), *self.more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def tls(self) -> list[str]:
        if self.certs is None:
            return []
        ca, cert, key = (str(self.certs / file) for file in ("ca.pem", "localhost.pem", "localhost.key"))
        return ["--cert-file", cert, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", ca]

    def context(self) -> ssl.SSLContext | None:
        if self.certs is None:
            return None
        made = ssl.create_default_context(cafile=str(self.certs / "ca.pem"))
        made.load_cert_chain(self.certs / "localhost.pem", self.certs / "localhost.key")
        return made

    def call(self, path: str, body: dict[str, object], at: int = 0) -> dict[str, object]:
        request = urllib.request.Request(f"{self.clients[at]}/v3{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=2.0, context=self.context()) as answer:
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
def etcd(directory: Path, count: int = 1, *more: str, certs: Path | None = None) -> Iterator[Cluster]:
    cluster = Cluster(directory, count, *more, certs=certs)
    try:
        yield cluster
    finally:
        cluster.close()
