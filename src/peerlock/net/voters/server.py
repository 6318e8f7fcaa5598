"""A voter as a server: its record, its connections and its clock.

It runs in the heartbeat thread of the node whose name is among the voters
(`net/registries/quorum.py`), or in a process of its own (`peerlock node --voter`).
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peerlock.errors import ProtocolError, RegistryError, UsageError
from peerlock.net.files import check_name, directory_for, make_private
from peerlock.net.registries.heartbeat_thread import log
from peerlock.net.registries.leased import checked_lease
from peerlock.net.transport.endpoint import Endpoint, parse_address
from peerlock.net.transport.listen import max_unidentified
from peerlock.net.transport.tls import check_tls, contexts
from peerlock.net.voters.connection import Reconnector, Server, VoterConnection, VoterPeer, close_server, serve
from peerlock.net.voters.record_file import RecordFile, Stored
from peerlock.net.voters.replacement import Replacements, Voters
from peerlock.node.membership.lease import support_s
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import (
    Envelope,
    Heartbeat,
    HeartbeatAck,
    Outcome,
    ReplaceVoter,
    ViewDecided,
    VoterHello,
)
from peerlock.node.quorum.voter import EVERYBODY, Voter, VoterRecord
from peerlock.node.quorum.voter_driver import VoterDriver
from peerlock.node.wire import OLDEST, VERSION


def check_voters(voters: Mapping[str, str]) -> Voters:
    for name, address in voters.items():
        check_name("node", name)
        parse_address(name, address)
    if len(voters) not in (1, 3, 5):
        raise UsageError(
            f"A group has three voters or five, so that a majority is left when one dies or two do (or one, to try it out); "
            f"got {len(voters)}: "
            f"{', '.join(voters)}."
        )
    if len(set(voters.values())) != len(voters):
        raise UsageError(f"Each voter has an address of its own; got {', '.join(voters.values())}.")
    return tuple(voters.items())


class VoterServer(VoterPeer):
    """A voter at its place."""

    voters_of: type[Voter] = Voter

    def __init__(
        self,
        group: str,
        name: str,
        voters: Voters,
        path: Path,
        lease_s: float,
        *,
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
        first_start: bool = False,
        bind: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Its clock does not count suspension: promises may become longer by that, and never
        shorter.
        """
        self.group, self.name, self.tls, self.lease_s, self.clock = group, name, tls, lease_s, clock
        self.where = parse_address(name, dict(voters)[name])
        self.source = bind
        self.file = RecordFile(path, group, name)
        try:
            self.stored = self.file.read(first_start, VoterRecord(View(0, (), voters)))
        except BaseException:
            self.file.close()
            raise
        self.seen = dict(self.stored.seen)
        self.known = voters  # where others are, until a view says otherwise
        self.run = secrets.randbits(62)
        self.runs: dict[str, set[int]] = {}  # of other voters: those whose record was as new as any that was seen
        self.driver: VoterDriver | None = None
        self.refused = ""  # why this voter does not vote
        self.cleared: set[str] = set()  # voters that know of no later record of ours
        self.at_first: set[str] = set()  # voters that know of no view yet
        self.members: dict[Peer, VoterConnection] = {}  # by which line each beats
        self.guests: set[VoterConnection] = set()
        self.unidentified: dict[
            VoterConnection, None
        ] = {}  # of these, connections without a name yet; the oldest first
        self.most = max_unidentified()
        self.reconnectors: dict[str, Reconnector] = {}
        self.orders = Replacements(self)
        self.server: Server | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.retry: asyncio.TimerHandle | None = None  # of a record that could not be written

    async def open(self, spawn: Callable[..., Any]) -> None:
        self.spawn = spawn
        try:
            self.server = await serve(self, Endpoint(host=self.source or self.where.host, port=self.where.port))
        except OSError as problem:
            raise RegistryError(
                f"The voter {self.name} cannot listen at {self.where}: {problem.strerror or problem}."
            ) from None
        if self.stored.counter == 0:
            self.write()
        self.redial()
        self.start_if_cleared()

    def redial(self) -> None:
        """A line to each other voter, as far as they are known."""
        decided = self.driver.voter.decided if self.driver is not None else self.stored.record.decided
        others = {name: address for name, address in (*self.known, *decided.voters) if name != self.name}
        for name in [name for name in self.reconnectors if name not in others]:
            self.reconnectors.pop(name).stop()
        for name, address in others.items():
            where = parse_address(name, address)
            if name in self.reconnectors and self.reconnectors[name].where != where:
                self.reconnectors.pop(name).stop()
            if name not in self.reconnectors:
                self.reconnectors[name] = Reconnector(self, name, where, self.spawn)

    def start_if_cleared(self) -> None:
        """A voter votes when enough of the others have confirmed that its record is not an old
        copy.
        """
        if self.driver is not None or self.refused or self.retry is not None:
            return
        decided = self.stored.record.decided
        if decided.epoch == 0:
            # The beginning of a group, or of a voter in one that there is already: that must be
            # told apart. So all begin together.
            if self.at_first < {name for name, _ in self.known if name != self.name}:
                return
        else:
            electors = set(decided.electors)
            if len(self.cleared & electors) < len(electors) // 2 + 1 - (self.name in electors):
                return
        now = self.clock()
        voter = self.voters_of.restarted(self.name, self.lease_s, self.stored.record, now)
        if self.stored.lease_s > self.lease_s:
            # What it promised before was longer.
            voter.supported = ((EVERYBODY, now + support_s(self.stored.lease_s)),)
        self.driver = VoterDriver(voter, self, now)
        log.info("group %s: %s votes, from epoch %s on", self.group, self.name, decided.epoch + 1)

    # -- lines ---------------------------------------------------------------------------------------------

    def hello(self, sentence: str = "") -> VoterHello:
        return VoterHello(
            OLDEST,
            self.group,
            self.name,
            True,
            self.run,
            self.lease_s,
            self.decided_here.epoch,
            sentence or self.refused,
            VERSION,
        )

    @property
    def decided_here(self) -> View:
        return self.driver.voter.decided if self.driver is not None else self.stored.record.decided

    def counters(self, name: str) -> tuple[int, int]:
        return self.stored.counter, self.seen.get(name, 0)

    def admit(self, connection: VoterConnection) -> None:
        self.guests.add(connection)
        self.unidentified[connection] = None
        if len(self.unidentified) > self.most:
            oldest = next(iter(self.unidentified))
            del self.unidentified[oldest]
            oldest.drop("too many that have not said who they are")

    def greeted(self, connection: VoterConnection, envelope: Envelope) -> None:
        self.unidentified.pop(connection, None)
        if self.is_one_of_us(connection):
            if not self.trusts(connection, envelope):
                return
            self.cleared.add(connection.name)
            if connection.epoch == 0:
                self.at_first.add(connection.name)
            self.start_if_cleared()
            if self.decided_here.epoch:
                connection.say(ViewDecided(self.decided_here))

    def is_one_of_us(self, connection: VoterConnection) -> bool:
        """A voter, by its own word and by ours."""
        return connection.is_voter and connection.name in {*dict(self.known), *self.decided_here.electors}

    def trusts(self, connection: VoterConnection, envelope: Envelope) -> bool:
        """Is the other's record as new as what it has said before, and is ours?

        One start of a voter has several lines, and what it says on them may overtake each other; so
        only its first word counts.
        """
        known = self.runs.setdefault(connection.name, set())
        if connection.run not in known and envelope.counter < self.seen.get(connection.name, 0):
            connection.say(self.hello(
                f"the record of the voter {connection.name} is at {envelope.counter}, and it was at "
                f"{self.seen[connection.name]}: it was replaced by an old copy. It must not vote. Stop it, and put a "
                f"new voter in its place: peerlock voters replace {connection.name} NEW=HOST:PORT"
            ))  # fmt: skip
            connection.end(f"the record of {connection.name} is older than what it has said before")
            return False
        known.add(connection.run)
        self.seen[connection.name] = max(envelope.counter, self.seen.get(connection.name, 0))
        reconnector = self.reconnectors.get(connection.name)
        if reconnector is not None and reconnector.connection is not None:
            reconnector.connection.heard = asyncio.get_running_loop().time()  # it answers on a line of its own
        if envelope.seen > self.stored.counter and not self.refused:
            self.refuse(
                f"the record of the voter {self.name} ({self.file.path}) is at {self.stored.counter}, and "
                f"{connection.name} has seen it at {envelope.seen}: it was replaced by an old copy. This voter does not vote. "
                f"Put a new one in its place: "
                f"peerlock voters replace {self.name} NEW=HOST:PORT"
            )
            return False
        return True

    def refuse(self, why: str) -> None:
        self.refused = why
        log.error("group %s: %s", self.group, why)
        self.driver = None
        if self.timer is not None:
            self.timer.cancel()

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        word = envelope.word
        ours = self.is_one_of_us(connection)
        if ours and not self.trusts(connection, envelope):
            return
        if isinstance(word, VoterHello):
            if word.sentence:
                connection.end(word.sentence)
            return
        if isinstance(word, ReplaceVoter):
            self.orders.take(connection, word)
            return
        try:
            if self.driver is None:
                if ours and isinstance(word, ViewDecided):
                    self.on_news(word.view)
            elif isinstance(word, Heartbeat):
                if word.peer.name != connection.name:
                    raise ProtocolError(f"{connection.name} speaks for {word.peer.name}")
                self.heartbeats_on(connection, word.peer)
                self.driver.on_heartbeat(word, self.clock())
            elif ours and not isinstance(word, HeartbeatAck | Outcome):
                self.driver.receive(connection.name, word, self.clock())
        except RegistryError as problem:
            self.cannot_write(problem)

    def heartbeats_on(self, connection: VoterConnection, peer: Peer) -> None:
        """An earlier incarnation of a member that sends heartbeats is no more."""
        if self.members.get(peer) is not connection:
            for other in [other for other, theirs in self.members.items() if theirs is connection]:
                del self.members[other]
            self.members[peer] = connection

    def on_news(self, view: View) -> None:
        """Before it votes: what was decided while it was away, which may name other voters to be
        asked.
        """
        if view.epoch > self.stored.record.decided.epoch:
            self.save(VoterRecord(view))
            self.redial()
        self.start_if_cleared()

    def cannot_write(self, problem: RegistryError) -> None:
        """A disk that is full may have room again: then this voter starts again, from what is on
        it.
        """
        self.complain(f"{problem} The voter {self.name} does not vote until it can.")
        self.driver = None
        if self.retry is None:
            self.retry = asyncio.get_running_loop().call_later(1.0, self.start_again)

    def start_again(self) -> None:
        self.retry = None
        if self.closed:
            return  # the file is another's now
        try:
            self.stored = self.file.read(False, self.stored.record)
            self.save(self.stored.record)
        except RegistryError as problem:
            self.cannot_write(problem)
            return
        self.start_if_cleared()

    def lost(self, connection: VoterConnection) -> None:
        self.guests.discard(connection)
        self.unidentified.pop(connection, None)
        for peer in [peer for peer, mine in self.members.items() if mine is connection]:
            del self.members[peer]
        self.orders.lost(connection)

    # -- what the driver asks for ----------------------------------------------------------------

    def write(self) -> None:
        self.file.write(self.stored)

    def save(self, record: VoterRecord) -> None:
        stored = Stored(
            self.group,
            self.name,
            self.stored.counter + 1,
            dict(self.seen),
            record,
            max(self.lease_s, self.stored.lease_s),
        )
        self.file.write(stored)
        self.stored = stored

    def send(self, to: str, message: Any) -> None:
        reconnector = self.reconnectors.get(to)
        if reconnector is not None:
            reconnector.say(message)

    def answer(self, peer: Peer, ack: HeartbeatAck) -> None:
        connection = self.members.get(peer)
        if connection is not None:
            connection.say(ack)

    def decided(self, view: View) -> None:
        for connection in set(self.members.values()):
            connection.say(ViewDecided(view))
        self.redial()
        for name in view.electors:
            self.send(name, ViewDecided(view))
        self.orders.decided(view)

    def wake_at(self, when: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(max(0.0, when - self.clock()), self.tick)

    def tick(self) -> None:
        self.timer = None
        if self.driver is None:
            return
        try:
            self.driver.tick(self.clock())
        except RegistryError as problem:
            self.cannot_write(problem)
        for reconnector in self.reconnectors.values():
            reconnector.hang_up_if_silent(2 * self.lease_s)

    def close(self) -> None:
        self.closed = True
        for timer in (self.timer, self.retry):
            if timer is not None:
                timer.cancel()
        for reconnector in self.reconnectors.values():
            reconnector.stop()
        for guest in list(self.guests):
            if guest.transport is not None:
                guest.transport.abort()
        close_server(self.server)
        self.file.close()


class VoterProcess:
    """A voter that is no member: `peerlock node --voter`."""

    def __init__(self, voter_server: VoterServer) -> None:
        self.voter_server = voter_server

    async def run(self, ended: asyncio.Event) -> None:
        tasks: set[asyncio.Task[Any]] = set()

        def spawn(work: Any) -> asyncio.Task[Any]:
            task = asyncio.get_running_loop().create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        try:
            await self.voter_server.open(spawn)
            await ended.wait()
        finally:
            self.voter_server.close()
            for task in tasks:
                task.cancel()


def voter_server_for(group: str, settings: Any) -> VoterServer:
    """A voter of its own, from the settings of its group."""
    if settings.voters is None:
        raise UsageError("A voter needs the list of voters: [voters] in --config, or PEERLOCK_VOTERS.")
    voters = check_voters(settings.voters)
    if settings.name not in dict(voters):
        raise UsageError(f"Which of the voters {', '.join(dict(voters))} is this? Set --name or PEERLOCK_NAME.")
    where = [parse_address(*voter) for voter in voters]
    check_tls(group, settings.tls, bool(settings.insecure), where)
    tls = contexts(settings.tls, settings.name) if settings.tls else None
    if settings.state is not None:
        path = Path(settings.state)
    else:
        make_private(directory_for(group))
        path = directory_for(group) / f"embedded-{settings.name}"
    return VoterServer(
        check_name("group", group), settings.name, voters, path, checked_lease(settings.lease_s),
        tls=tls, first_start=bool(settings.first_start), bind=settings.bind,
    )  # fmt: skip
