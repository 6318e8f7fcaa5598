"""What happens to a group on several hosts, and how it is put right again at the end: all of it drawn from the seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

from peerlock.sim.cluster.network import ClusterNetwork
from peerlock.sim.cluster.process import HARMLESS, Link, Process
from peerlock.sim.cluster.voter_process import LeasedProcess, VoterProcess

FAULTS = (
    "crash", "restart", "twin", "cold start", "join", "join storm", "leave", "pause", "hang", "reset", "reset in a frame",
    "slow link", "partition", "one way", "flapping", "pair", "pair for good", "few voters for good", "clock jump",
    "voter crash", "voter lost its answer", "voter's disk full", "voter lost its record", "voter pause", "voter replaced",
    "store away", "gave up", "renewal",
)  # fmt: skip
RARELY = 0.015  # of the faults are of the kind after which everybody has to find the others again


class Nemesis(ClusterNetwork):
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
                process.do(process.request_epoch)
            case "partition":
                self.partition()
            case "pair" if len(names := sorted({process.name for process in up})) > 1:
                self.faults["pair"] += 1
                a, b = self.random.sample(names, 2)
                self.separate([(a, b), (b, a)], self.random.choice((0.5, 5.0, 15.0)))
            case "clock jump" if up:
                self.faults["clock jump"] += 1
                chosen = self.random.choice(up)
                assert isinstance(chosen, LeasedProcess)
                chosen.clock.jumped += self.random.choice((0.5, 2.0, 10.0))
                chosen.do(lambda: chosen.core.tick(chosen.now))
                chosen.do(chosen.look_at_lease)
                chosen.beside(lambda: chosen.agent.tick(chosen.now))
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
        for process in self.processes:
            if process.alive:
                self.crash(process, False)
        for name in sorted({process.name for process in up}):
            self.later(self.random.uniform(0.0, 2.0), lambda name=name: self.restart(name))  # type: ignore[misc]
        for voter in self.voters.values():
            voter.crash()
            self.later(self.random.uniform(0.0, 2.0), voter.restart)

    def join_storm(self, up: list[Process]) -> None:
        missing = self.plan.most + 2 - len(up)
        if missing > 0:
            self.faults["join storm"] += 1
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
            if voter.alive and voter.driver is not None and voter.driver.voter.votes_here
        ]

    def replace_voter(self, lost: str = "") -> bool:
        """The operator wants another one in the place of one, or of this one."""
        at_work = self.at_work()
        if not at_work:
            return False
        asked = self.random.choice(at_work)
        assert asked.driver is not None
        before = asked.driver.voter.decided.voters
        old = (lost, "") if lost else self.random.choice(before)
        new = self.random.choice(
            [(name, "") for name, voter in self.voters.items() if (name, "") not in before and not voter.lost]
        )
        driver = asked.driver
        asked.do(lambda: driver.order(tuple(new if voter == old else voter for voter in before), asked.now))
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
        newest = max((each.record.decided for each in self.voters.values()), key=lambda view: view.epoch)
        if voter.name in newest.electors:
            self.replace_voter(voter.name)
            self.later(1.0, lambda: self.mourn(voter))

    def go_on(self, voter: VoterProcess) -> None:
        voter.paused = False
        postponed, voter.postponed = voter.postponed, []
        for act in postponed:
            voter.do(act)

    def crash(self, process: Process, by_itself: bool = True) -> None:
        if by_itself:
            self.faults["crash"] += 1
        self.end(process)
        if by_itself and self.random.random() < 0.7:
            self.faults["restart"] += 1
            self.later(self.random.expovariate(2.0), lambda: self.restart(process.name))

    def end(self, process: Process) -> None:
        """It is gone, with what it held."""
        process.alive = False
        for user in process.users:
            if user.wish is not None:
                self.left(user, user.wish)
        for link in list(process.links.values()):
            self.cut(link)

    def leave(self, process: Process) -> None:
        self.faults["leave"] += 1
        assert isinstance(process, LeasedProcess)

        def go() -> None:
            process.leaving = True
            process.core.close(process.now)
            process.agent.leave(process.now)

        process.do(go)
        self.later(3.0, lambda: self.end(process) if process.alive else None)

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

    def heal(self) -> None:
        self.calm, self.calm_since = True, self.now
        self.store_away = 0.0
        self.blocked = _Never()
        up = [process for process in self.processes if process.alive and not process.leaving]
        chance = self.random.random()
        names = sorted({process.name for process in up})
        if len(names) > 2 and chance < 0.2 and not (self.home_of and self.any_lost):
            # A cable that nobody repairs: two that cannot talk to each other, and to everybody else they can. (If voters
            # live with them and one has lost its record, no majority might be left to replace that one.)
            a, b = self.pair = tuple(self.random.sample(names, 2))
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

    def serious(self) -> int:
        return sum(count for fault, count in self.faults.items() if fault not in HARMLESS)


class _Never(Counter[tuple[str, str]]):
    """Nobody is cut off from anybody any more."""

    def __missing__(self, key: Any) -> int:
        return 0

    def subtract(self, *_: Any, **__: Any) -> None:
        pass
