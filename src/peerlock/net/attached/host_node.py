"""The program of a host node that was started on demand: `python -m peerlock.net.attached.host_node
GROUP [DIRECTORY]`. It ends when it has had no user for a while. `peerlock node` is one as well, and
stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

from peerlock.errors import RegistryError, UsageError
from peerlock.net.aio.node import Joining
from peerlock.net.attached.directory import AttachedDirectory, is_stopped
from peerlock.net.attached.serving import HostNode
from peerlock.net.registries.host import HostRegistry
from peerlock.net.registries.liveness_lock import LivenessLock
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire_algorithms import DEFAULT

LINGER_S = 30.0  # without a user
REPLACED_S = 10.0  # for a host node that was started on demand to make room for a service


async def serve(group: str, shared: str | None) -> None:
    directory = AttachedDirectory(group, shared)
    directory.make()
    lock = directory.lock_host()
    if lock is None:
        return  # there is one
    ended = ends_when_told()
    async with hosting(directory, lock, group, shared) as host:
        await host.until_unused(ended, LINGER_S)


def ends_when_told() -> asyncio.Event:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


@contextlib.asynccontextmanager
async def hosting(
    directory: AttachedDirectory, lock: LivenessLock, group: str, shared: str | None, *,
    name: str | None = None, service: bool = False,
    algorithm: str = DEFAULT, limits: Limits | None = None,
) -> AsyncIterator[HostNode]:  # fmt: skip
    """The host node, as a member of its group. `lock` is that of the file `host`."""
    registry = HostRegistry(group, name, shared, resident=True)
    host = HostNode(directory, lock, registry, group, service, algorithm, limits)
    await host.collect()
    async with Joining(lambda: host.shell):
        yield host
        sys.stdout.flush()
        if host.pages.pages:
            os._exit(0)  # the next host node takes over what is held: to leave would be to lose it
        host.close()


async def take_the_place(directory: AttachedDirectory, group: str) -> LivenessLock:
    """A service ends a host node that was started on demand, and takes over what is held."""
    began = time.monotonic()
    while (lock := directory.lock_host()) is None:
        newest = directory.newest()
        if newest is not None and newest.service:
            raise UsageError(
                f"A node of the group {group} runs on this host already, as process {newest.pid}: one is enough for all "
                "processes of this user."
            )
        if newest is not None:
            directory.signal_host(newest, signal.SIGKILL if is_stopped(newest) else signal.SIGTERM)
        if time.monotonic() - began > REPLACED_S:
            raise RegistryError(
                f"The host node of the group {group} does not end: {directory.path / 'log'} may say why."
            )
        await asyncio.sleep(0.05)
    return lock


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    runner = asyncio.run
    try:
        import uvloop
    except ImportError:
        pass
    else:
        runner = uvloop.run
    runner(serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))


if __name__ == "__main__":
    main()
