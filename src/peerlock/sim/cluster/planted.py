"""Plans with a mutant in them, for the simulator: it must find every one. What it cannot find it does not check.

What is not here is for the checker. Whole nodes have a second guard against LeavesAndBelieves (holds are
dropped before anything is said), RenewsInAnyView and BelievesWhatItKnew (each looks where the other does
not). ForgetsWhatItPromised, RenewsWhileVotersChange, CountsOldAnswers, RenewsByName, RenewsByNameInAStore,
EveryNodeDecides and TrustsItsOldRecord need a coincidence that 2,000 seeds do not have.
"""

from __future__ import annotations

from peerlock.mutants.nodes import (
    BelievesAtOnce,
    DeliversWhatWaited,
    LeaseNotChecked,
    RemembersTheDead,
    ReportsAnew,
    TellsTheSuccessorAlone,
    core_with,
)
from peerlock.mutants.quorum import (
    AcceptsTooEarly,
    BelievesAMinority,
    ForgetsItsVote,
    KeepsRenewing,
    LeaseFromTheAnswer,
    LeavesItToOthers,
    NeedsNoMajority,
    NewVotersVoteAtOnce,
    ProposesItsOwn,
    RemembersWhoLeft,
    RenewsAfterAccepting,
    SplitsNoPairs,
    TakesInWhoIsGone,
    VotesAtOnce,
)
from peerlock.mutants.sessions import ForgetsNothing, KeepsNothing, TakesDuplicates
from peerlock.mutants.static import (
    LetsAnOldIncarnationIn,
    PassesNothingOver,
    TakesANameForAbsent,
    TellsNothingOnANewLink,
    UsesBeforeItIsDurable,
    WaitsForNoNode,
)
from peerlock.mutants.store import (
    ComparesNoHeartbeats,
    HasNoPatience,
    PatienceFromTheStart,
    RenewsWhenMarked,
    SwapsAnyView,
)
from peerlock.mutants.views import DropsNewerEpochs, NeverWedges, StartsOlderEpochs, StartsWithAMajority
from peerlock.sim.cluster.plan import LeasedPlan, Plan, StaticPlan

PLANTED: dict[str, Plan] = {
    "no acknowledgement": Plan(core=core_with(sessions=KeepsNothing)),
    "no duplicate check": Plan(core=core_with(sessions=TakesDuplicates)),
    "reports from a majority only": Plan(core=core_with(views=StartsWithAMajority)),
    "report changed between two receivers": Plan(core=ReportsAnew),
    "old epochs delivered": Plan(core=DeliversWhatWaited),
    "newer epochs dropped": Plan(core=core_with(views=DropsNewerEpochs)),
    "no wedge before the report": Plan(core=core_with(views=NeverWedges)),
    "older epochs started": Plan(core=core_with(views=StartsOlderEpochs)),
    "holds without permission": Plan(core=BelievesAtOnce),
    "requests sent to the successor alone": Plan(core=TellsTheSuccessorAlone),
    "lease not checked": LeasedPlan(core=LeaseNotChecked),
    "lease counted from the answer": LeasedPlan(lease=LeaseFromTheAnswer),
    "a minority confirms a lease": LeasedPlan(lease=BelievesAMinority),
    "voters accept before their promise has run out": LeasedPlan(voter=AcceptsTooEarly),
    "voters renew after accepting": LeasedPlan(voter=RenewsAfterAccepting),
    "a restarted voter votes at once": LeasedPlan(voter=VotesAtOnce),
    "a new voter votes at once": LeasedPlan(voter=NewVotersVoteAtOnce),
    "a voter forgets what it has accepted": LeasedPlan(voter=ForgetsItsVote),
    "what was accepted is not proposed again": LeasedPlan(voter=ProposesItsOwn),
    "one voter decides": LeasedPlan(voter=NeedsNoMajority),
    "an old wish admits a peer": LeasedPlan(voter=TakesInWhoIsGone),
    "who refuses does not propose": LeasedPlan(voter=LeavesItToOthers),
    "voters split no pairs": LeasedPlan(voter=SplitsNoPairs),
    "the asked voter keeps renewing": LeasedPlan(voter=KeepsRenewing),
    "what was acknowledged is kept": LeasedPlan(core=core_with(sessions=ForgetsNothing)),
    "sessions of the dead are kept": LeasedPlan(core=RemembersTheDead),
    "voters remember who left": LeasedPlan(voter=RemembersWhoLeft),
    "store: no patience": LeasedPlan(registry="store", store_member=HasNoPatience),
    "store: patience from the start": LeasedPlan(registry="store", store_member=PatienceFromTheStart),
    "store: heartbeats not compared": LeasedPlan(registry="store", store_member=ComparesNoHeartbeats),
    "store: views not compared": LeasedPlan(registry="store", memory=SwapsAnyView),
    "store: who is marked renews": LeasedPlan(registry="store", store_member=RenewsWhenMarked),
    "store: lease not checked": LeasedPlan(registry="store", core=LeaseNotChecked),
    "store: lease counted from the answer": LeasedPlan(registry="store", lease=LeaseFromTheAnswer),
    "list: an epoch is not durable": StaticPlan(static_member=UsesBeforeItIsDurable),
    "list: present nodes decide": StaticPlan(static_member=WaitsForNoNode),
    "list: an absent name stays absent": StaticPlan(static_member=TakesANameForAbsent),
    "list: what a dead node decided counts": StaticPlan(static_member=PassesNothingOver),
    "list: a new link is told nothing": StaticPlan(static_member=TellsNothingOnANewLink),
    "list: old incarnations are let in": StaticPlan(static_member=LetsAnOldIncarnationIn),
}
