"""Whole nodes on several hosts, in virtual time: leases, voters or a store, clocks that differ, and every fault of a
network.

What runs is what ships: `Core`, `MembershipAgent`, `VoterDriver`, `Voter`, `QuorumMember`, `StoreMember`. What is simulated:

- Every process has clocks of its own: their rate is wrong by up to RHO, they started anywhere, and the one that
  counts suspension jumps ahead now and then.
- Hosts are cut off from each other, both ways or one way, for a moment or for long, some pairs and not others. What members
  say to voters and to a store is lost, late, doubled; links between members break.
- Processes are killed, restarted (one, or all at once; also while the old one lives), stopped, and hang: an event loop that
  does not come back, while its beats go on for a while. They join one by one, or many at once.
- Voters, three or five, are killed between writing their record and saying so, or before; cannot write; lose their record and
  are replaced. A store is away.

The oracle: no two believe at one time, by their own clocks; whoever can be told is told of its loss before somebody
else is granted; fences increase. When the faults have stopped everybody who waits gets in, and nobody keeps more than what
is still needed.
"""

from __future__ import annotations

from typing import Any

from peerlock.node.locks.ticket import HELD
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.sim.cluster.nemesis import FAULTS, Nemesis
from peerlock.sim.cluster.process import Broken, Process, Result, User, Wish
from peerlock.sim.cluster.voter_process import LeasedPlan, LeasedProcess

STILL_S = 300.0  # without a grant, while there are faults all the time: something must get through
HEALED_S = 60.0  # after the faults: in virtual time, of a lease of `Plan.lease_s`


class LeasedWorld(Nemesis):
    def decided(self, view: View) -> None:
        """A view was decided: there is no other of its epoch, nobody in it was excluded before, and a member that it
        excludes believes nothing.
        """
        known = self.views.setdefault(view.epoch, view)
        if (known.members, known.voters) != (view.members, view.voters):
            raise Broken(f"two views of epoch {view.epoch}: {known} and {view}")
        while self.judged + 1 in self.views:
            before, now = self.views.get(self.judged), self.views[self.judged + 1]
            self.judged += 1
            again = self.gone & set(now.members)
            if again:
                raise Broken(f"left out before, and in epoch {now.epoch} again: {again}")
            if before is not None and before.voters != now.voters and before.members:
                self.faults["voter replaced"] += 1
            for peer in before.members if before is not None else ():
                if peer not in now.members:
                    self.gone.add(peer)
                    self.holds_nothing(peer, now.epoch)

    def holds_nothing(self, peer: Peer, epoch: int) -> None:
        process = self.by_peer[peer]
        assert isinstance(process, LeasedProcess)
        table, until = process.core.table, process.core.deadline.until
        if process.alive and process.peer == peer and table.may_hold and not table.closed and process.now < until:
            raise Broken(f"epoch {epoch} excludes {peer.name}, whose lease runs for {until - process.now:.3f} s more")

    def entered(self, user: User, wish: Wish) -> None:
        process = user.process
        assert isinstance(process, LeasedProcess)
        if process.now >= process.core.deadline.until:
            raise Broken(
                f"{process.name} was granted {wish.lock} {process.now - process.core.deadline.until:.6f} s after its lease"
            )
        holds = self.holds.setdefault(wish.lock, {})
        for other, theirs in list(holds.items()):
            if "write" not in (theirs.mode, wish.mode) or theirs.state != HELD:
                continue
            before = other.process
            assert isinstance(before, LeasedProcess)
            left = before.core.deadline.until - before.now
            if left <= 0 and (before.paused or before.hung):
                del holds[other]  # it believes nothing, and will find out
                continue
            raise Broken(
                f"two hold {wish.lock} at {self.now:.6f}: {before.name} ({theirs.mode}, fence {theirs.fence}, "
                f"lease {left:.3f} s) and {process.name} ({wish.mode}, fence {wish.fence})"
            )
        super().entered(user, wish)

    # -- a run ---------------------------------------------------------------------------------------------

    def run(self) -> Result:
        from heapq import heappop

        for at in range(self.plan.nodes):
            self.start(f"node-{at + 1}")
        self.later(self.plan.fault_every_s, self.fault)
        steps, most = 0, 6_000 * self.plan.grants
        granted, since = 0, 0.0
        while self.heap:
            when, _, act = heappop(self.heap)
            self.now = when
            act()
            steps += 1
            if not self.calm:
                if self.grants >= self.plan.grants and self.serious() >= 5:
                    self.heal()
            elif steps % 64 == 0:
                if not self.busy():
                    break
                if self.now - self.calm_since > HEALED_S:
                    waiting = {process.name for process in self.processes if process.alive and self.wants(process)}
                    if len(waiting) > len(self.may_wait) // 2 or waiting - set(self.may_wait):
                        raise Broken(f"{HEALED_S:g} s after the faults these still wait: {self.who_waits()}")
                    break  # who is cut off waits outside
            if self.grants != granted:
                granted, since = self.grants, self.now
            if steps > most or self.now - since > STILL_S:
                raise Broken(
                    f"{self.grants} grants, the last at {since:.3f}, and no end after {steps} events: {self.who_waits()}"
                )
        self.nobody_hoards()
        epoch = max(process.core.view_change.known for process in self.processes)
        messages = sum(process.core.table.messages for process in self.processes)
        return Result(self.seed, self.grants, self.faults, epoch, messages, self.now)

    def nobody_hoards(self) -> None:
        """What is kept for others, for later and for the dead is what is still needed, and a little more."""
        alive = sum(process.alive for process in self.processes)
        for process in self.processes:
            assert isinstance(process, LeasedProcess)
            core = process.core
            if not process.alive or process.leaving or process.hung or core.view_change.wedged:
                continue
            hoards = {
                "what others have acknowledged": any(self.superfluous(process, peer) > 0 for peer in core.sessions),
                "messages of an epoch to come": bool(core.early),
                "sessions of those who are gone": any(
                    self.is_gone(peer)
                    for peer in core.sessions.keys() - process.links.keys() - set(core.view_change.coming)
                ),
            }
            if any(hoards.values()):
                raise Broken(f"{process.name} keeps too much: {[name for name, much in hoards.items() if much]}")
        for voter in self.at_work():
            assert voter.driver is not None
            at = voter.driver.voter
            unidentified = {*at.leavers, *at.joiners, *(peer for peer, _ in at.supported)} - {None, *at.decided.members}
            if len(unidentified) > alive:
                raise Broken(f"{voter.name} keeps too much: {at}")

    def is_gone(self, peer: Peer) -> bool:
        """It is dead, or another incarnation by now."""
        process = self.by_peer[peer]
        return not process.alive or process.peer != peer

    def superfluous(self, process: Process, peer: Peer) -> int:
        """How many messages a process keeps for a peer that has acknowledged them, and nothing of that is under way."""
        link, other = process.links.get(peer), self.by_peer[peer].core.sessions.get(process.peer)
        if other is None or link is None or not link.up or link not in process.greeted or process.paused:
            return 0  # what was under way when a link broke is told with the next hello
        end = link.ends.index(process)
        if link.deaf[end] or link.due[end] >= self.now:
            return 0
        return sum(number <= other.acknowledged for number, _, _, _ in process.core.sessions[peer].kept)

    @property
    def may_wait(self) -> tuple[str, ...]:
        """One of these may wait for ever: cables that nobody repairs. Voters may be replaced after that."""
        if not self.lonely:
            return self.pair
        newest = max((voter.record.decided for voter in self.voters.values()), key=lambda view: view.epoch)
        cut_off = sum(name in self.far for name in newest.electors) * 2 > len(newest.electors)
        return (self.lonely, "") if cut_off else ()

    def busy(self) -> bool:
        """Does anybody still want something?"""
        return any(self.wants(process) for process in self.processes if process.alive and not process.leaving)

    def wants(self, process: Process) -> bool:
        return any(not user.stopped or user.wish is not None for user in process.users)


def run(seed: int, plan: LeasedPlan) -> Result:
    return LeasedWorld(plan, seed).run()


__all__: list[Any] = ["FAULTS", "LeasedPlan", "LeasedWorld", "run"]
