"""One small class a lock: how a program takes it and gives it back.

A driver lives in one process. `use` says which lock is meant; `acquire` waits until it is had. Those of blocking
clients block the process, which has nothing else to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct

from benchmarks.peers.servers import PACKAGES, is_installed

LEASE_S = 60  # of locks that have one: long enough for nobody to lose it
LONG_LEASE_S = 5.0  # of this lock, where it has one


class Place(Struct, frozen=True):
    """Where a driver finds the others."""

    directory: str
    address: str  # of the server
    number: int  # of this process, from 0
    of: int
    options: Mapping[str, Any]
    shared: Any = None  # what was made before the processes were, and given to all


class Driver:
    """`entries` is what the uncontended scene times: the way a program would write it."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def use(self, name: str) -> None:
        raise NotImplementedError

    async def acquire(self) -> None:
        raise NotImplementedError

    async def release(self) -> None:
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def entries(self, count: int) -> None:
        for _ in range(count):
            await self.acquire()
            await self.release()

    def messages(self) -> int:
        return 0


class Blocking(Driver):
    """Of a client that blocks."""

    lock: Any = None

    def take(self) -> None:
        self.lock.acquire()

    def give(self) -> None:
        self.lock.release()

    async def acquire(self) -> None:
        self.take()

    async def release(self) -> None:
        self.give()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def entries(self, count: int) -> None:
        take, give = self.take, self.give
        for _ in range(count):
            take()
            give()


# -- this lock ---------------------------------------------------------------------------------------------


class Ours(Driver):
    lock: Any
    hold: Any

    async def open(self) -> None:
        await self.enter({"dir": self.place.directory, **self.place.options})

    async def enter(self, words: Mapping[str, Any]) -> None:
        """Join, and wait for everybody. Metrics count anyway; here somebody could look at them, too."""
        import prometheus_client

        import peerlock
        from peerlock.prometheus import Metrics

        self.node = await peerlock.join("bench", share="never", **words)
        prometheus_client.CollectorRegistry().register(Metrics(self.node))
        while len(self.node.members) < self.place.of:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.node.leave()

    def use(self, name: str) -> None:
        self.lock = self.node.lock(name)

    async def acquire(self) -> None:
        self.hold = await self.lock.acquire()

    async def release(self) -> None:
        self.hold.release()

    async def entries(self, count: int) -> None:
        lock = self.lock
        for _ in range(count):
            async with lock:
                pass

    def messages(self) -> int:
        return int(self.node._shell.core.table.messages)


class OursInBatch(Ours):
    """In processes that do not displace who has woken them: the kernel lets them run when it is their turn."""

    async def open(self) -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        await super().open()


class OursInThreads(Blocking):
    async def open(self) -> None:
        import prometheus_client

        import peerlock.sync
        from peerlock.prometheus import Metrics

        self.node = peerlock.sync.join("bench", dir=self.place.directory, share="never", **self.place.options)
        prometheus_client.CollectorRegistry().register(Metrics(self.node))
        while len(self.node.members) < self.place.of:
            time.sleep(0.01)

    async def close(self) -> None:
        self.node.leave()

    def use(self, name: str) -> None:
        self.lock = self.node.lock(name)

    def take(self) -> None:
        self.hold = self.lock.acquire()

    def give(self) -> None:
        self.hold.release()

    async def entries(self, count: int) -> None:
        lock = self.lock
        for _ in range(count):
            with lock:
                pass

    def messages(self) -> int:
        return int(self.node._shell.core.table.messages)


class OursAnywhere(Ours):
    """This lock with any registry; `options` says which."""

    async def open(self) -> None:
        options = dict(self.place.options)
        kind, names = options.pop("kind", "host"), [f"n{number}" for number in range(self.place.of)]
        name, where = names[self.place.number], Path(self.place.directory)
        if kind != "host":
            options |= {"name": name, "state": where / f"state-{name}", "insecure": True}
        if kind.startswith("fixed list"):
            options["nodes"] = self.addresses(names)
        if kind == "fixed list, TLS":
            certs = Path(options.pop("certs"))
            options["tls"] = {
                "ca": str(certs / "ca.pem"), "cert": str(certs / f"{name}.pem"), "key": str(certs / f"{name}.key")
            }  # fmt: skip
        if kind == "voters":
            options |= {"voters": self.addresses(names[:3]), "first_start": True, "lease_s": LONG_LEASE_S}
        if kind == "etcd":
            options |= {"etcd": {"endpoints": [self.place.address]}, "lease_s": LONG_LEASE_S}
        self.place = type(self.place)(str(where), "", self.place.number, self.place.of, options)
        if kind == "host":
            await super().open()
        else:
            await self.enter({key: value for key, value in options.items() if key != "dir"})

    def addresses(self, names: list[str]) -> dict[str, str]:
        return {name: f"127.0.0.1:{port}" for name, port in zip(names, self.place.address.split(), strict=False)}


# -- of one machine ----------------------------------------------------------------------------------------


class AsyncioLock(Driver):
    """Within one process: its "processes" are tasks."""

    locks: ClassVar[dict[str, asyncio.Lock]] = {}

    def use(self, name: str) -> None:
        self.lock = self.locks.setdefault(name, asyncio.Lock())

    async def acquire(self) -> None:
        await self.lock.acquire()

    async def release(self) -> None:
        self.lock.release()

    async def entries(self, count: int) -> None:
        lock = self.lock
        for _ in range(count):
            async with lock:
                pass


class Multiprocessing(Blocking):
    def use(self, name: str) -> None:
        self.lock = self.place.shared


class Flock(Blocking):
    file = -1

    def use(self, name: str) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file = os.open(os.path.join(self.place.directory, f"{name}.flock"), os.O_CREAT | os.O_RDWR, 0o600)

    def take(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def give(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)


# -- of a server -------------------------------------------------------------------------------------------


def _redis(place: Place, options: dict[str, Any]) -> Any:
    """One connection that is not shared, and hiredis reads from it: as fast as redis-py gets."""
    import redis

    port, path = place.address.split()
    where: dict[str, Any] = {"unix_socket_path": path} if options.pop("unix", False) else {"port": int(port)}
    return redis.Redis(single_connection_client=True, **where)


class RedisLock(Blocking):
    async def open(self) -> None:
        self.options = dict(self.place.options)
        self.redis = _redis(self.place, self.options)

    async def close(self) -> None:
        self.redis.close()

    def use(self, name: str) -> None:
        self.lock = self.redis.lock(name, timeout=LEASE_S, **self.options)


class RedisToken(Blocking):
    """A list with one element: whoever takes it out has the lock. Whoever dies with it takes it along."""

    async def open(self) -> None:
        self.redis = _redis(self.place, dict(self.place.options))

    async def close(self) -> None:
        self.redis.close()

    def use(self, name: str) -> None:
        self.name = name
        if self.redis.setnx(f"{name}-made", 1):
            self.redis.lpush(name, 1)

    def take(self) -> None:
        self.redis.blpop([self.name])

    def give(self) -> None:
        self.redis.lpush(self.name, 1)


class Postgres(Blocking):
    async def open(self) -> None:
        import psycopg

        self.connection = psycopg.connect(self.place.address, autocommit=True)
        if self.place.options.get("unix"):
            found = self.connection.execute("show unix_socket_directories").fetchone()
            assert found is not None
            self.connection.close()
            self.connection = psycopg.connect(self.place.address, host=found[0], autocommit=True)
        self.cursor = self.connection.cursor()

    async def close(self) -> None:
        self.connection.close()

    def use(self, name: str) -> None:
        self.key = (int.from_bytes(name.encode()[-7:], "big"),)

    def take(self) -> None:
        self.cursor.execute("select pg_advisory_lock(%s)", self.key)

    def give(self) -> None:
        self.cursor.execute("select pg_advisory_unlock(%s)", self.key)


class Kazoo(Blocking):
    async def open(self) -> None:
        from kazoo.client import KazooClient

        self.client = KazooClient(hosts=self.place.address)
        self.client.start()

    async def close(self) -> None:
        self.client.stop()
        self.client.close()

    def use(self, name: str) -> None:
        self.lock = self.client.Lock(f"/{name}", str(self.place.number))


class EtcdLock(Driver):
    """The lock service, through the JSON gateway, with a lease of the client's own. There is no client of it for Python that is
    kept up: aiohttp and JSON are what its documentation shows for languages without one.
    """

    async def open(self) -> None:
        import aiohttp

        self.session = aiohttp.ClientSession()
        self.lease = (await self.post("/lease/grant", {"TTL": LEASE_S}))["ID"]

    async def close(self) -> None:
        await self.session.close()

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.session.post(f"{self.place.address}/v3{path}", json=body) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json(content_type=None)
            return found

    def use(self, name: str) -> None:
        import base64

        self.asked = {"name": base64.b64encode(name.encode()).decode(), "lease": self.lease}

    async def acquire(self) -> None:
        self.key = {"key": (await self.post("/lock/lock", self.asked))["key"]}

    async def release(self) -> None:
        await self.post("/lock/unlock", self.key)


class PySyncObj(Blocking):
    """Every process is a replica. It can only try, so it tries again. A release waits for its answer: one that was lost with
    a leader would stop everybody for a minute.
    """

    async def open(self) -> None:
        from pysyncobj import SyncObj, SyncObjConf
        from pysyncobj.batteries import ReplLockManager

        where = [f"127.0.0.1:{port}" for port in self.place.address.split()[: self.place.of]]
        mine = where.pop(self.place.number)
        self.manager = ReplLockManager(autoUnlockTime=LEASE_S)
        self.object = SyncObj(mine, where, consumers=[self.manager], conf=SyncObjConf(**self.place.options))
        self.object.waitReady()

    async def close(self) -> None:
        self.object.destroy()

    def use(self, name: str) -> None:
        self.name = name

    def take(self) -> None:
        from pysyncobj import SyncObjException

        while True:
            with contextlib.suppress(SyncObjException):
                if self.manager.tryAcquire(self.name, sync=True):
                    return

    def give(self) -> None:
        from pysyncobj import SyncObjException

        while True:
            try:
                self.manager.release(self.name, sync=True)
                return
            except SyncObjException:  # the leader has changed: it may or may not be released
                continue


class Nats(Driver):
    """A key that only one can write when it was deleted, by the number of that deletion; whoever waits watches it."""

    watcher: Any = None

    async def open(self) -> None:
        import nats
        from nats.js.api import StorageType

        self.client = await nats.connect(self.place.address)
        stream = self.client.jetstream()
        self.bucket = await stream.create_key_value(bucket="locks", storage=StorageType.MEMORY)

    async def close(self) -> None:
        await self.client.close()

    def use(self, name: str) -> None:
        self.name, self.watcher = name, None
        self.free_since: int | None = 0  # the number of the last deletion; None: it is not known
        self.written = 0

    async def acquire(self) -> None:
        from nats.js.errors import KeyWrongLastSequenceError

        while True:
            if self.free_since is None:
                await self.deleted()
            assert self.free_since is not None
            try:
                self.written = await self.bucket.update(self.name, b"", last=self.free_since)
                return
            except KeyWrongLastSequenceError:
                self.written, self.free_since = self.free_since, None

    async def deleted(self) -> None:
        """Wait until it is, later than what was written last."""
        if self.watcher is None:
            self.watcher = await self.bucket.watch(self.name)
        async for entry in self.watcher:
            if entry is not None and entry.operation is not None and entry.revision > self.written:
                self.free_since = entry.revision
                return

    async def release(self) -> None:
        # Not the number of our own deletion: who asks with that is there again before any other has heard of it.
        self.free_since = None
        await self.bucket.delete(self.name)


# -- the floor ---------------------------------------------------------------------------------------------


class Wire(Driver):
    """No lock, but a bare socket between two processes, of the kind that the links of this lock are."""

    transport: Any = None
    on_message: Callable[[], None] = staticmethod(lambda: None)

    async def open(self) -> None:
        loop, path = asyncio.get_running_loop(), os.path.join(self.place.directory, "wire")
        if self.place.number == 0:
            self.server = await loop.create_unix_server(lambda: _End(self), path)
        while self.place.number == 1 and self.transport is None:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                await loop.create_unix_connection(lambda: _End(self), path)
            await asyncio.sleep(0.01)

    def use(self, name: str) -> None:
        pass

    async def acquire(self) -> None:
        pass

    async def release(self) -> None:
        pass

    async def close(self) -> None:
        self.transport.close()

    def throw(self) -> None:
        self.transport.write(b"12345678")


class _End(asyncio.BufferedProtocol):
    def __init__(self, wire: Wire) -> None:
        self.wire, self.buffer = wire, bytearray(4096)

    def connection_made(self, transport: Any) -> None:
        self.wire.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.wire.on_message()


# -- all of them -------------------------------------------------------------------------------------------


class Row(Struct, frozen=True):
    """One line of the comparison."""

    name: str
    driver: type[Driver]
    server: str = ""
    modules: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    loop: str = "asyncio"
    networked: bool = True  # it works, or could, across hosts
    ours: bool = False
    within: bool = False  # one process: nobody can wait for it in another
    warm_up_s: float = 0.0  # of a server that is compiled while it runs

    def missing(self) -> str:
        """The command that installs what it needs; nothing: it is there."""
        commands = []
        if not is_installed(self.server):
            commands.append(f"apt-get install {PACKAGES[self.server][0]}")
        if not all(importlib.util.find_spec(module) for module in self.modules):
            commands.append("pip install 'peerlock[peers]'")
        return " && ".join(commands)


def _ours(name: str, loop: str = "uvloop", driver: type[Driver] = Ours, server: str = "", **options: Any) -> Row:
    modules = ("prometheus_client", *(("uvloop",) if loop == "uvloop" else ()))
    return Row(name, driver, server, modules, options, loop, ours=True)


REDIS = ("redis", "hiredis")
ROWS: tuple[Row, ...] = (
    _ours("peerlock"),
    _ours("peerlock, SCHED_BATCH", driver=OursInBatch),
    _ours("peerlock, asyncio", "asyncio"),
    _ours("peerlock, threads", "asyncio", OursInThreads),
    _ours("peerlock, dijkstra-ring", algorithm="dijkstra-ring"),
    _ours("peerlock, carvalho-roucairol", algorithm="carvalho-roucairol"),
    _ours("peerlock, ricart-agrawala", algorithm="ricart-agrawala"),
    _ours("peerlock, TCP", driver=OursAnywhere, server="ports", kind="fixed list"),
    Row("asyncio.Lock", AsyncioLock, networked=False, within=True),
    Row("multiprocessing.Lock", Multiprocessing, networked=False),
    Row("flock", Flock, networked=False),
    Row("redis-py Lock", RedisLock, "redis", REDIS),
    Row("redis-py Lock, 1 ms", RedisLock, "redis", REDIS, {"sleep": 0.001}),
    Row("Redis BLPOP", RedisToken, "redis", REDIS),
    Row("Redis BLPOP, Unix socket", RedisToken, "redis", REDIS, {"unix": True}, networked=False),
    Row("PostgreSQL advisory", Postgres, "postgres", ("psycopg",)),
    Row("PostgreSQL, Unix socket", Postgres, "postgres", ("psycopg",), {"unix": True}, networked=False),
    Row("ZooKeeper, kazoo", Kazoo, "zookeeper", ("kazoo",), warm_up_s=4.0),
    Row("etcd lock", EtcdLock, "etcd", ("aiohttp", "uvloop"), loop="uvloop"),
    Row("PySyncObj", PySyncObj, "ports", ("pysyncobj",)),
    Row("PySyncObj, no batches", PySyncObj, "ports", ("pysyncobj",), {"appendEntriesUseBatch": False}),
    Row("NATS KV", Nats, "nats", ("nats", "uvloop"), loop="uvloop"),
)  # fmt: skip
