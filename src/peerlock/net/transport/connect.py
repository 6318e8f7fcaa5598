"""How a connection to another host is made: look up the name, then try its addresses one after the
other.

The lookup has a time of its own. A resolver whose first server is dead takes five seconds and more,
and a lookup that is given up begins anew: together with the connection in one short time-out it
would never end. Each address has a time of its own, too: the first may be one (of the other
protocol, of an interface that is down) that no host answers at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.transport.tls import SHUTDOWN_S, handshake_on

Made = TypeVar("Made", bound=asyncio.BaseProtocol)

LOOKUP_S = 30.0


async def dialled(
    make: Callable[[], Made],
    where: Endpoint,
    *,
    name: str,
    tls: ssl.SSLContext | None,
    source: str | None,
    connect_s: float,
) -> tuple[Any, Made]:
    """A connection to that endpoint; with TLS, to the owner of a certificate of that name."""
    loop = asyncio.get_running_loop()
    problem: OSError = OSError(f"{where.host} has no address")
    for host, port in await addresses(where):
        try:
            # Not wait_for: if it is cancelled in the moment in which the connection is there,
            # nothing closes that.
            async with asyncio.timeout(connect_s):
                return await _connected(loop, make, (host, port), name, tls, source)
        except OSError as why:
            problem = why
    raise problem


async def _connected(
    loop: asyncio.AbstractEventLoop,
    make: Callable[[], Made],
    address: tuple[str, int],
    name: str,
    tls: ssl.SSLContext | None,
    source: str | None,
) -> tuple[Any, Made]:
    made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        made.setblocking(False)
        if source is not None:
            made.bind((source, 0))
        await loop.sock_connect(made, address)
        with handshake_on(made):
            if tls is None:
                return await loop.create_connection(make, sock=made)
            return await loop.create_connection(
                make, sock=made, ssl=tls, server_hostname=name, ssl_shutdown_timeout=SHUTDOWN_S
            )
    except BaseException:
        made.close()
        raise


async def addresses(where: Endpoint) -> list[tuple[str, int]]:
    if is_numeric(where.host):
        return [(where.host, where.port)]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LOOKUP_S):
        found = await loop.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((str(address[0]), int(address[1])) for *_, address in found))


def resolved(where: Endpoint) -> list[Any]:
    """For threads, which may wait."""
    return socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)


def is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
