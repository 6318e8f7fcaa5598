"""Many seeds of whole nodes, on all cores."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from peerlock.node.wire_algorithms import ON_THE_WIRE
from peerlock.parallel import spread
from peerlock.sim.cluster.plan import HARMLESS, AttachedPlan, LeasedPlan, Plan, StaticPlan
from peerlock.sim.cluster.planted import PLANTED
from peerlock.sim.cluster.world import run

PLANS: dict[str, Plan] = {
    "host": Plan(), "attached": AttachedPlan(),
    "static": StaticPlan(), "voters": LeasedPlan(), "store": LeasedPlan(registry="store"),
}  # fmt: skip
KINDS = {**{name: (name,) for name in PLANS}, "leases": ("voters", "store")}
FEW = 20  # seeds that are not worth more processes


class Job(Struct, frozen=True):
    seed: int
    registry: str = "host"
    algorithm: str = "suzuki-kasami-a"
    nodes: int = 4
    grants: int = 200
    planted: str = ""

    def plan(self) -> Plan:
        plan = PLANTED[self.planted] if self.planted else PLANS[self.registry]
        algorithm = plan.algorithm if self.planted and self.algorithm == Plan().algorithm else self.algorithm
        readers = algorithm.endswith("-rw")
        if isinstance(plan, AttachedPlan):
            nodes = {"attached": self.nodes + 1}  # beside two members
        else:
            nodes = {"nodes": self.nodes, "most": self.nodes + 2}
        return replace(plan, algorithm=algorithm, grants=self.grants, readers=readers, **nodes)

    def again(self) -> str:
        """The command that shows it once more."""
        words = f"peerlock sim-nodes --seeds {self.seed} -a {self.algorithm} -n {self.nodes} --grants {self.grants}"
        words += f" --registry {self.registry}" if self.registry != "host" else ""
        return words + (f" --planted '{self.planted}'" if self.planted else "")


class Found(Struct):
    """What came of one seed."""

    job: Job
    problem: str = ""
    grants: int = 0
    epochs: int = 0
    messages: int = 0
    faults: Counter[str] = Counter()

    @property
    def serious(self) -> int:
        return sum(count for fault, count in self.faults.items() if fault not in HARMLESS)


def jobs_of(seeds: Sequence[int], registry: str, algorithm: str | None, **more: object) -> list[Job]:
    """All algorithms in turn, and all kinds of registries that the name stands for."""
    kinds = KINDS[registry]
    return [
        Job(seed, kinds[seed % len(kinds)], algorithm or ON_THE_WIRE[seed // len(kinds) % len(ON_THE_WIRE)], **more)  # type: ignore[arg-type]
        for seed in seeds
    ]


def explore(job: Job) -> Found:
    try:
        result = run(job.seed, job.plan())
    except Exception as problem:  # an assertion of the node is a finding, too
        return Found(job, f"{type(problem).__name__}: {problem}")
    return Found(job, "", result.grants, result.epochs, result.messages, result.faults)


def explore_all(jobs: Sequence[Job], processes: int | None = None) -> Iterator[Found]:
    processes = processes or os.cpu_count() or 1
    if processes == 1 or len(jobs) < FEW:
        return map(explore, jobs)
    return spread(explore, jobs, processes, chunk=8)
