"""Whole nodes on several hosts, in virtual time: leases, voters or a store, clocks that differ, and every fault of a
network.

What runs is what ships: `Core`, `Residence`, `Office`, `Voter`, `Tenant`, `Lodger`. What is simulated:

- Every process has clocks of its own: their rate is wrong by up to RHO, they started anywhere, and the one that
  counts suspension
  jumps ahead now and then.
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

from collections import Counter
from collections.abc import Callable
from typing import Any

from peerlock.node.lease import RHO
from peerlock.node.session import EVERY
from peerlock.node.store import Request
from peerlock.node.table import HELD
from peerlock.node.voting import Decision
from peerlock.node.wire import Peer
from peerlock.sim.hosts import ELIGIBLE, Clock, LeasedPlan, LeasedProcess, VoterProcess
from peerlock.sim.nodes import Broken, Link, Process, Result, User, Wish, World

HARMLESS = ("gave up", "renewal", "reset in a frame")
FAULTS = (
    "crash", "restart", "twin", "cold start", "join", "join storm", "leave", "pause", "hang", "reset", "reset in a frame",
    "slow link", "partition", "one way", "flapping", "pair", "pair for good", "few voters for good", "clock jump",
    "voter crash", "voter lost its answer", "voter's disk full", "voter lost its record", "voter pause", "voter replaced",
    "store away", "gave up", "renewal",
)  # fmt: skip
RARELY = 0.015  # of the faults are of the kind after which everybody has to find the others again
STILL_S = 300.0  # without a grant, while there are faults all the time: something must get through
HEALED_S = 60.0  # after the faults: in virtual time, of a lease of `Plan.lease_s`


class LeasedWorld(World):
    plan: LeasedPlan

    def __init__(self, plan: LeasedPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self.blocked: Counter[tuple[str, str]] = Counter()  # (from, to): by how many faults
        together = self.random.random() < 0.5
        self.home_of = {f"v{at}": f"node-{at}" for at in (1, 2, 3)} if together else {}
        self.first_voters = ELIGIBLE[: 5 if self.random.random() < 0.2 else 3]
        self.voters: dict[str, VoterProcess] = {}
        if plan.registry == "voters":
            self.voters = {name: VoterProcess(self, name) for name, _ in ELIGIBLE[: len(self.first_voters) + 2]}
        self.store = plan.shelf()
        self.store_away = 0.0  # until then
        self.calm_since = 0.0
        self.pair: tuple[str, ...] = ()  # one of these may wait after that
        self.lonely, self.far = "", list[str]()  # this one, if these are a majority of the voters
        self.views: dict[int, Decision] = {}
        self.gone: set[Peer] = set()  # that some view has left out
        self.judged = 0  # epochs

    def new_clock(self) -> Clock:
        return Clock(1 + self.random.uniform(-RHO, RHO) * 0.99, self.random.uniform(0, 1000))

    # -- processes and links -------------------------------------------------------------------------------

    def start(self, name: str) -> Process:
        process = LeasedProcess(self, name)
        self.by_peer[process.peer] = process
        self.processes.append(process)
        peer = process.peer
        self.later(self.delay(), lambda: process.beside(lambda: process.arrive(peer)))
        for at in range(self.plan.locks):
            process.users.append(User(process, f"lock-{at}"))
            if self.random.random() < 0.3:
                process.users.append(User(process, f"lock-{at}"))
        return process

    def cut_off(self, a: str, b: str) -> bool:
        return a != b and self.blocked[a, b] > 0

    def connect(self, process: Process, peer: Peer) -> None:
        assert isinstance(process, LeasedProcess)
        process.dialling.discard(peer)
        courts = peer in process.courted and process.peer not in process.core.view.coming
        if peer in process.links or not (courts or peer in process.core.view.coming):
            return
        other = self.by_peer.get(peer)
        if other is None or not other.alive or other.peer != peer:
            if peer in process.core.view.coming:
                process.dial_after(0.3, peer)
            return
        assert isinstance(other, LeasedProcess)
        if self.cut_off(process.site, other.site) or self.cut_off(other.site, process.site):
            process.dial_after(0.3, peer)
            return
        link = Link(process, other)
        process.links[peer] = link
        self.transmit(link, process, process.core.dialled(peer, process.now))

    def transmit(self, link: Link, source: Process, data: bytes) -> None:
        a, b = link.ends
        other = b if source is a else a
        if self.cut_off(source.name, other.name):
            link.deaf[link.ends.index(other)] = True  # what was lost in the middle makes the rest useless, that way
            self.later(1.0, lambda: self.cut(link))
            return
        super().transmit(link, source, data)

    def datagram(self, source: Any, to: Any, act: Callable[[], Any], beside: bool = False) -> None:
        """What members and voters say to each other: late, lost or doubled."""
        if self.cut_off(source.site, to.site) or (not self.calm and self.random.random() < 0.02):
            return
        times = 2 if not self.calm and self.random.random() < 0.03 else 1
        for _ in range(times):
            delay = self.delay() * (1000 if not self.calm and self.random.random() < 0.01 else 1)
            self.later(delay, lambda: (to.beside if beside else to.do)(act))

    def ask_store(self, process: LeasedProcess, request: Request) -> None:
        peer = process.peer

        def arrives() -> None:
            if self.now < self.store_away or self.cut_off(process.site, "store"):
                return
            before = self.store.snapshot.revision
            done, snapshot = self.store.ask(request)
            if snapshot.decision is not None:
                self.decided(snapshot.decision)
            if self.store.snapshot.revision != before:
                for other in self.processes:
                    if other.alive and isinstance(other, LeasedProcess) and other is not process:
                        self.watch(other)
            answer(lambda: process.answered(request.number, done, snapshot))

        def answer(act: Callable[[], Any]) -> None:
            if self.cut_off("store", process.site) or (not self.calm and self.random.random() < 0.02):
                return
            mine = lambda: act() if process.peer == peer else None  # noqa: E731
            self.later(self.delay(), lambda: process.beside(mine))

        if not self.cut_off(process.site, "store") and (self.calm or self.random.random() > 0.02):
            self.later(self.delay() * (1000 if not self.calm and self.random.random() < 0.01 else 1), arrives)

    def watch(self, process: LeasedProcess) -> None:
        """The store tells of its own accord."""
        snapshot = self.store.snapshot
        if not self.cut_off("store", process.site) and self.random.random() < 0.9:
            self.later(self.delay(), lambda: process.beside(lambda: process.answered(0, False, snapshot)))

    # -- the oracle ----------------------------------------------------------------------------------------

    def decided(self, decision: Decision) -> None:
        """A view was decided: there is no other of its epoch, nobody in it was left out before, and whoever it
        leaves out believes nothing.
        """
        known = self.views.setdefault(decision.epoch, decision)
        if (known.members, known.voters) != (decision.members, decision.voters):
            raise Broken(f"two views of epoch {decision.epoch}: {known} and {decision}")
        while self.judged + 1 in self.views:
            before, now = self.views.get(self.judged), self.views[self.judged + 1]
            self.judged += 1
            again = self.gone & set(now.members)
            if again:
                raise Broken(f"left out before, and in epoch {now.epoch} again: {again}")
            for peer in before.members if before is not None else ():
                if peer not in now.members:
                    self.gone.add(peer)
                    self.believes_nothing(peer, now.epoch)

    def believes_nothing(self, peer: Peer, epoch: int) -> None:
        process = self.by_peer[peer]
        assert isinstance(process, LeasedProcess)
        table = process.core.table
        if (
            process.alive
            and process.peer == peer
            and table.gate
            and not process.core.closed
            and process.now < table.until
        ):
            raise Broken(
                f"epoch {epoch} leaves out {peer.name}, whose lease runs for {table.until - process.now:.3f} s more"
            )

    def entered(self, user: User, wish: Wish) -> None:
        process = user.process
        assert isinstance(process, LeasedProcess)
        if process.now >= process.core.table.until:
            raise Broken(
                f"{process.name} was granted {wish.lock} {process.now - process.core.table.until:.6f} s after its lease"
            )
        holds = self.holds.setdefault(wish.lock, {})
        for other, theirs in list(holds.items()):
            if "write" not in (theirs.mode, wish.mode) or theirs.state != HELD:
                continue
            before = other.process
            assert isinstance(before, LeasedProcess)
            left = before.core.table.until - before.now
            if left <= 0 and (before.paused or before.hung):
                del holds[other]  # it believes nothing, and will find out
                continue
            raise Broken(
                f"two hold {wish.lock} at {self.now:.6f}: {before.name} ({theirs.mode}, fence {theirs.fence}, "
                f"lease {left:.3f} s) and {process.name} ({wish.mode}, fence {wish.fence})"
            )
        super().entered(user, wish)

    # -- faults --------------------------------------------------------------------------------------------

    def fault(self) -> None:
        if self.calm:
            return
        self.later(self.random.expovariate(1 / self.plan.fault_every_s), self.fault)
        up = [process for process in self.processes if process.alive and not process.leaving]
        running = [process for process in up if not process.paused]
        kind = self.random.choice(
            ("crash", "join", "leave", "pause", "pause", "hang", "reset", "slow link", "renewal", "partition", "partition",
             "pair", "clock jump", "authority", "authority")
        )  # fmt: skip
        if self.random.random() < RARELY:
            kind = "rare"
        match kind:
            case "join" if len(up) < self.plan.most:
                self.faults["join"] += 1
                self.newcomer()
            case "crash" if len(running) > 1:
                self.crash(self.random.choice(up))
            case "rare" if up:
                getattr(self, self.random.choice(("twin", "cold_start", "join_storm")))(up)
            case "leave" if len(running) > 2:
                self.leave(self.random.choice(running))
            case "pause" if len(running) > 1:
                self.pause(self.random.choice(running))
            case "hang" if len(running) > 1:
                self.hang(self.random.choice(running))
            case "reset" | "slow link":
                links = [link for process in up for link in process.links.values() if link.up]
                if links:
                    self.disturb(self.random.choice(links), kind)
            case "renewal" if running:
                process = self.random.choice(running)
                process.do(process.renew)
            case "partition":
                self.partition()
            case "pair" if len(up) > 1:
                self.faults["pair"] += 1
                a, b = self.random.sample(up, 2)
                self.separate([(a.name, b.name), (b.name, a.name)], self.random.choice((0.5, 5.0, 15.0)))
            case "clock jump" if up:
                self.faults["clock jump"] += 1
                chosen = self.random.choice(up)
                assert isinstance(chosen, LeasedProcess)
                chosen.clock.jumped += self.random.choice((0.5, 2.0, 10.0))
                chosen.do(lambda: chosen.core.tick(chosen.now))
                chosen.do(chosen.look_at_lease)
                chosen.beside(lambda: chosen.residence.tick(chosen.now))
            case "authority":
                self.authority()

    def newcomer(self) -> None:
        self.names += 1
        self.start(f"late-{self.names}")

    def twin(self, up: list[Process]) -> None:
        """Started again under its name, while the old one lives; that one goes later, or is not heard of for a while."""
        old = self.random.choice(up)
        self.faults["twin"] += 1
        self.start(old.name)
        if not old.paused and self.random.random() < 0.5:
            self.pause(old)
        self.later(self.random.choice((0.1, 2.0, 6.0)), lambda: self.crash(old, False) if old.alive else None)

    def cold_start(self, up: list[Process]) -> None:
        """The power fails everywhere, and comes back."""
        self.faults["cold start"] += 1
        for process in up:
            self.crash(process, False)
            self.later(self.random.uniform(0.0, 2.0), lambda name=process.name: self.restart(name))  # type: ignore[misc]
        for voter in self.voters.values():
            voter.crash()
            self.later(self.random.uniform(0.0, 2.0), voter.restart)

    def join_storm(self, up: list[Process]) -> None:
        missing = self.plan.most + 2 - len(up)
        self.faults["join storm"] += missing > 0
        for _ in range(missing):
            self.newcomer()

    def sites(self) -> list[str]:
        names = [process.name for process in self.processes if process.alive]
        return [*names, *(voter.site for voter in self.voters.values()), *(["store"] if not self.voters else [])]

    def partition(self) -> None:
        """Some on one side, the others on the other."""
        sites = sorted(set(self.sites()))
        few = set(self.random.sample(sites, self.random.randrange(1, max(2, len(sites) // 2 + 1))))
        pairs = [(a, b) for a in few for b in sites if b not in few]
        kind = self.random.choice(("partition", "one way", "flapping"))
        self.faults[kind] += 1
        both = pairs + [(b, a) for a, b in pairs]
        if kind == "one way":
            self.separate(pairs, self.random.choice((0.2, 2.0, 6.0)))
        elif kind == "partition":
            self.separate(both, self.random.choice((0.2, 2.0, 6.0)))
        else:
            for at in range(self.random.randrange(2, 6)):
                self.later(at * 0.6, lambda: self.separate(both, 0.3))

    def separate(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        if self.calm:
            return
        for pair in pairs:
            self.blocked[pair] += 1
        self.later(seconds, lambda: self.blocked.subtract(pairs))
        for process in self.processes:
            for link in list(process.links.values()):
                a, b = link.ends
                ways = self.cut_off(b.name, a.name), self.cut_off(a.name, b.name)
                if link.up and any(ways):
                    link.deaf[:] = [deaf or cut for deaf, cut in zip(link.deaf, ways, strict=True)]
                    # Neither side hears of it at once; what is said the other way arrives until then.
                    self.later(self.random.choice((0.1, 1.0)), lambda link=link: self.cut(link))  # type: ignore[misc]

    def cut(self, link: Link) -> None:
        deaf = list(link.deaf)
        super().cut(link)
        link.deaf[:] = [a or b for a, b in zip(deaf, link.deaf, strict=True)]

    def authority(self) -> None:
        """Something happens to those that decide."""
        if not self.voters:
            self.faults["store away"] += 1
            self.store_away = max(self.store_away, self.now + self.random.choice((0.1, 1.0, 5.0)))
            return
        chance = self.random.random()
        if chance < 0.15 and self.replace_voter():
            return
        if chance > 0.95 and self.lose_record():
            return
        voter = self.random.choice(list(self.voters.values()))
        if self.random.random() < 0.5 and voter.alive:
            self.faults["voter crash"] += 1
            voter.crash()
            self.later(self.random.choice((0.05, 1.0, 8.0)), voter.restart)
        elif voter.alive and not voter.paused:
            self.faults["voter pause"] += 1
            voter.paused = True
            self.later(self.random.choice((0.05, 1.0, 6.0)), lambda: self.go_on(voter))

    def at_work(self) -> list[VoterProcess]:
        return [
            voter
            for voter in self.voters.values()
            if voter.alive and voter.office is not None and voter.office.voter.votes_here
        ]

    def replace_voter(self, lost: str = "") -> bool:
        """The operator wants another one in the place of one, or of this one."""
        at_work = self.at_work()
        if not at_work:
            return False
        asked = self.random.choice(at_work)
        assert asked.office is not None
        before = asked.office.voter.decided.voters
        old = (lost, "") if lost else self.random.choice(before)
        new = self.random.choice(
            [(name, "") for name, voter in self.voters.items() if (name, "") not in before and not voter.lost]
        )
        self.faults["voter replaced"] += 1
        office = asked.office
        asked.do(lambda: office.order(tuple(new if voter == old else voter for voter in before), asked.now))
        return True

    def lose_record(self) -> bool:
        """The file of a voter is gone: it refuses to start, until the operator has put another one in its place. One a run."""
        at_work = self.at_work()
        if not at_work or any(voter.lost for voter in self.voters.values()):
            return False
        self.faults["voter lost its record"] += 1
        voter = self.random.choice(at_work)
        voter.crash()
        voter.lost = True
        self.later(1.0, lambda: self.mourn(voter))
        return True

    def mourn(self, voter: VoterProcess) -> None:
        newest = max((each.record.decided for each in self.voters.values()), key=lambda decision: decision.epoch)
        if voter.name in newest.electors:
            self.replace_voter(voter.name)
            self.later(1.0, lambda: self.mourn(voter))

    def go_on(self, voter: VoterProcess) -> None:
        voter.paused = False
        postponed, voter.postponed = voter.postponed, []
        for act in postponed:
            voter.do(act)

    def crash(self, process: Process, by_itself: bool = True) -> None:
        self.faults["crash"] += by_itself
        process.alive = False
        for user in process.users:
            if user.wish is not None:
                self.left(user, user.wish)
        for link in list(process.links.values()):
            self.cut(link)
        if by_itself and self.random.random() < 0.7:
            self.faults["restart"] += 1
            self.later(self.random.expovariate(2.0), lambda: self.restart(process.name))

    def leave(self, process: Process) -> None:
        self.faults["leave"] += 1
        assert isinstance(process, LeasedProcess)

        def go() -> None:
            process.leaving = True
            process.core.close(process.now)
            process.residence.leave(process.now)

        def end() -> None:
            if not process.alive:
                return
            process.alive = False
            for user in process.users:
                if user.wish is not None:
                    self.left(user, user.wish)
            for link in list(process.links.values()):
                self.cut(link)

        process.do(go)
        self.later(3.0, end)

    def hang(self, process: Process) -> None:
        assert isinstance(process, LeasedProcess)
        if process.hung:
            return
        self.faults["hang"] += 1
        process.hung, process.hung_since = True, self.now
        self.later(self.random.choice((0.5, 3.5, 9.0)), lambda: self.unhang(process))

    def unhang(self, process: LeasedProcess) -> None:
        process.hung, process.went_on = False, self.now
        late, process.late = process.late, []
        if process.paused:
            process.postponed[:0] = late  # what is older comes first
            return
        for act in late:
            process.do(act)

    def pause(self, process: Process) -> None:
        self.faults["pause"] += 1
        process.paused = True
        self.later(self.random.choice((0.05, 1.0, 4.0, 8.0)), lambda: self.resume(process))

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
        epoch = max(process.core.view.known for process in self.processes)
        messages = sum(process.core.table.messages for process in self.processes)
        return Result(self.seed, self.grants, self.faults, epoch, messages, self.now)

    def heal(self) -> None:
        self.calm, self.calm_since = True, self.now
        self.store_away = 0.0
        self.blocked = _Never()
        up = [process for process in self.processes if process.alive and not process.leaving]
        chance = self.random.random()
        if len(up) > 2 and chance < 0.2:
            # A cable that nobody repairs: two that cannot talk to each other, and to everybody else they can.
            a, b = self.pair = tuple(process.name for process in self.random.sample(up, 2))
            self.faults["pair for good"] += 1
            self.blocked = Counter({(a, b): 1, (b, a): 1})
        elif len(up) > 2 and chance < 0.4 and self.voters and not self.home_of and not self.any_lost:
            # Or one that reaches only some of the voters. With a majority it must get in; without, only it may wait.
            far = self.random.sample(list(self.voters), self.random.randrange(1, 5))
            lonely = self.random.choice(up).name
            self.lonely, self.far = lonely, far
            self.faults["few voters for good"] += 1
            self.blocked = Counter({pair: 1 for name in far for pair in ((lonely, name), (name, lonely))})
        if self.blocked:
            for process in up:
                for link in list(process.links.values()):
                    if self.cut_off(link.ends[0].name, link.ends[1].name):
                        link.deaf[:] = True, True
                        self.cut(link)
            self.blocked = _Never(self.blocked)
        for voter in self.voters.values():
            voter.restart()
            if voter.paused:
                self.go_on(voter)
        for process in self.processes:
            assert isinstance(process, LeasedProcess)
            if process.hung:
                self.unhang(process)
            if process.paused and process.alive:
                self.resume(process)

    @property
    def any_lost(self) -> bool:
        return any(voter.lost for voter in self.voters.values())

    def nobody_hoards(self) -> None:
        """What is kept for others, for later and for the dead stays in proportion to who is there."""
        for process in self.processes:
            assert isinstance(process, LeasedProcess)
            if not process.alive or process.leaving or process.hung or process.core.view.wedged:
                continue
            core, most = process.core, len(process.core.view.coming)
            kept = max((len(session.kept) for session in core.sessions.values() if session.linked), default=0)
            hoards = {
                "messages for a peer that is linked": kept > 2 * EVERY,
                "messages of an epoch to come": bool(core.early),
                "sessions": len(core.sessions) > most + len(self.processes),
                "links": len(process.links) > most + len(self.processes),
            }
            if any(hoards.values()):
                raise Broken(f"{process.name} keeps too much: {[name for name, much in hoards.items() if much]}")
        for voter in self.at_work():
            assert voter.office is not None
            at = voter.office.voter
            most = len(at.decided.members) + 2 * sum(process.alive for process in self.processes) + 1
            if max(len(at.leavers), len(at.joiners), len(at.vouched)) > most:
                raise Broken(f"{voter.name} keeps too much: {at}")

    @property
    def may_wait(self) -> tuple[str, ...]:
        """One of these may wait for ever: cables that nobody repairs. Voters may be replaced after that."""
        if not self.lonely:
            return self.pair
        newest = max((voter.record.decided for voter in self.voters.values()), key=lambda decision: decision.epoch)
        cut_off = sum(name in self.far for name in newest.electors) * 2 > len(newest.electors)
        return (self.lonely, "") if cut_off else ()

    def busy(self) -> bool:
        """Does anybody still want something?"""
        return any(self.wants(process) for process in self.processes if process.alive and not process.leaving)

    def wants(self, process: Process) -> bool:
        return any(not user.stopped or user.wish is not None for user in process.users)

    def serious(self) -> int:
        return sum(count for fault, count in self.faults.items() if fault not in HARMLESS)


class _Never(Counter[tuple[str, str]]):
    """Nobody is cut off from anybody any more."""

    def __missing__(self, key: Any) -> int:
        return 0

    def subtract(self, *_: Any, **__: Any) -> None:
        pass


def run(seed: int, plan: LeasedPlan) -> Result:
    return LeasedWorld(plan, seed).run()


__all__: list[Any] = ["FAULTS", "LeasedPlan", "LeasedWorld", "run"]
