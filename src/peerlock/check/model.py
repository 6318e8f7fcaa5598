"""What a checker explores: one group of nodes as interned integers.

A global state is one *cell* a node. A cell is a node's local state (its algorithm, where it is in
its invocation, how often it may still ask, which timers run) with its inbox (what is under way to
it). A step of a node depends on its cell alone, and it changes other cells only by adding messages
to their inboxes. So a step is computed once for each cell in which it can happen, and from then on
it is a look-up: (cell, action) -> (cell, what is added to which inbox), and (cell, what is added)
-> cell.

This file does the look-ups that have never been done, with the algorithm's own code. `search` does
all the others, in bulk.

- The network is a bag of messages for each node, or with `fifo` a queue for each pair. Equal bags
  are equal inboxes.
- A timer that runs may fire at any time. With `delay_bound` time is discrete instead: every letter
  and every timer counts down with each tick, a letter must arrive before its count would fall below
  0, a timer fires at 0, after all letters due.
- A crash may happen at any time, as long as the budget lasts. What is under way to a dead node is
  dropped.
- Observers (`observers`) are further columns, moved by what nodes do.
- A handler that raises `AssertionError` has been brought into a state that its author excluded:
  that is a violation.

**A step is a function** of the local state and the input. For a user's own class that is checked
(`own_class`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

from peerlock.algorithms import AlgorithmSpec
from peerlock.check.observers import FORBIDDEN, Budget, Event, Observer, OneChangeAtATime
from peerlock.check.own_class import OwnClass
from peerlock.contract import NOBODY, AnyAlgorithm, Effects, Inside, Members, Mode, Needs, NodeId, Shape, Wire
from peerlock.errors import ContractError

ANY = -1  # entries left: no bound

Inbox: TypeAlias = tuple[Any, ...]  # sorted letter numbers; fifo: ((source, numbers), ...)
Sends: TypeAlias = tuple[tuple[int, int], ...]  # (column, bundle): what is added to which inbox
Done: TypeAlias = tuple[int, Sends, bool]  # the local state after a step, what is sent, did the node enter?


class Local(NamedTuple):
    """A node without its inbox. `algorithm` is never changed once it is here."""

    algorithm: Any
    where: str  # idle, waiting, inside, ending; outside, joining, leaving, gone; crashed, broken
    left: int  # how often it may still ask
    mode: Mode = "write"
    timers: tuple[tuple[str, int], ...] = ()  # name, ticks to go (0 without a clock)
    broken: str = ""  # the assertion that failed


class Letter(NamedTuple):
    """A message under way to a node."""

    source: NodeId
    message: Wire
    ticks: int = 0  # to go until it must have arrived; 0 without a clock


Detail: TypeAlias = Letter | str | None  # what a step is about: a letter, a mode, the name of a timer


class Action(NamedTuple):
    """One thing that can happen at a node in some cell."""

    what: str  # request, release, deliver, timeout, crash
    detail: Detail
    cell: int  # of the node afterwards
    sends: Sends
    entered: bool


class Spec(Protocol):
    """What is explored: an `AlgorithmSpec`, or a group of nodes that run a protocol."""

    @property
    def name(self) -> str: ...

    @property
    def form(self) -> str: ...

    @property
    def needs(self) -> Needs: ...

    def start(self, me: NodeId, shape: Shape, inside: Inside = NOBODY) -> Any: ...

    def blamed(self, what: str) -> AbstractContextManager[None]: ...


class Column:
    """The cells of one node."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.cells: list[tuple[int, Inbox]] = []  # cell -> (local, inbox)
        self.ids: dict[tuple[int, Inbox], int] = {}
        self.locals: list[Local] = []
        self.local_ids: dict[Hashable, int] = {}
        self.letters: list[Letter] = []
        self.letter_ids: dict[Letter, int] = {}
        self.bundles: list[tuple[int, ...]] = [()]  # bundle -> letters; 0 is nothing
        self.bundle_ids: dict[tuple[int, ...], int] = {(): 0}
        self.steps: dict[tuple[int, str, Detail], Done] = {}
        self.equals: dict[int, AnyAlgorithm] | None = (
            None  # local -> another algorithm with its key, where that matters
        )

    def local(self, local: Local) -> int:
        key = (local.algorithm.key(), *local[1:])
        found = self.local_ids.get(key)
        if found is None:
            found = self.local_ids[key] = len(self.locals)
            self.locals.append(local)
        elif self.equals is not None and self.locals[found].algorithm is not local.algorithm:
            self.equals[found] = local.algorithm
        return found

    def cell(self, local: int, inbox: Inbox) -> int:
        found = self.ids.get((local, inbox))
        if found is None:
            found = self.ids[local, inbox] = len(self.cells)
            self.cells.append((local, inbox))
        return found

    def letter(self, letter: Letter) -> int:
        found = self.letter_ids.get(letter)
        if found is None:
            found = self.letter_ids[letter] = len(self.letters)
            self.letters.append(letter)
        return found

    def bundle(self, letters: tuple[int, ...]) -> int:
        found = self.bundle_ids.get(letters)
        if found is None:
            found = self.bundle_ids[letters] = len(self.bundles)
            self.bundles.append(letters)
        return found


class Model:
    """A group: its cells, what can happen in each, and what a message does to an inbox."""

    def __init__(
        self,
        spec: Spec,
        shapes: Mapping[NodeId, Shape],
        entries: Sequence[int],
        inside: Inside = NOBODY,
        *,
        fifo: bool = False,
        crashes: int = 0,
        delay_bound: int | None = None,
        leavers: Collection[NodeId] = (),
        at_once: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`leavers` may leave, when idle. A node outside of its own shape is a newcomer.

        A newcomer may join. One node comes or goes at a time, unless they may do so `at_once`.
        """
        self.spec, self.fifo, self.crashes, self.delay_bound = spec, fifo, crashes, delay_bound
        self.leavers = frozenset(leavers)
        newcomers = {node for node, shape in shapes.items() if isinstance(shape, Members) and node not in shape.all}
        self.observers = [
            *([Budget("crashed", crashes)] if crashes else []),
            *([OneChangeAtATime()] if (leavers or newcomers) and not at_once else []),
            *observers,
        ]
        self.nodes = tuple(shapes)
        self.columns = [Column(node) for node in self.nodes]
        self.place = {node: at for at, node in enumerate(self.nodes)}
        self.handler_calls = 0
        self.own = OwnClass(self, spec) if isinstance(spec, AlgorithmSpec) and spec.form == "own" else None
        first = []
        for column, left in zip(self.columns, entries, strict=True):
            node = column.node
            where = "inside" if node in inside else "outside" if node in newcomers else "idle"
            if self.own is not None:
                algorithm, column.equals = self.own.start(node, shapes[node], inside), {}
            else:
                algorithm = spec.start(node, shapes[node], inside)
            local = Local(algorithm, where, left, inside.get(node, "write"))
            first.append(column.cell(column.local(local), ()))
        for observer in self.observers:
            # Further columns; their "locals" are the observers' states and their "bundles" what
            # they are told.
            watching = Column(0)
            self.columns.append(watching)
            first.append(self._observed(watching, observer.start))
        self.first = tuple(first)

    # -- what can happen -----------------------------------------------------------------------

    def actions(self, at: int, cell: int) -> list[Action]:
        """Everything that can happen at node number `at` in `cell`."""
        if at >= len(self.nodes):
            return []
        column = self.columns[at]
        number, inbox = column.cells[cell]
        local = column.locals[number]
        if local.where in ("crashed", "broken"):
            return []
        waits_for_letters = self.delay_bound is not None and any(not letter.ticks for letter in self.inbox(at, cell))
        steps = [
            self._act(at, number, inbox, what, detail)
            for what, detail in self.own_steps(at, local)
            if what != "timeout" or not waits_for_letters
        ]
        steps += [
            self._act(at, number, rest, "deliver", column.letters[letter]) for letter, rest in self._deliverable(inbox)
        ]
        if self.crashes and self.may_crash(at, local):
            steps.append(self._crash(at, local))
        return steps

    def may_crash(self, at: int, local: Local) -> bool:
        return True

    def last_words(self, node: NodeId) -> list[tuple[NodeId, Wire]]:
        """What others hear of a crash, and when they do: at any time after it."""
        return []

    def own_steps(self, at: int, local: Local) -> list[tuple[str, Detail]]:
        """What a node can do without a letter: (what, detail)."""
        steps: list[tuple[str, Detail]] = []
        if local.where == "idle" and local.left:
            steps += [("request", mode) for mode in self.spec.needs.modes]
        if local.where == "inside":
            steps.append(("release", None))
        if local.where == "outside":
            steps.append(("join", None))
        if local.where == "idle" and self.nodes[at] in self.leavers:
            steps.append(("leave", None))
        return steps + [("timeout", name) for name, ticks in local.timers if not ticks]

    def tick(self, at: int, cell: int) -> int:
        """The cell of node number `at` one tick later; -2 if something has to happen first."""
        if at >= len(self.nodes):
            return cell
        column = self.columns[at]
        number, inbox = column.cells[cell]
        local = column.locals[number]
        if any(not ticks for _, ticks in local.timers) or any(not letter.ticks for letter in self.inbox(at, cell)):
            return -2
        later = lambda letter: column.letter(column.letters[letter]._replace(ticks=column.letters[letter].ticks - 1))  # noqa: E731
        if self.fifo:
            after: Inbox = tuple((source, tuple(map(later, queue))) for source, queue in inbox)
        else:
            after = tuple(sorted(map(later, inbox)))
        timers = tuple((name, ticks - 1) for name, ticks in local.timers)
        return column.cell(column.local(local._replace(timers=timers)), after)

    def _deliverable(self, inbox: Inbox) -> list[tuple[int, Inbox]]:
        """Which letter can arrive next, and what the inbox is then."""
        found: list[tuple[int, Inbox]] = []
        if self.fifo:
            for at, (source, queue) in enumerate(inbox):
                rest = (*inbox[:at], *(((source, queue[1:]),) if len(queue) > 1 else ()), *inbox[at + 1 :])
                found.append((queue[0], rest))
        else:
            for at, letter in enumerate(inbox):
                if at == 0 or inbox[at - 1] != letter:
                    found.append((letter, inbox[:at] + inbox[at + 1 :]))
        return found

    def add(self, at: int, cell: int, bundle: int) -> int:
        """The cell of node number `at` when these letters are under way to it as well."""
        column = self.columns[at]
        number, inbox = column.cells[cell]
        if at >= len(self.nodes):
            events: Any = column.bundles[bundle]
            state = self.observers[at - len(self.nodes)].step(column.locals[number], events)
            return -2 if state is FORBIDDEN else self._observed(column, state)
        if column.locals[number].where == "crashed":
            return cell
        letters = column.bundles[bundle]
        if not self.fifo:
            return column.cell(number, self.of_interest(at, number, tuple(sorted(inbox + letters))))
        queues = {source: queue for source, queue in inbox}  # noqa: C416
        for letter in letters:
            source = column.letters[letter].source
            queues[source] = (*queues.get(source, ()), letter)
        return column.cell(number, self.of_interest(at, number, tuple(sorted(queues.items()))))

    def of_interest(self, at: int, number: int, inbox: Inbox) -> Inbox:
        """The inbox without letters that this node, whatever happens, will never take notice of."""
        return inbox

    def _act(self, at: int, number: int, inbox: Inbox, what: str, detail: Detail) -> Action:
        after, sends, entered = self.step(at, number, what, detail)
        return Action(what, detail, self.columns[at].cell(after, self.of_interest(at, after, inbox)), sends, entered)

    def step(self, at: int, number: int, what: str, detail: Detail) -> Done:
        """What comes of an input in a local state; computed once."""
        column = self.columns[at]
        key = (number, what, detail)
        done = column.steps.get(key)
        if done is None:
            done = column.steps[key] = self.run(at, column.locals[number], what, detail)
            if self.own is not None:
                self.own.check_step(at, number, what, detail, done)
        return done

    def run(self, at: int, local: Local, what: str, detail: Detail) -> Done:
        """Run the algorithm's own code, once for each local state and input."""
        column, algorithm, out = self.columns[at], copy(local.algorithm), Effects()
        where, left, mode = local.where, local.left, local.mode
        timers = {name: ticks for name, ticks in local.timers if (what, detail) != ("timeout", name)}
        self.handler_calls += 1
        try:
            if isinstance(detail, Letter):
                algorithm.receive(detail.source, detail.message, out)
            elif what == "request":
                where, left = "waiting", left if left == ANY else left - 1
                mode = "read" if detail == "read" else "write"
                algorithm.request(detail, out)
            elif what == "release":
                where = "ending"
                algorithm.release(out)
            elif what == "join":
                where = "joining"
                algorithm.join(out)
            elif what == "leave":
                where, left = "leaving", 0
                algorithm.leave(out)
            else:
                algorithm.on_timeout(detail, out)
        except AssertionError as problem:
            broken = local._replace(where="broken", broken=str(problem) or "an assertion of the algorithm failed")
            return column.local(broken), (), False
        except (Exception, SystemExit):
            with self.spec.blamed(what):
                raise
        if out.entered:
            where = self._became(at, where, "waiting", "inside")
        changed = out.ended and where in ("joining", "leaving")
        if changed:
            where = "idle" if where == "joining" else "gone"
        elif out.ended:
            where = self._became(at, where, "ending", "idle")
        if where == "idle":
            mode = "write"
        timers |= {name: self._ticks(at, name, after) for name, after in out.timers}
        after = Local(algorithm, where, left, mode, tuple(sorted(timers.items())))
        events = self._events(at, what, detail, mode, out)
        if what in ("join", "leave"):
            events.insert(0, ("changes", column.node))
        if changed:
            events[-1] = ("changed", column.node)
        try:
            return column.local(after), self._bundles(at, out.sent) + self._told(events), out.entered
        except TypeError:
            if self.own is not None:
                self.own.check_value(algorithm, out.sent)
            with self.spec.blamed(what):
                raise

    def _ticks(self, at: int, name: str, after: float) -> int:
        if not isinstance(name, str) or not isinstance(after, int | float) or not 0 <= after < inf:
            raise ContractError(
                f"{self.spec.name}: node {self.nodes[at]} set the timer {name!r} to {after!r}; it takes a word and a time."
            )
        return 0 if self.delay_bound is None else round(after)

    # -- what observers are told ---------------------------------------------------------------

    def _events(self, at: int, what: str, detail: Detail, mode: Mode, out: Effects) -> list[Event]:
        """What an observer may want to hear of a step."""
        node = self.nodes[at]
        events: list[Event] = [("requested", node, mode)] if what == "request" else []
        if isinstance(detail, Letter):
            events.append(("received", node, detail.source, detail.message))
        together = out.broadcasts if self.spec.needs.broadcast else []
        events += [("broadcast", node, to, message) for to, message in together]
        apart = [message for _, message in together]
        events += [("sent", node, to, message) for to, message in out.sent if message not in apart]
        events += [("entered", node, mode)] if out.entered else []
        return events + ([("idle", node)] if out.ended else [])

    def _told(self, events: list[Event]) -> Sends:
        """The same, as bundles for the observers that want it."""
        told = []
        for at, observer in enumerate(self.observers, len(self.nodes)):
            wanted: Any = tuple(event for event in events if observer.wants(event))
            if wanted:
                told.append((at, self.columns[at].bundle(wanted)))
        return tuple(told)

    def _observed(self, column: Column, state: Any) -> int:
        found = column.local_ids.get(state)
        if found is None:
            found = column.local_ids[state] = len(column.locals)
            column.locals.append(state)
        return column.cell(found, ())

    def _became(self, at: int, was: str, must: str, becomes: str) -> str:
        if was != must:
            raise ContractError(
                f"{self.spec.name}: node {self.nodes[at]} became {becomes} while it was {was}, not {must}."
            )
        return becomes

    def _bundles(self, at: int, sent: list[tuple[NodeId, Wire]]) -> Sends:
        source = self.nodes[at]
        letters: dict[int, list[Letter]] = {}
        for to, message in sent:
            if to == source or to not in self.place:
                whom = "itself" if to == source else f"node {to}, which does not exist"
                raise ContractError(f"{self.spec.name}: node {source} sent {message} to {whom}.")
            letters.setdefault(self.place[to], []).append(Letter(source, message, self.delay_bound or 0))
        bundles = []
        for to, found in letters.items():
            column = self.columns[to]
            numbers = [column.letter(letter) for letter in found]
            bundles.append((to, column.bundle(tuple(numbers if self.fifo else sorted(numbers)))))
        return tuple(bundles)

    def _crash(self, at: int, local: Local) -> Action:
        column = self.columns[at]
        dead = column.local(Local(local.algorithm, "crashed", 0))
        sends = self._bundles(at, self.last_words(column.node)) + self._told([("crashed", column.node)])
        return Action("crash", None, column.cell(dead, ()), sends, False)

    # -- looking at a state --------------------------------------------------------------------

    def local(self, at: int, cell: int) -> Local:
        column = self.columns[at]
        return column.locals[column.cells[cell][0]]

    def inbox(self, at: int, cell: int) -> list[Letter]:
        column = self.columns[at]
        letters = column.cells[cell][1]
        if self.fifo:
            return [column.letters[letter] for _, queue in letters for letter in queue]
        return [column.letters[letter] for letter in letters]
