"""Every mistake gets a sentence that says what is wrong and what to do, and nothing is half done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from peerlock.errors import (
    ContractError,
    PeerlockError,
    ScriptError,
    TopologyError,
    TraceError,
    UnknownAlgorithm,
    UsageError,
)
from peerlock.sim.experiment import Experiment
from peerlock.sim.transcript import play
from peerlock.trace import read
from peerlock.user_algorithm import find

GML = "graph [\n  node [\n id 0 ]\n node [ id 1 ]\n node [ id 2 ]\n edge [ source 0 target 1 ]\n {} ]\n"


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"algorithm": "ricart"}, UnknownAlgorithm, "Did you mean ricart-agrawala"),
        ({"algorithm": "xyz"}, UnknownAlgorithm, "There are: suzuki-kasami-a"),
        ({"nodes": 1}, TopologyError, "at least 2 nodes; got 1"),
        ({"nodes": -3}, TopologyError, "at least 2 nodes; got -3"),
        ({"algorithm": "dijkstra-ring", "nodes": 1}, TopologyError, "at least 2 nodes"),
        ({"algorithm": "suzuki-kasami-b", "options": {"l": 1}}, UsageError, "needs L >= 2; got L = 1"),
        ({"algorithm": "suzuki-kasami-a", "options": {"l": 3}}, UsageError, "no option 'l': it takes cut"),
        ({"algorithm": "dijkstra-ring", "options": {"l": 3}}, UsageError, "no option 'l': it takes none"),
        ({"options": {"x": 3}}, UsageError, "no option 'x': it takes own_counts"),
        ({"as_printed": True}, UsageError, "leave that out"),
        ({"entries": 0}, UsageError, "from 1 to 1,000,000,000 entries; got 0"),
        ({"topology": "ring"}, TopologyError, "needs a complete network"),
        ({"algorithm": "dijkstra-ring", "topology": "star"}, TopologyError, "but in star node 1 has 4 neighbours"),
        ({"topology": "donut"}, TopologyError, "'donut' is not a topology. Use one of: complete, ring"),
        ({"algorithm": "helary-plouzeau-raynal", "topology": "grid:2x2"}, TopologyError, "has 4 nodes, not 5"),
        ({"algorithm": "helary-plouzeau-raynal", "topology": "grid:2y2"}, TopologyError, "is not a topology"),
        ({"algorithm": "helary-plouzeau-raynal", "topology": "random:0.001"}, TopologyError, "gave no connected network"),
        ({"algorithm": "helary-plouzeau-raynal", "topology": "regular:3"}, TopologyError, "is not possible"),
        ({"delay": "fast"}, UsageError, "'fast' is not a delay. Use one of: constant:D"),
        ({"delay": "uniform:3,1"}, UsageError, "the first number is the least"),
        ({"delay": "-1"}, UsageError, "a number from 0 to 1e+09"),
        ({"delay": "matrix:none.json"}, UsageError, "none.json cannot be read"),
        ({"delay_bound": 0}, UsageError, "A delay bound is above 0"),
        ({"algorithm": "ricart-agrawala-implicit", "delay": "exponential:1"}, UsageError, "needs a delay bound"),
        ({"algorithm": "ricart-agrawala-failures", "delay": "exponential:1"}, UsageError, "Give --delay-bound"),
        ({"algorithm": "ricart-agrawala-failures", "options": {"own_counts": False}}, UsageError, "own_counts cannot be false"),
        ({"load": "some"}, UsageError, "'some' is not a load. Use one of: closed"),
        ({"load": "nodes:1,9"}, UsageError, "no node 9"),
        ({"load": "hot:9,0.5"}, UsageError, "only 5 nodes"),
        ({"load": "poisson:-1"}, UsageError, "from 0 to 1e+09"),
        ({"hold": "long"}, UsageError, "is not a delay"),
        ({"readers": 0.5}, UsageError, "knows no readers; ricart-agrawala-rw does"),
        ({"algorithm": "ricart-agrawala-rw", "readers": 1.5}, UsageError, "between 0 and 1"),
        ({"loss": 1.0}, UsageError, "loss is a share"),
        ({"delay": "constant:nan"}, UsageError, "a number from 0"),
        ({"delay": "constant:"}, UsageError, "is not a delay"),
        ({"load": "closed:"}, UsageError, "is not a load"),
        ({"topology": ""}, TopologyError, "is not a topology"),
        ({"nodes": 10**20}, TopologyError, "more than this simulator is made for"),
        ({"entries": 10**20}, UsageError, "entries; got 1000"),
        ({"options": {"own_counts": "maybe"}}, UsageError, "own_counts must be true or false; got 'maybe'"),
        ({"algorithm": "suzuki-kasami-b", "options": {"l": 2.5}}, UsageError, "l must be a whole number; got 2.5"),
        ({"algorithm": "ricart-agrawala-implicit", "options": {"timeout": -1}}, UsageError, "must be a number above 0"),
        ({"algorithm": "ricart-agrawala-failures", "delay": "constant:0"}, UsageError, "time-out must be a number above 0"),
        ({"algorithm": "ricart-agrawala-priority", "options": {"increments": (1, 1.5)}}, UsageError, "increments must be"),
        ({"faults": ("pause:2@5..3",)}, UsageError, "must end after it begins"),
        ({"faults": ("crash:0@3",)}, UsageError, "nodes are numbered from 1"),
        ({"algorithm": "ricart-agrawala-dynamic", "faults": ("join:7@9", "leave:7@3")}, UsageError, "not there before 9"),
        ({"home": 6}, UsageError, "no node 6 (home): the nodes are 1 to 5"),
        ({"inside": {7: "write"}}, UsageError, "no node 7 (inside)"),
        ({"inside": {1: "read"}}, UsageError, "cannot be inside to read"),
        ({"inside": {1: "write", 2: "write"}}, UsageError, "one writer may be inside, or several readers"),
        ({"faults": ("explode:1@2",)}, UsageError, "is not a fault. Use: crash:NODE@TIME"),
        ({"faults": ("crash:8@2",)}, UsageError, "no node 8"),
        ({"faults": ("crash:1@1.2.3",)}, UsageError, "must be numbers"),
        ({"faults": ("join:8@2",)}, UsageError, "ricart-agrawala-dynamic can"),
        ({"faults": ("leave:1@2",)}, UsageError, "ricart-agrawala-dynamic can"),
        ({"algorithm": "ricart-agrawala-dynamic", "faults": ("join:2@2",)}, UsageError, "take a new number"),
        ({"algorithm": "ricart-agrawala-priority", "options": {"increments": (1, 2)}}, UsageError, "for each of the 5 nodes"),
    ],
)  # fmt: skip
def test_experiments(settings: dict[str, Any], error: type[PeerlockError], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        Experiment(**{"algorithm": "ricart-agrawala", "nodes": 5, **settings}).prepare()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello", "is not a graph that can be read"),
        ("", "is not a graph that can be read"),
        (GML.format(""), "is not connected: it has 2 parts, the smallest with 1 of 3 nodes"),
        ("graph [ node [ id 0 ] ]", "has 1 node; a network needs at least 2"),
    ],
)
def test_files_that_are_no_network(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "some.gml"
    file.write_text(content)
    with pytest.raises(TopologyError, match=re.escape(words)):
        Experiment(algorithm="helary-plouzeau-raynal", topology=str(file)).prepare()


def test_a_missing_file() -> None:
    with pytest.raises(TopologyError, match="cannot be read: No such file"):
        Experiment(algorithm="helary-plouzeau-raynal", topology="nowhere.graphml").prepare()


def test_an_edge_listed_twice_is_taken_once_and_told(tmp_path: Path) -> None:
    file = tmp_path / "twice.gml"
    file.write_text(GML.format("edge [ source 1 target 2 ] edge [ source 1 target 2 ]"))
    prepared = Experiment(algorithm="helary-plouzeau-raynal", topology=str(file)).prepare()
    assert (prepared.topology.n, prepared.topology.edges) == (3, 2)
    assert prepared.topology.notes[0].endswith(
        "it lists 1 edge more than once without saying that it is a multigraph; each is taken once."
    )


def test_a_ring_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ring.gml"
    file.write_text(GML.format("edge [ source 1 target 2 ] edge [ source 2 target 0 ]"))
    world = Experiment(algorithm="dijkstra-ring", topology=str(file)).prepare().run()
    assert world.stuck() == []


def test_graphml_with_directions_and_loops(tmp_path: Path) -> None:
    import networkx as nx

    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("c", "c")])
    nx.write_graphml(graph, tmp_path / "some.graphml")
    prepared = Experiment(algorithm="helary-plouzeau-raynal", topology=str(tmp_path / "some.graphml")).prepare()
    assert (prepared.topology.n, prepared.topology.edges, len(prepared.topology.notes)) == (3, 2, 2)


OWN = """
from peerlock.contract import *

class MyLock(State):
    me: NodeId
{}

NotAClass = 3
class Other: ...
"""
START = "    @classmethod\n    def start(cls, me, shape, inside=NOBODY): return cls(me)\n"
REQUEST = "    def request(self, mode, out): out.enter()\n"
RELEASE = "    def release(self, out): out.idle()\n"
RECEIVE = "    def receive(self, source, message, out): pass\n"
ODD_RECEIVE = "    def receive(self, message): pass\n"


@pytest.mark.parametrize(
    ("body", "name", "words"),
    [
        (REQUEST + RELEASE + RECEIVE, "MyLock", "has no method start(me, shape, inside)"),
        (START + RELEASE + RECEIVE, "MyLock", "has no method request(mode, out)"),
        (START + REQUEST + RECEIVE, "MyLock", "has no method release(out)"),
        (START + REQUEST + RELEASE, "MyLock", "has no method receive(source, message, out)"),
        (START + REQUEST + RELEASE + ODD_RECEIVE, "MyLock", "receive(self, message) cannot be called as receive(source"),
        (START.replace("    @classmethod\n", "") + REQUEST + RELEASE + RECEIVE, "MyLock", "start must be a classmethod"),
        (START + REQUEST + RELEASE + RECEIVE + "    needs = 3\n", "MyLock", "needs must be a peerlock.contract.Needs"),
        (START + REQUEST + RELEASE + RECEIVE, "Yours", "has no Yours. It has: MyLock"),
        (START + REQUEST + RELEASE + RECEIVE, "NotAClass", "is not a class derived from peerlock.contract.State"),
        (START + REQUEST + RELEASE + RECEIVE, "Other", "is not a class derived from peerlock.contract.State"),
        ("    oops oops", "MyLock", "cannot be imported: SyntaxError"),
    ],
)  # fmt: skip
def test_classes_that_are_no_algorithm(tmp_path: Path, body: str, name: str, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN.format(body))
    with pytest.raises(UsageError, match=re.escape(words)):
        find(f"{file}:{name}")


def test_own_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        find("./nowhere.py:MyLock")
    with pytest.raises(UsageError, match="Say which class of"):
        find("./mine.py")
    with pytest.raises(UsageError, match="has no form as printed"):
        find("./mine.py:MyLock", as_printed=True)


@pytest.mark.parametrize(
    ("request_body", "words"),
    [
        ("out.enter(); out.enter()", "node 1 entered while it was inside"),
        ("out.idle()", "node 1 became idle while it was waiting"),
        ("out.send(99, Wire())", "sent a message to node 99, which does not exist"),
    ],
)
def test_algorithms_that_break_the_contract(tmp_path: Path, request_body: str, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN.format(START + f"    def request(self, mode, out): {request_body}\n" + RELEASE + RECEIVE))
    with pytest.raises(ContractError, match=re.escape(words)):
        Experiment(algorithm=f"{file}:MyLock", nodes=2).prepare().run()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("    def request(self, mode, out): raise KeyError('oops')\n", "raised KeyError in a handler: 'oops' (line"),
        ("    def request(self, mode, out): raise SystemExit(7)\n", "raised SystemExit in a handler"),
        ("    def request(self, mode, out): out.timer('t', -1)\n", "set the timer 't' to -1"),
        ("    def request(self, mode, out): out.timer('t', 1)\n", "sets no timer, yet 't' fired"),
        ("    def request(self, mode, out): self.me = [1]; out.enter()\n", "holds a list, which can change"),
        ("    async def request(self, mode, out): out.enter()\n", "must be a plain function"),
    ],
)
def test_own_classes_that_fail_while_they_run(tmp_path: Path, body: str, words: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN.format(START + body + RELEASE + RECEIVE))
    with pytest.raises(ContractError, match=re.escape(words)):
        Experiment(algorithm=f"{file}:MyLock", nodes=2).prepare().run()


def test_a_start_that_makes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN.format(START.replace("return cls(me)", "pass") + REQUEST + RELEASE + RECEIVE))
    with pytest.raises(ContractError, match="start returned None"):
        Experiment(algorithm=f"{file}:MyLock", nodes=2).prepare()


def test_networks_that_double_messages_are_not_the_algorithms_fault() -> None:
    prepared = Experiment(algorithm="suzuki-kasami-a", nodes=5, duplicate=0.5, entries=30).prepare()
    with pytest.raises(UsageError, match="does not survive a network that loses or doubles messages"):
        prepared.run()


def test_a_delay_matrix_with_nonsense(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    for text in ('{"1": {"2": NaN}}', '{"1": {"2": -1}}', "{}"):
        file.write_text(text)
        with pytest.raises(UsageError):
            Experiment(algorithm="ricart-agrawala", nodes=2, delay=f"matrix:{file}").prepare()


def test_an_unsafe_class_of_ones_own_is_found_out(tmp_path: Path) -> None:
    from running import run

    file = tmp_path / "mine.py"
    file.write_text(OWN.format(START + REQUEST + RELEASE + RECEIVE))
    assert run(f"{file}:MyLock", nodes=3).metrics.violations > 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello\n", "line 1"),
        ('{"event": "end"}\n', 'its first line is not an event "run"'),
        ('{"event": "run", "about": {"format": 1, "nodes": "x"}}\n', "the number of its nodes is 'x'"),
        ('{"event": "run", "about": {"format": 1}}\n{"event": "sent", "id": 3}\n', "line 2: sent without node"),
        ('{"event": "run", "about": {"format": 99}}\n', "format 99; this version reads format 1"),
        ('{"event": "run", "about": {"format": 1}}\n{"event": "sent", "t": "x"}\n', "line 2"),
        ("", "is not a trace"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(content)
    with pytest.raises(TraceError, match=re.escape(words)):
        read(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dance 1", "line 1, 'dance 1': there is no command 'dance'."),
        ("request 1", "say which algorithm and how many nodes first"),
        ("nodes 3", "say which algorithm first"),
        ("algorithm ricart-agrawala\nnodes 2\nrequest 3", "line 3, 'request 3': there is no node 3."),
        ("algorithm ricart-agrawala\nnodes 2\nrelease 1", "node 1 cannot release: it is idle, not inside."),
        ("algorithm ricart-agrawala\nnodes 2\ndeliver 1->2", "no message is under way from 1 to 2."),
        ("algorithm ricart-agrawala\nnodes 2\ndeliver 1-2", "a channel is written 1->2."),
        ("algorithm ricart-agrawala\nnodes 2\nrequest 1\ndeliver 1->2 REPLY", "no REPLY is under way"),
        ("algorithm ricart-agrawala\nnodes 2\ntimeout 1 reply", "node 1 has set no timer 'reply'."),
        ("algorithm ricart-agrawala\nnodes 2\nrequest", "wrong number of words for 'request'"),
    ],
)
def test_transcripts_that_cannot_be_carried_out(text: str, words: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(words)):
        play(text)
