"""Ricart and Agrawala 1981: what the slides claim, as far as simulation can decide it."""

from __future__ import annotations

import pytest

from peerlock.contract import Mode, NodeId
from peerlock.sim.experiment import Experiment
from peerlock.trace import Keeper, Recorder
from running import assert_sound, run, run_seeds


@pytest.mark.parametrize("n", [2, 3, 6, 9])
def test_ra_msg(n: int) -> None:
    """RA-MSG: exactly 2(N-1)."""
    for ran in run_seeds("ricart-agrawala", range(1, 31), nodes=n, delay="adversary:3"):
        assert set(ran.costs) == {2 * (n - 1)}
        assert ran.metrics.overhead.messages == 0


def test_ra_fcfs() -> None:
    """RA-FCFS: of two requests where one REQUEST arrived before the other was made, the first enters first."""
    for seed in range(1, 51):
        keeper = Keeper()
        Experiment(algorithm="ricart-agrawala", nodes=4, delay="adversary:3", load="closed:2").prepare().run(
            seed, [keeper]
        )
        waiting: dict[NodeId, set[NodeId]] = {}  # who waits -> who has got its REQUEST
        ahead: dict[NodeId, set[NodeId]] = {}  # who waits -> whose REQUEST it had got before it asked
        sent = {event.id: event for event in keeper.events if event.event == "sent"}
        for event in keeper.events:
            if event.event == "requested":
                ahead[event.node] = {j for j, known in waiting.items() if event.node in known}
                waiting[event.node] = set()
            elif event.event == "received" and sent[event.id].kind == "REQUEST" and event.source in waiting:
                waiting[event.source].add(event.node)
            elif event.event == "entered":
                assert not ahead[event.node] & set(waiting), (seed, event)
                del waiting[event.node]
                for others in ahead.values():
                    others.discard(event.node)


@pytest.mark.parametrize("n", [2, 5])
def test_ra_bcast(n: int) -> None:
    """RA-BCAST: one REQUEST and N-1 REPLIES."""
    ran = run("ricart-agrawala-broadcast", nodes=n)
    assert set(ran.costs) == {n}
    entries = len(ran.costs)
    assert ran.metrics.by_kind() == {"REPLY": entries * (n - 1), "REQUEST": entries}


def test_ra_implicit() -> None:
    """RA-IMPLICIT: N-1 to 3(N-1), near N-1 under light contention."""
    n = 5
    heavy = run("ricart-agrawala-implicit", nodes=n, entries=40)
    light = run("ricart-agrawala-implicit", nodes=n, entries=40, load="poisson:0.001")
    assert n - 1 <= min(heavy.costs) <= max(heavy.costs) <= 3 * (n - 1)
    assert sum(light.costs) / len(light.costs) < (n - 1) * 1.1


def test_ra_both() -> None:
    """RA-BOTH: as low as 1."""
    assert min(run("ricart-agrawala-broadcast-implicit", nodes=5, load="poisson:0.001").costs) == 1


def test_ra_implicit_safe() -> None:
    """RA-IMPLICIT-SAFE: safe with a time-out of twice the delay bound (tests/catalogue), not with less."""
    too_short = [
        ran.metrics.violations
        for ran in run_seeds(
            "ricart-agrawala-implicit", range(1, 51), nodes=3, delay="uniform:0.5,1.5", delay_bound=0.5
        )
    ]
    assert any(too_short)


def test_ra_implicit_a_pause_breaks_the_bound() -> None:
    faults = ("pause:2@1..20",)
    violations = [
        ran.metrics.violations
        for ran in run_seeds("ricart-agrawala-implicit", range(1, 51), nodes=3, faults=faults, hold="constant:2")
    ]
    assert any(violations)


def test_ra_rw() -> None:
    """RA-RW: readers share, writers exclude; the writer is not passed over once its request is known."""

    class Sharing(Recorder):
        def __init__(self) -> None:
            self.inside: dict[NodeId, Mode] = {}
            self.together = 0

        def entered(self, t: float, node: NodeId, mode: Mode) -> None:
            self.inside[node] = mode
            self.together = max(self.together, len(self.inside))

        def left(self, t: float, node: NodeId) -> None:
            del self.inside[node]

    sharing = Sharing()
    Experiment(algorithm="ricart-agrawala-rw", nodes=6, readers=0.8, hold="constant:2").prepare().run(
        recorders=[sharing]
    )
    assert sharing.together >= 4
    for seed, ran in enumerate(run_seeds("ricart-agrawala-rw", range(1, 51), nodes=5, readers=0.8, entries=10), 1):
        assert_sound(ran, seed, 50)


def test_ra_prio() -> None:
    """RA-PRIO: small increments are preferred, and large ones do not starve.

    The preference is slight, and hardly depends on how large the large ones are: it decides between requests that cross
    each other. Every other request has seen the number before it, whatever its increment.
    """

    def waits_of_1(*increments: int) -> list[float]:
        keeper = Keeper()
        Experiment(
            algorithm="ricart-agrawala-priority", nodes=4, options={"increments": increments}, entries=300, load="closed:6",
            hold="constant:1",
        ).prepare().run(recorders=[keeper])  # fmt: skip
        asked, waits = 0.0, []
        for event in keeper.events:
            if event.node == 1 and event.event == "requested":
                asked = event.t
            elif event.node == 1 and event.event == "entered":
                waits.append(event.t - asked)
        return waits

    high, low, very_low = waits_of_1(1, 1, 1, 1), waits_of_1(20, 1, 1, 1), waits_of_1(500, 1, 1, 1)
    assert len(low) == len(very_low) == 300
    assert 1.1 < sum(low) / sum(high) < 1.5
    assert 0.9 < sum(very_low) / sum(low) < 1.1


FAULTS = [
    ("join:5@3", "join:6@3", "leave:2@3.5", "leave:5@30", "leave:1@4", "join:7@4"),
    ("join:5@0", "join:6@0.1", "join:7@0.2", "join:8@0.3"),
    ("leave:2@0", "leave:3@0.1", "join:5@0.2", "leave:4@0.3"),
    ("join:5@1", "leave:5@9", "join:6@9", "leave:6@18", "join:7@18"),
]


@pytest.mark.parametrize("delay", ["uniform:0.5,1.5", "adversary:4", "exponential:2"])
@pytest.mark.parametrize("faults", FAULTS)
def test_ra_join_and_ra_leave(faults: tuple[str, ...], delay: str) -> None:
    """RA-JOIN, RA-LEAVE: mutual exclusion and no starvation while nodes come and go."""
    for seed, ran in enumerate(
        run_seeds("ricart-agrawala-dynamic", range(1, 151), nodes=4, delay=delay, faults=faults), 1
    ):
        assert_sound(ran, seed)
        assert {place.phase for place in ran.world.places.values()} <= {"idle", "left"}
        stayed = [j for j, place in ran.world.places.items() if place.phase == "idle"]
        assert all(ran.metrics.entries[j] == 10 for j in stayed)


def test_ra_fail() -> None:
    """RA-FAIL: the rest go on after a crash, whoever it was and whatever it was doing."""
    for at in range(40):
        for seed, ran in enumerate(
            run_seeds(
                "ricart-agrawala-failures",
                [1, 2],
                nodes=4,
                delay="adversary:1",
                hold="constant:1",
                faults=(f"crash:2@{at / 2}",),
            ),
            1,
        ):
            assert_sound(ran, seed)
            assert [ran.metrics.entries[j] for j in (1, 3, 4)] == [10, 10, 10]


def test_ra_fail_safe() -> None:
    """RA-FAIL-SAFE: safe as long as nobody that lives is suspected; unsafe with a time-out that is too short."""
    too_short = [
        ran.metrics.violations
        for ran in run_seeds("ricart-agrawala-failures", range(1, 31), nodes=3, hold="constant:3", delay_bound=0.3)
    ]
    assert any(too_short)


def test_ra_fail_as_printed_fails() -> None:
    """RA-FAIL-SAFE as printed: unsafe although every delay keeps the bound and nobody is dead. Repaired: tests/catalogue."""
    violations = [
        ran.metrics.violations
        for ran in run_seeds("ricart-agrawala-failures", range(1, 31), nodes=5, as_printed=True, delay="adversary:4")
    ]
    assert any(violations)


def test_without_failure_handling_a_crash_stops_everybody() -> None:
    ran = run("ricart-agrawala", nodes=4, faults=("crash:2@3",))
    assert ran.world.stuck() == [1, 3, 4]
