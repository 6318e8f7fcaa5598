"""Plans with a mutant in them, for the simulator: it must find every one. What it cannot find it
does not check.

What is not here is for the checker. Whole nodes have a second guard against LeavesAndBelieves
(holds are dropped before anything is said), RenewsInAnyView and BelievesWhatItKnew (each looks
where the other does not). ForgetsWhatItPromised, RenewsWhileVotersChange, CountsOldAnswers,
RenewsByName and RenewsByNameInAStore need a coincidence that 2,000 seeds do not have; and so do, of a
fixed list, EveryNodeDecides, TrustsItsOldRecord, PassesNothingOver, LetsAnOldIncarnationIn and
HeedsALateFarewell.
"""

from __future__ import annotations

from peerlock.mutants import quorum, sessions, sharing, static, store, views
from peerlock.mutants.nodes import (
    BelievesAtOnce,
    DeliversWhatWaited,
    LeaseNotChecked,
    RemembersTheDead,
    ReportsAnew,
    TellsTheSuccessorAlone,
    core_with,
)
from peerlock.sim.cluster.plan import AttachedPlan, LeasedPlan, Plan, StaticPlan

PLANTED: dict[str, Plan] = {
    "no acknowledgement": Plan(core=core_with(session=sessions.KeepsNothing)),
    "no duplicate check": Plan(core=core_with(session=sessions.TakesDuplicates)),
    "reports from a majority only": Plan(core=core_with(view_change=views.StartsWithAMajority)),
    "report changed between two receivers": Plan(core=ReportsAnew),
    "old epochs delivered": Plan(core=DeliversWhatWaited),
    "newer epochs dropped": Plan(core=core_with(view_change=views.DropsNewerEpochs)),
    "no wedge before the report": Plan(core=core_with(view_change=views.NeverWedges)),
    "older epochs started": Plan(core=core_with(view_change=views.StartsOlderEpochs)),
    "holds without permission": Plan(core=BelievesAtOnce),
    "requests sent to the successor alone": Plan(core=TellsTheSuccessorAlone),
    "lease not checked": LeasedPlan(core=LeaseNotChecked),
    "lease counted from the answer": LeasedPlan(lease=quorum.LeaseFromTheAnswer),
    "a minority confirms a lease": LeasedPlan(lease=quorum.BelievesAMinority),
    "voters accept before their promise has run out": LeasedPlan(voter=quorum.AcceptsTooEarly),
    "voters renew after accepting": LeasedPlan(voter=quorum.RenewsAfterAccepting),
    "a restarted voter votes at once": LeasedPlan(voter=quorum.VotesAtOnce),
    "a new voter votes at once": LeasedPlan(voter=quorum.NewVotersVoteAtOnce),
    "a voter forgets what it has accepted": LeasedPlan(voter=quorum.ForgetsItsVote),
    "what was accepted is not proposed again": LeasedPlan(voter=quorum.ProposesItsOwn),
    "one voter decides": LeasedPlan(voter=quorum.NeedsNoMajority),
    "an old wish admits a peer": LeasedPlan(voter=quorum.TakesInWhoIsGone),
    "a voter that refuses does not propose": LeasedPlan(voter=quorum.LeavesItToOthers),
    "voters split no pairs": LeasedPlan(voter=quorum.SplitsNoPairs),
    "the asked voter keeps renewing": LeasedPlan(voter=quorum.KeepsRenewing),
    "what was acknowledged is kept": LeasedPlan(core=core_with(session=sessions.ForgetsNothing)),
    "sessions of the dead are kept": LeasedPlan(core=RemembersTheDead),
    "voters remember members that left": LeasedPlan(voter=quorum.RemembersWhoLeft),
    "store: no patience": LeasedPlan(registry="store", store_member=store.HasNoPatience),
    "store: patience from the start": LeasedPlan(registry="store", store_member=store.PatienceFromTheStart),
    "store: heartbeats not compared": LeasedPlan(registry="store", store_member=store.ComparesNoHeartbeats),
    "store: views not compared": LeasedPlan(registry="store", memory=store.SwapsAnyView),
    "store: a marked member renews": LeasedPlan(registry="store", store_member=store.RenewsWhenMarked),
    "store: lease not checked": LeasedPlan(registry="store", core=LeaseNotChecked),
    "store: lease counted from the answer": LeasedPlan(registry="store", lease=quorum.LeaseFromTheAnswer),
    "list: an epoch is not durable": StaticPlan(static_member=static.UsesBeforeItIsDurable),
    "list: present nodes decide": StaticPlan(static_member=static.WaitsForNoNode),
    "list: an absent name stays absent": StaticPlan(static_member=static.TakesANameForAbsent),
    "attached: members do not wait for the next host node": AttachedPlan(members_wait=False),
    "attached: the end of a connection is a death": AttachedPlan(silence_is_death=True),
    "attached: nothing is taken over": AttachedPlan(sharing=sharing.TakesNothingOver),
    "attached: no report is waited for": AttachedPlan(sharing=sharing.WaitsForNoReport),
    "attached: a silent process is not revoked": AttachedPlan(sharing=sharing.ReadsWithoutRevoking),
    "attached: other hosts wait for idle processes": AttachedPlan(
        sharing=sharing.KeepsTheLockInside, algorithm="ricart-agrawala-rw"
    ),
    "list: a new link is told nothing": StaticPlan(static_member=static.TellsNothingOnANewLink),
}
