"""The program of a host node that was started on demand: `python -m peerlock.net.attached.host_node
GROUP [DIRECTORY]`. It ends when it has had no user for a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from peerlock.net.aio.node import Joining
from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.serving import HostNode
from peerlock.net.registries.host import HostRegistry

LINGER_S = 30.0  # without a user


async def serve(group: str, shared: str | None) -> None:
    directory = AttachedDirectory(group, shared)
    directory.make()
    lock = directory.lock_host()
    if lock is None:
        return  # there is one
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    host = HostNode(directory, HostRegistry(group, None, shared, resident=True), group)
    await host.collect()
    async with Joining(lambda: host.shell):
        await host.until_unused(ended, LINGER_S)
        if host.pages.pages:
            os._exit(0)  # the next host node takes over what is held: to leave would be to lose it
        host.close()


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
