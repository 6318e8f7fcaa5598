"""Voters, stores and the registry of one host: what is explored, and each of their rules taken away in turn.

`peerlock check-registries` runs them all. The mutants are in `peerlock.planted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from peerlock import planted
from peerlock.check.properties import finding
from peerlock.check.protocols import host, host_mutants, store
from peerlock.check.protocols import quorum as consensus
from peerlock.check.protocols.quorum import Group as Voters
from peerlock.check.protocols.store import StoreGroup as Store
from peerlock.check.search import Outcome, Progress

_LIVE: dict[str, Any] = {"obstinate": True, "only_if_it_must": True, "renews": False, "crashes": 1, "apart": True}


class Explored(Struct, frozen=True):
    name: str
    group: Any
    blocks: bool = False  # the question is whether the voters can stand still for ever


CLEAN = (
    Explored("3 voters, 3 ballots", Voters()),
    Explored("3 voters, 3 ballots, a pair that cannot talk", Voters(apart=True)),
    Explored("3 voters, 2 ballots, a lease is given", Voters(ballots=2, heartbeats=1, leased=False)),
    Explored("3 voters, 2 ballots, one is restarted", Voters(ballots=2, restarts=1)),
    Explored("3 voters, 2 ballots, a member leaves", Voters(ballots=2, leaves=True)),
    Explored("3 voters, 2 ballots, a joiner", Voters(ballots=2, joins=True)),
    Explored("3 voters, 3 ballots, 2 epochs", Voters(ballots=3, changes=2)),
    Explored("3 voters, 2 ballots, 2 epochs, a wish that is old", Voters(ballots=2, old_wish=True, changes=2)),
    Explored("a voter is replaced, 2 epochs", Voters(ballots=2, replaces=True, changes=2, renews=False)),
    Explored("a voter is replaced, m is cut off from one", Voters(ballots=2, replaces=True, changes=2, renews=False, cut=(1,))),
    Explored("3 voters, 2 ballots, given up and begun anew", Voters(ballots=2, gives_up=True)),
    Explored("a decision can always be reached, 2 ballots", Voters(ballots=2, **_LIVE), True),
    Explored("the same, m is cut off from one voter", Voters(ballots=2, cut=(1,), **_LIVE), True),
    Explored("a store", Store(heartbeats=2, view_changes=(3, 2))),
    Explored("a store, a joiner", Store(heartbeats=2, view_changes=(3, 2), joins=True)),
    Explored("a store, a pair that cannot talk", Store(heartbeats=2, view_changes=(3, 2), apart=True)),
    Explored("a store, a member leaves", Store(heartbeats=2, view_changes=(2, 2), leaves=True)),
    Explored("a store, a view with the same members", Store(heartbeats=2, view_changes=(3, 2), renews=True)),
    *(Explored(f"one host: {name}", group) for name, group in host_mutants.CLEAN.items()),
)  # fmt: skip

DEEP = (
    Explored("3 voters, 3 ballots, one is restarted", Voters(restarts=1)),
    Explored("3 voters, 3 ballots, a joiner, a pair that cannot talk", Voters(joins=True, apart=True)),
    Explored("a voter is replaced, a lease is given",
             Voters(ballots=2, replaces=True, changes=2, renews=False, heartbeats=1, cut=(1,))),
    Explored("3 voters, 3 ballots, given up and begun anew", Voters(gives_up=True)),
    Explored("a voter is replaced and comes back, 3 epochs",
             Voters(replaces=True, returns=True, changes=3, renews=False, cut=(1,))),
    Explored("a decision can always be reached, 3 ballots", Voters(cut=(1,), **_LIVE), True),
    *(Explored(f"one host: {name}", group) for name, group in host_mutants.DEEP.items()),
)  # fmt: skip

MUTANTS = (
    Explored("the promise runs out first", Voters(ballots=1, apart=True, voter=planted.AcceptsTooEarly)),
    Explored("no renewal after accepting", Voters(ballots=1, heartbeats=1, leased=False, voter=planted.RenewsAfterAccepting)),
    Explored("a restarted voter waits",
             Voters(ballots=1, restarts=1, apart=True, cut=(1,), voter=planted.VotesAtOnce)),
    Explored("what was accepted is durable", Voters(ballots=2, restarts=1, voter=planted.ForgetsItsVote)),
    Explored("what was promised is durable", Voters(ballots=2, restarts=1, voter=planted.ForgetsWhatItPromised)),
    Explored("what was accepted is proposed again", Voters(ballots=2, voter=planted.ProposesItsOwn)),
    Explored("a majority decides", Voters(ballots=2, voter=planted.NeedsNoMajority)),
    Explored("a majority confirms a lease", Voters(ballots=1, heartbeats=1, leased=False, lease=planted.BelievesAMinority)),
    Explored("who leaves believes no more", Voters(ballots=1, leaves=True, member=planted.LeavesAndBelieves)),
    Explored("an old wish admits no peer", Voters(ballots=2, old_wish=True, changes=2, voter=planted.TakesInWhoIsGone)),
    Explored("renew by incarnation", Voters(ballots=1, joins=True, heartbeats=1, voter=planted.RenewsByName)),
    Explored("a new voter waits",
             Voters(ballots=2, replaces=True, changes=2, renews=False, cut=(1,), voter=planted.NewVotersVoteAtOnce)),
    Explored("no renewal while the voters change",
             Voters(ballots=2, replaces=True, changes=2, renews=False, heartbeats=1, cut=(1,),
                    voter=planted.RenewsWhileVotersChange)),
    Explored("answers are for one ballot", Voters(gives_up=True, voter=planted.CountsOldAnswers)),
    Explored("a store: a swap compares the view",
             Store(heartbeats=1, view_changes=(2, 2), renews=True, memory=planted.SwapsAnyView)),
    Explored("the asked voter stops renewing", Voters(ballots=2, cut=(1,), voter=planted.KeepsRenewing, **_LIVE), True),
    Explored("who refuses proposes", Voters(ballots=2, voter=planted.LeavesItToOthers, **_LIVE), True),
    Explored("a broken pair is split", Voters(ballots=2, voter=planted.SplitsNoPairs, **_LIVE)),
    Explored("a store: only whose heartbeat is old", Store(member=planted.HasNoPatience)),
    Explored("a store: the heartbeat is compared", Store(member=planted.ComparesNoHeartbeats)),
    Explored("a store: a renewal compares the view", Store(heartbeats=1, leased=False, memory=planted.RenewsInAnyView,
             member=planted.BelievesWhatItKnew)),
    Explored("a store: renew by incarnation",
             Store(heartbeats=2, view_changes=(2, 2), joins=True, member=planted.LodgesByName)),
    Explored("a store: who leaves believes no more", Store(leaves=True, member=planted.LeavesTheStoreAndBelieves)),
    *(Explored(f"one host: {name}", group) for name, group in host_mutants.MUTANTS.items()),
)  # fmt: skip


SEARCHES: dict[type, Callable[..., Any]] = {
    Voters: consensus.explore,
    Store: store.explore,
    host.HostGroup: host.explore,
}


def explore(
    what: Explored, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Outcome, str | None]:
    """What was found, if anything."""
    search = SEARCHES[type(what.group)]
    searched, outcome, verdicts = search(what.group, max_states, progress)
    found = finding(outcome.violated) if outcome.violated else None
    if found is None and outcome.finished:
        missed = [name for name, verdict in verdicts.items() if verdict == "violated"]
        found = f"never found: {missed[0]}" if missed else None
        if what.blocks:
            held = consensus.stuck(searched)
            found = f"for ever undecided: {held:,} states" if held else None if not missed else found
    return outcome, found
