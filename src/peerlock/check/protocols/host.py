"""The registry of one host in every interleaving of its system calls.

Two or three processes run `HostMember` over a model of the file system (`disk.py`): they join,
hold, exclude each other, decide views and leave. Any of them may be slow, crash or get an error
from a call; the power may fail. Looked at in every state:

- *the holder is in the newest view*: a member that may hold is never excluded;
- *one view per epoch*: no two processes ever learn different views of one epoch, not even across a
  loss of power;
- *nothing fails by itself*: while no call is made to fail, no process gets an error;
- *the group goes on*: if all processes are dead, or the power failed, the next process joins and
  may hold; if they are stopped, the next process excludes all but those that hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from typing import TypeAlias

import msgspec
from msgspec import Struct

from peerlock.check.protocols.breadth_first import BreadthFirst
from peerlock.check.protocols.disk import FAILED, Answer, Call, Disk, NeedsAnswer, Replayed
from peerlock.check.search import Outcome, Progress
from peerlock.contract import Key
from peerlock.errors import RegistryError
from peerlock.node.membership.files import DIRECTORIES, path_of
from peerlock.node.membership.host import HostMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer

Answers: TypeAlias = tuple[Answer, ...]
# Calls that go with the one before them: a draft belongs to one process, and a lock that is given
# up late only delays others.
PRIVATE = frozenset({"write", "sync", "close"})
FRESH = 9  # the process that comes when all others are dead


class Process:
    """What a process has done so far, found out by running it again."""

    def __init__(self, id: int, kind: type[HostMember], script: str, answers: Answers) -> None:
        self.peer = Peer(f"p{id}", id)
        self.files = Replayed(answers)
        self.member = kind(self.files)
        self.learned: list[View] = []
        self.put_in: frozenset[int] = frozenset()  # processes in views that it has put in their places
        self.entered = False  # it was in a view and could hold, some time
        self.call: Call | None = None
        self.problem = ""
        self.word, self.began = 0, 0  # where it is in its script, and how many answers it had got before that word
        try:
            self.member.decide = self.decide  # type: ignore[method-assign]
            for self.word, what in enumerate(script.split()):
                self.began = self.files.next
                getattr(self, what)()
            self.word, self.began = self.word + 1, self.files.next
        except NeedsAnswer as needed:
            self.call = needed.call
        except (OSError, RegistryError) as problem:
            self.problem = str(problem)

    @property
    def holds(self) -> bool:
        return self.member.holding is not None

    def count(self) -> int:
        """A number for what the next call makes: a function of the word and the calls in it."""
        return 1000 * self.word + len(self.files.answers) - self.began

    def key(self) -> Key:
        """Equal for two that will do the same; between words a process is what its member is."""
        member = self.member
        return (
            self.word, self.files.answers[self.began :], member.alive, member.holding, member.admitted, member.leaving,
            member.known, member.asked, member.highest, tuple(sorted(member.suspects.items())), member.me,
            tuple(self.learned), self.problem, self.put_in,
        )  # fmt: skip

    def decide(self, view: View) -> bool:
        put_in_place = self.member.put_in_place

        def noted(draft: str, path: str) -> bool:
            done = put_in_place(draft, path)
            if done:
                self.put_in |= {peer.id for peer in view.members}
            return done

        self.member.put_in_place = noted  # type: ignore[method-assign]
        try:
            return type(self.member).decide(self.member, view)
        finally:
            self.member.put_in_place = put_in_place  # type: ignore[method-assign]

    def learn(self, view: View | None) -> None:
        if view is not None:
            self.learned.append(view)

    # -- the words of a script -----------------------------------------------------------------------------

    def join(self) -> None:
        try:
            self.member.appear(self.peer)
            self.member.ask_in()
        except OSError:
            self.member.put_away()
            raise
        self.learn(self.member.change())

    def renew(self) -> None:
        self.learn(self.member.change(True))

    def hold(self) -> None:
        self.entered = self.member.start_holding() or self.entered

    def look(self) -> None:
        self.learn(self.member.newest())

    def stop(self) -> None:
        self.member.stop_holding()

    def exclude(self) -> None:
        newest = self.member.newest()
        others = tuple(peer for peer in (newest.members if newest else ()) if peer != self.peer)
        self.learn(self.member.exclude(others)[0])

    def replace(self) -> None:
        """Not a member's doing: the directory is removed, and a new group begins there."""
        files = self.files
        for directory in DIRECTORIES:
            for name in files.names(directory):
                files.unlink(f"{directory}/{name}")
        self.member = type(self.member)(files)
        self.member.decide = self.decide  # type: ignore[method-assign]
        self.learned.clear()
        self.join()

    def remove(self) -> None:
        """Not a member's doing: the file of the first process is removed."""
        self.files.unlink(path_of("members", 1))

    def exclude_first(self) -> None:
        self.learn(self.member.exclude((Peer("p1", 1),))[0])

    def leave(self) -> None:
        self.member.leaving = True
        self.member.stop_holding()
        self.learn(self.member.change())
        self.member.put_away()


class HostGroup(Struct, frozen=True):
    """What is explored."""

    scripts: tuple[str, ...] = ("join hold stop leave", "join exclude hold")
    kind: type[HostMember] = HostMember
    before: tuple[int, ...] = ()  # so many words of each script are over when the exploration begins
    then: tuple[tuple[int, str], ...] = ()  # and processes, in turn, are so far: their next call; or "crash"
    kept_views: int = 2
    crashes: int = 0
    errors: int = 0  # calls that fail
    power: bool = False  # it may fail, once
    stopped: bool = False  # all processes may be stopped for ever


class State(Struct):
    disk: Disk
    answers: tuple[Answers, ...]
    dead: frozenset[int] = frozenset()
    errors: int = 0


class Explorer(BreadthFirst[State]):
    def __init__(self, group: HostGroup) -> None:
        self.group = group
        self.kind = type("Kept", (group.kind,), {"kept_views": group.kept_views})
        self.known: dict[tuple[int, Answers], Process] = {}
        self.goes_on: dict[Hashable, str | None] = {}
        self.tampered = any(word in script for script in group.scripts for word in ("remove", "replace"))

    def process(self, at: int, answers: Answers) -> Process:
        found = self.known.get((at, answers))
        if found is None:
            found = self.known[at, answers] = Process(at + 1, self.kind, self.group.scripts[at], answers)
        return found

    def key(self, state: State) -> Hashable:
        """The answers of a dead process matter no more, but what it learned."""
        processes = [self.process(at, answers) for at, answers in enumerate(state.answers)]
        what = tuple(tuple(p.learned) if at in state.dead else p.key() for at, p in enumerate(processes))
        return state.disk.key(), what, state.dead, state.errors

    def first(self) -> State:
        state = State(Disk.empty(), ((),) * len(self.group.scripts))
        for at, words in enumerate(self.group.before):
            while (process := self.process(at, state.answers[at])).call is not None and process.word < words:
                state = self.step(state, at, process.call)
        for at, what in self.group.then:
            if what == "crash":
                state = State(state.disk.crash(at + 1), state.answers, state.dead | {at}, state.errors)
                continue
            while (call := self.process(at, state.answers[at]).call) is not None and not str(call).startswith(what):
                state = self.step(state, at, call)
        return state

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[State, bool]]:
        for at, answers in enumerate(state.answers):
            if at in state.dead:
                continue
            call = self.process(at, answers).call
            if call is None:
                continue
            yield self.step(state, at, call), False
            if state.errors < self.group.errors and call.what not in PRIVATE:
                yield self.answered(state, at, FAILED, copy(state.disk), state.errors + 1), True
            if len(state.dead) < self.group.crashes and call.what not in PRIVATE:
                yield State(state.disk.crash(at + 1), state.answers, state.dead | {at}, state.errors), True

    def step(self, state: State, at: int, call: Call) -> State:
        disk = copy(state.disk)
        return self.answered(
            state, at, disk.do(at + 1, self.process(at, state.answers[at]).count(), call), disk, state.errors
        )

    def answered(self, state: State, at: int, answer: Answer, disk: Disk, errors: int) -> State:
        answers = (*state.answers[:at], (*state.answers[at], answer), *state.answers[at + 1 :])
        after = State(disk, answers, state.dead, errors)
        call = self.process(at, answers[at]).call
        return self.step(after, at, call) if call is not None and call.what in PRIVATE else after

    # -- what must be ------------------------------------------------------------------------------------

    def violated(self, state: State) -> str | None:
        processes = [self.process(at, answers) for at, answers in enumerate(state.answers)]
        newest, used = newest_of(state.disk), dict[int, View]()
        for process in processes:
            for view in process.learned:
                if used.setdefault(view.epoch, view) != view and not self.tampered:
                    return "one view per epoch"
        for at, process in enumerate(processes):
            if at not in state.dead and process.holds and (newest is None or process.peer not in newest.members):
                return "the holder is in the newest view"
            if process.problem and not state.errors and not self.tampered:
                return f"nothing fails by itself: {process.problem}"
            # A process that was admitted and excluded again before it has heard of it joins again.
            admitted = process.member.admitted or any(process.peer.id in other.put_in for other in processes)
            if at not in state.dead and process.word and not admitted and not process.problem:
                return "a process that joins is admitted"
        if comes_back([*used.values(), *([newest] if newest is not None else [])]):
            return "no incarnation comes back"
        members = newest.members if newest is not None else ()
        if not self.tampered and any(state.disk.at(path_of("members", peer.id)) is None for peer in members):
            return "every member of the newest view has a file"
        return None if self.tampered else self.stands_still(state, used)

    def stands_still(self, state: State, used: dict[int, View]) -> str | None:
        """What is wrong if from here on no process runs but a fresh one."""
        dead = copy(state.disk)
        dead.locks = {}
        for disk in (dead, *(state.disk.power_fails() if self.group.power else ())):
            found = self.alone(disk, used)
            if found is not None:
                return found
        return self.alone(copy(state.disk), used) if self.group.stopped else None

    def alone(self, disk: Disk, used: dict[int, View]) -> str | None:
        key = (disk.key(), tuple(sorted(used)))
        if key not in self.goes_on:
            self.goes_on[key] = self.tried(disk, used)
        return self.goes_on[key]

    def tried(self, disk: Disk, used: dict[int, View]) -> str | None:
        holders = {
            handle[0] for (_, byte), locks in disk.locks.items() for handle, shared in locks if byte and not shared
        }
        process = self.fresh("join exclude hold", disk)
        if any(view.epoch in used and used[view.epoch] != view for view in process.learned):
            return "one view per epoch"
        others = {peer.id for peer in process.learned[-1].members} - {FRESH} if process.learned else {0}
        if not process.entered or not others <= holders:
            return f"the group goes on: {process.problem or f'{others - holders} cannot be excluded'}"
        return None

    def fresh(self, script: str, disk: Disk) -> Process:
        answers: Answers = ()
        for _ in range(1000):
            process = Process(FRESH, self.kind, script, answers)
            if process.call is None:
                return process
            answers = (*answers, disk.do(FRESH, process.count(), process.call))
        raise AssertionError(f"one process alone does not come to an end: {script}")


def comes_back(views: list[View]) -> bool:
    """Is an incarnation in a view, not in a later one, and again in one after that?"""
    gone, before = set[Peer](), set[Peer]()
    for view in sorted(views, key=lambda view: view.epoch):
        now = set(view.members)
        if now & gone:
            return True
        gone, before = gone | (before - now), now
    return False


def newest_of(disk: Disk) -> View | None:
    epochs = [int(name) for name in disk.names["views"]]
    data = disk.contents[disk.names["views"][str(max(epochs))]][0] if epochs else b""
    return msgspec.json.decode(data, type=View) if data else None


def explore(
    group: HostGroup, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Explorer, Outcome, dict[str, str]]:
    explorer = Explorer(group)
    return explorer, explorer.run(max_states, progress), {}


__all__ = ["Explorer", "HostGroup", "explore"]
