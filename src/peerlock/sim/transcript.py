"""Runs in which a person chooses every step, written down with what came of it.

A transcript is a text file. A line that begins with `#` is prose; a line that begins with four
blanks is what happened; any other line is a command:

    algorithm NAME [as_printed] [OPTION=VALUE ...]
    nodes N   |   topology ring 4   |   topology file.gml
    home 2                  the token starts there; before the first step
    inside 2 [read]         inside at the start; before the first step
    request 1 [read]        node 1 wants to enter
    release 1               node 1 leaves
    deliver 1->2 [KIND]     the oldest message from 1 to 2, or the oldest of that kind, or exactly that: REQUEST(n=3)
    deliver all             everything in flight, oldest first, until nothing is
    timeout 1 NAME          the timer that node 1 has set
    tick                    time passes; nothing else happens
    crash 3                 node 3 stops for ever
    join 4 [1,2], leave 2   where the algorithm can; a newcomer knows these nodes, or all
    rewire 1 2,3            node 1 now has the neighbours 2 and 3
    show 1, flight          the variables of node 1; the messages under way

`play` carries the commands out and returns the text with what really happened: a transcript is
right if that is the text itself, and a wrong or new one is mended by writing it back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from peerlock.contract import Effects, Members, Mode, NodeId, Wire
from peerlock.errors import PeerlockError, ScriptError
from peerlock.sim import topology
from peerlock.sim.topology import Topology
from peerlock.trace import told
from peerlock.user_algorithm import find

_INDENT = "    "


def play(text: str) -> str:
    """The transcript with what really happened below each command."""
    stage, result = Stage(), []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_INDENT):
            continue
        result.append(line)
        if line.strip() and not line.startswith("#"):
            try:
                result += [_INDENT + happened for happened in stage.do(line)]
            except ScriptError as problem:
                raise ScriptError(f"line {number}, {line!r}: {problem}") from None
            except PeerlockError as problem:
                result.append(f"{_INDENT}{type(problem).__name__}: {problem}")
    return "\n".join(result) + "\n"


class Stage:
    """Nodes whose messages lie on the table until the script delivers them."""

    def __init__(self) -> None:
        self.spec: Any = None
        self.topology: Topology | None = None
        self.home: NodeId = 1
        self.held: dict[NodeId, Mode] = {}
        self.nodes: dict[NodeId, Any] = {}
        self.where: dict[NodeId, str] = {}  # idle, waiting, inside, ending, crashed, left
        self.modes: dict[NodeId, Mode] = {}
        self.flight: list[tuple[NodeId, NodeId, Wire]] = []
        self.timers: set[tuple[NodeId, str]] = set()
        self.happened: list[str] = []
        self.commands: dict[str, Callable[..., None]] = {
            "algorithm": self._algorithm, "nodes": self._nodes, "topology": self._topology, "home": self._home,
            "inside": self._inside, "request": self._request, "release": self._release, "deliver": self._deliver,
            "timeout": self._timeout, "tick": self._tick, "crash": self._crash, "join": self._join,
            "leave": self._leave, "rewire": self._rewire, "show": self._show, "flight": self._flight,
        }  # fmt: skip

    def do(self, line: str) -> list[str]:
        """Carry out one command and tell what happened."""
        command, *words = line.split()
        self.happened = []
        act = self.commands.get(command)
        if act is None:
            raise ScriptError(f"there is no command {command!r}.")
        try:
            act(*words)
        except TypeError as problem:
            if act.__name__ in str(problem):
                raise ScriptError(f"wrong number of words for {command!r}.") from None
            raise
        return self.happened

    # -- setting the stage ---------------------------------------------------------------------

    def _algorithm(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words if "=" in word)
        self.spec = find(name, as_printed="as_printed" in words, **{k: value_of(v) for k, v in options.items()})

    def _nodes(self, n: str) -> None:
        if self.spec is None:
            raise ScriptError("say which algorithm first.")
        self._topology(topology.default_for(self.spec.needs), n)

    def _topology(self, text: str, n: str | None = None) -> None:
        self.topology = topology.parse(text, int(n) if n else None)

    def _home(self, node: str) -> None:
        self.home = int(node)

    def _inside(self, node: str, mode: Mode = "write") -> None:
        self.held[int(node)] = mode

    def _begin(self) -> None:
        if self.nodes:
            return
        if self.spec is None or self.topology is None:
            raise ScriptError("say which algorithm and how many nodes first.")
        shapes = self.topology.shapes(self.spec.needs, self.home, delay_bound=1.0)
        self.nodes = {j: self.spec.start(j, shape, self.held) for j, shape in shapes.items()}
        self.where = {j: "inside" if j in self.held else "idle" for j in self.nodes}
        self.modes = dict(self.held)

    # -- steps ---------------------------------------------------------------------------------

    def _request(self, node: str, mode: Mode = "write") -> None:
        j = self._at(node, "idle", "request")
        self.where[j], self.modes[j] = "waiting", mode
        self._step(j, lambda algorithm, out: algorithm.request(mode, out))

    def _release(self, node: str) -> None:
        j = self._at(node, "inside", "release")
        self.where[j] = "ending"
        self.happened.append(f"{j} leaves")
        self._step(j, lambda algorithm, out: algorithm.release(out))

    def _deliver(self, channel: str, *words: str) -> None:
        self._begin()
        kind = " ".join(words)
        if channel == "all":
            for _ in range(10_000):
                if not self.flight:
                    return
                self._hand_over(0)
            raise ScriptError("10,000 messages later there still were some under way.")
        match = re.fullmatch(r"(\d+)->(\d+)", channel)
        if match is None:
            raise ScriptError("a channel is written 1->2.")
        source, to = int(match[1]), int(match[2])
        for at, (a, b, message) in enumerate(self.flight):
            if (a, b) == (source, to) and kind in ("", message.kind, told(message)):
                self._hand_over(at)
                return
        raise ScriptError(f"no {kind or 'message'} is under way from {source} to {to}.")

    def _hand_over(self, at: int) -> None:
        source, to, message = self.flight.pop(at)
        if self.where[to] == "crashed":
            self.happened.append(f"{source}->{to} {told(message)} is lost: {to} is dead")
            return
        self.happened.append(f"{source}->{to} {told(message)}")
        self._step(to, lambda algorithm, out: algorithm.receive(source, message, out))

    def _timeout(self, node: str, name: str) -> None:
        self._begin()
        j = self._node(node)
        if (j, name) not in self.timers:
            raise ScriptError(f"node {j} has set no timer {name!r}.")
        self.timers.discard((j, name))
        self._step(j, lambda algorithm, out: algorithm.on_timeout(name, out))

    def _tick(self) -> None:
        """Time passes: the transcript leaves it to its author when timers fire."""
        self._begin()

    def _crash(self, node: str) -> None:
        self._begin()
        j = self._node(node)
        self.where[j] = "crashed"
        self.timers = {timer for timer in self.timers if timer[0] != j}
        self.happened.append(f"{j} is dead")

    def _join(self, node: str, knows: str = "") -> None:
        self._begin()
        j, present = int(node), [k for k, where in self.where.items() if where not in ("crashed", "left", "joining")]
        if knows:
            present = [self._node(word) for word in knows.split(",")]
        if j in self.nodes:
            raise ScriptError(f"node {j} is there already.")
        self.nodes[j], self.where[j] = self.spec.start(j, Members(tuple(present), present[0], 1.0)), "joining"
        self._step(j, lambda algorithm, out: algorithm.join(out))

    def _leave(self, node: str) -> None:
        j = self._at(node, "idle", "leave")
        self.where[j] = "left"
        self._step(j, lambda algorithm, out: algorithm.leave(out))

    def _rewire(self, node: str, neighbours: str) -> None:
        self._begin()
        self.nodes[self._node(node)].rewire(tuple(int(k) for k in neighbours.split(",")))

    def _show(self, node: str) -> None:
        self._begin()
        algorithm = self.nodes[self._node(node)]
        for name in algorithm.__struct_fields__:
            value = getattr(algorithm, name)
            self.happened.append(f"{name} = {sorted(value) if isinstance(value, frozenset) else value}")

    def _flight(self) -> None:
        self._begin()
        self.happened += [f"{source}->{to} {told(message)}" for source, to, message in self.flight] or ["nothing"]

    # -- helpers -------------------------------------------------------------------------------

    def _node(self, word: str) -> NodeId:
        if not word.isdigit() or int(word) not in self.nodes:
            raise ScriptError(f"there is no node {word}.")
        return int(word)

    def _at(self, word: str, where: str, verb: str) -> NodeId:
        self._begin()
        j = self._node(word)
        if self.where[j] != where:
            raise ScriptError(f"node {j} cannot {verb}: it is {self.where[j]}, not {where}.")
        return j

    def _step(self, j: NodeId, act: Callable[[Any, Effects], None]) -> None:
        out = Effects()
        try:
            act(self.nodes[j], out)
        except AssertionError as problem:
            self.happened.append(f"VIOLATION: an assertion of {j} fails: {problem}")
            return
        for to, message in out.sent:
            self.flight.append((j, to, message))
            self.happened.append(f"{j} sends {told(message)} to {to}")
        for name, _ in out.timers:
            self.timers.add((j, name))
            self.happened.append(f"{j} sets the timer {name}")
        if out.entered:
            self.where[j] = "inside"
            self.happened.append(f"{j} enters")
            self._look()
        if out.ended:
            words = {"joining": "is a member", "left": "is gone"}
            self.happened.append(f"{j} {words.get(self.where[j], 'is idle')}")
            self.where[j] = "left" if self.where[j] == "left" else "idle"

    def _look(self) -> None:
        inside = [j for j, where in self.where.items() if where == "inside"]
        if len(inside) > 1 and any(self.modes.get(j) == "write" for j in inside):
            self.happened.append(f"VIOLATION: {' and '.join(map(str, inside))} are inside")


def value_of(text: str) -> Any:
    """An option's value from its text: true, 3, 0.5 or 1,1,10."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if "," in text:
        return tuple(value_of(part) for part in text.split(","))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
