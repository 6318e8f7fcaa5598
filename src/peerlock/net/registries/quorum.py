"""The registry of a group that decides for itself: three or five of its processes are voters
(`net/voters/server.py`).

A member has a line to each voter, and sends heartbeats on it. If its name is among the voters, the
voter lives in its heartbeat thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from peerlock.errors import RegistryError
from peerlock.net.registries.heartbeat_thread import log
from peerlock.net.registries.leased import AgentShell, LeasedRegistry
from peerlock.net.transport.endpoint import parse_address
from peerlock.net.voters.connection import Reconnector, VoterConnection, VoterPeer
from peerlock.net.voters.replacement import Voters
from peerlock.net.voters.server import VoterServer, check_voters
from peerlock.node.quorum.agent import QuorumAgent
from peerlock.node.quorum.messages import Envelope, HeartbeatAck, ViewDecided, VoterHello
from peerlock.node.wire import OLDEST, VERSION

LISTEN_AGAIN_S = 1.0


class EmbeddedRegistry(LeasedRegistry[QuorumAgent]):
    """A member's: it sends heartbeats to every voter. It is one itself, if its name is among them."""

    kind = "embedded"

    def __init__(
        self, group: str, voters: Mapping[str, str], name: str | None = None, *, first_start: bool = False, **rest: Any
    ) -> None:
        self.voters = check_voters(voters)
        self.reconnectors: dict[str, Reconnector] = {}
        self.refusals: dict[str, str] = {}  # by voters that do not let us in
        self.voter_server: VoterServer | None = None
        super().__init__(group, name, where=[parse_address(*voter) for voter in self.voters], **rest)
        if self.name in voters:
            try:
                self.voter_server = VoterServer(
                    self.group, self.name, self.voters, self.path, self.lease_s,
                    tls=self.tls_contexts, first_start=first_start, bind=self.source, clock=self.steady,
                )  # fmt: skip
            except BaseException:
                self.close()
                raise
        self.heartbeat_thread.at_end.append(self._close)

    def make_agent(self, shell: AgentShell) -> QuorumAgent:
        return QuorumAgent(shell, self.lease_s, self.voters)

    def begin(self) -> None:
        if self.voter_server is not None:
            self.heartbeat_thread.spawn(self._open(self.voter_server))
        self.redial(self.voters)

    async def _open(self, voter_server: VoterServer) -> None:
        """Another process may have the port for a moment: it is tried until it can be had."""
        said_so = False
        while True:
            try:
                await voter_server.open(self.heartbeat_thread.spawn)
                return
            except RegistryError as problem:
                voter_server.refused = str(problem)
                if not said_so:
                    log.error("group %s: %s It is tried again until it can.", self.group, problem)
                said_so = True
            await asyncio.sleep(LISTEN_AGAIN_S)
            voter_server.refused = ""

    def redial(self, voters: Voters) -> None:
        for name in [name for name in self.reconnectors if name not in dict(voters)]:
            self.reconnectors.pop(name).stop()
        for name, address in voters:
            where = parse_address(name, address)
            if name in self.reconnectors and self.reconnectors[name].where != where:
                self.reconnectors.pop(name).stop()
            if name not in self.reconnectors:
                self.reconnectors[name] = Reconnector(_MemberVoterPeer(self), name, where, self.heartbeat_thread.spawn)

    def send(self, to: str, message: Any) -> None:
        if to not in self.reconnectors:
            self.redial(self.agent.view.voters)
        self.reconnectors[to].say(message)
        self.reconnectors[to].hang_up_if_silent(self.lease_s)

    async def _close(self) -> None:
        if self.voter_server is not None:
            self.voter_server.close()


class _MemberVoterPeer(VoterPeer):
    def __init__(self, registry: EmbeddedRegistry) -> None:
        self.registry, self.group, self.tls = registry, registry.group, registry.tls_contexts
        self.source, self.name, self.lease_s = registry.source, registry.name, registry.lease_s

    def hello(self, sentence: str = "") -> VoterHello:
        return VoterHello(OLDEST, self.group, self.name, False, 0, self.lease_s, -1, sentence, VERSION)

    def not_let_in(self, connection: VoterConnection, why: str) -> None:
        """One voter may be ill. If a majority says no, waiting does not help."""
        refusals, voters = self.registry.refusals, self.registry.agent.view
        refusals[connection.dialled or ""] = (
            f"the voter {connection.dialled} at {connection.host} does not let this node in: {why}"
        )
        if sum(name in refusals for name in voters.electors) >= voters.majority:
            self.registry.agent.refuse(refusals[connection.dialled or ""])

    def greeted(self, connection: VoterConnection, envelope: Envelope) -> None:
        self.registry.refusals.pop(connection.name, None)
        self.hear(connection, envelope)
        self.registry.agent.heartbeat_at = 0.0
        self.registry.agent.tick(self.registry.clock())

    def hear(self, connection: VoterConnection, envelope: Envelope) -> None:
        match envelope.word:
            case HeartbeatAck() | ViewDecided():
                self.registry.agent.on_word(connection.name, envelope.word, self.registry.clock())
            case VoterHello(sentence=sentence) if sentence:
                connection.end(sentence)

    def unreached(self, sentence: str) -> None:
        self.registry.shell.reason = sentence

    def complain(self, sentence: str) -> None:
        self.registry.agent.complain(sentence)
