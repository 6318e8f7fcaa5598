"""Broken figures are noticed: every mechanical mutant of every algorithm is caught, or survives for a reason written here."""

from __future__ import annotations

from collections import Counter

import pytest

from peerlock.algorithms import CATALOGUE, Size, choose
from peerlock.check.mutants import Setting, by_hand, caught, look, mechanical
from peerlock.contract import Members, Mode, Neighbours, NodeId, Ring, Shape
from peerlock.sim import topology


def setting(
    name: str,
    n: int,
    entries: tuple[int, ...],
    inside: NodeId = 0,
    text: str | None = None,
    crashes: int = 0,
    fifo: bool = False,
    liveness: bool = False,
) -> Setting:
    needs = choose(name).needs
    network = topology.parse(text or ("complete" if needs.shape is Neighbours else topology.default_for(needs)), n)
    held: dict[NodeId, Mode] = {inside: "write"} if inside else {}
    shapes, ticks = network.shapes(needs, 1, 1.0), 1 if needs.delay_bound else None
    return Setting(shapes, entries, network.size(), held, fifo, delay_bound=ticks, crashes=crashes, liveness=liveness)


def settings(name: str) -> list[Setting]:
    """From small to large; what the small ones catch the large ones never see."""
    found = [
        setting(name, 2, (2, 2)),
        setting(name, 2, (1, 1), 2),
        setting(name, 3, (1, 1, 1)),
        setting(name, 2, (4, 4)),
    ]
    match name:
        case "ricart-agrawala-failures":
            found += [setting(name, 2, (1, 1), crashes=1, liveness=True), setting(name, 3, (1, 1, 1), crashes=1)]
        case "helary-plouzeau-raynal":
            found += [setting(name, 3, (1, 1, 1), text="line"), setting(name, 3, (2, 2, 2), fifo=True)]
        case "ricart-agrawala-dynamic":
            found += _with_changes()
        case "dijkstra-ring":
            found += [setting(name, 3, (2, 2, 2))]
        case (
            "suzuki-kasami-b" | "ricart-agrawala-rw" | "ricart-agrawala-implicit" | "ricart-agrawala-broadcast-implicit"
        ):
            pass
        case _:
            found += [setting(name, 3, (2, 2, 1))]
    return found


def _with_changes() -> list[Setting]:
    three, two = Members((1, 2, 3), 1), Members((1, 2), 1)
    comes: dict[NodeId, Shape] = {1: two, 2: two, 3: Members((2,), 1)}
    goes: dict[NodeId, Shape] = dict.fromkeys((1, 2, 3), three)
    size = Size(3, 3, 1)
    return [
        Setting(comes, (1, 1, 1), size),
        Setting(goes, (1, 1, 1), size, leavers=(2,)),
        Setting(comes, (1, 1, 1), size, leavers=(1,)),
    ]


# Why nothing can catch these, by algorithm and mutant.
OPTION = "an option that is off here; with it on the algorithm is right as well"
REPLACED = "never runs: the repaired form replaces this method"
SURVIVORS = {
    "suzuki-kasami-b": {"SuzukiKasamiB.finish: drops self.asked = False": "`request` sets it anew before anybody looks"},
    "helary-plouzeau-raynal": {"AsPrinted.forget: drops self.req_array = strike(self.req_array, elec)": REPLACED},
    "ricart-agrawala": {
        "RicartAgrawala.request: not (self.own_counts)": OPTION,
        "RicartAgrawala.request: drops self.highest_sequence_number = self.our_sequence_number": OPTION,
        "RicartAgrawala.enter_if_permitted: drops self.phase = 'inside'": (
            "still counted as waiting, it defers whatever has the larger number, and every request that can arrive while it "
            "is inside has: its sender had seen this node's number"
        ),
    },
    "ricart-agrawala-rw": {"RicartAgrawalaRW.release: drops self.mode = 'write'": "an idle node replies to everybody"},
    "ricart-agrawala-dynamic": {
        "RicartAgrawalaDynamic.acknowledge: drops self.leavers -= {j}": "acknowledges again; who has gone does not listen",
        "RicartAgrawalaDynamic.finish_if_answered: drops self.membership = "
        "'member' if self.membership == 'joining' else 'gone'": "who should be gone still replies, which does no harm",
    },
    "ricart-agrawala-failures": {
        "AsPrinted.ask: drops self.silent = frozenset()": "it is empty by then",
        "AsPrinted.on_timeout: drops out.send(k, Failed(j))": "the others find out by themselves, later",
        "AsPrinted.on_are_you_there: drops out.send(j, YesIAmHere() if j in self.deferred else Reply())": REPLACED,
        "AsPrinted.on_are_you_there: not (j in self.deferred)": REPLACED,
        "AsPrinted.strike_off: drops self.others = tuple((k for k in self.others if k != j))": "suspects the dead anew",
        "RicartAgrawalaFailures.on_request: drops self.asked = note(self.asked, j, max(n, look(self.asked, j, 0)))": (
            "its late replies are about no request, and the next ARE_YOU_THERE gets a good one: slower, and as safe"
        ),
        "RicartAgrawalaFailures.release: drops out.send(j, ReplyTo(look(self.asked, j, 0)))": (
            "the next ARE_YOU_THERE gets the reply: slower, and as safe"
        ),
    },
    "naimi-trehel": {
        "NaimiTrehel.on_request: drops self.token_present = False": "looked at where there is no father",
    },
}  # fmt: skip


LONG = ("helary-plouzeau-raynal", "ricart-agrawala-failures")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in CATALOGUE]
)
def test_mechanical_mutants(name: str) -> None:
    configurations = settings(name)
    sound = [look(choose(name), configuration, 3_000_000) for configuration in configurations]
    assert [seen.problem for seen in sound] == [None] * len(sound)
    survived, by = [], Counter[str]()
    for mutant in mechanical(name):
        problem = caught(mutant.spec, configurations, sound)
        by[problem or "nothing"] += 1
        # How old other requests are is a matter of fairness across epochs: tests/node/test_reports.py.
        if problem is None and ".after: " not in mutant.what:
            survived.append(mutant.what)
    assert survived == list(SURVIVORS.get(name, {})), by


# What is replaced by what, and the property that must notice.
BY_HAND = [
    (
        "suzuki-kasami-a",
        "if self.have_privilege and not self.requesting and",
        "if self.have_privilege and",
        "IndexError",
    ),
    ("suzuki-kasami-a", "(self.q[0], self.q[1:], out)", "(self.q[0], (), out)", "passed over more often"),
    ("suzuki-kasami-b", "other_round == (self.rn[j] == 0)", "True", "assertions"),
    ("suzuki-kasami-b", "return self.asked and super().ends_round()", "return super().ends_round()", "no deadlock"),
    ("helary-plouzeau-raynal", "(request[1], request[0])", "(request[0], request[1])", "passed over more often"),
    pytest.param("helary-plouzeau-raynal", "if look(self.lud, orig, -1) < t", "", None, marks=pytest.mark.slow),
    ("dijkstra-ring", 'if self.section != "noncritical":', 'if self.section == "critical":', None),
    (
        "ricart-agrawala",
        "(self.our_sequence_number, self.me) < (n, j)",
        "(self.our_sequence_number, self.me) > (n, j)",
        None,
    ),
    (
        "ricart-agrawala",
        "(self.our_sequence_number, self.me) < (n, j)",
        "self.our_sequence_number < n",
        "mutual exclusion",
    ),
    ("ricart-agrawala", "(self.our_sequence_number, self.me) < (n, j)", "self.our_sequence_number <= n", "no deadlock"),
    ("ricart-agrawala", "max(self.highest_sequence_number, n)", "self.highest_sequence_number", "mutual exclusion"),
    ("ricart-agrawala-rw", 'if mode == "read" and self.mode == "read":', 'if mode == "read":', "mutual exclusion"),
    ("carvalho-roucairol", "if self.waiting and permitted:", "if False:", "no deadlock"),
    ("carvalho-roucairol", "self.a -= {j}\n", "pass\n", "CR-AUTH"),
    ("ricart-agrawala-token", "key=lambda j: (j < me, j))", "key=lambda j: j)", "passed over more often"),
]


@pytest.mark.parametrize(("name", "old", "new", "by"), BY_HAND)
def test_mutants_made_by_hand(name: str, old: str, new: str, by: str | None) -> None:
    configurations = settings(name)
    if name == "suzuki-kasami-b":
        configurations.append(setting(name, 3, (3, 3, 1)))
    if by == "passed over more often":
        configurations = [setting(name, 3, (3, 3, 1) if name == "ricart-agrawala-token" else (2, 2, 1))]
    sound = [look(choose(name), configuration, 3_000_000) for configuration in configurations]
    problem = caught(by_hand(name, old, new).spec, configurations, sound)
    assert problem is not None
    if by is not None:
        assert problem == by


def test_the_ring_is_a_ring() -> None:
    """Guard for the helper above: each algorithm gets the shape that it asks for."""
    assert isinstance(setting("dijkstra-ring", 3, (1, 1, 1)).shapes[1], Ring)
    assert isinstance(setting("helary-plouzeau-raynal", 3, (1, 1, 1)).shapes[1], Neighbours)
