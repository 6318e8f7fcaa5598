"""Groups of every kind, for tests: how to join one, and waiting until something is true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import peerlock
from peerlock.net.aio.node import Node
from peerlock.net.transport.certificates import make_certificates
from ports import free_ports

NAMES = ("anna", "ben", "cleo")
KINDS = ("host", "static", "embedded", "etcd")
LEASED = ("embedded", "etcd")


async def joined(joining: Awaitable[Node]) -> Node:
    """As a coroutine, for what takes only these."""
    return await joining


async def until(true: Callable[[], object], seconds: float = 15.0) -> None:
    for _ in range(int(seconds * 100)):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


def files(name: str) -> dict[str, str]:
    return {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}


def make_certs(directory: Path, *names: str) -> None:
    make_certificates(names, directory, 2)


class Place:
    """How to join a group of some kind."""

    def __init__(self, kind: str, directory: Path, endpoints: list[str]) -> None:
        self.kind, self.directory = kind, directory
        addresses = [f"127.0.0.1:{port}" for port in free_ports(len(NAMES))]
        self.listed = dict(zip(NAMES, addresses, strict=True))
        self.etcd = {"endpoints": endpoints, "prefix": f"/{directory.name}"}
        self.known: set[str] = set()

    def words(self, name: str) -> dict[str, Any]:
        first = name not in self.known
        self.known.add(name)
        state = self.directory / f"state-{name}"
        match self.kind:
            case "host":
                return {"name": name, "dir": self.directory}
            case "static":
                return {"name": name, "nodes": self.listed, "state": state}
            case "embedded":
                return {"name": name, "voters": self.listed, "state": state, "first_start": first, "lease_s": 2.0}
            case _:
                return {"name": name, "etcd": self.etcd, "state": state, "lease_s": 2.0}

    async def join(self, name: str) -> Node:
        node: Node = await asyncio.wait_for(joined(peerlock.join("g", **self.words(name))), 20.0)
        return node

    @contextlib.asynccontextmanager
    async def all(self) -> AsyncIterator[list[Node]]:
        nodes = await asyncio.gather(*(self.join(name) for name in NAMES))
        try:
            yield nodes
        finally:
            for node in nodes:
                await node.leave()
