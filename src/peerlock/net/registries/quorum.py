"""The registry of a group that decides for itself: three or five of its processes are voters (`net/voters/server.py`).

A member has a line to each voter, and beats. If its name is among the voters, the voter lives in its bureau.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from peerlock.errors import RegistryError
from peerlock.net.registries.heartbeat_thread import log
from peerlock.net.registries.leased import Household, LeasedRegistry
from peerlock.net.registries.static import parse_address
from peerlock.net.voters.connection import Dialler, Line, Party
from peerlock.net.voters.replacement import Voters
from peerlock.net.voters.server import Booth, check_voters
from peerlock.node.quorum.agent import AtVoters
from peerlock.node.quorum.messages import Envelope, Ruling, Salute, Vouch
from peerlock.node.wire import OLDEST, VERSION

LISTEN_AGAIN_S = 1.0


class EmbeddedRegistry(LeasedRegistry):
    """A member's: it beats to every voter. It is one itself, if its name is among them."""

    kind = "embedded"

    def __init__(
        self, group: str, voters: Mapping[str, str], name: str | None = None, *, first_start: bool = False, **rest: Any
    ) -> None:
        self.voters = check_voters(voters)
        self.diallers: dict[str, Dialler] = {}
        self.refusals: dict[str, str] = {}  # by voters that do not let us in
        self.booth: Booth | None = None
        super().__init__(group, name, where=[parse_address(*voter) for voter in self.voters], **rest)
        if self.name in voters:
            try:
                self.booth = Booth(
                    self.group, self.name, self.voters, self.path, self.lease_s,
                    tls=self.tls_contexts, first_start=first_start, bind=self.source, clock=self.steady,
                )  # fmt: skip
            except BaseException:
                self.close()
                raise
        self.bureau.at_end.append(self._close)

    def make_residence(self, household: Household) -> AtVoters:
        return AtVoters(household, self.lease_s, self.voters)

    def begin(self) -> None:
        if self.booth is not None:
            self.bureau.spawn(self._open(self.booth))
        self.redial(self.voters)

    async def _open(self, booth: Booth) -> None:
        """Another process may have the port for a moment: it is tried until it can be had."""
        said_so = False
        while True:
            try:
                await booth.open(self.bureau.spawn)
                return
            except RegistryError as problem:
                booth.refused = str(problem)
                if not said_so:
                    log.error("group %s: %s It is tried again until it can.", self.group, problem)
                said_so = True
            await asyncio.sleep(LISTEN_AGAIN_S)
            booth.refused = ""

    def redial(self, voters: Voters) -> None:
        for name in [name for name in self.diallers if name not in dict(voters)]:
            self.diallers.pop(name).stop()
        for name, address in voters:
            where = parse_address(name, address)
            if name in self.diallers and self.diallers[name].where != where:
                self.diallers.pop(name).stop()
            if name not in self.diallers:
                self.diallers[name] = Dialler(_MemberParty(self), name, where, self.bureau.spawn)

    def send(self, to: str, message: Any) -> None:
        if to not in self.diallers:
            self.redial(self.residence.decision.voters)
        self.diallers[to].say(message)
        self.diallers[to].hang_up_if_silent(self.lease_s)

    async def _close(self) -> None:
        if self.booth is not None:
            self.booth.close()


class _MemberParty(Party):
    def __init__(self, registry: EmbeddedRegistry) -> None:
        self.registry, self.group, self.tls = registry, registry.group, registry.tls_contexts
        self.source, self.name, self.lease_s = registry.source, registry.name, registry.lease_s

    def salute(self, sentence: str = "") -> Salute:
        return Salute(OLDEST, self.group, self.name, False, 0, self.lease_s, -1, sentence, VERSION)

    def not_let_in(self, line: Line, why: str) -> None:
        """One voter may be ill. If a majority says no, waiting does not help."""
        refusals, voters = self.registry.refusals, self.registry.residence.decision
        refusals[line.dialled or ""] = f"the voter {line.dialled} at {line.host} does not let this node in: {why}"
        if sum(name in refusals for name in voters.electors) >= voters.majority:
            self.registry.residence.refuse(refusals[line.dialled or ""])

    def greeted(self, line: Line, envelope: Envelope) -> None:
        self.registry.refusals.pop(line.name, None)
        self.hear(line, envelope)
        self.registry.residence.beat_at = 0.0
        self.registry.residence.tick(self.registry.clock())

    def hear(self, line: Line, envelope: Envelope) -> None:
        match envelope.word:
            case Vouch() | Ruling():
                self.registry.residence.on_word(line.name, envelope.word, self.registry.clock())
            case Salute(sentence=sentence) if sentence:
                line.end(sentence)

    def unreached(self, sentence: str) -> None:
        self.registry.shell.reason = sentence

    def complain(self, sentence: str) -> None:
        self.registry.residence.complain(sentence)
