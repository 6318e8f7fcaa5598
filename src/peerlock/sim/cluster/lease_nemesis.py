"""What happens to a group on several hosts with leases, and how it is put right again at the end.

Hosts are cut off from each other, both ways or one way, for a moment or for long, some pairs and
not others. Processes are killed, restarted (one, or all at once; also while the old one lives),
stopped, and hang. They join one by one, or many at once. Clocks jump.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.sim.cluster.authority import LeaseAuthority
from peerlock.sim.cluster.leases import LeasedRegistry
from peerlock.sim.cluster.nemesis import Nemesis
from peerlock.sim.cluster.process import Process

if TYPE_CHECKING:
    from peerlock.sim.cluster.world import World

RARELY = 0.015  # of the faults are of the kind after which every process has to find the others again


class LeaseNemesis(Nemesis):
    faults = (
        "crash", "restart", "twin", "cold start", "join", "join storm", "leave", "pause", "hang", "reset",
        "reset in a frame", "slow link", "partition", "one way", "flapping", "pair", "pair for good",
        "few voters for good", "clock jump", "voter crash", "voter lost its answer", "voter's disk full",
        "voter lost its record", "voter pause", "voter replaced", "store away", "gave up", "renewal",
    )  # fmt: skip
    kinds = (
        "crash", "join", "leave", "pause", "pause", "hang", "reset", "slow link", "renewal", "partition", "partition",
        "pair", "clock jump", "authority", "authority",
    )  # fmt: skip
    pauses_s = (0.05, 1.0, 4.0, 8.0)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        assert isinstance(world.authority, LeaseAuthority)
        self.authority = world.authority
        self.pair: tuple[str, ...] = ()  # one of these may wait when the faults have stopped
        self.lonely, self.far = "", list[str]()  # this one, if these are a majority of the voters

    def choose(self) -> str:
        kind = super().choose()
        return "rare" if self.random.random() < RARELY else kind

    def cause(self, kind: str, up: list[Process], running: list[Process]) -> None:
        faults, network = self.world.faults, self.world.network
        match kind:
            case "rare" if up:
                self.random.choice((self.twin, self.cold_start, self.join_storm))(up)
            case "hang" if len(running) > 1:
                self.hang(self.random.choice(running))
            case "partition":
                self.partition()
            case "pair" if len(names := sorted({process.name for process in up})) > 1:
                faults["pair"] += 1
                a, b = self.random.sample(names, 2)
                network.separate([(a, b), (b, a)], self.random.choice((0.5, 5.0, 15.0)))
            case "clock jump" if up:
                faults["clock jump"] += 1
                self.clock_jump(self.random.choice(up))
            case "authority" if self.authority.voters:
                self.disturb_voters()
            case "authority":
                faults["store away"] += 1
                away = self.world.now + self.random.choice((0.1, 1.0, 5.0))
                self.authority.store_away = max(self.authority.store_away, away)
            case _:
                super().cause(kind, up, running)

    # -- processes -----------------------------------------------------------------------------------------

    def clock_jump(self, process: Process) -> None:
        registry = process.registry
        assert isinstance(registry, LeasedRegistry)
        process.clock.jumped += self.random.choice((0.5, 2.0, 10.0))
        process.do(lambda: process.core.tick(process.now))
        process.do(registry.look_at_lease)
        process.beside(lambda: registry.agent.tick(process.now))

    def twin(self, up: list[Process]) -> None:
        """Started again under its name, while the old one lives; that one goes later, or is not
        heard of for a while.
        """
        old = self.random.choice(up)
        self.world.faults["twin"] += 1
        self.world.start(old.name)
        if not old.paused and self.random.random() < 0.5:
            self.pause(old)
        self.world.later(self.random.choice((0.1, 2.0, 6.0)), lambda: self.world.end(old) if old.alive else None)

    def cold_start(self, up: list[Process]) -> None:
        """The power fails everywhere, and comes back."""
        world = self.world
        world.faults["cold start"] += 1
        for process in world.processes:
            if process.alive:
                world.end(process)
        for name in sorted({process.name for process in up}):
            world.later(self.random.uniform(0.0, 2.0), lambda name=name: world.start(name))  # type: ignore[misc]
        for voter in self.authority.voters.values():
            voter.crash()
            world.later(self.random.uniform(0.0, 2.0), voter.restart)

    def join_storm(self, up: list[Process]) -> None:
        missing = self.plan.most + 2 - len(up)
        if missing > 0:
            self.world.faults["join storm"] += 1
        for _ in range(missing):
            self.newcomer()

    def restart(self, process: Process) -> None:
        self.world.later(self.random.expovariate(2.0), lambda: self.world.start(process.name))

    def hang(self, process: Process) -> None:
        if process.hung:
            return
        self.world.faults["hang"] += 1
        process.hung, process.hung_since = True, self.world.now
        self.world.later(self.random.choice((0.5, 3.5, 9.0)), process.comes_back)

    # -- the network ---------------------------------------------------------------------------------------

    def partition(self) -> None:
        """Some sites on one side, the others on the other."""
        world, voters = self.world, self.authority.voters
        names = {process.name for process in world.processes if process.alive}
        authority = {voter.site for voter in voters.values()} if voters else {"store"}
        sites: list[str] = sorted(names | authority)
        few = set(self.random.sample(sites, self.random.randrange(1, max(2, len(sites) // 2 + 1))))
        pairs = [(a, b) for a in few for b in sites if b not in few]
        kind = self.random.choice(("partition", "one way", "flapping"))
        world.faults[kind] += 1
        both = pairs + [(b, a) for a, b in pairs]
        if kind == "one way":
            world.network.separate(pairs, self.random.choice((0.2, 2.0, 6.0)))
        elif kind == "partition":
            world.network.separate(both, self.random.choice((0.2, 2.0, 6.0)))
        else:
            for at in range(self.random.randrange(2, 6)):
                world.later(at * 0.6, lambda: world.network.separate(both, 0.3))

    # -- voters --------------------------------------------------------------------------------------------

    def disturb_voters(self) -> None:
        chance = self.random.random()
        if chance < 0.15 and self.replace_voter():
            return
        if chance > 0.95 and self.lose_record():
            return
        voter = self.random.choice(list(self.authority.voters.values()))
        if self.random.random() < 0.5 and voter.alive:
            self.world.faults["voter crash"] += 1
            voter.crash()
            self.world.later(self.random.choice((0.05, 1.0, 8.0)), voter.restart)
        elif voter.alive and not voter.paused:
            self.world.faults["voter pause"] += 1
            voter.paused = True
            self.world.later(self.random.choice((0.05, 1.0, 6.0)), voter.go_on)

    def replace_voter(self, lost: str = "") -> bool:
        """The operator wants another voter in the place of one, or of this one."""
        at_work = self.authority.at_work()
        if not at_work:
            return False
        asked, driver = self.random.choice(at_work)
        before = driver.voter.decided.voters
        old = (lost, "") if lost else self.random.choice(before)
        voters = self.authority.voters.items()
        new = self.random.choice([(name, "") for name, voter in voters if (name, "") not in before and not voter.lost])
        asked.do(lambda: driver.order(tuple(new if voter == old else voter for voter in before), asked.now))
        return True

    def lose_record(self) -> bool:
        """The file of a voter is gone: it never starts again, and the operator replaces it. Once
        per run.
        """
        at_work = self.authority.at_work()
        if not at_work or self.any_lost():
            return False
        self.world.faults["voter lost its record"] += 1
        voter, _ = self.random.choice(at_work)
        voter.crash()
        voter.lost = True
        self.world.later(1.0, lambda: self.replace_lost(voter.name))
        return True

    def replace_lost(self, name: str) -> None:
        if name in self.authority.newest().electors:
            self.replace_voter(name)
            self.world.later(1.0, lambda: self.replace_lost(name))

    def any_lost(self) -> bool:
        return any(voter.lost for voter in self.authority.voters.values())

    # -- the end of the faults -----------------------------------------------------------------------------

    def heal(self) -> None:
        authority, network = self.authority, self.world.network
        authority.store_away = 0.0
        network.blocked.clear()
        up = [process for process in self.world.processes if process.alive and not process.leaving]
        chance = self.random.random()
        names = sorted({process.name for process in up})
        if len(names) > 2 and chance < 0.2 and not (authority.home_of and self.any_lost()):
            # Two that cannot talk to each other, and to all others they can. (If voters live with
            # them and one has lost its record, no majority might be left to replace that one.)
            a, b = self.pair = tuple(self.random.sample(names, 2))
            self.world.faults["pair for good"] += 1
            network.separate_for_good([(a, b), (b, a)])
        elif len(up) > 2 and chance < 0.4 and authority.voters and not authority.home_of and not self.any_lost():
            # Or one that reaches only some of the voters. With a majority it must get in; without,
            # only it may wait.
            self.far = self.random.sample(list(authority.voters), self.random.randrange(1, 5))
            self.lonely = self.random.choice(up).name
            self.world.faults["few voters for good"] += 1
            network.separate_for_good([way for far in self.far for way in ((self.lonely, far), (far, self.lonely))])
        for voter in authority.voters.values():
            voter.restart()
            if voter.paused:
                voter.go_on()
        super().heal()

    def may_wait(self) -> tuple[str, ...]:
        """Cables that are never repaired. Voters may be replaced after that."""
        if not self.lonely:
            return self.pair
        electors = self.authority.newest().electors
        is_cut_off = sum(name in self.far for name in electors) * 2 > len(electors)
        return (self.lonely, "") if is_cut_off else ()
