"""The oracle of a simulation: it sees every grant and every view, and says whether a promise was
broken.

No two holds exclude each other at one time, and fences strictly increase. With leases: no two
processes may hold at one time, by their own clocks; no view excludes a member whose lease runs; an
excluded member never comes back. When the faults have stopped, every user that waits gets in, and
no node keeps more than what is still needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.contract import Mode
from peerlock.node.locks.ticket import HELD
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.sim.cluster.authority import LeaseAuthority
from peerlock.sim.cluster.plan import Broken
from peerlock.sim.cluster.users import User, Wish

if TYPE_CHECKING:
    from peerlock.sim.cluster.attached import AttachedProcess
    from peerlock.sim.cluster.process import Process
    from peerlock.sim.cluster.world import World

HEALED_S = 60.0  # after the faults every user gets in within that: virtual time, and leases of `LeasedPlan.lease_s`


class Oracle:
    def __init__(self, world: World) -> None:
        self.world = world
        self.grants = 0
        self.holds: dict[str, dict[User, Wish]] = {}
        self.fences: dict[str, dict[Mode, int]] = {}

    def entered(self, user: User, wish: Wish) -> None:
        self.grants += 1
        holds = self.holds.setdefault(wish.lock, {})
        for other, theirs in list(holds.items()):
            if "write" in (theirs.mode, wish.mode) and not self.is_over(other, theirs):
                raise Broken(
                    f"two hold {wish.lock} at {self.world.now:.6f}: {self.describe(other, theirs)} and "
                    f"{self.describe(user, wish)}"
                )
        last = self.fences.setdefault(wish.lock, {"read": 0, "write": 0})
        before = last["write"] if wish.mode == "read" else max(last.values())
        if wish.fence <= before:
            raise Broken(f"fence {wish.fence} of {user.process.name} for {wish.lock} comes after {before}")
        last[wish.mode] = max(last[wish.mode], wish.fence)
        holds[user] = wish

    def is_over(self, user: User, wish: Wish) -> bool:
        """Has that hold ended, though its user does not know it yet?"""
        return False

    def describe(self, user: User, wish: Wish) -> str:
        return f"{user.process.name} ({wish.mode}, fence {wish.fence})"

    def left(self, user: User, wish: Wish) -> None:
        self.holds.get(wish.lock, {}).pop(user, None)

    def decided(self, view: View) -> None:
        """A view was decided."""

    def epochs(self) -> int:
        return max(process.core.view_change.known for process in self.world.processes)

    # -- after the faults ----------------------------------------------------------------------------------

    def waiting(self) -> list[User]:
        return [
            user for process in self.everybody() if process.alive for user in process.users if user.wish is not None
        ]

    def everybody(self) -> list[Process | AttachedProcess]:
        return [*self.world.processes, *self.world.others]

    def describe_waiting(self) -> str:
        return ", ".join(f"{user.process.name} for {user.lock}" for user in self.waiting())

    def has_seen_enough(self) -> bool:
        return False

    def at_the_end(self) -> None:
        if self.waiting():
            raise Broken(f"the faults have stopped and these wait for ever: {self.describe_waiting()}")


class AttachedOracle(Oracle):
    """A host node that is stopped at the end of a run, and was given up, keeps its timers."""

    def has_seen_enough(self) -> bool:
        if self.world.now - self.world.calm_since > HEALED_S:
            self.at_the_end()
        return not any(wants(process) for process in self.everybody() if process.alive)


class StaticOracle(Oracle):
    """A fixed list: one view per epoch. A run has no end of its own, for its nodes try again and
    again to reach each other.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.views: dict[int, View] = {}

    def decided(self, view: View) -> None:
        known = self.views.setdefault(view.epoch, view)
        if known != view:
            raise Broken(f"two views of epoch {view.epoch}: {known} and {view}")

    def epochs(self) -> int:
        return len(self.views)  # their numbers are far apart where the operator has spoken

    def has_seen_enough(self) -> bool:
        if self.world.now - self.world.calm_since > HEALED_S:
            self.at_the_end()
        return not any(wants(process) for process in self.world.processes if process.alive)


class LeaseOracle(Oracle):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world.authority, LeaseAuthority)
        self.authority = world.authority
        self.views: dict[int, View] = {}
        self.gone: set[Peer] = set()  # peers that some view has excluded
        self.judged = 0  # epochs

    def decided(self, view: View) -> None:
        """There is no other view of its epoch, no member of it was excluded before, and a member
        that it excludes may hold nothing.
        """
        known = self.views.setdefault(view.epoch, view)
        if (known.members, known.voters) != (view.members, view.voters):
            raise Broken(f"two views of epoch {view.epoch}: {known} and {view}")
        while self.judged + 1 in self.views:
            before, now = self.views.get(self.judged), self.views[self.judged + 1]
            self.judged += 1
            again = self.gone & set(now.members)
            if again:
                raise Broken(f"excluded before, and in epoch {now.epoch} again: {again}")
            if before is not None and before.voters != now.voters and before.members:
                self.world.faults["voter replaced"] += 1
            for peer in before.members if before is not None else ():
                if peer not in now.members:
                    self.gone.add(peer)
                    self.may_hold_nothing(peer, now.epoch)

    def may_hold_nothing(self, peer: Peer, epoch: int) -> None:
        process = self.world.by_peer[peer]
        table, until = process.core.table, process.core.deadline.until
        if process.alive and process.peer == peer and table.may_hold and not table.closed and process.now < until:
            raise Broken(f"epoch {epoch} excludes {peer.name}, whose lease runs for {until - process.now:.3f} s more")

    def entered(self, user: User, wish: Wish) -> None:
        if (left := lease_left(user.process)) <= 0:
            raise Broken(f"{user.process.name} was granted {wish.lock} {-left:.6f} s after its lease")
        super().entered(user, wish)

    def is_over(self, user: User, wish: Wish) -> bool:
        process = user.process
        if wish.state == HELD and not (lease_left(process) <= 0 and (process.paused or process.hung)):
            return False
        if wish.state == HELD:
            del self.holds[wish.lock][user]  # it may not hold any more, and will find out
        return True

    def describe(self, user: User, wish: Wish) -> str:
        return f"{super().describe(user, wish)}, with a lease for {lease_left(user.process):.3f} s more"

    # -- after the faults ----------------------------------------------------------------------------------

    def has_seen_enough(self) -> bool:
        world = self.world
        wanting = {process.name for process in world.processes if process.alive and wants(process)}
        if not any(wants(process) for process in world.processes if process.alive and not process.leaving):
            return True
        if world.now - world.calm_since <= HEALED_S:
            return False
        outside = world.nemesis.may_wait()  # processes that are cut off wait outside
        if len(wanting) > len(outside) // 2 or wanting - set(outside):
            raise Broken(f"{HEALED_S:g} s after the faults these still wait: {self.describe_waiting()}")
        return True

    def at_the_end(self) -> None:
        for process in self.world.processes:
            if process.alive and not process.leaving and not process.hung and not process.core.view_change.wedged:
                self.hoards_nothing(process)
        alive = sum(process.alive for process in self.world.processes)
        for voter, driver in self.authority.at_work():
            at = driver.voter
            unidentified = {*at.leavers, *at.joiners, *(peer for peer, _ in at.supported)} - {None, *at.decided.members}
            if len(unidentified) > alive:
                raise Broken(f"{voter.name} keeps too much: {at}")

    def hoards_nothing(self, process: Process) -> None:
        """What is kept for others, for later and for the dead is what is still needed, and a little
        more.
        """
        core = process.core
        strangers = core.links.sessions.keys() - process.links.keys() - set(core.view_change.coming)
        hoards = {
            "what others have acknowledged": any(self.superfluous(process, peer) > 0 for peer in core.links.sessions),
            "messages of an epoch to come": bool(core.delivery.early),
            "sessions of dead peers": any(self.world.running(peer) is None for peer in strangers),
        }
        if any(hoards.values()):
            raise Broken(f"{process.name} keeps too much: {[name for name, much in hoards.items() if much]}")

    def superfluous(self, process: Process, peer: Peer) -> int:
        """How many messages a process keeps for a peer that has acknowledged them, and nothing of
        that is under way.
        """
        link, other = process.links.get(peer), self.world.by_peer[peer].core.links.sessions.get(process.peer)
        if other is None or link is None or not link.up or link not in process.greeted or process.paused:
            return 0  # what was under way when a link broke is told with the next hello
        end = link.ends.index(process)
        if link.deaf[end] or self.world.network.is_under_way(link, end):
            return 0
        return sum(number <= other.acknowledged for number, _, _, _ in process.core.links.sessions[peer].kept)


def lease_left(process: Process | AttachedProcess) -> float:
    return process.core.deadline.until - process.now


def wants(process: Process | AttachedProcess) -> bool:
    """Does any user of it still want something?"""
    return any(not user.stopped or user.wish is not None for user in process.users)
