"""The operator's order: another voter in the place of a dead one.

`peerlock voters replace` asks one voter after the other (`give_order`). The one that is asked (`Orders`) looks first whether
the new voter is there (`Visitor`), for one that nobody reaches would cost the majority; then the voters decide it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from peerlock.errors import UsageError
from peerlock.net.files import check_name
from peerlock.net.registries.base import Endpoint
from peerlock.net.registries.static import parse_address
from peerlock.net.voters.connection import Line, Party, connected, hang_up
from peerlock.node.membership.view import Decision
from peerlock.node.quorum.messages import Envelope, Order, Outcome, Salute
from peerlock.node.wire import OLDEST, VERSION

if TYPE_CHECKING:
    from peerlock.net.voters.server import Booth

Voters = tuple[tuple[str, str], ...]

ORDER_S = 20.0  # for a voter to be replaced
REACH_S = 3.0  # to say who it is


async def give_order(
    group: str,
    voters: Voters,
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
            transport, line = await connected(client, voter, where)
            try:
                return await asyncio.wait_for(client.outcome, ORDER_S)
            finally:
                await hang_up(transport, line)
        except (OSError, TimeoutError) as problem:
            problems.append(f"{voter} at {where}: {str(problem) or 'no answer'}")
            if client.asked:
                problems[-1] += " (it was asked, and may still do it: give the same order again to see)"
    return Outcome(False, f"No voter has carried it out: {'; '.join(problems)}.")


class Wanted(NamedTuple):
    """An order, as a list of voters in the place of the one that there was when it came."""

    line: Line
    order: Order
    before: Voters
    voters: Voters


class Orders:
    """What a voter was told to have decided, and on which line it says how that ended."""

    def __init__(self, booth: Booth) -> None:
        self.booth = booth
        self.waiting: list[Wanted] = []  # the first one is under way

    def take(self, line: Line, order: Order) -> None:
        booth = self.booth
        if booth.office is None:
            why = booth.refused or f"The voter {booth.name} has not heard of a majority of the voters yet."
            line.say(Outcome(False, why))
            return
        before = dict(booth.decided_here.voters)
        try:
            check_name("node", order.new)
            parse_address(order.new, order.address)
            for name, address in before.items():
                if address == order.address:
                    raise UsageError(f"{address} is the address of the voter {name}; {order.new} needs one of its own.")
            if order.old not in before or order.new in before:
                names = ", ".join(before)
                raise UsageError(f"The voters are {names}: {order.old} must be one of them, {order.new} must not.")
        except UsageError as problem:
            line.say(Outcome(False, str(problem)))
            return
        voters = tuple((order.new, order.address) if name == order.old else (name, at) for name, at in before.items())
        booth.spawn(self.carry_out(Wanted(line, order, tuple(before.items()), voters)))

    async def carry_out(self, wanted: Wanted) -> None:
        """If the new voter is there, and is who it should be: one that nobody reaches would cost the majority."""
        booth, line, order = self.booth, wanted.line, wanted.order
        where = parse_address(order.new, order.address)
        try:
            await Visitor(booth).reach(order.new, where)
        except (OSError, TimeoutError) as problem:
            why = str(problem) or "no answer"
            sentence = f"The new voter {order.new} at {where} is not reached from {booth.name}: {why}. Start it first."
            line.say(Outcome(False, sentence))
            return
        if line.closed.done():
            return
        if booth.decided_here.voters != wanted.before:
            self.take(line, order)  # others were made voters meanwhile: what is wanted now is another list
            return
        self.waiting.append(wanted)
        self.next_one()

    def next_one(self) -> None:
        """Have the first one decided; of two at once, the second must know what came of the first."""
        office = self.booth.office
        if office is not None and self.waiting and office.voter.wanted != self.waiting[0].voters:
            office.order(self.waiting[0].voters, self.booth.clock())

    def decided(self, decision: Decision) -> None:
        waiting, self.waiting = self.waiting, []
        for wanted in waiting:
            if decision.voters == wanted.voters:
                names = ", ".join(decision.electors)
                wanted.line.say(Outcome(True, f"The voters are now {names}, from epoch {decision.epoch} on."))
            elif decision.voters == wanted.before:
                self.waiting.append(wanted)
            else:
                self.take(wanted.line, wanted.order)

    def lost(self, line: Line) -> None:
        office = self.booth.office
        given_up = [wanted.voters for wanted in self.waiting if wanted.line is line]
        self.waiting = [wanted for wanted in self.waiting if wanted.line is not line]
        if office is not None and office.voter.wanted in given_up:
            office.voter.wanted = ()  # whoever wanted it has gone; if it was proposed, it may still be decided
            self.next_one()


class Visitor(Party):
    """A voter that wants to know whether another one is there."""

    def __init__(self, booth: Booth) -> None:
        self.booth = booth
        self.group, self.name, self.tls, self.lease_s, self.source = (
            booth.group, booth.name, booth.tls, booth.lease_s, booth.source
        )  # fmt: skip
        self.met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reach(self, name: str, where: Endpoint) -> None:
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

    def not_let_in(self, line: Line, why: str) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionError(why))

    def hear(self, line: Line, envelope: Envelope) -> None:
        if isinstance(envelope.word, Outcome) and not self.outcome.done():
            self.outcome.set_result(envelope.word)

    def lost(self, line: Line) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionError("the line was closed"))
