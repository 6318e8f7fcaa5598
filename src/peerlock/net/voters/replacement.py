"""The operator's order: another voter in the place of a dead one.

`peerlock voters replace` asks one voter after the other (`replace_voter`). The one that is asked
(`Replacements`) looks first whether the new voter is there (`VisitingPeer`), for one that no other
voter reaches would cost the majority; then the voters decide it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from peerlock.errors import UsageError
from peerlock.net.files import check_name
from peerlock.net.transport.endpoint import Endpoint, parse_address
from peerlock.net.voters.connection import VoterConnection, VoterPeer, connected, hang_up
from peerlock.node.membership.view import View
from peerlock.node.quorum.messages import Envelope, Outcome, ReplaceVoter, VoterHello
from peerlock.node.wire import OLDEST, VERSION

if TYPE_CHECKING:
    from peerlock.net.voters.server import VoterServer

Voters = tuple[tuple[str, str], ...]

ORDER_S = 20.0  # for a voter to be replaced
REACH_S = 3.0  # to say who it is


async def replace_voter(
    group: str,
    voters: Voters,
    order: ReplaceVoter,
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
            transport, connection = await connected(client, voter, where)
            try:
                return await asyncio.wait_for(client.outcome, ORDER_S)
            finally:
                await hang_up(transport, connection)
        except (OSError, TimeoutError) as problem:
            problems.append(f"{voter} at {where}: {str(problem) or 'no answer'}")
            if client.asked:
                problems[-1] += " (it was asked, and may still do it: give the same order again to see)"
    return Outcome(False, f"No voter has carried it out: {'; '.join(problems)}.")


class WantedVoters(NamedTuple):
    """An order, as a list of voters in the place of the one that there was when it came."""

    connection: VoterConnection
    order: ReplaceVoter
    before: Voters
    voters: Voters


class Replacements:
    """What a voter was told to have decided, and on which line it says how that ended."""

    def __init__(self, voter_server: VoterServer) -> None:
        self.voter_server = voter_server
        self.waiting: list[WantedVoters] = []  # the first one is under way

    def take(self, connection: VoterConnection, order: ReplaceVoter) -> None:
        voter_server = self.voter_server
        if voter_server.driver is None:
            why = (
                voter_server.refused or f"The voter {voter_server.name} has not heard of a majority of the voters yet."
            )
            connection.say(Outcome(False, why))
            return
        before = dict(voter_server.decided_here.voters)
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
            connection.say(Outcome(False, str(problem)))
            return
        voters = tuple((order.new, order.address) if name == order.old else (name, at) for name, at in before.items())
        voter_server.spawn(self.carry_out(WantedVoters(connection, order, tuple(before.items()), voters)))

    async def carry_out(self, wanted: WantedVoters) -> None:
        """If the new voter is there, and is who it should be: one that nobody reaches would cost
        the majority.
        """
        voter_server, connection, order = self.voter_server, wanted.connection, wanted.order
        where = parse_address(order.new, order.address)
        try:
            await VisitingPeer(voter_server).reach(order.new, where)
        except (OSError, TimeoutError) as problem:
            why = str(problem) or "no answer"
            sentence = (
                f"The new voter {order.new} at {where} is not reached from {voter_server.name}: {why}. Start it first."
            )
            connection.say(Outcome(False, sentence))
            return
        if connection.closed.done():
            return
        if voter_server.decided_here.voters != wanted.before:
            self.take(connection, order)  # others were made voters meanwhile: what is wanted now is another list
            return
        self.waiting.append(wanted)
        self.next_one()

    def next_one(self) -> None:
        """Have the first one decided; of two at once, the second must know what came of the first."""
        driver = self.voter_server.driver
        if driver is not None and self.waiting and driver.voter.wanted != self.waiting[0].voters:
            driver.order(self.waiting[0].voters, self.voter_server.clock())

    def decided(self, view: View) -> None:
        waiting, self.waiting = self.waiting, []
        for wanted in waiting:
            if view.voters == wanted.voters:
                names = ", ".join(view.electors)
                wanted.connection.say(Outcome(True, f"The voters are now {names}, from epoch {view.epoch} on."))
            elif view.voters == wanted.before:
                self.waiting.append(wanted)
            else:
                self.take(wanted.connection, wanted.order)

    def lost(self, connection: VoterConnection) -> None:
        driver = self.voter_server.driver
        given_up = [wanted.voters for wanted in self.waiting if wanted.connection is connection]
        self.waiting = [wanted for wanted in self.waiting if wanted.connection is not connection]
        if driver is not None and driver.voter.wanted in given_up:
            driver.voter.wanted = ()  # the operator has gone; if it was proposed, it may still be decided
            self.next_one()


class VisitingPeer(VoterPeer):
    """A voter that wants to know whether another one is there."""

    def __init__(self, voter_server: VoterServer) -> None:
        self.voter_server = voter_server
        self.group, self.name, self.tls, self.lease_s, self.source = (
            voter_server.group, voter_server.name, voter_server.tls, voter_server.lease_s, voter_server.source
        )  # fmt: skip
        self.met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reach(self, name: str, where: Endpoint) -> None:
        transport, _ = await connected(self, name, where)
        try:
            await asyncio.wait_for(self.met, REACH_S)
        finally:
            transport.close()

    def hello(self, sentence: str = "") -> VoterHello:
        return self.voter_server.hello(sentence)

    def counters(self, name: str) -> tuple[int, int]:
        return self.voter_server.counters(name)

    def greeted(self, connection: VoterConnection, envelope: Envelope) -> None:
        if not self.met.done():
            self.met.set_result(None)

    def not_let_in(self, connection: VoterConnection, why: str) -> None:
        if not self.met.done():
            self.met.set_exception(ConnectionError(why))

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        pass

    def lost(self, connection: VoterConnection) -> None:
        self.not_let_in(connection, "it has closed the line")


class _Operator(VoterPeer):
    asked = False

    def __init__(self, group: str, tls: Any, name: str, order: ReplaceVoter) -> None:
        self.group, self.tls, self.name, self.order = group, tls, name, order
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def hello(self, sentence: str = "") -> VoterHello:
        return VoterHello(OLDEST, self.group, self.name, False, 0, 0.0, -1, sentence, VERSION)

    def greeted(self, connection: VoterConnection, envelope: Envelope) -> None:
        self.asked = True
        connection.say(self.order)

    def not_let_in(self, connection: VoterConnection, why: str) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionError(why))

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        if isinstance(envelope.word, Outcome) and not self.outcome.done():
            self.outcome.set_result(envelope.word)

    def lost(self, connection: VoterConnection) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(ConnectionError("the line was closed"))
