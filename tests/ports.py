"""Ports that nobody uses, below those that the kernel gives to connections: one of these may be taken a moment later."""

from __future__ import annotations

import os
import random
import socket

_chance = random.Random(os.getpid())  # test processes run side by side
_given: set[int] = set()


def free_port() -> int:
    for _ in range(1000):
        port = _chance.randrange(11_000, 32_000)
        if port in _given:
            continue
        with socket.socket() as made:
            try:
                made.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError("no port is free")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
