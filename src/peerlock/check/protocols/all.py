"""Every registry: what is explored, and each of their rules taken away in turn.

`peerlock check-registries` runs them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from peerlock.check.properties import finding
from peerlock.check.protocols import attached, host, host_mutants, static, store
from peerlock.check.protocols import quorum as consensus
from peerlock.check.protocols.attached import AttachedGroup, Wish
from peerlock.check.protocols.attached import Budget as Faults
from peerlock.check.protocols.quorum import Group as Voters
from peerlock.check.protocols.static import Budget, StaticGroup
from peerlock.check.protocols.store import StoreGroup as Store
from peerlock.check.search import Outcome, Progress
from peerlock.contract import Mode
from peerlock.mutants import attached as broken
from peerlock.mutants import quorum as broken_quorum
from peerlock.mutants import static as broken_static
from peerlock.mutants import store as broken_store
from peerlock.node.membership.static import StaticMember

_TWO, _THREE = ("a", "b"), ("a", "b", "c")
_CRASHES = Budget(starts=2, crashes=2, kicks=1, renewals=1)
_LEAVES = Budget(starts=2, crashes=1, leaves=1, kicks=1, cuts=1)
_LIVE: dict[str, Any] = {"obstinate": True, "only_if_it_must": True, "renews": False, "crashes": 1, "apart": True}


def _a_list(kind: type[StaticMember], budget: Budget, names: tuple[str, ...] = _TWO) -> StaticGroup:
    return StaticGroup(names, budget, kind=kind)


_WRITERS: tuple[Mode, ...] = ("write", "write", "write")
_PAIR: tuple[Mode, ...] = ("write", "write")
_EITHER: tuple[Wish, ...] = ("either", "either")
_READERS: tuple[Mode, ...] = ("read", "read", "write")
_SILENT = Faults(entries=2, host_crashes=1, silences=1)


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
    Explored("a list of 2, all start", StaticGroup(_TWO, Budget(cuts=1), running=False)),
    Explored("a list of 2, one crashes, a link breaks", StaticGroup(_TWO, Budget(starts=1, crashes=1, cuts=1))),
    Explored("a list of 2, one leaves, a link breaks", StaticGroup(_TWO, Budget(starts=1, leaves=1, cuts=1))),
    Explored("a list of 2, one crashes, records are not written", StaticGroup(_TWO, Budget(starts=1, crashes=1, errors=2))),
    Explored("a list of 2, one leaves, a record is not written", StaticGroup(_TWO, Budget(starts=1, leaves=1, errors=1))),
    Explored("a list of 2, the operator speaks twice, a record is not written",
             StaticGroup(_TWO, Budget(starts=2, crashes=2, kicks=2, errors=1))),
    Explored("a list of 2, both crash, one is said to be dead",
             StaticGroup(_TWO, _CRASHES)),
    Explored("a list of 3, all start", StaticGroup(_THREE, running=False)),
    Explored("a list of 3, one crashes", StaticGroup(_THREE, Budget(starts=1, crashes=1))),
    Explored("a list of 3, one crashes, one leaves, one is said to be dead",
             StaticGroup(_THREE, Budget(crashes=1, leaves=1, kicks=1))),
    Explored("attached: 3 processes, a caller gives up", AttachedGroup(_WRITERS, Faults(cancels=1))),
    Explored("attached: 3 processes, two crash", AttachedGroup(_WRITERS, Faults(crashes=2))),
    Explored("attached: 3 processes, one is revoked", AttachedGroup(_WRITERS, Faults(revocations=1))),
    Explored("attached: 3 processes, successors that do not wait", AttachedGroup(_WRITERS, Faults(guesses=1))),
    Explored("attached: 2 processes, successors that do not wait, two entries",
             AttachedGroup(_PAIR, Faults(entries=2, guesses=1))),
    Explored("attached: 2 processes, successors that do not wait, one crashes, one is revoked",
             AttachedGroup(_PAIR, Faults(guesses=1, crashes=1, revocations=1))),
    Explored("attached: 3 processes, the host node crashes", AttachedGroup(_WRITERS, Faults(host_crashes=1))),
    Explored("attached: 3 processes, other hosts ask", AttachedGroup(_WRITERS, Faults(recalls=1))),
    Explored("attached: 2 processes, a stopped host node is replaced", AttachedGroup(_PAIR, Faults(deposed=1))),
    Explored("attached: 2 processes, re-entries, one is revoked",
             AttachedGroup(_PAIR, Faults(entries=3, revocations=1), block=2)),
    Explored("attached: 2 processes, the host node crashes, one is silent",
             AttachedGroup(_PAIR, Faults(host_crashes=1, silences=1))),
    Explored("attached: 2 readers, a writer, one crashes, one is revoked",
             AttachedGroup(_READERS, Faults(crashes=1, revocations=1))),
    Explored("attached: 3 processes, a connection ends", AttachedGroup(_WRITERS, Faults(cuts=1))),
    Explored("attached: 2 processes, a connection ends, a caller gives up, successors that do not wait",
             AttachedGroup(_PAIR, Faults(cancels=1, guesses=1, cuts=1))),
    Explored("attached: 2 processes, a connection ends, the host node crashes, other hosts ask",
             AttachedGroup(_PAIR, Faults(host_crashes=1, recalls=1, cuts=1))),
    Explored("attached: 2 processes that read or write, callers give up, two entries",
             AttachedGroup(_EITHER, Faults(entries=2, cancels=1))),
    Explored("attached: 2 processes that read or write, the host node crashes, successors that do not wait",
             AttachedGroup(_EITHER, Faults(host_crashes=1, guesses=1))),
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
    Explored("a list of 2, every fault", StaticGroup(_TWO, _LEAVES)),
    Explored("a list of 3, one crashes and is said to be dead", StaticGroup(_THREE, Budget(starts=1, crashes=1, kicks=1))),
    Explored("attached: 3 processes, one crashes, one is revoked",
             AttachedGroup(_WRITERS, Faults(crashes=1, revocations=1))),
    Explored("attached: 3 processes, the host node crashes, one is silent",
             AttachedGroup(_WRITERS, Faults(host_crashes=1, silences=1))),
    Explored("attached: 3 processes, one crashes, other hosts ask, a caller gives up",
             AttachedGroup(_WRITERS, Faults(crashes=1, recalls=1, cancels=1))),
    Explored("attached: 2 processes, a stopped host node is replaced, two entries",
             AttachedGroup(_PAIR, Faults(entries=2, deposed=1))),
    Explored("attached: 2 readers, a writer, the host node crashes, one is silent",
             AttachedGroup(_READERS, Faults(host_crashes=1, silences=1))),
    Explored("attached: 2 processes, every fault",
             AttachedGroup(_PAIR, Faults(entries=2, crashes=1, host_crashes=1, revocations=1, silences=1))),
    Explored("attached: 2 processes that read or write, callers give up, the host node crashes, one is silent",
             AttachedGroup(_EITHER, Faults(entries=2, cancels=1, host_crashes=1, silences=1))),
)  # fmt: skip

BROKEN: dict[str, AttachedGroup] = {
    "a hand-over of an old generation is dropped":
        AttachedGroup(_PAIR, Faults(entries=2, host_crashes=1), process=broken.TakesHandsOfOldGenerations),
    "a number has no more fences than it came with":
        AttachedGroup(_PAIR, Faults(entries=2), process=broken.UsesMoreFencesThanItHas),
    "a successor gets the lock at the release":
        AttachedGroup(_PAIR, Faults(entries=2), process=broken.KeepsTheLockFromItsSuccessor),
    "a number that no caller wants is passed on":
        AttachedGroup(_PAIR, Faults(entries=2, cancels=1), process=broken.DropsWhatNoCallerWants),
    "a successor is never replaced": AttachedGroup(_PAIR, Faults(entries=2, cancels=1), host=broken.ReplacesASuccessor),
    "what is said about a number early is kept": AttachedGroup(_WRITERS, process=broken.ForgetsWhatCameEarly),
    "a number is accepted once": AttachedGroup(_WRITERS, Faults(entries=2, crashes=1), process=broken.AcceptsANumberTwice),
    "a successor keeps its number": AttachedGroup(_WRITERS, Faults(crashes=1), host=broken.GrantsANewNumber),
    "a successor is granted what may not have been handed over":
        AttachedGroup(_PAIR, Faults(crashes=1), host=broken.TrustsTheHandOver),
    "a process marks, then looks": AttachedGroup(_PAIR, Faults(revocations=1), process=broken.LooksBeforeItMarks),
    "the host node revokes, then looks": AttachedGroup(_PAIR, Faults(revocations=1), host=broken.LooksBeforeItRevokes),
    "a process that is inside is waited for":
        AttachedGroup(_PAIR, Faults(revocations=1), host=broken.RevokesWhoeverIsInside),
    "a word about a number says that it was handed over":
        AttachedGroup(_PAIR, Faults(entries=2), host=broken.WaitsForTheWordOfTheOwner),
    "successors of an old generation are forgotten":
        AttachedGroup(_PAIR, Faults(entries=2, host_crashes=1), process=broken.RemembersOldSuccessors),
    "a new host node waits for all reports":
        AttachedGroup(_PAIR, Faults(entries=2, host_crashes=1), host=broken.GrantsBeforeAllHaveReported),
    "the largest number owns":
        AttachedGroup(_PAIR, Faults(entries=2, host_crashes=1, revocations=1), host=broken.TheFirstThatReportsOwns),
    "a silent process is revoked before it is read": AttachedGroup(_PAIR, _SILENT, host=broken.ReadsWithoutRevoking),
    "a silent process that is inside owns": AttachedGroup(_PAIR, _SILENT, host=broken.TakesASilentProcessForIdle),
    "a late report counts": AttachedGroup(_PAIR, _SILENT, host=broken.IgnoresALateReport),
    "a revoked number is returned": AttachedGroup(_PAIR, Faults(entries=2, revocations=1), process=broken.AsksWithoutReturning),
    "a hand-over may die with its process": AttachedGroup(_PAIR, Faults(crashes=1), host=broken.GrantsNothingAgain),
    "a number under way is revoked before it is taken for gone":
        AttachedGroup(_PAIR, Faults(entries=2, cuts=1), host=broken.TakesANumberUnderWayForGone),
    "what was said to a connection that has ended is said again":
        AttachedGroup(_PAIR, Faults(cuts=1), host=broken.SaysNothingAgain),
    "what a caller may do is what its number says":
        AttachedGroup(_EITHER, Faults(entries=2, cancels=1), process=broken.EntersInItsOwnMode),
}  # fmt: skip

MUTANTS = (
    Explored("the promise runs out first", Voters(ballots=1, apart=True, voter=broken_quorum.AcceptsTooEarly)),
    Explored("no renewal after accepting",
             Voters(ballots=1, heartbeats=1, leased=False, voter=broken_quorum.RenewsAfterAccepting)),
    Explored("a restarted voter waits",
             Voters(ballots=1, restarts=1, apart=True, cut=(1,), voter=broken_quorum.VotesAtOnce)),
    Explored("what was accepted is durable", Voters(ballots=2, restarts=1, voter=broken_quorum.ForgetsItsVote)),
    Explored("what was promised is durable", Voters(ballots=2, restarts=1, voter=broken_quorum.ForgetsWhatItPromised)),
    Explored("what was accepted is proposed again", Voters(ballots=2, voter=broken_quorum.ProposesItsOwn)),
    Explored("a majority decides", Voters(ballots=2, voter=broken_quorum.NeedsNoMajority)),
    Explored("a majority confirms a lease",
             Voters(ballots=1, heartbeats=1, leased=False, lease=broken_quorum.BelievesAMinority)),
    Explored("a member that leaves holds no more", Voters(ballots=1, leaves=True, member=broken_quorum.LeavesAndBelieves)),
    Explored("an old wish admits no peer", Voters(ballots=2, old_wish=True, changes=2, voter=broken_quorum.TakesInWhoIsGone)),
    Explored("renew by incarnation", Voters(ballots=1, joins=True, heartbeats=1, voter=broken_quorum.RenewsByName)),
    Explored("a new voter waits",
             Voters(ballots=2, replaces=True, changes=2, renews=False, cut=(1,), voter=broken_quorum.NewVotersVoteAtOnce)),
    Explored("no renewal while the voters change",
             Voters(ballots=2, replaces=True, changes=2, renews=False, heartbeats=1, cut=(1,),
                    voter=broken_quorum.RenewsWhileVotersChange)),
    Explored("answers are for one ballot", Voters(gives_up=True, voter=broken_quorum.CountsOldAnswers)),
    Explored("a store: a swap compares the view",
             Store(heartbeats=1, view_changes=(2, 2), renews=True, memory=broken_store.SwapsAnyView)),
    Explored("the asked voter stops renewing", Voters(ballots=2, cut=(1,), voter=broken_quorum.KeepsRenewing, **_LIVE), True),
    Explored("a voter that refuses proposes", Voters(ballots=2, voter=broken_quorum.LeavesItToOthers, **_LIVE), True),
    Explored("a broken pair is split", Voters(ballots=2, voter=broken_quorum.SplitsNoPairs, **_LIVE)),
    Explored("a store: only whose heartbeat is old", Store(member=broken_store.HasNoPatience)),
    Explored("a store: the heartbeat is compared", Store(member=broken_store.ComparesNoHeartbeats)),
    Explored("a store: a renewal compares the view", Store(heartbeats=1, leased=False, memory=broken_store.RenewsInAnyView,
             member=broken_store.BelievesWhatItKnew)),
    Explored("a store: renew by incarnation",
             Store(heartbeats=2, view_changes=(2, 2), joins=True, member=broken_store.RenewsByNameInAStore)),
    Explored("a store: a member that leaves holds no more", Store(leaves=True, member=broken_store.LeavesTheStoreAndBelieves)),
    *(Explored(f"one host: {name}", group) for name, group in host_mutants.MUTANTS.items()),
    Explored("a list: an epoch is durable before it is used", _a_list(broken_static.UsesBeforeItIsDurable, _CRASHES)),
    Explored("a list: the first of the list decides",
             _a_list(broken_static.EveryNodeDecides, Budget(starts=1, crashes=1, kicks=1), _THREE)),
    Explored("a list: all are present", _a_list(broken_static.WaitsForNoNode, _CRASHES)),
    Explored("a list: all agree", _a_list(broken_static.AsksNoNodeWhoIsAbsent, Budget(crashes=1, leaves=1, kicks=1), _THREE)),
    Explored("a list: epochs that others have told of count", _a_list(broken_static.CountsItsOwnEpochs, _CRASHES)),
    Explored("a list: an incarnation is absent, not a name", _a_list(broken_static.TakesANameForAbsent, _CRASHES)),
    Explored("a list: an old incarnation is not let in", _a_list(broken_static.LetsAnOldIncarnationIn, _LEAVES)),
    Explored("a list: a late farewell is not heeded", _a_list(broken_static.HeedsALateFarewell, _LEAVES)),
    Explored("a list: a new link is told what is known",
             StaticGroup(_TWO, Budget(cuts=1), running=False, kind=broken_static.TellsNothingOnANewLink)),
    Explored("a list: what a dead node decided is passed over", _a_list(broken_static.PassesNothingOver, _CRASHES)),
    Explored("a list: a node that starts waits for all", _a_list(broken_static.TrustsItsOldRecord, _LEAVES)),
    *(Explored(f"attached: {name}", group) for name, group in BROKEN.items()),
)  # fmt: skip


SEARCHES: dict[type, Callable[..., Any]] = {
    Voters: consensus.explore,
    Store: store.explore,
    host.HostGroup: host.explore,
    StaticGroup: static.explore,
    AttachedGroup: attached.explore,
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
