"""A group is started, meets faults, and is judged.

A run has rounds. In each there are faults for a while, some of them at the same time. Then
everything is healed, and each process must be granted the lock within `PATIENCE_S`.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from peerlock.errors import PeerlockError, UsageError
from peerlock.verify.cluster import Cluster, Etcds
from peerlock.verify.history import Belief, Outcome, Verdict, judge
from peerlock.verify.hosts import Hosts, Loopback, Namespaces, may_make_namespaces
from peerlock.verify.log import Line, read
from peerlock.verify.nemesis import Nemesis
from peerlock.verify.plan import ALONE, FAULTS, ON_ONE_HOST, POSSIBLE, REGISTRIES, Plan

PATIENCE_S = 10.0
ROUND_S = 30.0
START_S = 30.0


def verify(plan: Plan, progress: Callable[[float], None]) -> Outcome:
    """Carry out the plan, and judge what the processes did. `progress` is told the seconds so far."""
    if set(plan.faults) & set(ALONE):
        return _alone(plan, progress)
    unknown = set(plan.faults) - set(FAULTS)
    if unknown:
        raise UsageError(f"No fault is called {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}.")
    if plan.registry not in REGISTRIES:
        raise UsageError(f"--registry is one of {', '.join(REGISTRIES)}; got {plan.registry!r}.")
    possible = tuple(fault for fault in plan.faults if fault in POSSIBLE[plan.registry])
    if not possible:
        can = ", ".join(POSSIBLE[plan.registry])
        raise UsageError(f"With --registry {plan.registry} these faults can happen: {can}.")
    plan = msgspec.structs.replace(plan, faults=possible)
    if plan.registry in ON_ONE_HOST:
        plan = msgspec.structs.replace(plan, namespaces=False)
    if plan.registry == "embedded" and (plan.voters not in (3, 5) or plan.voters > plan.nodes):
        raise UsageError(f"Three or five of the {plan.nodes} processes are voters; got {plan.voters}.")
    with staged(plan) as cluster:
        nemesis = Nemesis(plan, cluster, cluster.hosts)
        recoveries, stuck, began = _rounds(plan, cluster, nemesis, progress)
        cluster.close()
        verdict, held, logs = judged(cluster)
    if nemesis.counts["between"]:  # a process that was told to stop itself may not have come to it
        nemesis.counts["between"] = sum(line.what == "stops" for lines in logs for line in lines)
    verdict.faults = dict(sorted(nemesis.counts.items()))
    verdict.recovery_s = round(max(recoveries), 3) if recoveries else None
    verdict.problems += stuck
    verdict.stuck, verdict.seed, verdict.hosts = len(stuck), plan.seed, cluster.hosts.kind
    verdict.seconds = round(time.monotonic() - began, 1)
    return Outcome(verdict, held, nemesis.happened)


def _alone(plan: Plan, progress: Callable[[float], None]) -> Outcome:
    from peerlock.verify.syscalls import chaos

    if plan.faults != ("syscalls",) or plan.registry != "host":
        raise UsageError("The faults called syscalls come alone, and on one host: --registry host --faults syscalls")
    directory = Path(tempfile.mkdtemp(prefix="peerlock-verify-"))
    try:
        return chaos(plan, progress, directory)
    finally:
        if plan.keep is not None:
            keep = shutil.ignore_patterns("sockets")  # which cannot be copied
            shutil.copytree(directory, plan.keep, dirs_exist_ok=True, ignore=keep)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def staged(plan: Plan) -> Iterator[Cluster]:
    """The hosts and what decides the views. The processes are not started yet. At the end all of it
    is removed.
    """
    count = plan.nodes + (plan.etcd_nodes if plan.registry == "etcd" else 0)
    directory = Path(tempfile.mkdtemp(prefix="peerlock-verify-"))
    if plan.registry in ON_ONE_HOST:
        directory.chmod(0o700)
    use = plan.namespaces if plan.namespaces is not None else may_make_namespaces()
    hosts: Hosts = Namespaces(count) if use else Loopback(count)
    etcds: Etcds | None = None
    cluster: Cluster | None = None
    try:
        if "slow" in plan.faults:
            hosts.slow(1, True)  # where that is impossible, the run ends here
            hosts.slow(1, False)
        if plan.registry == "etcd":
            etcds = Etcds(hosts, plan.nodes + 1, plan.etcd_nodes, directory)
        cluster = Cluster(plan, hosts, directory, etcds)
        yield cluster
    finally:
        if cluster is not None:
            for process in cluster.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if etcds is not None:
            etcds.close()
        hosts.close()
        if plan.keep is not None:
            shutil.copytree(directory, plan.keep, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def judged(cluster: Cluster) -> tuple[Verdict, list[Belief], list[list[Line]]]:
    from peerlock.guards import GuardedFile

    logs = {cluster.name(host): read(cluster.log(host)) for host in cluster.hosts_of_nodes}
    _, counter = GuardedFile(cluster.directory / "counter").read()
    verdict, held = judge(logs, cluster.deaths, int(counter or b"0"))
    return verdict, held, list(logs.values())


def _rounds(
    plan: Plan, cluster: Cluster, nemesis: Nemesis, progress: Callable[[float], None]
) -> tuple[list[float], list[str], float]:
    start_all(cluster)
    began = time.monotonic()
    recoveries: list[float] = []
    stuck: list[str] = []
    while (left := began + plan.seconds - time.monotonic()) > 0:
        end = time.monotonic() + min(ROUND_S, left)
        while (now := time.monotonic()) < end:
            nemesis.strike()
            until = min(end, now + nemesis.random.expovariate(1 / plan.fault_every_s))
            while time.monotonic() < until:
                nemesis.look()
                time.sleep(0.02)
            progress(time.monotonic() - began)
        nemesis.look(heal=True)
        for host in cluster.hosts_of_nodes:
            cluster.go_on(host)
        healed = time.monotonic()
        longest, missing = await_grants(cluster, healed, PATIENCE_S)
        recoveries.append(longest)
        if missing:
            names = ", ".join(cluster.name(host) for host in missing)
            stuck.append(
                f"{PATIENCE_S:g} s after the healing at {healed:.3f} these had not been granted the lock: {names}"
            )
    return recoveries, stuck, began


def start_all(cluster: Cluster) -> None:
    for host in cluster.hosts_of_nodes:
        cluster.start(host)
    _, missing = await_grants(cluster, time.monotonic(), START_S)
    if missing:
        raise PeerlockError(f"The group did not start within {START_S:g} s: {_complaints(cluster)}")


def await_grants(cluster: Cluster, since: float, patience_s: float) -> tuple[float, list[int]]:
    """Wait until each process has been granted the lock. The seconds since then, and the hosts
    without a grant.
    """
    while True:
        grants = cluster.last_grants()
        missing = [host for host, when in grants.items() if when < since]
        now = time.monotonic()
        if not missing or now - since > patience_s:
            return now - since, missing
        for host in missing:
            cluster.go_on(host)  # it may have stopped itself just after it was let go on
        time.sleep(0.05)


def _complaints(cluster: Cluster) -> str:
    for host in cluster.hosts_of_nodes:
        path = cluster.directory / f"{cluster.name(host)}.err"
        if path.exists() and path.stat().st_size:
            return f"{cluster.name(host)}: {path.read_text()[-500:].strip()}"
    return "no process said why"
