"""Lines between members and voters: whoever hangs up has hung up, in whatever moment."""

from __future__ import annotations

import asyncio
import socket

from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.voters.connection import Reconnector, VoterConnection, VoterPeer, close_server, serve
from peerlock.node.quorum.messages import Envelope, VoterHello
from peerlock.node.wire import OLDEST, VERSION
from ports import free_port


class Quiet(VoterPeer):
    group = "g"

    def __init__(self, name: str) -> None:
        self.name = name

    def hello(self, sentence: str = "") -> VoterHello:
        return VoterHello(OLDEST, self.group, self.name, True, 1, 0.0, 0, sentence, VERSION)

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        pass


def test_a_reconnector_that_is_stopped_stops() -> None:
    """Also in the moment in which its line is there: then the end of the task is easily lost."""

    async def whole() -> None:
        where = Endpoint(host="127.0.0.1", port=free_port())
        server = await serve(Quiet("v"), where)
        loop = asyncio.get_running_loop()
        for turns in [*range(12)] * 25:
            reconnector = Reconnector(Quiet("m"), "v", where, loop.create_task)
            for _ in range(turns):
                await asyncio.sleep(0)
            reconnector.stop()
            done, _ = await asyncio.wait({reconnector.task}, timeout=2.0)
            assert done, f"stopped after {turns} turns of the loop, and it goes on"
        close_server(server)
        await asyncio.sleep(0.05)

    asyncio.run(whole())


def test_who_comes_in_while_somebody_goes_is_sent_away() -> None:
    """An accepted connection is told of a turn of the loop later: by then there may be nobody left to close it."""

    async def whole() -> None:
        owner, loop = Quiet("v"), asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        owner.closed = True
        await loop.connect_accepted_socket(lambda: VoterConnection(owner), theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        async with asyncio.timeout(2.0):
            assert await reader.read() == b""
        writer.close()
        await asyncio.sleep(0)

    asyncio.run(whole())
