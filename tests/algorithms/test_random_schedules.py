"""Hypothesis chooses every step: who asks, who leaves, which message arrives next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peerlock.algorithms import CATALOGUE, choose
from peerlock.contract import Effects, Mode, NodeId, Wire
from peerlock.sim import topology
from peerlock.user_algorithm import find

# With a delay bound any order is not any order: these are tested in virtual time.
ANY_ORDER = [name for name in CATALOGUE if not find(name).needs.delay_bound]


class Group:
    """Nodes, and messages under way; whoever calls chooses what happens."""

    def __init__(self, name: str, n: int, inside: dict[NodeId, Mode], home: NodeId) -> None:
        spec = choose(name)
        shapes = topology.parse(topology.default_for(spec.needs), n).shapes(spec.needs, home)
        self.nodes: dict[NodeId, Any] = {j: spec.start(j, shape, inside) for j, shape in shapes.items()}
        self.where: dict[NodeId, str] = {j: "inside" if j in inside else "idle" for j in self.nodes}
        self.modes: dict[NodeId, Mode] = dict(inside)
        self.flight: list[tuple[NodeId, NodeId, Wire]] = []
        self.asked = self.entered = 0

    def steps(self, may_ask: bool) -> list[tuple[str, int]]:
        steps = [("deliver", at) for at in range(len(self.flight))]
        steps += [("release", j) for j, where in self.where.items() if where == "inside"]
        if may_ask:
            steps += [("request", j) for j, where in self.where.items() if where == "idle"]
        return steps

    def do(self, step: tuple[str, int], mode: Mode) -> None:
        out, (what, which) = Effects(), step
        if what == "deliver":
            source, j, message = self.flight.pop(which)
            self.nodes[j].receive(source, message, out)
        elif what == "request":
            j, self.asked = which, self.asked + 1
            self.where[j], self.modes[j] = "waiting", mode
            self.nodes[j].request(mode, out)
        else:
            j, self.where[which] = which, "ending"
            self.nodes[j].release(out)
        self.flight += [(j, to, message) for to, message in out.sent]
        assert all(to != j for to, _ in out.sent)
        if out.entered:
            assert self.where[j] == "waiting"
            self.where[j], self.entered = "inside", self.entered + 1
        if out.ended:
            assert self.where[j] == "ending"
            self.where[j] = "idle"
        inside = [self.modes[j] for j, where in self.where.items() if where == "inside"]
        assert len(inside) <= 1 or "write" not in inside


@pytest.mark.parametrize("name", ANY_ORDER)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), n=st.integers(2, 5), steps=st.integers(5, 80))
def test_any_schedule(name: str, data: st.DataObject, n: int, steps: int) -> None:
    home = data.draw(st.integers(1, n))
    inside: dict[NodeId, Mode] = {data.draw(st.integers(1, n)): "write"} if data.draw(st.booleans()) else {}
    group = Group(name, n, inside, home)
    modes = st.sampled_from(find(name).needs.modes)
    for _ in range(steps):
        possible = group.steps(may_ask=True)
        group.do(data.draw(st.sampled_from(possible)), data.draw(modes))
    # Whatever has happened: once nobody asks any more, everybody who has asked gets in, and all is quiet.
    for _ in range(10_000):
        possible = group.steps(may_ask=False)
        if not possible:
            break
        group.do(data.draw(st.sampled_from(possible)) if len(possible) < 3 else possible[-1], "write")
    assert set(group.where.values()) == {"idle"}
    assert group.entered == group.asked
    assert group.flight == []
