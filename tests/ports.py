"""Ports that nobody uses."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    made = [socket.socket() for _ in range(count)]
    try:
        for one in made:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in made]
    finally:
        for one in made:
            one.close()


def free_port() -> int:
    return free_ports(1)[0]
