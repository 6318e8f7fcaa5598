"""The operator's order: another voter in the place of a dead one.

`peerlock voters replace` asks one voter after the other (`give_order`). The one that is asked looks first whether the new
voter is there (`Visitor`), for one that nobody reaches would cost the majority; then the voters decide it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from peerlock.net.lines import Line, Party, connected
from peerlock.net.registry import Endpoint
from peerlock.net.static import parse_address
from peerlock.node.voting import Envelope, Order, Outcome, Salute
from peerlock.node.wire import OLDEST, VERSION

if TYPE_CHECKING:
    from peerlock.net.booth import Booth

ORDER_S = 20.0  # for a voter to be replaced
REACH_S = 3.0


async def give_order(
    group: str,
    voters: tuple[tuple[str, str], ...],
    order: Order,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None,
    name: str,
) -> Outcome:
    """The operator's: ask one voter after the other to have it decided."""
    problems = []
    for voter, address in voters:
        if voter == order.old:
            continue
        client = _Operator(group, tls, name, order)
        where: Endpoint = parse_address(voter, address)
        try:
            async with asyncio.timeout(REACH_S):
                transport, _ = await connected(client, voter, where)
            try:
                return await asyncio.wait_for(client.outcome, ORDER_S)
            finally:
                transport.close()
        except (OSError, TimeoutError) as problem:
            problems.append(f"{voter} at {where}: {str(problem) or 'no answer'}")
            if client.asked:
                problems[-1] += " (it was asked, and may still do it: give the same order again to see)"
    return Outcome(False, f"No voter has carried it out: {'; '.join(problems)}.")


class Visitor(Party):
    """A voter that wants to know whether another one is there."""

    def __init__(self, booth: Booth) -> None:
        self.booth = booth
        self.group, self.name, self.tls, self.lease_s, self.source = (
            booth.group, booth.name, booth.tls, booth.lease_s, booth.source
        )  # fmt: skip
        self.met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reach(self, name: str, where: Endpoint) -> None:
        async with asyncio.timeout(REACH_S):
            transport, _ = await connected(self, name, where)
        try:
            await asyncio.wait_for(self.met, REACH_S)
        finally:
            transport.close()

    def salute(self, sentence: str = "") -> Salute:
        return self.booth.salute(sentence)

    def counters(self, name: str) -> tuple[int, int]:
        return self.booth.counters(name)

    def greeted(self, line: Line, envelope: Envelope) -> None:
        if not self.met.done():
            self.met.set_result(None)

    def not_let_in(self, line: Line, why: str) -> None:
        if not self.met.done():
            self.met.set_exception(ConnectionError(why))

    def hear(self, line: Line, envelope: Envelope) -> None:
        pass

    def lost(self, line: Line) -> None:
        self.not_let_in(line, "it has closed the line")


class _Operator(Party):
    asked = False

    def __init__(self, group: str, tls: Any, name: str, order: Order) -> None:
        self.group, self.tls, self.name, self.order = group, tls, name, order
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def salute(self, sentence: str = "") -> Salute:
        return Salute(OLDEST, self.group, self.name, False, 0, 0.0, -1, sentence, VERSION)

    def greeted(self, line: Line, envelope: Envelope) -> None:
        self.asked = True
        line.say(self.order)

    def hear(self, line: Line, envelope: Envelope) -> None:
        if isinstance(envelope.word, Outcome) and not self.outcome.done():
            self.outcome.set_result(envelope.word)

    def lost(self, line: Line) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionError("the line was closed"))
