"""The local protocol in every interleaving: the very `HostLock` and `ProcessLock` that ship.

Two or three processes of one host want one lock, to read or to write, or now one and now the other.
Messages of one connection stay in order; connections are as slow as they like, and end with what is
under way. A process marks its page and looks at it in two steps, and so does the host node.
Processes crash, at any step, and what they have not yet sent is lost; callers give up; the host node
crashes and a new one begins a generation; it takes a process for stuck; other hosts ask for the
lock. Looked at in every state:

- *mutual exclusion*: a writer is alone, by what the processes themselves believe;
- *fences increase*: each entry has a larger fence than all earlier ones that exclude it;
- *the lock goes on*: from every state there is a way, without another fault, to where no living
  process waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from peerlock.check.protocols.breadth_first import BreadthFirst
from peerlock.check.search import Outcome, Progress
from peerlock.contract import Mode
from peerlock.node.attached.chain import Number, ProcessId, first
from peerlock.node.attached.host import HostLock
from peerlock.node.attached.messages import FromHost, Hand, ToHost
from peerlock.node.attached.process import ProcessLock

GENERATION = 1000  # numbers in each
Said: TypeAlias = "tuple[int, FromHost | Hand | None]"  # to a process: the generation; None: it begins
Wish: TypeAlias = "Mode | Literal['either']"
Channel: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Budget(Struct, frozen=True):
    """How often each thing may still happen."""

    entries: int = 1  # of each process
    cancels: int = 0
    crashes: int = 0
    host_crashes: int = 0
    deposed: int = 0  # host nodes that are taken for dead, and go on
    revocations: int = 0
    silences: int = 0  # processes that a new host node reads
    recalls: int = 0  # by other hosts
    guesses: int = 0  # successors that do not wait
    cuts: int = 0  # connections that end, with what is under way, and are made again


class AttachedGroup(Struct, frozen=True):
    """What is explored."""

    modes: tuple[Wish, ...] = ("write", "write")  # of each process
    budget: Budget = Budget()
    block: int = 1  # fences of a number
    host: type[HostLock] = HostLock
    process: type[ProcessLock] = ProcessLock


class Process(Struct):
    lock: ProcessLock
    entries: int
    inside: Number = 0  # on its page
    mode: Mode = "write"  # beside it
    revoked: Number = 0  # written for it by the host node
    key: int = 0


class Host(Struct):
    lock: HostLock
    generation: int
    inbox: tuple[Channel, ...]
    made: int = 0  # numbers
    noticed: frozenset[int] = frozenset()  # deaths that it knows
    key: int = 0


class State(Struct):
    processes: tuple[Process | None, ...]
    hosts: tuple[Host, ...]  # those that live, the newest one last
    generation: int
    to_process: tuple[Channel, ...]
    hands: tuple[tuple[Channel, ...], ...]  # hands[p][q]: from p to q
    budget: Budget
    pages: tuple[tuple[Number, Mode], ...] = ()  # of the dead: what is marked
    fences: tuple[int, int] = (0, 0)  # the largest one of a writer, and of all
    wrong: str | None = None


def with_item(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])


class Turn:
    """One step of one process, and what it asks for meanwhile."""

    def __init__(self, explorer: AttachedExplorer, state: State, at: int, *, reaches: bool = True) -> None:
        self.state, self.at, self.reaches = replace(state), at, reaches
        found = state.processes[at]
        assert found is not None
        self.process = replace(found, lock=copy(found.lock))
        self.process.lock.out = self

    def done(self) -> State:
        state = self.state
        state.processes = with_item(state.processes, self.at, rekeyed(self.process))
        return state

    def send(self, message: ToHost, *, late: bool = False) -> None:
        """To the host node of its generation, if that lives."""
        generation, state = self.process.lock.generation, self.state
        for number, host in enumerate(state.hosts):
            if host.generation == generation:
                inbox = with_item(host.inbox, self.at, (*host.inbox[self.at], message))
                state.hosts = with_item(state.hosts, number, rekeyed(replace(host, inbox=inbox)))

    def hand(self, process: ProcessId, hand: Hand) -> bool:
        assert self.at is not None
        if not self.reaches:
            return False
        row = self.state.hands[self.at]
        row = with_item(row, process, (*row[process], (self.process.lock.generation, hand)))
        self.state.hands = with_item(self.state.hands, self.at, row)
        return True

    def mark(self, number: Number) -> None:
        self.process.inside, self.process.mode = number, self.process.lock.given

    def accepted(self, number: Number) -> None:
        """What a process has accepted only tells the host node when it need not wait."""

    def entered(self) -> None:
        """Is it alone, and is its fence larger?"""
        state, lock = self.state, self.process.lock
        writers, every = state.fences
        if lock.used <= (every if lock.mode == "write" else writers):
            state.wrong = "fences increase"
        state.fences = max(writers, lock.used if lock.mode == "write" else 0), max(every, lock.used)


class HostTurn:
    """One step of a host node."""

    def __init__(self, explorer: AttachedExplorer, state: State, number: int) -> None:
        self.block, self.state, self.number = explorer.group.block, replace(state), number
        found = state.hosts[number]
        self.host = replace(found, lock=copy(found.lock))
        self.host.lock.out = self

    def done(self) -> State:
        self.state.hosts = with_item(self.state.hosts, self.number, rekeyed(self.host))
        return self.state

    def send(self, process: ProcessId, message: FromHost) -> None:
        state = self.state
        if state.processes[process] is not None:
            channel = (*state.to_process[process], (self.host.generation, message))
            state.to_process = with_item(state.to_process, process, channel)

    def numbers(self, process: ProcessId) -> tuple[Number, int]:
        first = self.host.generation * GENERATION + self.host.made + 1
        self.host.made += self.block
        return first, first + self.block - 1

    def revoke_page(self, process: ProcessId, number: Number) -> None:
        found = self.state.processes[process]
        if found is not None:
            written = rekeyed(replace(found, revoked=max(found.revoked, number)))
            self.state.processes = with_item(self.state.processes, process, written)

    def give_back(self) -> None:
        """The other hosts have their turn."""


P = TypeVar("P", Process, Host)


def rekeyed(what: P) -> P:
    if isinstance(what, Host):
        what.key = hash((what.lock.key(), what.generation, what.made, what.inbox, what.noticed))
    else:
        what.key = hash((what.lock.key(), what.entries, what.inside, what.mode, what.revoked))
    return what


class AttachedExplorer(BreadthFirst[State]):
    no_way = "the lock goes on"

    def __init__(self, group: AttachedGroup) -> None:
        self.group = group

    def first(self) -> State:
        group, count = self.group, len(self.group.modes)
        nothing: Any = None
        unmarked: tuple[Number, Mode] = (0, "write")
        empty: tuple[Channel, ...] = ((),) * count
        host = Host(group.host(nothing), 1, empty)
        host.lock.has = True
        processes = tuple(rekeyed(Process(group.process(nothing, at), group.budget.entries)) for at in range(count))
        return State(processes, (rekeyed(host),), 1, empty, (empty,) * count, group.budget, pages=(unmarked,) * count)

    def key(self, state: State) -> Hashable:
        return (
            tuple(process and process.key for process in state.processes), tuple(host.key for host in state.hosts),
            state.generation, state.to_process, state.hands, state.budget, state.fences, state.wrong, state.pages,
        )  # fmt: skip

    # -- steps ---------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[State, bool]]:
        for at, process in enumerate(state.processes):
            if process is not None:
                yield from self.steps_of(state, at, process)
        yield from self.deliveries(state)
        for number, host in enumerate(state.hosts):
            yield from self.steps_of_host(state, number, host)
        if not state.hosts:
            yield self.new_host(state), False
        elif state.budget.deposed:
            yield self.new_host(replace(state, budget=replace(state.budget, deposed=state.budget.deposed - 1))), True

    def steps_of(self, state: State, at: int, process: Process) -> Iterator[tuple[State, bool]]:
        budget = state.budget
        match process.lock.at:
            case "idle" if process.entries:
                for mode in self.modes_of(at):
                    turn = Turn(self, state, at)
                    turn.process.entries -= 1
                    turn.process.lock.request(mode)
                    yield turn.done(), True
            case "want" if budget.cancels:
                turn = Turn(self, state, at)
                turn.process.lock.cancel()
                turn.state.budget = replace(budget, cancels=budget.cancels - 1)
                yield turn.done(), True
            case "entering":
                yield self.looks(state, at, process), False
            case "inside":
                for reaches in self.reached(state, process.lock):
                    turn = Turn(self, state, at, reaches=reaches)
                    turn.process.lock.release()
                    yield turn.done(), False
        if budget.crashes:
            yield from self.crash(state, at, process)

    def modes_of(self, at: int) -> tuple[Mode, ...]:
        mode = self.group.modes[at]
        return ("read", "write") if mode == "either" else (mode,)

    def looks(self, state: State, at: int, process: Process) -> State:
        turn = Turn(self, state, at)
        if turn.process.lock.looked(process.revoked):
            turn.entered()
        return turn.done()

    def reached(self, state: State, lock: ProcessLock) -> tuple[bool, ...]:
        """Can the successor be reached? If it is dead: perhaps."""
        return (True, False) if lock.chain and state.processes[first(lock.chain).process] is None else (True,)

    def deliveries(self, state: State) -> Iterator[tuple[State, bool]]:
        for at, process in enumerate(state.processes):
            if process is None:
                continue
            channel = state.to_process[at]
            first = {said[0]: number for number, said in reversed(list(enumerate(channel)))}
            for number in first.values():
                before = replace(
                    state,
                    to_process=with_item(state.to_process, at, (*channel[:number], *channel[number + 1 :])),
                )
                yield from ((after, False) for after in self.told(before, at, channel[number]))
            for source, row in enumerate(state.hands):
                if row[at]:
                    hands = with_item(state.hands, source, with_item(row, at, row[at][1:]))
                    yield from ((after, False) for after in self.told(replace(state, hands=hands), at, row[at][0]))

    def told(self, state: State, at: int, said: Said) -> Iterator[State]:
        process = state.processes[at]
        assert process is not None
        generation, message = said
        if message is None:
            turn = Turn(self, state, at)
            if generation >= process.lock.generation:  # a process does not go back to an older host node
                turn.send(turn.process.lock.begin(generation))
            yield turn.done()
            return
        # Whether a successor can be reached matters only if it hands over now: both ways are tried.
        handed = set[int]()
        for reaches in (True, False):
            turn = Turn(self, state, at, reaches=reaches)
            turn.process.lock.hear(generation, message)
            after = turn.done()
            if reaches or any(p is None for p in state.processes):
                found = hash(self.key(after))
                if found not in handed:
                    handed.add(found)
                    yield after

    def crash(self, state: State, at: int, process: Process) -> Iterator[tuple[State, bool]]:
        budget = replace(state.budget, crashes=state.budget.crashes - 1)
        after = replace(
            state,
            processes=with_item(state.processes, at, None),
            pages=with_item(state.pages, at, (process.inside, process.mode)),
            to_process=with_item(state.to_process, at, ()),
            budget=budget,
            hands=tuple(with_item(row, at, ()) for row in state.hands),
        )
        yield after, True
        if any(after.hands[at]):
            yield replace(after, hands=with_item(after.hands, at, ((),) * len(state.processes))), True

    # -- host nodes ----------------------------------------------------------------------------------------

    def steps_of_host(self, state: State, number: int, host: Host) -> Iterator[tuple[State, bool]]:
        for at, process in enumerate(state.processes):
            channel = host.inbox[at]
            if channel:
                turn = HostTurn(self, state, number)
                turn.host.inbox = with_item(host.inbox, at, channel[1:])
                turn.host.lock.hear(at, channel[0])
                yield turn.done(), False
            if process is not None and state.budget.cuts and process.lock.generation == host.generation:
                yield self.cut(state, number, at), True
            if process is None and at not in host.noticed:
                turn = HostTurn(self, state, number)
                turn.host.noticed |= {at}
                turn.host.inbox = with_item(host.inbox, at, ())
                turn.host.lock.died(at)
                yield turn.done(), False
            yield from self.suspicions(state, number, host, at)
            sure = host.lock.has and host.lock.owners and not host.lock.unresolved and host.lock.mode == "write"
            if state.budget.guesses and sure:
                turn = HostTurn(self, state, number)
                turn.state.budget = replace(state.budget, guesses=state.budget.guesses - 1)
                turn.host.lock.append([at, (at + 1) % len(state.processes)])
                yield turn.done(), True
        if not host.lock.has:
            turn = HostTurn(self, state, number)
            turn.host.lock.gained()
            yield turn.done(), False
        elif state.budget.recalls and not host.lock.asked:
            turn = HostTurn(self, state, number)
            turn.state.budget = replace(state.budget, recalls=state.budget.recalls - 1)
            turn.host.lock.others_ask()
            yield turn.done(), True
        if state.budget.host_crashes:
            hosts = (*state.hosts[:number], *state.hosts[number + 1 :])
            budget = replace(state.budget, host_crashes=state.budget.host_crashes - 1)
            yield replace(state, hosts=hosts, budget=budget), True

    def cut(self, state: State, number: int, at: int) -> State:
        host = state.hosts[number]
        channel = tuple(said for said in state.to_process[at] if said[0] != host.generation)
        return replace(
            state,
            hosts=with_item(state.hosts, number, rekeyed(replace(host, inbox=with_item(host.inbox, at, ())))),
            to_process=with_item(state.to_process, at, (*channel, (host.generation, None))),
            budget=replace(state.budget, cuts=state.budget.cuts - 1),
        )

    def suspicions(self, state: State, number: int, host: Host, at: int) -> Iterator[tuple[State, bool]]:
        budget, lock, process = state.budget, host.lock, state.processes[at]
        if at in lock.revoking or at in lock.reading:
            turn = HostTurn(self, state, number)
            inside, mode = (process.inside, process.mode) if process is not None else state.pages[at]
            turn.host.lock.found(at, inside, mode)
            yield turn.done(), False
        elif budget.revocations and at in lock.owners and lock.is_waited_for():
            turn = HostTurn(self, state, number)
            turn.state.budget = replace(budget, revocations=budget.revocations - 1)
            turn.host.lock.revoke(at)
            yield turn.done(), True
        if budget.silences and at in lock.unresolved - lock.reading and process is not None:
            turn = HostTurn(self, state, number)
            turn.state.budget = replace(budget, silences=budget.silences - 1)
            turn.host.lock.read(at, host.generation * GENERATION)
            yield turn.done(), True

    def new_host(self, state: State) -> State:
        nothing: Any = None
        generation, count = state.generation + 1, len(state.processes)
        living = frozenset(at for at, process in enumerate(state.processes) if process is not None)
        lock = self.group.host(nothing, living)
        lock.has, lock.dead = True, frozenset(range(count)) - living
        host = rekeyed(Host(lock, generation, ((),) * count, noticed=lock.dead))
        channels = tuple(
            (*channel, (generation, None)) if at in living else channel for at, channel in enumerate(state.to_process)
        )
        return replace(state, hosts=(*state.hosts, host), generation=generation, to_process=channels)

    # -- what must be --------------------------------------------------------------------------------------

    def violated(self, state: State) -> str | None:
        inside = [
            process.lock.mode for process in state.processes if process is not None and process.lock.at == "inside"
        ]
        if len(inside) > 1 and "write" in inside:
            return "mutual exclusion"
        return state.wrong

    def goal(self, state: State) -> bool:
        return all(process is None or process.lock.at == "idle" for process in state.processes)


def explore(
    group: AttachedGroup, max_states: int | None = None, progress: Progress | None = None
) -> tuple[AttachedExplorer, Outcome, dict[str, str]]:
    explorer = AttachedExplorer(group)
    return explorer, explorer.run(max_states, progress), {}


__all__ = ["AttachedExplorer", "AttachedGroup", "Budget", "explore"]
