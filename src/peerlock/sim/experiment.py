"""A run, described completely by plain values.

An `Experiment` is what stands in the first line of a trace: the same values give the same run, byte
for byte. Building one checks everything that can be wrong with it, before anything has been done.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import Members, Mode, NodeId, Wire
from peerlock.errors import ContractError, PeerlockError, TraceError, UsageError
from peerlock.sim import delays, topology, workload
from peerlock.sim.topology import Topology
from peerlock.sim.workload import Work
from peerlock.sim.world import Network, World
from peerlock.trace import Event, Keeper, Recorder
from peerlock.user_algorithm import check_message, check_state, find

MOST_ENTRIES = 10**9
CHECKED_EVENTS = 1_000  # of a run of a user's own class, before it begins
FAULTS = "crash:NODE@TIME, restart:NODE@TIME, pause:NODE@FROM..UNTIL, join:NODE@TIME, leave:NODE@TIME"


class Experiment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    algorithm: str
    as_printed: bool = False
    options: dict[str, Any] = {}
    nodes: int | None = None
    topology: str | None = None
    entries: int = 10  # of each node
    load: str = "closed"
    delay: str = "uniform:0.5,1.5"
    delay_bound: float | None = None  # what the nodes are told; None: the truth
    fifo: bool = False
    hold: str = "constant:0.1"
    readers: float | None = None  # the share of entries that only read; None: half, where the algorithm can
    seed: int = 1
    home: NodeId = 1
    inside: dict[NodeId, Mode] = {}
    loss: float = 0.0
    duplicate: float = 0.0
    faults: tuple[str, ...] = ()

    def prepare(self) -> Prepared:
        """Everything that this describes, checked."""
        return Prepared(self)

    def with_seed(self, seed: int) -> Experiment:
        return replace(self, seed=seed)


class Prepared:
    """An experiment ready to run; `with_seed` runs it again without preparing it again."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in experiment.options.items()}
        self.spec: AlgorithmSpec = find(experiment.algorithm, as_printed=experiment.as_printed, **options)
        needs = self.spec.needs
        self.topology: Topology = topology.parse(
            topology.default_for(needs) if experiment.topology is None else experiment.topology, experiment.nodes
        )
        self.delay = delays.parse(experiment.delay)
        self.hold = delays.parse(experiment.hold)
        self.load = workload.parse(experiment.load)
        self.readers = self._readers()
        self._check_numbers()
        bound = self.delay.bound if experiment.delay_bound is None else experiment.delay_bound
        if needs.delay_bound and bound is None and options.get("timeout") is None:
            raise UsageError(
                f"{self.spec.name} needs a delay bound: it is correct only if no message takes longer than a known time, "
                f"and {experiment.delay} has no such time. Give --delay-bound, or a delay like uniform:0.5,1.5."
            )
        if needs.fifo and not experiment.fifo:
            raise UsageError(f"{self.spec.name} needs messages to arrive in the order sent: add --fifo.")
        self.shapes = self.topology.shapes(needs, experiment.home, bound)
        self.network = Network(self.delay, experiment.fifo, needs.broadcast, experiment.loss, experiment.duplicate)
        self._check_inside()
        self.faults = [self._fault(text) for text in experiment.faults]
        # Starting the nodes is the last thing that can say no, to an option for instance.
        with self.spec.blamed("start"):
            check_state(self.spec, self.spec.start(1, self.shapes[1], experiment.inside))
        if self.spec.form == "own":
            self._check_own()

    @property
    def about(self) -> dict[str, Any]:
        """The first line of a trace."""
        experiment = {key: value for key, value in asdict(self.experiment).items() if value is not None}
        return {
            **experiment,
            "inside": {str(node): mode for node, mode in self.experiment.inside.items()},
            "form": self.spec.form,
            "nodes": self.topology.n,
            "edges": self.topology.edges,
            "diameter": self.topology.diameter,
            **({"labels": {str(j): name for j, name in self.topology.labels.items()}} if self.topology.labels else {}),
        }

    def run(self, seed: int | None = None, recorders: Sequence[Recorder] = (), most_events: int | None = None) -> World:
        """Run it to its end and give the world as it is then."""
        world = self.world(seed, recorders)
        world.run(self.most_events if most_events is None else most_events)
        for place in world.places.values():
            check_state(self.spec, place.algorithm)
        return world

    @property
    def most_events(self) -> int:
        """More than any algorithm needs that comes to an end: fifty times N messages an entry, and
        a million.
        """
        return 1_000_000 + 50 * self.topology.n * self.topology.n * self.experiment.entries

    def world(self, seed: int | None = None, recorders: Sequence[Recorder] = ()) -> World:
        experiment = self.experiment
        seed = experiment.seed if seed is None else seed
        for recorder in recorders:
            recorder.run({**self.about, "seed": seed})
        world = World(self.spec, self.shapes, self.network, seed, experiment.inside, recorders)
        for node in self.topology.nodes:
            world.give_work(node, self._work(node, seed), self.load.closed)
        for act in self.faults:
            act(world, seed)
        return world

    def _work(self, node: NodeId, seed: int) -> Iterator[Work]:
        return self.load.of(node, self.topology.n, self.experiment.entries, seed, self.hold, self.readers)

    # -- checks --------------------------------------------------------------------------------

    def _check_own(self) -> None:
        """A user's own class does the same twice, and its states and messages are values: seen from
        the first events.
        """
        first, again = self._beginning(), self._beginning()
        for at, (one, two) in enumerate(zip_longest(first, again)):
            if one != two:
                raise ContractError(
                    f"{self.spec.name} did not do the same twice: two runs with one seed differ after {at:,} events. A "
                    "handler may use its fields and its arguments only: no random number, no clock, no id(), and no "
                    "variable of the module."
                )

    def _beginning(self) -> list[Event]:
        seen = _Messages()
        with redirect_stdout(io.StringIO()):  # what the class prints is printed in the run itself
            with self.spec.blamed("start"):
                world = self.world(None, [seen])
            # So is what goes wrong.
            with suppress(PeerlockError, AssertionError), self.spec.blamed("a handler"):
                for _ in range(CHECKED_EVENTS):
                    if not world.step():
                        break
        for message in seen.messages:
            check_message(self.spec, message)
        for place in world.places.values():
            check_state(self.spec, place.algorithm)
        return seen.events

    def _readers(self) -> float:
        can_read = "read" in self.spec.needs.modes
        readers = self.experiment.readers
        if readers is None:
            return 0.5 if can_read else 0.0
        if not 0 <= readers <= 1:
            raise UsageError(f"The share of readers is between 0 and 1; got {readers:g}.")
        if readers and not can_read:
            raise UsageError(f"{self.spec.name} knows no readers; ricart-agrawala-rw does.")
        return readers

    def _check_numbers(self) -> None:
        experiment, n = self.experiment, self.topology.n
        if not 1 <= experiment.entries <= MOST_ENTRIES:
            raise UsageError(f"Each node makes from 1 to {MOST_ENTRIES:,} entries; got {experiment.entries}.")
        for name in ("loss", "duplicate"):
            if not 0 <= getattr(experiment, name) < 1:
                raise UsageError(
                    f"{name} is a share of all messages, at least 0 and below 1; got {getattr(experiment, name):g}."
                )
        if experiment.delay_bound is not None and not 0 < experiment.delay_bound <= delays.LONGEST:
            raise UsageError(
                f"A delay bound is above 0 and at most {delays.LONGEST:g}; got {experiment.delay_bound:g}."
            )
        if experiment.load.startswith("nodes:"):
            for node in map(int, map(float, experiment.load[6:].split(","))):
                self._check_node(node, "the load")
        if experiment.load.startswith("hot:") and float(experiment.load[4:].split(",")[0]) > n:
            raise UsageError(f"{experiment.load}: there are only {n} nodes.")
        self._check_node(experiment.home, "home")

    def _check_node(self, node: NodeId, where: str) -> None:
        if node not in self.topology.nodes:
            raise UsageError(f"There is no node {node} ({where}): the nodes are 1 to {self.topology.n}.")

    def _check_inside(self) -> None:
        inside, modes = self.experiment.inside, self.spec.needs.modes
        for node, mode in inside.items():
            self._check_node(node, "inside")
            if mode not in modes:
                raise UsageError(
                    f"Node {node} cannot be inside to {mode}: {self.spec.name} knows only {', '.join(modes)}."
                )
        if len(inside) > 1 and "write" in inside.values():
            raise UsageError("At the start one writer may be inside, or several readers, not both.")

    def _fault(self, text: str) -> Any:
        match = re.fullmatch(r"(crash|restart|leave|join):(\d+)@([\d.]+)|(pause):(\d+)@([\d.]+)\.\.([\d.]+)", text)
        if match is None:
            raise UsageError(f"{text!r} is not a fault. Use: {FAULTS}.")
        kind, node = match[1] or match[4], int(match[2] or match[5])
        if node < 1:
            raise UsageError(f"{text!r}: nodes are numbered from 1.")
        try:
            start, until = float(match[3] or match[6]), float(match[7] or 0)
        except ValueError:
            raise UsageError(f"{text!r}: the times must be numbers.") from None
        if kind == "pause" and until <= start:
            raise UsageError(f"{text!r}: the pause must end after it begins.")
        if kind == "join":
            return self._join(node, start)
        if node > self.topology.n and f"join:{node}@" not in " ".join(self.experiment.faults):
            self._check_node(node, text)
        if kind == "restart" and not self._dies_before(node, start):
            raise UsageError(
                f"{text!r}: only a node that died starts again; add crash:{node}@TIME with an earlier time."
            )
        if kind == "leave" and not hasattr(self.spec.algorithm, "leave"):
            raise UsageError(f"{self.spec.name} cannot let nodes leave; ricart-agrawala-dynamic can.")
        joins = [float(other.split("@")[1]) for other in self.experiment.faults if other.startswith(f"join:{node}@")]
        if joins and start <= joins[0]:
            raise UsageError(f"{text!r}: node {node} is not there before {joins[0]:g}.")
        if kind == "pause":
            return lambda world, seed: (
                world.at(start, lambda: world.pause(node)),
                world.at(until, lambda: world.resume(node)),
            )

        def happen(world: World) -> None:
            {"crash": world.crash, "restart": world.restart, "leave": world.leave}[kind](node)

        return lambda world, seed: world.at(start, lambda: happen(world))

    def _dies_before(self, node: NodeId, at: float) -> bool:
        crashes = (other for other in self.experiment.faults if other.startswith(f"crash:{node}@"))
        return any(float(crash.split("@")[1]) < at for crash in crashes)

    def _join(self, node: NodeId, at: float) -> Any:
        if not hasattr(self.spec.algorithm, "join"):
            raise UsageError(f"{self.spec.name} cannot let nodes join; ricart-agrawala-dynamic can.")
        if node in self.topology.nodes:
            raise UsageError(
                f"Node {node} cannot join: the group starts with nodes 1 to {self.topology.n}; take a new number."
            )

        def join(world: World, seed: int) -> None:
            def knows() -> Members:
                present = [
                    j for j, place in world.places.items() if place.phase in ("idle", "waiting", "inside", "ending")
                ]
                if not present:
                    raise UsageError(f"Node {node} cannot join at {at:g}: no node is there any more.")
                return Members(tuple(present), min(present), self.delay.bound)

            world.at(at, lambda: world.join(node, knows, self._work(node, seed), self.load.closed))

        return join


class _Messages(Keeper):
    """Keeps the events, and the messages themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Wire] = []

    def sent(self, t: float, id: int, node: NodeId, to: NodeId, message: Wire) -> None:
        self.messages.append(message)
        super().sent(t, id, node, to, message)

    def broadcast(self, t: float, id: int, node: NodeId, to: tuple[NodeId, ...], message: Wire) -> None:
        self.messages.append(message)
        super().broadcast(t, id, node, to, message)


def from_trace(about: Mapping[str, Any]) -> Experiment:
    """The experiment that a trace tells of."""
    known = {key: value for key, value in about.items() if key in Experiment.__struct_fields__}
    try:
        return msgspec.convert(known, Experiment, strict=False, str_keys=True)
    except msgspec.ValidationError as problem:
        raise TraceError(f"The trace does not say how it was made: {problem}.") from None
