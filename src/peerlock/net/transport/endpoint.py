"""Where a peer listens."""

from __future__ import annotations

import ipaddress
import socket

from msgspec import Struct

from peerlock.errors import UsageError


class Endpoint(Struct, frozen=True):
    path: str = ""  # a Unix socket
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def parse_address(name: str, text: str) -> Endpoint:
    host, colon, port = str(text).rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"The address of {name} must be HOST:PORT; got {text!r}.")
    return Endpoint(host=host.strip("[]"), port=int(port))


def is_loopback(host: str) -> bool:
    """An address, or `localhost` if that leads nowhere else: any other name is what a name server
    says it is.
    """
    try:
        if host != "localhost":
            return ipaddress.ip_address(host).is_loopback
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
    except (OSError, ValueError):
        return False
