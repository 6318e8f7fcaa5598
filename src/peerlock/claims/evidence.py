"""Experiments that put a claim to the test, and the judge of what they show.

A claim is a function. It asks the `Lab` for evidence: that every interleaving of small groups was
explored (*exhaustive*), that so many seeds were run (*simulated*), that a run was built on purpose
(*constructed*), or that a computation covers every size (*proved*). Each piece of evidence says
whether it speaks for the claim. `judge` makes a verdict of all pieces:

- *holds*: all evidence for the claim as the paper prints it speaks for it;
- *holds only if*: some does not, and all evidence gathered under a condition does;
- *fails as printed*: some does not, and there is no condition, or the repaired form is needed; the
  evidence for the repair is there too.

No verdict is written down by hand. The words of a claim, of its condition and of its repair are;
whether they apply is computed. A verdict is as strong as its evidence, and the report names both.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from peerlock.algorithms import choose
from peerlock.check import counterexample
from peerlock.check.model import ANY, Model
from peerlock.check.observers import Costs, Observer, Overtaking
from peerlock.check.properties import Property, finding, standard
from peerlock.check.run import Configuration
from peerlock.check.run import run as check
from peerlock.check.search import Step
from peerlock.check.verdicts import shapes_of
from peerlock.contract import NOBODY, Members, Mode, Neighbours, NodeId, Ring, Shape
from peerlock.errors import PeerlockError
from peerlock.observe import diagram as diagrams
from peerlock.observe.metrics import Metrics
from peerlock.sim.experiment import Experiment, Prepared
from peerlock.trace import Keeper
from peerlock.user_algorithm import Option

Kind: TypeAlias = Literal["exhaustive", "simulated", "constructed", "proved"]
Role: TypeAlias = Literal["as claimed", "under the condition", "repaired", "more than claimed"]
Verdict: TypeAlias = Literal["holds", "holds only if", "fails as printed"]
# What a piece of evidence has measured: a number, words, or numbers by N or by name.
Figure: TypeAlias = "float | str | Sequence[Figure] | Mapping[int, Figure] | Mapping[str, Figure] | None"


class Evidence(Struct, omit_defaults=True):
    """One thing that was done, and whether it speaks for the claim."""

    kind: Kind
    what: str
    speaks_for: bool
    role: Role = "as claimed"
    configurations: int = 0
    states: int = 0
    seeds: int = 0
    figures: Mapping[str, Figure] = field(default_factory=dict)
    counterexample: str | None = None  # a transcript, or the command that shows it
    drawing: str | None = None  # of the counterexample, as SVG


class Finding(Struct):
    """What the evidence says about one claim."""

    verdict: Verdict
    condition: str | None
    evidence: list[Evidence]
    counterexample: str | None
    repair: str | None = None
    repair_checked: bool | None = None
    drawing: str | None = None

    @property
    def against(self) -> list[str]:
        """The evidence against the claim as it is printed."""
        return [one.what for one in self.evidence if one.role == "as claimed" and not one.speaks_for]

    @property
    def words(self) -> str:
        """The condition, or the repair, or else what speaks against it."""
        if self.verdict == "holds only if":
            return self.condition or ""
        if self.repair:
            return f"{'repaired and checked: ' if self.repair_checked else ''}{self.repair}"
        return f"against it: {'; '.join(self.against)}" if self.against else ""


def judge(
    claimed: Sequence[Evidence],
    *,
    given: Sequence[Evidence] = (),
    condition: str | None = None,
    repaired: Sequence[Evidence] = (),
    repair: str | None = None,
    beside: Sequence[Evidence] = (),
) -> Finding:
    """A verdict from evidence alone. Evidence `beside` goes beyond the claim."""
    assert claimed, "a claim without evidence"
    every = [
        *claimed,
        *(replace(one, role="under the condition") for one in given),
        *(replace(one, role="repaired") for one in repaired),
        *(replace(one, role="more than claimed") for one in beside),
    ]
    against = next((one for one in claimed if not one.speaks_for and one.counterexample), None)
    script, drawing = (against.counterexample, against.drawing) if against else (None, None)
    if all(one.speaks_for for one in claimed):
        return Finding("holds", None, every, None)
    if given and all(one.speaks_for for one in given):
        return Finding("holds only if", condition, every, script, drawing=drawing)
    checked = all(one.speaks_for for one in repaired) if repaired else None
    condition = condition if repaired and checked else None
    return Finding("fails as printed", condition, every, script, repair, checked, drawing)


class Setup(Struct, frozen=True):
    """One exploration: everything that `Model` needs, as plain values."""

    name: str
    entries: tuple[int, ...]
    as_printed: bool = False
    fifo: bool = False
    inside: Mapping[NodeId, Mode] = NOBODY
    shapes: Mapping[NodeId, Shape] | None = None  # None: a complete network, or a ring
    home: NodeId = 1
    options: Mapping[str, Option] = {}
    delay_bound: int | None = None
    bound: float = 1.0  # what the nodes are told
    crashes: int = 0
    leavers: tuple[NodeId, ...] = ()
    at_once: bool = False  # may several nodes come and go at a time?

    @property
    def words(self) -> str:
        parts = [f"{len(self.entries)} nodes, entries {','.join('any' if k == ANY else str(k) for k in self.entries)}"]
        parts += ["as printed"] if self.as_printed else []
        parts += ["fifo" if self.fifo else "any order"]
        parts += [f"{key} = {value}" for key, value in self.options.items()]
        parts += [f"delays of at most {self.delay_bound}"] if self.delay_bound else []
        parts += [f"{self.crashes} crash"] if self.crashes else []
        return ", ".join(parts)


class Seen(Struct):
    """What one exploration has shown."""

    verdicts: dict[str, str]
    states: int
    finished: bool
    costs: set[int]
    passed_over: int
    script: str | None  # the shortest way to the first violation
    drawing: str | None

    def holds(self, properties: Iterable[str] | None = None) -> bool:
        """Do these properties hold? None: all that were looked at."""
        return all(self.verdicts.get(name) == "holds" for name in properties or self.verdicts)


def explored(what: str, found: Sequence[Seen], good: bool) -> Evidence:
    states = sum(seen.states for seen in found)
    return Evidence("exhaustive", what, good, configurations=len(found), states=states)


Watch: TypeAlias = Callable[[Model], list[Property]]


class Lab:
    """Does every experiment once. With `full`, explorations are larger and seeds are more."""

    def __init__(self, full: bool = False) -> None:
        self.full = full
        self._known: dict[str, Seen] = {}

    # -- every interleaving ------------------------------------------------------------------------

    def look(
        self, setup: Setup, observers: Sequence[Observer] = (), watch: Watch | None = None, liveness: bool = False
    ) -> Seen:
        """Explore one setup; without observers and with the standard properties only once."""
        plain = not observers and watch is None
        key = f"{setup!r} {liveness}"
        if plain and key in self._known:
            return self._known[key]
        spec = choose(setup.name, as_printed=setup.as_printed, **setup.options)
        shapes = dict(setup.shapes or shapes_of(setup.name, len(setup.entries), setup.home, setup.bound))
        configuration = Configuration(
            spec, shapes, setup.entries, setup.inside, setup.fifo, setup.crashes, setup.delay_bound, setup.leavers,
            setup.at_once, observers=observers, properties=watch or standard,
            max_states=100_000_000 if self.full else 2_000_000,
        )  # fmt: skip
        try:
            found = check(configuration)
        except Exception as problem:
            if not broken(problem):
                raise
            # A broken algorithm may ask for something that no driver can carry out.
            names = (prop.name for prop in configuration.properties(configuration.model()))
            return Seen(dict.fromkeys(names, "violated"), 0, False, set(), 0, None, None)
        if liveness and found.outcome.finished and found.outcome.violated is None:
            found.look_for_starvation()
        model, way, verdicts = found.model, found.way, found.verdicts
        script = self._script(setup, model, way, verdicts) if way else None
        changes = any(step.action.what in ("join", "leave") for step in way)  # a diagram has no sign for these
        drawing = diagrams.svg(found.events()) if script and not changes else None
        costs = next((one.seen for one in observers if isinstance(one, Costs)), set())
        most = max((one.most for one in observers if isinstance(one, Overtaking)), default=0)
        seen = Seen(verdicts, found.outcome.states, found.outcome.finished, costs, most, script, drawing)
        if plain:
            self._known[key] = seen
        return seen

    def _script(self, setup: Setup, model: Model, way: Sequence[Step], verdicts: dict[str, str]) -> str | None:
        """The way as a transcript that can be played, if the network has a name in transcripts."""
        broken = next((name for name, verdict in verdicts.items() if verdict == "violated"), "what was claimed")
        found = finding(broken)
        n = len(setup.entries)
        network = "ring" if choose(setup.name).needs.shape is Ring else "complete"
        options = [f"{key}={value}" for key, value in setup.options.items()]
        lines = [" ".join(["algorithm", setup.name, *(["as_printed"] if setup.as_printed else []), *options])]
        if setup.shapes is None:
            lines.append(f"topology {network} {n}")
        else:  # a transcript cannot name it: to read, not to play
            lines += [f"# node {j} knows {', '.join(map(str, _known(shape)))}" for j, shape in setup.shapes.items()]
        lines += [f"home {setup.home}"] if setup.home != 1 else []
        lines += [f"inside {node} {mode}" for node, mode in setup.inside.items()]
        return counterexample.transcript(model, way, lines, f"{setup.name}, {setup.words}: {found}")

    def explore(
        self, setups: Iterable[Setup], properties: Sequence[str] | None = None, what: str = "", liveness: bool = False
    ) -> Evidence:
        """Do these of the standard properties hold in all of these setups? None: all of them."""
        found, words = [], dict[str, None]()
        for setup in setups:
            seen = self.look(setup, liveness=liveness)
            if properties is not None and not seen.holds(properties):
                # A search ends with the first violation, which may be of another property.
                seen = self.look(setup, watch=only(properties), liveness=liveness)
            found.append(seen)
            words[setup.words] = None
        what = what or "; ".join([*words][:4]) + (f"; and {len(words) - 4} more" if len(words) > 4 else "")
        worst = next((seen for seen in found if not seen.holds(properties)), None)
        evidence = explored(what, found, worst is None)
        return replace(evidence, counterexample=worst.script, drawing=worst.drawing) if worst else evidence

    def watch(self, what: str, setups: Iterable[Setup], watch: Watch) -> Evidence:
        """Do the claim's own properties hold in all of these setups?"""
        found = [self.look(setup, watch=watch) for setup in setups]
        script = next((seen.script for seen in found if seen.script and not seen.holds()), None)
        return replace(explored(what, found, all(seen.holds() for seen in found)), counterexample=script)

    def count(self, setup: Setup, allowed: Callable[[int, int], bool], what: str = "") -> Evidence:
        """Is `allowed(messages, N)` true of every entry, over all interleavings?"""
        seen = self.look(setup, [Costs()])
        good = seen.finished and bool(seen.costs) and all(allowed(cost, len(setup.entries)) for cost in seen.costs)
        figures = {"messages": sorted(seen.costs)}
        return replace(explored(what or f"messages an entry, {setup.words}", [seen], good), figures=figures)

    def passed_over(self, setups: Sequence[Setup]) -> Evidence:
        """Does the last node stop being passed over more often as the others enter more often?"""
        found = [self.look(setup, [Overtaking(len(setup.entries))], only(["no deadlock"])) for setup in setups]
        figures = [seen.passed_over for seen in found]
        good = all(seen.holds() for seen in found) and figures[-1] == figures[-2]
        words = f"how often the last node is passed over as the others enter more, up to {setups[-1].words}"
        script = None if good else _check_command(setups[-1])
        return replace(explored(words, found, good), figures={"passed over": figures}, counterexample=script)

    # -- seeds -------------------------------------------------------------------------------------

    def seeds(self, few: int, many: int) -> range:
        return range(1, (many if self.full else few) + 1)

    def simulate(
        self, experiment: Experiment, seeds: Iterable[int], what: str, good: Callable[[Run], bool]
    ) -> Evidence:
        """Is every run of an experiment good?"""
        prepared, count, against = experiment.prepare(), 0, None
        for seed in seeds:
            count += 1
            if not _good(prepared, seed, good) and against is None:
                against = command(experiment, seed)
        return Evidence("simulated", what, against is None, seeds=count, counterexample=against)

    def by_size(
        self, experiment: Experiment, sizes: Iterable[int], seeds: range, what: str, good: Callable[[Run], bool]
    ) -> list[Evidence]:
        """The same for several numbers of nodes."""
        return [self.simulate(replace(experiment, nodes=n), seeds, f"{what}, N = {n}", good) for n in sizes]


def _good(prepared: Prepared, seed: int, good: Callable[[Run], bool]) -> bool:
    try:
        return good(Run(prepared, seed))
    except Exception as problem:
        if not broken(problem):
            raise
        return False


def broken(problem: Exception) -> bool:
    """Did the algorithm fail, and not the test of a claim?"""
    frames = traceback.extract_tb(problem.__traceback__)
    return isinstance(problem, PeerlockError | AssertionError) or "algorithms" in frames[-1].filename


class Run:
    """One run of an experiment, with its figures and its events."""

    def __init__(self, prepared: Prepared, seed: int) -> None:
        self.prepared = prepared
        self.metrics, keeper = Metrics(), Keeper()
        self.world = prepared.run(seed, [self.metrics, keeper])
        self.events = keeper.events

    @property
    def n(self) -> int:
        return self.prepared.topology.n

    @property
    def costs(self) -> list[int]:
        return [cost.messages for cost in self.metrics.made]

    @property
    def sound(self) -> bool:
        return self.metrics.violations == 0 and not self.world.stuck()


def run(experiment: Experiment) -> Run:
    return Run(experiment.prepare(), experiment.seed)


def command(experiment: Experiment, seed: int) -> str:
    """What to type to see a run."""
    values, plain = asdict(experiment), asdict(Experiment(algorithm=experiment.algorithm))
    words = [f"peerlock sim {experiment.algorithm} --seed {seed}"]
    flags = {"nodes": "-n", "delay_bound": "--delay-bound"}
    for name in ("nodes", "topology", "entries", "load", "delay", "delay_bound", "hold", "readers", "home"):
        if values[name] not in (plain[name], None):
            words.append(f"{flags.get(name, '--' + name)} {values[name]}")
    words += ["--fifo"] if experiment.fifo else []
    words += ["--as-printed"] if experiment.as_printed else []
    for key, value in experiment.options.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple | list) else value
        words.append(f"--set {key}={text}")
    words += [f"--fault {fault}" for fault in experiment.faults]
    return " ".join(words)


def _check_command(setup: Setup) -> str:
    """What to type to see how often the last node is passed over."""
    n, entries = len(setup.entries), ",".join(map(str, setup.entries))
    words = [f"peerlock check {setup.name} -n {n} --entries {entries} --passed-over {n}"]
    words += ["--topology complete"] if choose(setup.name).needs.shape is Neighbours else []
    words += ["--as-printed"] if setup.as_printed else []
    words += [f"--delay-bound {setup.delay_bound}"] if setup.delay_bound else []
    return " ".join([*words, *(f"--set {key}={value}" for key, value in setup.options.items())])


def only(properties: Sequence[str]) -> Watch:
    """Of the standard properties, these."""
    return lambda model: [prop for prop in standard(model) if prop.name in properties]


def _known(shape: Shape) -> tuple[NodeId, ...]:
    """The other nodes that a node is told of, where a transcript cannot name the network."""
    match shape:
        case Neighbours(names=names) | Members(all=names):
            return names
        case Ring():
            return ()
