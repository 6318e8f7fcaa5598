"""Hosts for the processes of `peerlock verify`, and the wires between them.

`Namespaces` needs root. Each host is a network namespace with an address on a common bridge; all of
them are made here and removed at the end. A cut is a route to nowhere: packets in that direction
are dropped, packets in the other are not. `ss -K` resets connections. A slow host has a queue with
a limited rate (`tc`).

`Loopback` works without root. Each host listens at a loopback address (127.77.0.N). The others know
it by the address of a proxy in this process (127.78.0.N), which forwards, delays, cuts and resets.
The proxy knows the host of a connection by the address that it comes from, or, if the process chose
no address (etcd), by the owner of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Iterator

from peerlock.errors import UsageError

SLOW_S = 0.3


class Hosts:
    """What both kinds can do. Hosts are numbers from 1."""

    kind = ""

    def address(self, host: int) -> str:
        """The address by which the other hosts know it."""
        raise NotImplementedError

    def bind(self, host: int) -> str:
        """The address at which its processes listen."""
        return self.address(host)

    def command(self, host: int, words: list[str]) -> list[str]:
        """The words that run this command on that host."""
        return words

    def open_port(self, host: int, port: int) -> None:
        """Something will listen there."""

    def cut(self, source: int, to: int) -> None:
        raise NotImplementedError

    def mend(self, source: int, to: int) -> None:
        raise NotImplementedError

    def slow(self, host: int, on: bool) -> bool:
        """Delay all messages of that host, or stop delaying them. Was any message late?"""
        raise NotImplementedError

    def reset(self, host: int) -> int:
        """End all connections of that host, from both sides. How many there were."""
        raise NotImplementedError

    def runs(self, host: int, pid: int) -> None:
        """That process is on that host."""

    def close(self) -> None:
        pass


def may_make_namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("ss") is None:
        return False
    name = f"pl-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made.returncode == 0


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespaces(Hosts):
    kind = "network namespaces"

    def __init__(self, count: int) -> None:
        self.tag = f"pl{secrets.token_hex(2)}"
        self.switch = f"{self.tag}-0"
        self.names = {host: f"{self.tag}-{host}" for host in range(1, count + 1)}
        self.made: list[str] = []
        self.cuts: Counter[tuple[int, int]] = Counter()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        _ip("netns", "add", self.switch)
        self.made.append(self.switch)
        _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "br0", "up")
        for host, name in self.names.items():
            _ip("netns", "add", name)
            self.made.append(name)
            wire = f"{self.tag}v{host}"
            _ip(*f"link add {wire} netns {self.switch} type veth peer name eth0 netns {name}".split())
            _ip("-n", self.switch, "link", "set", wire, "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def address(self, host: int) -> str:
        return f"10.177.77.{host}"

    def command(self, host: int, words: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.names[host], *words]

    def cut(self, source: int, to: int) -> None:
        self.cuts[source, to] += 1
        if self.cuts[source, to] == 1:
            _ip("-n", self.names[source], "route", "add", "blackhole", f"{self.address(to)}/32")

    def mend(self, source: int, to: int) -> None:
        self.cuts[source, to] -= 1
        if self.cuts[source, to] == 0:
            _ip("-n", self.names[source], "route", "del", "blackhole", f"{self.address(to)}/32")

    def slow(self, host: int, on: bool) -> bool:
        if on:
            limit = ["tbf", "rate", "128kbit", "burst", "2kb", "latency", f"{SLOW_S:g}s"]
            self._tc(host, "qdisc", "add", "dev", "eth0", "root", *limit)
            return False
        held_up = re.search(r"overlimits (\d+)", self._tc(host, "-s", "qdisc", "show", "dev", "eth0"))
        self._tc(host, "qdisc", "del", "dev", "eth0", "root")
        return held_up is not None and int(held_up[1]) > 0

    def _tc(self, host: int, *what: str) -> str:
        words = ["tc", "-n", self.names[host], *what]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as problem:
            why = getattr(problem, "stderr", None) or str(problem)
            raise UsageError(f"{' '.join(words)}: {why.strip()}. Exclude the fault 'slow', or use --proxy.") from None
        return done.stdout

    def reset(self, host: int) -> int:
        words = ["ip", "netns", "exec", self.names[host], "ss", "-K", "-H", "-t", "state", "established"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return len(done.stdout.splitlines())

    def close(self) -> None:
        for name in reversed(self.made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self.made = []


class Loopback(Hosts):
    kind = "a proxy on loopback"

    def __init__(self, count: int) -> None:
        self.count = count
        self.late: dict[int, int] = {}  # slow host -> messages since it became slow
        self.pids: dict[int, int] = {}
        self.cuts: Counter[tuple[int, int]] = Counter()
        self.pipes: set[_Pipe] = set()
        self.servers: list[asyncio.Server] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="peerlock proxy", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()

    def address(self, host: int) -> str:
        return f"127.78.0.{host}"

    def bind(self, host: int) -> str:
        return f"127.77.0.{host}"

    def open_port(self, host: int, port: int) -> None:
        async def serve() -> None:
            made = await asyncio.start_server(
                lambda reader, writer: self._pipe(host, port, reader, writer), self.address(host), port
            )
            self.servers.append(made)

        asyncio.run_coroutine_threadsafe(serve(), self.loop).result(5.0)

    async def _pipe(self, to: int, port: int, reader: StreamReader, writer: StreamWriter) -> None:
        source = self._host_at(writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
        if source is None:
            writer.close()
            return
        pipe = _Pipe(self, source, to)
        self.pipes.add(pipe)
        try:
            while pipe.cut_off():
                await asyncio.sleep(0.02)  # a packet that is lost is sent again
            there = await asyncio.open_connection(self.bind(to), port, local_addr=(self.bind(source), 0))
            pipe.writers = [writer, there[1]]
            await asyncio.gather(pipe.pump(reader, there[1], (source, to)), pipe.pump(there[0], writer, (to, source)))
        except OSError:
            pass
        finally:
            self.pipes.discard(pipe)
            pipe.end()
            with contextlib.suppress(OSError):
                writer.close()

    def runs(self, host: int, pid: int) -> None:
        self.pids[host] = pid

    def _host_at(self, there: tuple[str, int], here: tuple[str, int]) -> int | None:
        """The host at the other end of a connection."""
        if there[0].startswith("127.77.0."):
            return int(there[0].rpartition(".")[2])
        sought = [f"{socket.inet_aton(address)[::-1].hex().upper()}:{port:04X}" for address, port in (there, here)]
        with open("/proc/net/tcp") as table:
            ends = {f"socket:[{words[9]}]" for words in map(str.split, table) if words[1:3] == sought}
        return next((host for host, pid in list(self.pids.items()) if ends & set(_open_files(pid))), None)

    def cut(self, source: int, to: int) -> None:
        self.cuts[source, to] += 1

    def mend(self, source: int, to: int) -> None:
        self.cuts[source, to] -= 1

    def slow(self, host: int, on: bool) -> bool:
        if not on:
            return self.late.pop(host) > 0
        self.late[host] = 0
        return False

    def reset(self, host: int) -> int:
        ends = [pipe for pipe in list(self.pipes) if host in (pipe.source, pipe.to) and pipe.writers]

        def all_of_it() -> None:
            for pipe in ends:
                pipe.end()

        self.loop.call_soon_threadsafe(all_of_it)
        return len(ends)

    def close(self) -> None:
        def end() -> None:
            for server in self.servers:
                server.close()
            for pipe in list(self.pipes):
                pipe.end()
            self.loop.call_later(0.1, self.loop.stop)

        self.loop.call_soon_threadsafe(end)
        self.thread.join(5.0)


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # that was closed
                yield os.readlink(f"/proc/{pid}/fd/{number}")


class _Pipe:
    def __init__(self, hosts: Loopback, source: int, to: int) -> None:
        self.hosts, self.source, self.to = hosts, source, to
        self.writers: list[StreamWriter] = []

    def cut_off(self) -> bool:
        # A connection needs both ways.
        return self.hosts.cuts[self.source, self.to] > 0 or self.hosts.cuts[self.to, self.source] > 0

    async def pump(self, reader: StreamReader, writer: StreamWriter, way: tuple[int, int]) -> None:
        while data := await reader.read(65536):
            if way[0] in self.hosts.late:
                self.hosts.late[way[0]] += 1
                await asyncio.sleep(SLOW_S)
            while self.hosts.cuts[way] > 0:
                await asyncio.sleep(0.02)
            writer.write(data)
            await writer.drain()
        writer.close()

    def end(self) -> None:
        for writer in self.writers:
            with contextlib.suppress(OSError, RuntimeError):
                made = writer.get_extra_info("socket")
                if made is not None:
                    # A reset, not an orderly end.
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.transport.abort()
