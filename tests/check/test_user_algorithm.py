"""A class of one's own that breaks the contract is refused with a sentence: by the checker, the simulator and the lab alike."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peerlock.check.model import Model
from peerlock.check.properties import Checks, standard
from peerlock.check.search import Outcome, Search
from peerlock.contract import Members
from peerlock.errors import ContractError
from peerlock.lab.film import Plan, shoot
from peerlock.sim.experiment import Experiment
from peerlock.user_algorithm import find, load

# A lock with a coordinator that is right, and what may be wrong with one.
CLASSES = '''
import random
import time
from peerlock.contract import NOBODY, Ask, Grant, State


class Request(Ask, frozen=True, tag=1):
    n: int


class Reply(Grant, frozen=True, tag=2):
    pass


class Listed(Ask, frozen=True, tag=3):
    names: list


class Central(State):
    me: int
    home: int
    q: tuple = ()
    busy: bool = False

    @classmethod
    def start(cls, me, shape, inside=NOBODY):
        return cls(me, shape.home)

    def request(self, mode, out):
        if self.me == self.home:
            self.asked(self.me, out)
        else:
            out.send(self.home, Request(1))

    def asked(self, j, out):
        if self.busy:
            self.q = (*self.q, j)
        else:
            self.busy = True
            self.give(j, out)

    def give(self, j, out):
        if j == self.me:
            out.enter()
        else:
            out.send(j, Reply())

    def free(self, out):
        if self.q:
            j, self.q = self.q[0], self.q[1:]
            self.give(j, out)
        else:
            self.busy = False

    def release(self, out):
        if self.me == self.home:
            self.free(out)
        else:
            out.send(self.home, Request(0))
        out.idle()

    def receive(self, source, message, out):
        if isinstance(message, Reply):
            out.enter()
        elif isinstance(message, Listed) or message.n:
            self.asked(source, out)
        else:
            self.free(out)


class Talkative(Central):
    def asked(self, j, out):
        print("asked by", j)
        super().asked(j, out)


class MutableField(Central):
    log: list = []


class BecomesMutable(Central):
    def asked(self, j, out):
        super().asked(j, out)
        self.q = list(self.q)


class MutableInside(Central):
    def asked(self, j, out):
        super().asked(j, out)
        self.q = tuple([name] if isinstance(name, int) else name for name in self.q)


class MutableMessage(Central):
    def request(self, mode, out):
        if self.me == self.home:
            self.asked(self.me, out)
        else:
            out.send(self.home, Listed([1]))


class MutableKey(Central):
    def key(self):
        return [self.me, self.q, self.busy]


class Chance(Central):
    """Whichever it chooses is safe."""

    def free(self, out):
        if random.random() < 0.5:
            self.q = (*self.q[1:], *self.q[:1])
        super().free(out)


class ChanceAtTheStart(Central):
    @classmethod
    def start(cls, me, shape, inside):
        made = super().start(me, shape, inside)
        made.busy = random.random() < 0.5
        return made


class Clock(Central):
    at: float = 0.0

    def asked(self, j, out):
        self.at = time.perf_counter()
        super().asked(j, out)


COUNT = [0]


class Counter(Central):
    """A variable outside of the class decides."""

    def free(self, out):
        COUNT[0] += 1
        if COUNT[0] % 3:
            self.q = (*self.q[1:], *self.q[:1])
        super().free(out)


HOLDER = [0]


class Shared(State):
    """No lock at all, only a variable that no two hosts have in common."""

    me: int

    @classmethod
    def start(cls, me, shape, inside=NOBODY):
        return cls(me)

    def request(self, mode, out):
        if HOLDER[0]:
            out.timer("again", 1)
        else:
            HOLDER[0] = self.me
            out.enter()

    def on_timeout(self, name, out):
        self.request("write", out)

    def release(self, out):
        HOLDER[0] = 0
        out.idle()

    def receive(self, source, message, out):
        pass


class SetOrder(Central):
    waiting: frozenset = frozenset()

    def asked(self, j, out):
        if self.busy:
            self.waiting |= {f"node {j}"}
        else:
            self.busy = True
            self.give(j, out)

    def free(self, out):
        if self.waiting:
            name = next(iter(self.waiting))
            self.waiting -= {name}
            self.give(int(name[5:]), out)
        else:
            self.busy = False


class SetSorted(SetOrder):
    def free(self, out):
        if self.waiting:
            name = min(self.waiting)
            self.waiting -= {name}
            self.give(int(name[5:]), out)
        else:
            self.busy = False


class Identity(Central):
    def free(self, out):
        if bin(id(self)).count("1") % 2:
            self.q = (*self.q[1:], *self.q[:1])
        super().free(out)


class Box:
    n = 0


class Boxed(Central):
    """The box can be hashed, by its address, and all copies of the state share it."""

    box: object = None

    @classmethod
    def start(cls, me, shape, inside=NOBODY):
        return cls(me, shape.home, box=Box())

    def free(self, out):
        self.box.n += 1
        if self.box.n % 3:
            self.q = (*self.q[1:], *self.q[:1])
        super().free(out)


class Exits(Central):
    def request(self, mode, out):
        raise SystemExit(3)


class NoTime(Central):
    def request(self, mode, out):
        out.timer("t", float("nan"))


class NoNode(Central):
    def request(self, mode, out):
        out.send([1], Reply())


class HidesAField(Central):
    n: int = 0

    def key(self):
        return (self.me, self.q, self.busy)

    def asked(self, j, out):
        self.n += 1
        if self.n % 2 and self.busy:
            self.q = (j, *self.q)
        else:
            super().asked(j, out)
'''
TWICE = "did not do the same twice"
REFUSED = {
    "MutableField": "MutableField.log holds a list, which can change; use a tuple, a frozenset, or a Book.",
    "BecomesMutable": "BecomesMutable.q holds a list, which can change",
    "MutableInside": "MutableInside.q holds a list, which can change",
    "MutableMessage": "MutableMessage sent LISTED, whose names holds a list, which can change; use a tuple",
    "MutableKey": "MutableKey.key() returned a list, which cannot be hashed; return a tuple.",
    "Chance": TWICE,
    "ChanceAtTheStart": "start() of node 1 did not make the same state twice",
    "Clock": TWICE,
    "Counter": TWICE,
    "Shared": TWICE,
    "SetOrder": "depends on the order of a set",
    "Identity": TWICE,
    "Boxed": "start() of node 1 did not make the same state twice",
    "Exits": "Exits raised SystemExit in",
    "NoTime": "node 1 set the timer 't' to nan; it takes a",
    "NoNode": "NoNode raised TypeError in",
    "HidesAField": "has two states with one key() that do not do the same",
}
# Two runs of one process do the same with these.
ONLY_CHECKED = ("SetOrder", "MutableKey", "HidesAField", "Identity", "ChanceAtTheStart", "Clock", "Shared", "Boxed")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(CLASSES)
    return path


def checked(name: str, n: int = 3, entries: int = 2) -> Outcome:
    everybody = tuple(range(1, n + 1))
    model = Model(find(name), dict.fromkeys(everybody, Members(everybody, 1)), [entries] * n)
    return Search(model, Checks(standard(model))).run()


def peerlock(*words: str, code: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "peerlock", *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("name", REFUSED)
def test_the_checker_refuses_it(file: Path, name: str) -> None:
    with pytest.raises(ContractError) as found:
        checked(f"{file}:{name}")
    assert REFUSED[name] in str(found.value)


@pytest.mark.parametrize("name", ["Central", "SetSorted"])
def test_the_checker_takes_what_keeps_the_contract(file: Path, name: str) -> None:
    outcome = checked(f"{file}:{name}")
    assert (outcome.finished, outcome.violated) == (True, None)


def test_chance_is_refused_each_time(file: Path) -> None:
    for _ in range(6):
        with pytest.raises(ContractError, match=TWICE):
            checked(f"{file}:Chance")


def test_the_second_look_does_not_count(file: Path) -> None:
    """Neither as a call of a handler, nor as a state."""
    outcome = checked(f"{file}:Central")
    assert (outcome.states, outcome.transitions) == (869, 1_800)
    twice = Model(find(f"{file}:Central"), dict.fromkeys((1, 2), Members((1, 2), 1)), [1, 1])
    once = Model(twice.spec, dict.fromkeys((1, 2), Members((1, 2), 1)), [1, 1])
    once.own = None
    for model in (once, twice):
        Search(model, Checks(standard(model))).run()
    assert once.handler_calls == twice.handler_calls


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in ONLY_CHECKED])
def test_the_simulator_and_the_lab_refuse_it(file: Path, name: str) -> None:
    experiment = Experiment(algorithm=f"{file}:{name}", nodes=4, entries=5)
    with pytest.raises(ContractError) as found:
        experiment.prepare().run()
    assert REFUSED[name] in str(found.value)
    try:
        words = shoot(Plan(experiment)).ended
    except ContractError as problem:
        words = str(problem)
    assert REFUSED[name] in words


@pytest.mark.parametrize(("name", "words"), [("MutableField", REFUSED["MutableField"]), ("Chance", TWICE)])
@pytest.mark.parametrize("command", ["check", "sim"])
def test_the_command_line_says_so_in_one_sentence(file: Path, command: str, name: str, words: str) -> None:
    done = peerlock(command, f"{file}:{name}", "-n", "3", "--entries", "2" if command == "check" else "50", code=2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert words in line


@pytest.mark.parametrize("command", ["check", "sim"])
def test_what_it_prints_is_no_part_of_the_answer(file: Path, command: str) -> None:
    done = peerlock(command, f"{file}:Talkative", "-n", "3", "--json", code=0)
    answer: Any = json.loads(done.stdout)
    assert answer["form"] == "own"
    assert "asked by" in done.stderr


def test_the_text_is_run_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled file beside it would do for all texts of one length and second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for answer in ("one", "two"):
        file.write_text(f"{CLASSES}\nANSWER = {answer!r}\n")
        os.utime(file, (1e9, 1e9))
        assert load(str(file), "ANSWER") == answer
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("ending", ["c", ".so", "/", "/."])
def test_the_command_line_takes_python_text_only(file: Path, ending: str) -> None:
    py_compile.compile(str(file), f"{file}c", doraise=True)
    done = peerlock("check", f"{file}{ending}:Central", code=2)
    assert "is not a Python file: give one whose name ends in .py." in done.stderr
