"""Whole nodes on several hosts, in virtual time: leases, voters or a store, clocks that differ, and every fault of a
network.

What runs is what ships: `Core`, `Residence`, `Office`, `Voter`, `Tenant`, `Lodger`. What is simulated:

- Every process has clocks of its own: their rate is wrong by up to RHO, they started anywhere, and the one that
  counts suspension
  jumps ahead now and then.
- Hosts are cut off from each other, both ways or one way, for a moment or for long, some pairs and not others. What members
  say to voters and to a store is lost, late, doubled; links between members break.
- Processes are killed, restarted, stopped, and hang: an event loop that does not come back, while its beats go on for a while.
- Voters are killed between writing their record and saying so, or before; a store is away.

The oracle: no two believe at one time, by their own clocks; whoever can be told is told of its loss before somebody
else is granted; fences increase. When the faults have stopped everybody who waits gets in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from peerlock.node.lease import RHO, Lease
from peerlock.node.office import Office
from peerlock.node.residence import AtStore, AtVoters
from peerlock.node.store import Lodger, Request, Shelf, Snapshot
from peerlock.node.table import HELD
from peerlock.node.tenant import Tenant
from peerlock.node.voter import Record, Voter
from peerlock.node.voting import Ballot, Beat, Decision, Ruling, Vouch
from peerlock.node.wire import Peer
from peerlock.sim.nodes import Broken, Link, Plan, Process, Result, User, Wish, World

VOTERS = (("v1", ""), ("v2", ""), ("v3", ""))
SPARE = (("v4", ""), ("v5", ""))  # who may take their places
HARMLESS = ("gave up", "renewal", "reset in a frame")
FAULTS = (
    "crash", "restart", "join", "leave", "pause", "hang", "reset", "reset in a frame", "slow link", "partition", "one way",
    "flapping", "pair", "pair for good", "few voters for good", "clock jump", "voter crash", "voter lost its answer",
    "voter pause", "voter replaced", "store away", "gave up", "renewal",
)  # fmt: skip
HEALED_S = 60.0  # after the faults: in virtual time, of a lease of `Plan.lease_s`


class LeasedPlan(Plan, frozen=True):
    registry: str = "voters"  # or store
    lease_s: float = 3.0
    stall_s: float = 4.0
    fault_every_s: float = 0.35
    pace_s: float = 0.06
    voter: type[Voter] = Voter
    tenant: type[Tenant] = Tenant
    lease: type[Lease] = Lease
    lodger: type[Lodger] = Lodger
    shelf: type[Shelf] = Shelf


class Clock:
    def __init__(self, rate: float, offset: float) -> None:
        self.rate, self.offset = rate, offset

        self.jumped = 0.0  # a suspension that was none

    def read(self, world_now: float) -> float:
        return world_now * self.rate + self.offset + self.jumped

    def steady(self, world_now: float) -> float:
        return world_now * self.rate + self.offset

    def when(self, local: float) -> float:
        """The world's time at which it will show that."""
        return (local - self.offset - self.jumped) / self.rate


class LeasedProcess(Process):
    def __init__(self, world: LeasedWorld, name: str) -> None:
        self.hosts = world
        self.clock = world.new_clock()
        self.world = world  # the clock is read before anything else is there
        super().__init__(world, name)
        self.core.leases, self.core.patience_s = True, world.plan.lease_s
        self.hung = False
        self.hung_since = 0.0
        self.late: list[Callable[[], None]] = []  # for the core, while it hangs
        self.courted: tuple[Peer, ...] = ()
        self.woken = 0.0
        plan = world.plan
        self.residence: AtVoters | AtStore = (
            AtVoters(Household(self), plan.lease_s, VOTERS, plan.tenant, plan.lease)
            if plan.registry == "voters"
            else AtStore(Household(self), plan.lease_s, "store", plan.lodger, plan.lease)
        )

    @property
    def site(self) -> str:
        return self.name

    @property
    def now(self) -> float:
        return self.clock.read(self.world.now)

    def do(self, act: Callable[[], None]) -> None:
        if self.hung and self.alive and not self.paused:
            self.late.append(act)
            return
        super().do(act)

    def beside(self, act: Callable[[], None]) -> None:
        """In the thread that beats: it goes on while the core hangs."""
        hung, self.hung = self.hung, False
        try:
            super().do(act)
        finally:
            self.hung = hung

    # -- the core's shell --------------------------------------------------------------------------------

    def look(self, peer: Peer) -> None:
        pass

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        return True

    def refresh(self) -> None:
        pass

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        self.residence.suspect(peers, self.now)
        return peers

    def renewal(self) -> None:
        self.core.renewing = False
        self.residence.wants_renewal(self.core.view.known, self.now)

    def waits_outside(self) -> bool:
        return True

    def rejoin(self) -> None:
        if self.leaving:
            return
        for link in list(self.links.values()):
            self.drop(link)
        self.links.clear()
        self.peer = self.world.new_peer(self.name)
        self.world.by_peer[self.peer] = self
        self.core.rejoined(self.peer)
        peer = self.peer
        self.world.later(self.world.delay(), lambda: self.beside(lambda: self.arrive(peer)))

    def arrive(self, peer: Peer) -> None:
        if peer == self.peer:
            self.residence.reached(self.greeted_peers(), self.now)
            self.residence.arrive(peer, self.now)

    def answered(self, number: int, done: bool, snapshot: Snapshot) -> None:
        """The store has answered."""
        if isinstance(self.residence, AtStore):
            self.residence.answered(number, done, snapshot, self.now)

    def open_gate(self) -> bool:
        return False  # it is open while the lease runs

    def close_gate(self) -> None:
        pass

    def wake_at(self, when: float) -> None:
        self.hosts.at(self.clock.when(when) + 1e-7, lambda: self.do(lambda: self.core.tick(self.now)))

    def look_at_lease(self) -> None:
        if self.core.table.gate and self.now >= self.core.table.until:
            self.core.lapse(self.now)

    def was_told(self, user: User, wish: Wish) -> None:
        user.later()

    def dial(self, peer: Peer) -> None:
        self.world.later(self.world.delay(), lambda: self.do(lambda: self.world.connect(self, peer)))

    # -- links ---------------------------------------------------------------------------------------------

    def greeted_peers(self) -> frozenset[Peer]:
        return frozenset(peer for link, peer in self.greeted.items() if self.links.get(peer) is link)

    def frame(self, link: Link, body: bytes) -> None:
        before = len(self.greeted)
        super().frame(link, body)
        if len(self.greeted) != before:
            self.reached()

    def ended(self, link: Link) -> None:
        super().ended(link)
        self.reached()

    def reached(self) -> None:
        self.beside(lambda: self.residence.reached(self.greeted_peers(), self.now))


class Household:
    """What a residence asks for, in a simulated process."""

    def __init__(self, process: LeasedProcess) -> None:
        self.process = process
        self.tick_at = 0.0

    def wake_at(self, when: float) -> None:
        process = self.process
        if self.tick_at <= process.now or when < self.tick_at:
            self.tick_at = when
            process.hosts.at(process.clock.when(when) + 1e-7, lambda: process.beside(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if when == self.tick_at:
            self.tick_at = 0.0
            self.process.residence.tick(self.process.now)

    def learned(self, decision: Decision) -> None:
        def take() -> None:
            if self.process.peer in decision.members or self.process.core.view.known:
                self.process.core.learn(decision.epoch, decision.members, self.process.now)

        self.process.do(take)

    def leased(self, until: float) -> None:
        self.process.core.table.extend(until, self.process.now)
        self.process.do(lambda: self.process.core.leased(until, self.process.now))
        self.process.hosts.at(
            self.process.clock.when(until) + 1e-7, lambda: self.process.do(self.process.look_at_lease)
        )

    def court(self, peers: tuple[Peer, ...]) -> None:
        def reach() -> None:
            self.process.courted = peers
            for peer in peers:
                if peer not in self.process.links:
                    self.process.dial(peer)

        self.process.do(reach)

    def left(self) -> None:
        self.process.alive = False

    def anew(self) -> None:
        self.process.do(self.process.rejoin)

    def refuse(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def steady(self) -> float:
        return self.process.clock.steady(self.process.world.now)

    def may_beat(self) -> bool:
        return (
            not self.process.hung or self.process.world.now - self.process.hung_since < self.process.hosts.plan.stall_s
        )

    def complain(self, sentence: str) -> None:
        raise Broken(f"{self.process.name}: {sentence}")

    def send(self, to: str, message: Beat) -> None:
        voter = self.process.hosts.voters[to]
        self.process.hosts.datagram(self.process, voter, lambda: voter.on_beat(message))

    def ask(self, request: Request) -> None:
        self.process.hosts.ask_store(self.process, request)


class VoterProcess:
    """One of the three. Its record survives it."""

    def __init__(self, world: LeasedWorld, name: str) -> None:
        self.world, self.name = world, name
        self.clock = world.new_clock()
        self.record = Record(Decision(0, (), VOTERS if (name, "") in VOTERS else ()))
        self.office: Office | None = None
        self.alive, self.paused = False, False
        self.postponed: list[Callable[[], None]] = []
        self.tick_at = 0.0
        self.start()

    @property
    def site(self) -> str:
        return self.world.home_of.get(self.name, self.name)

    @property
    def now(self) -> float:
        return self.clock.read(self.world.now)

    def start(self) -> None:
        self.alive, self.tick_at = True, 0.0
        plan = self.world.plan
        self.office = Office(plan.voter.restarted(self.name, plan.lease_s, self.record, self.now), self, self.now)

    def crash(self) -> None:
        self.alive, self.office, self.postponed, self.paused = False, None, [], False

    def do(self, act: Callable[[], Any]) -> None:
        if not self.alive:
            return
        if self.paused:
            self.postponed.append(act)
            return
        try:
            act()
        except Killed:
            self.world.faults["voter lost its answer"] += 1
            self.crash()
            self.world.later(self.world.random.expovariate(3.0), self.restart)

    def restart(self) -> None:
        if not self.alive:
            self.start()

    def on_beat(self, beat: Beat) -> None:
        if self.office is not None:
            self.office.on_beat(beat, self.now)

    def receive(self, source: str, message: Ballot) -> None:
        if self.office is not None:
            self.office.receive(source, message, self.now)

    # -- the office's clerk --------------------------------------------------------------------------------

    def save(self, record: Record) -> None:
        chance = 0.0 if self.world.calm else self.world.random.random()
        if chance > 0.98:
            raise Killed  # before it is written
        self.record = record
        if chance > 0.96:
            raise Killed  # and after

    def send(self, to: str, message: Ballot) -> None:
        other = self.world.voters[to]
        self.world.datagram(self, other, lambda: other.receive(self.name, message))

    def answer(self, peer: Peer, vouch: Vouch) -> None:
        process = self.world.by_peer.get(peer)
        if isinstance(process, LeasedProcess):
            self.tell(process, vouch, peer)

    def tell(self, process: LeasedProcess, word: Any, peer: Peer) -> None:
        def hear() -> None:
            residence = process.residence
            if isinstance(residence, AtVoters) and residence.started:
                residence.on_word(self.name, word, process.now)

        self.world.datagram(self, process, lambda: hear(), beside=True)

    def decided(self, decision: Decision) -> None:
        self.world.decided(decision)
        for process in self.world.processes:
            if process.alive and isinstance(process, LeasedProcess):
                self.tell(process, Ruling(decision), process.peer)

    def wake_at(self, when: float) -> None:
        if self.tick_at <= self.now or when < self.tick_at:
            self.tick_at = when
            self.world.at(self.clock.when(when) + 1e-7, lambda: self.do(lambda: self.tick(when)))

    def tick(self, when: float) -> None:
        if self.office is not None and when == self.tick_at:
            self.tick_at = 0.0
            self.office.tick(self.now)


class Killed(Exception):
    pass


class LeasedWorld(World):
    plan: LeasedPlan

    def __init__(self, plan: LeasedPlan, seed: int) -> None:
        super().__init__(plan, seed)
        self.blocked: Counter[tuple[str, str]] = Counter()  # (from, to): by how many faults
        together = self.random.random() < 0.5
        self.home_of = {f"v{at}": f"node-{at}" for at in (1, 2, 3)} if together else {}
        self.voters: dict[str, VoterProcess] = {}
        if plan.registry == "voters":
            self.voters = {name: VoterProcess(self, name) for name, _ in (*VOTERS, *SPARE)}
        self.store = plan.shelf()
        self.store_away = 0.0  # until then
        self.calm_since = 0.0
        self.may_wait: tuple[str, ...] = ()  # one of these, after that
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
        courts = peer in process.courted and process.peer not in process.core.view.coming
        if peer in process.links or not (courts or peer in process.core.view.coming):
            return
        other = self.by_peer.get(peer)
        again = lambda: process.do(lambda: self.connect(process, peer))  # noqa: E731
        if other is None or not other.alive or other.peer != peer:
            if peer in process.core.view.coming:
                self.later(0.3, again)
            return
        assert isinstance(other, LeasedProcess)
        if self.cut_off(process.site, other.site) or self.cut_off(other.site, process.site):
            self.later(0.3, again)
            return
        link = Link(process, other)
        process.links[peer] = link
        self.transmit(link, process, process.core.dialled(peer, process.now))

    def transmit(self, link: Link, source: Process, data: bytes) -> None:
        a, b = link.ends
        other = b if source is a else a
        if self.cut_off(source.name, other.name):
            link.deaf[:] = True, True  # what was lost in the middle makes the rest useless
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
        match kind:
            case "join" if len(up) < self.plan.most:
                self.faults["join"] += 1
                self.names += 1
                self.start(f"late-{self.names}")
            case "crash" if len(running) > 1:
                self.crash(self.random.choice(up))
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
                if link.up and (self.cut_off(a.name, b.name) or self.cut_off(b.name, a.name)):
                    link.deaf[:] = True, True
                    # Neither side hears of it at once.
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
        if self.random.random() < 0.15 and self.replace_voter():
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

    def replace_voter(self) -> bool:
        """The operator wants another one in the place of one."""
        at_work = [
            voter
            for voter in self.voters.values()
            if voter.alive and voter.office is not None and voter.office.voter.votes_here
        ]
        if not at_work:
            return False
        asked = self.random.choice(at_work)
        assert asked.office is not None
        before = asked.office.voter.decided.voters
        old = self.random.choice(before)
        new = self.random.choice([voter for voter in (*VOTERS, *SPARE) if voter not in before])
        self.faults["voter replaced"] += 1
        office = asked.office
        asked.do(lambda: office.order(tuple(new if voter == old else voter for voter in before), asked.now))
        return True

    def go_on(self, voter: VoterProcess) -> None:
        voter.paused = False
        postponed, voter.postponed = voter.postponed, []
        for act in postponed:
            voter.do(act)

    def crash(self, process: Process) -> None:
        self.faults["crash"] += 1
        process.alive = False
        for user in process.users:
            if user.wish is not None:
                self.left(user, user.wish)
        for link in list(process.links.values()):
            self.cut(link)
        if self.random.random() < 0.7:
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
            if steps > most:
                raise Broken(f"{self.grants} grants and no end after {steps} events: {self.who_waits()}")
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
            a, b = self.may_wait = tuple(process.name for process in self.random.sample(up, 2))
            self.faults["pair for good"] += 1
            self.blocked = Counter({(a, b): 1, (b, a): 1})
        elif len(up) > 2 and chance < 0.4 and self.voters and not self.home_of:
            # Or one that reaches only some of the voters. With a majority it must get in; without, only it may wait.
            far = self.random.sample(list(self.voters), self.random.randrange(1, 5))
            lonely = self.random.choice(up).name
            electors = max(
                (voter.record.decided for voter in self.voters.values()), key=lambda decision: decision.epoch
            ).electors
            if sum(name in far for name in electors) * 2 > len(electors):
                self.may_wait = (lonely, "")
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
