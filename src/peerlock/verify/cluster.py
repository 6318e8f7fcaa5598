"""The processes of a group, and etcd's, each on a host of its own: started, killed, stopped, told
what to do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from peerlock.errors import UsageError
from peerlock.net.attached.directory import AttachedDirectory, start_of
from peerlock.net.registries.etcd import Etcd
from peerlock.net.settings import Settings, Share
from peerlock.verify.history import Deaths
from peerlock.verify.hosts import Hosts
from peerlock.verify.log import read
from peerlock.verify.plan import ON_ONE_HOST, Plan
from peerlock.verify.worker import Spec

GROUP = "verify"
MEMBER_PORT, VOTER_PORT, ETCD_PORT, ETCD_PEER_PORT = 7101, 7102, 7379, 7380

# Does the etcd at this address lead the others?
WHO_LEADS = """
import json, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/v3/maintenance/status", b"{}")
said = json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=0.5))
sys.exit(said["leader"] != said["header"]["member_id"])
"""


class Etcds:
    """A cluster of etcd on hosts of its own."""

    def __init__(self, hosts: Hosts, first: int, count: int, directory: Path) -> None:
        if shutil.which("etcd") is None:
            raise UsageError("etcd is not installed: apt-get install etcd-server. Or use --registry embedded.")
        self.hosts, self.places, self.directory = hosts, list(range(first, first + count)), directory
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for place in self.places:
                hosts.open_port(place, ETCD_PORT)
                hosts.open_port(place, ETCD_PEER_PORT)
                self.start(place)
        except BaseException:
            self.close()
            raise

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(f"http://{self.hosts.address(place)}:{ETCD_PORT}" for place in self.places)

    def start(self, place: int) -> None:
        here, bind = self.hosts.address(place), self.hosts.bind(place)
        cluster = ",".join(f"e{other}=http://{self.hosts.address(other)}:{ETCD_PEER_PORT}" for other in self.places)
        words = [
            "etcd", "--name", f"e{place}", "--data-dir", str(self.directory / f"etcd-{place}"),
            "--listen-client-urls", f"http://{bind}:{ETCD_PORT}",
            "--advertise-client-urls", f"http://{here}:{ETCD_PORT}",
            "--listen-peer-urls", f"http://{bind}:{ETCD_PEER_PORT}", "--initial-advertise-peer-urls", f"http://{here}:{ETCD_PEER_PORT}",
            "--initial-cluster", cluster, "--initial-cluster-state", "new",
            "--heartbeat-interval", "50", "--election-timeout", "500",
        ]  # fmt: skip
        with (self.directory / f"etcd-{place}.log").open("ab") as log:
            self.processes[place] = subprocess.Popen(
                self.hosts.command(place, words), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.hosts.runs(place, self.processes[place].pid)

    def leader(self) -> int | None:
        """The place of the leader. Each etcd is asked on its own host whether it leads."""
        for place in self.places:
            words = [sys.executable, "-P", "-c", WHO_LEADS, f"http://{self.hosts.bind(place)}:{ETCD_PORT}"]
            said = subprocess.run(self.hosts.command(place, words), capture_output=True, check=False)
            if said.returncode == 0:
                return place
        return None

    def kill(self, place: int) -> None:
        self.processes[place].kill()
        self.processes[place].wait()

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Cluster:
    """The processes of a group."""

    def __init__(self, plan: Plan, hosts: Hosts, directory: Path, etcds: Etcds | None) -> None:
        self.plan, self.hosts, self.directory, self.etcds = plan, hosts, directory, etcds
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.deaths: dict[str, Deaths] = {}
        self.started: set[int] = set()
        for host in self.hosts_of_nodes:
            if plan.registry not in ON_ONE_HOST:
                hosts.open_port(host, MEMBER_PORT)
        for host in self.voters:
            hosts.open_port(host, VOTER_PORT)

    @property
    def hosts_of_nodes(self) -> range:
        return range(1, self.plan.nodes + 1)

    @property
    def voters(self) -> range:
        return range(1, self.plan.voters + 1) if self.plan.registry == "embedded" else range(0)

    def name(self, host: int) -> str:
        return f"n{host}"

    def log(self, host: int) -> Path:
        return self.directory / f"{self.name(host)}.log"

    def settings(self, host: int) -> Settings:
        hosts = self.hosts
        if self.plan.registry in ON_ONE_HOST:
            share: Share = "always" if self.plan.registry == "attached" else "never"
            return Settings(name=self.name(host), dir=str(self.directory), share=share)
        if self.plan.registry == "static":
            return self._listed(host)
        etcds = self.etcds
        return Settings(
            name=self.name(host),
            lease_s=self.plan.lease_s,
            stall_s=self.plan.lease_s,
            insecure=True,
            state=str(self.directory / f"state-{host}"),
            address=f"{hosts.address(host)}:{MEMBER_PORT}",
            bind=hosts.bind(host) if hosts.bind(host) != hosts.address(host) else None,
            etcd=Etcd(etcds.endpoints) if etcds else None,
            voters=None if etcds else {self.name(at): f"{hosts.address(at)}:{VOTER_PORT}" for at in self.voters},
            first_start=None if etcds else host not in self.started,
        )

    def _listed(self, host: int) -> Settings:
        """A node of a fixed list listens at its own entry. Behind a proxy the others know it by
        another address, so its entry differs from theirs.
        """
        places = {at: self.hosts.bind(at) if at == host else self.hosts.address(at) for at in self.hosts_of_nodes}
        return Settings(
            name=self.name(host),
            insecure=True,
            state=str(self.directory / f"state-{host}"),
            nodes={self.name(at): f"{place}:{MEMBER_PORT}" for at, place in places.items()},
        )

    def start(self, host: int) -> None:
        spec = Spec(
            GROUP, self.settings(host), str(self.log(host)), str(self.directory / "counter"),
            self.plan.seed * 1000 + host, self.plan.guard, self.plan.planted,
        )  # fmt: skip
        words = [sys.executable, "-P", "-m", "peerlock.verify.worker", msgspec.json.encode(spec).decode()]
        words = self.hosts.command(host, words)
        with (self.directory / f"{self.name(host)}.err").open("ab") as errors:
            self.processes[host] = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=errors, stderr=errors, start_new_session=True
            )
        self.hosts.runs(host, self.processes[host].pid)
        self.started.add(host)

    def say(self, host: int, words: str) -> None:
        process = self.processes[host]
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(words.encode() + b"\n")
            process.stdin.flush()

    def kill(self, host: int) -> None:
        process = self.processes[host]
        # Before the kill: on one host the next holder may be in before this process has its turn
        # again. The last line of the killed process counts as well, so an overlap while it lived is
        # still found.
        when = time.monotonic()
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.deaths.setdefault(self.name(host), []).append((when, process.pid))

    def stop(self, host: int) -> None:
        if self.processes[host].poll() is None:
            self.processes[host].send_signal(signal.SIGSTOP)

    def go_on(self, host: int) -> None:
        if self.processes[host].poll() is None:
            self.processes[host].send_signal(signal.SIGCONT)

    def signal_host_node(self, number: signal.Signals) -> int | None:
        """The number of its process; None: there is none."""
        found = AttachedDirectory(GROUP, self.directory).newest()
        if found is None or start_of(found.pid) != found.start:
            return None
        os.kill(found.pid, number)
        return found.pid

    def last_grants(self) -> dict[int, float]:
        found = {}
        for host in self.hosts_of_nodes:
            grants = [line.t for line in read(self.log(host), last=32768) if line.what == "granted"]
            found[host] = grants[-1] if grants else 0.0
        return found

    def close(self) -> None:
        for host in self.processes:
            self.go_on(host)
            self.say(host, "leave")
        end = time.monotonic() + 5.0
        for host, process in self.processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(host)
            if process.stdin is not None:
                process.stdin.close()
