"""The command line as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from peerlock.algorithms import CATALOGUE
from peerlock.check.properties import finding
from peerlock.check.protocols.view_change import explore
from peerlock.check.protocols.view_mutants import MUTANTS
from peerlock.cli import check_protocols

ROOT = Path(__file__).parents[2]


def peerlock(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "peerlock", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def as_json(*words: str) -> Any:
    return json.loads(peerlock(*words, "--json").stdout)


def benchmarks(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("registry", ["host", "static", "leases"])
def test_sim_nodes(registry: str) -> None:
    result = as_json("sim-nodes", "--seeds", "1..4", "--registry", registry)
    assert (result["seeds"], result["failures"]) == (4, [])
    assert result["grants"] >= 800
    assert result["least_faults_a_seed"] >= 5
    assert "0 failures" in peerlock("sim-nodes", "--seeds", "1..2", "--registry", registry).stdout


def test_sim_nodes_shows_how_to_see_a_failure_again() -> None:
    words = ("sim-nodes", "--seeds", "37", "-a", "suzuki-kasami-a", "--planted", "list: an epoch is not durable")
    done = peerlock(*words, code=1)
    again = done.stdout.partition("again: peerlock ")[2].strip()
    assert "--registry static" in again
    assert "--planted 'list: an epoch is not durable'" in again
    assert peerlock("sim-nodes", "--planted", "list").stdout.count("\n") > 30
    assert "No bug is called" in peerlock("sim-nodes", "--planted", "none", code=2).stderr
    assert "--registry is one of" in peerlock("sim-nodes", "--registry", "mars", code=2).stderr


def test_algorithms() -> None:
    rows = as_json("algorithms")
    assert [row["name"] for row in rows] == list(CATALOGUE)
    assert all({"name", "paper", "year", "needs", "forms", "claimed"} <= set(row) for row in rows)
    table = peerlock("algorithms").stdout
    assert all(name in table for name in CATALOGUE)


def test_sim_json() -> None:
    figures = as_json("sim", "suzuki-kasami-a", "-n", "4", "--entries", "5", "--seed", "3")
    assert set(figures) >= {
        "algorithm", "form", "nodes", "edges", "diameter", "seed", "entries", "messages", "messages_per_entry", "overhead",
        "by_kind", "bytes_per_entry", "wait", "sync_delay", "fairness", "claimed", "violations", "stuck",
    }  # fmt: skip
    assert figures["entries"] == 20
    assert figures["claimed"] == {"min": 0, "max": 4}
    assert figures["messages_per_entry"].keys() == {"min", "mean", "max"}
    assert figures["wait"].keys() == figures["sync_delay"].keys() == {"p50", "p99", "max"}
    assert (figures["violations"], figures["stuck"], figures["fairness"], figures["seed"]) == (0, [], 1.0, 3)
    assert sum(figures["by_kind"].values()) == figures["messages"]


def test_sim_over_seeds() -> None:
    figures = as_json("sim", "suzuki-kasami-b", "--l", "3", "-n", "3", "--seed", "1..40", "--as-printed")
    assert figures["form"] == "as_printed"
    assert figures["stuck"]
    assert figures["stuck_seeds"]
    assert "left waiting" in peerlock("sim", "suzuki-kasami-b", "-n", "3", "--seed", "1..40", "--as-printed").stdout


def test_no_claim_is_null() -> None:
    figures = as_json("sim", "dijkstra-ring", "-n", "4")
    assert figures["claimed"] == {"min": None, "max": None}
    assert figures["messages_per_entry"]["min"] is None


def test_trace_diagram_and_replay(tmp_path: Path) -> None:
    trace, picture = tmp_path / "t.jsonl", tmp_path / "t.svg"
    peerlock("sim", "ricart-agrawala", "-n", "3", "--entries", "2", "--trace", str(trace), "--diagram", str(picture))
    assert json.loads(trace.read_text().splitlines()[0])["about"]["algorithm"] == "ricart-agrawala"
    assert picture.read_text().startswith("<svg")
    assert "ENTERS" in peerlock("diagram", str(trace)).stdout
    peerlock("diagram", str(trace), "--svg", str(tmp_path / "again.svg"))
    assert (tmp_path / "again.svg").read_text() == picture.read_text()
    assert "byte for byte" in peerlock("replay", str(trace)).stdout
    trace.write_text(trace.read_text().replace('"t":0.1', '"t":0.2').replace('"seed":1', '"seed":2'))
    assert "does not replay: line" in peerlock("replay", str(trace), code=2).stderr


def test_compare(tmp_path: Path) -> None:
    plot = tmp_path / "c.svg"
    words = (
        "compare",
        "suzuki-kasami-a",
        "ricart-agrawala",
        "examples/my_lock.py:CentralLock",
        "--entries",
        "3",
        "--seed",
        "1..2",
    )
    result = as_json(*words, "--sizes", "2,4", "--thinks", "0,5", "--plot", str(plot))
    assert [row["algorithm"] for row in result["table"]] == [words[1], words[2], words[3]]
    assert len(result["against_n"]) == len(result["against_load"]) == 6
    assert plot.read_text().startswith("<?xml")
    assert "ricart-agrawala" in peerlock(*words).stdout


def test_play(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text("algorithm ricart-agrawala\nnodes 2\nrequest 1\n")
    assert "1 sends REQUEST(n=1) to 2" in peerlock("play", str(file)).stdout
    assert "+    1 sends REQUEST(n=1) to 2" in peerlock("play", "--check", str(file), code=1).stdout
    peerlock("play", "--write", str(file))
    peerlock("play", "--check", str(file))


def test_bench_sim_runs() -> None:
    result = json.loads(benchmarks("sim", "--runs", "1", "--messages", "2000", "--nodes", "20", "--json").stdout)
    assert set(result["messages_per_second"]) == {"peerlock", "SimPy 4", "heapq", "heapq, inlined"}
    assert len(result["large"]) == 12
    for name, row in result["large"].items():
        assert row["messages"] == row["expected"], name
        assert (row["entries"], row["violations"], row["stuck"]) == (20, 0, 0), name


def test_an_own_algorithm() -> None:
    figures = as_json("sim", "examples/my_lock.py:CentralLock", "-n", "4", "--seed", "1..20", "--inside", "3")
    assert (figures["violations"], figures["stuck"], figures["form"]) == (0, [], "own")
    assert figures["messages_per_entry"]["max"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("sim", "ricart-agrawalla"), "No algorithm is called 'ricart-agrawalla'. Did you mean ricart-agrawala"),
        (("sim", "dijkstra-ring", "-n", "1"), "A network needs at least 2 nodes; got 1."),
        (("sim", "suzuki-kasami-b", "--l", "1"), "needs L >= 2; got L = 1."),
        (("sim", "dijkstra-ring", "--topology", "star"), "needs a ring"),
        (("sim", "ricart-agrawala", "--seed", "x"), "'x' is not a seed: write 7, 1..100 or 1,2,5."),
        (("sim", "ricart-agrawala", "--seed", "9..1"), "is not a seed"),
        (("sim", "ricart-agrawala", "--set", "own_counts"), "write --set NAME=VALUE"),
        (("sim", "ricart-agrawala", "--inside", "x"), "is not a node that is inside"),
        (
            ("sim", "ricart-agrawala", "--seed", "1..2", "--trace", "t.jsonl"),
            "A trace or a diagram is of one run: give one seed.",
        ),
        (
            ("sim", "ricart-agrawala", "--trace", "no/where/t.jsonl"),
            "cannot be written: there is no directory no/where.",
        ),
        (("sim", "ricart-agrawala-implicit", "--delay", "exponential:1"), "needs a delay bound"),
        (("sim", "examples/my_lock.py:Request"), "is not a class derived from peerlock.contract.State"),
        (("sim", "helary-plouzeau-raynal", "--topology", "README.md.gml"), "cannot be read"),
        (("compare", "--plot", "x.pdf"), "the name of this file ends in .png or .svg"),
        (("compare", "--sizes", "many", "--plot", "x.png"), "is not a number of nodes"),
        (("diagram", "README.md"), "README.md is not a trace"),
        (("play", "nowhere.txt"), "cannot be read"),
        (("sim",), "peerlock: Missing argument"),
        (("sim", "ricart-agrawala", "--trace", "."), "is a directory"),
        (("sim", "ricart-agrawala", "--trace", "x.svg", "--diagram", "x.svg"), "need files of their own"),
        (("sim", "ricart-agrawala", "--diagram", "x.png"), "ends in .svg"),
        (("sim", "suzuki-kasami-b", "--l", "2", "--set", "l=3"), "l is set twice"),
        (("sim", "suzuki-kasami-b", "--set", "l=x"), "l must be a whole number; got 'x'"),
        (("sim", "ricart-agrawala", "--seed", "1..99999999999"), "is not a seed"),
        (("sim", ":A"), "Say which class of which file"),
        (("play", "examples/topologies"), "cannot be read"),
        (("compare", "--entries", "x"), "peerlock: Invalid value for '--entries'"),
        (("check", "ricart-agrawala", "--entries", "x"), "is not a number of entries"),
        (("check", "ricart-agrawala", "--entries", "1,2"), "one for each of the 3 nodes"),
        (("check", "ricart-agrawala", "--property", "x"), "There is no property 'x'. There are: mutual exclusion"),
        (("check", "ricart-agrawala", "--inside", "9"), "There is no node 9"),
        (("sim", "ricart-agrawala", "--entries", "many"), "Input should be a valid integer"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_2(words: tuple[str, ...], sentence: str) -> None:
    done = peerlock(*words, code=2)
    assert sentence in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_class_that_lacks_a_method(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from peerlock.contract import *\nclass MyLock(State):\n    me: NodeId\n")
    assert "has no method start(me, shape, inside)" in peerlock("sim", f"{file}:MyLock", code=2).stderr


def test_notes_about_a_file_go_to_stderr() -> None:
    done = peerlock(
        "sim",
        "helary-plouzeau-raynal",
        "--topology",
        "examples/topologies/Kdl.gml",
        "--load",
        "nodes:3",
        "--entries",
        "1",
        "--json",
    )
    assert "lists 4 edges more than once without saying that it is a multigraph" in done.stderr
    assert json.loads(done.stdout)["nodes"] == 754


def test_a_failed_run_leaves_the_old_file_alone(tmp_path: Path) -> None:
    trace, own = tmp_path / "t.jsonl", tmp_path / "mine.py"
    peerlock("sim", "ricart-agrawala", "--trace", str(trace))
    before = trace.read_bytes()
    own.write_text(
        (ROOT / "examples" / "my_lock.py")
        .read_text()
        .replace("self.holder = 0\n        self.serve", "1 / 0\n        self.serve")
    )
    assert "ZeroDivisionError" in peerlock("sim", f"{own}:CentralLock", "--trace", str(trace), code=2).stderr
    assert trace.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != "") == ["mine.py", "t.jsonl"]


def test_what_an_own_class_prints_is_not_in_the_answer(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        (ROOT / "examples" / "my_lock.py")
        .read_text()
        .replace("out.send(self.coordinator, Request())", "print('x'); out.send(self.coordinator, Request())")
        + "\nprint('y')\n"
    )
    assert as_json("sim", f"{own}:CentralLock")["violations"] == 0


def test_a_run_without_end_is_cut_off(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    text = (ROOT / "examples" / "my_lock.py").read_text()
    never = "            out.send(source, Release())\n            out.send(source, Request())\n            return"
    own.write_text(text.replace("            out.enter()\n            return", never))
    assert "still busy after" in peerlock("sim", f"{own}:CentralLock", "-n", "2", code=3).stderr


def test_version() -> None:
    assert peerlock("--version").stdout.startswith("peerlock 0.")


def test_help() -> None:
    for command in ("sim", "check", "compare", "diagram", "replay", "play", "algorithms", "bench"):
        assert command in peerlock("--help").stdout
        assert "Usage" in peerlock(command, "--help").stdout


def test_check_json() -> None:
    result = as_json("check", "ricart-agrawala", "-n", "3", "--entries", "2")
    assert set(result) >= {
        "algorithm", "form", "nodes", "entries", "network", "verdict", "properties", "property", "states", "transitions",
        "depth", "seconds", "peak_mb", "trace",
    }  # fmt: skip
    assert (result["verdict"], result["states"], result["transitions"]) == ("holds", 39_933, 134_067)
    assert set(result["properties"].values()) == {"holds"}


def test_check_finds_and_tells(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("c.txt", "c.svg", "c.json", "c.log")]
    forms = ("--transcript", "--diagram", "--itf", "--shiviz")
    options = [word for form, file in zip(forms, files, strict=True) for word in (form, str(file))]
    done = peerlock("check", "suzuki-kasami-b", "-n", "2", "--entries", "4", "--as-printed", *options, code=1)
    assert "deadlock found, in 18 steps" in done.stdout
    assert all(file.stat().st_size > 500 for file in files)
    peerlock("play", "--check", str(files[0]))


def test_check_unfinished() -> None:
    assert "unfinished" in peerlock("check", "ricart-agrawala", "--entries", "2", "--max-states", "100", code=3).stdout


def test_check_interrupted_tells_what_is_known() -> None:
    words = [sys.executable, "-m", "peerlock", "check", "ricart-agrawala", "-n", "4", "--entries", "2", "--json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # who runs tests in the background ignores it
    ) as running:  # fmt: skip
        time.sleep(4)  # long enough to have begun, and far from its end
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (3, "peerlock: interrupted; this is what is known so far.\n")
    result = json.loads(out)
    assert result["verdict"] == "unfinished"
    assert result["states"] > 0


def test_check_reduced() -> None:
    whole, reduced = (
        as_json("check", "ricart-agrawala", "--entries", "2", option) for option in ("--no-reduce", "--reduce")
    )
    assert (whole["states"], whole["reduction"]) == (39_933, None)
    assert (reduced["states"], reduced["reduction"]) == (26_053, "partial order")
    assert reduced["properties"] == whole["properties"]
    ring = as_json("check", "dijkstra-ring", "--entries", "2", "--reduce")
    assert ring["reduction"] == "symmetry (all permutations)"


def test_check_a_cut() -> None:
    done = peerlock("check", "suzuki-kasami-a", "-n", "2", "--entries", "3", "--set", "cut=test_q", code=1)
    assert "deadlock found, in 11 steps" in done.stdout
    assert "timeout 1 user" in done.stdout


def test_check_a_property_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def nobody_inside(state):\n    return not state.inside\n")
    done = peerlock("check", "ricart-agrawala", "-n", "2", "--property", f"{file}:nobody_inside", code=1)
    assert "nobody_inside is violated, in 3 steps" in done.stdout


def test_a_violated_property_is_told_as_what_was_found() -> None:
    """`no deadlock` is the name of a property, and no news."""
    done = peerlock("check", "ricart-agrawala", "-n", "2", "--crashes", "1", code=1)
    assert "ricart-agrawala, 2 nodes: deadlock found, in" in done.stdout
    names = ("mutual exclusion", "no starvation", "sometimes one waits", "mine")
    assert [finding(name) for name in names] == [
        "two nodes are inside together", "a node can wait for ever", "never found: one waits", "mine is violated",
    ]  # fmt: skip


def test_a_rule_taken_away_shows_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = next(one for one in MUTANTS if one.rule == "a release while wedged waits for the start")
    check_protocols._verdict(
        [{**check_protocols._explored(mutant.rule, explore, mutant.group), "mutant": True}], json=False
    )
    assert "│ deadlock found │" in capsys.readouterr().out


def test_bench_check_runs() -> None:
    result = json.loads(benchmarks("check", "--runs", "1", "-n", "3", "--entries", "2", "--json").stdout)
    assert result["same_states"]
    assert result["peerlock"]["states"] == 39_933


def test_check_figures() -> None:
    result = as_json("check", "carvalho-roucairol", "--entries", "2", "--costs", "--passed-over", "3")
    assert (result["messages_per_entry"], result["passed_over"]) == ([0, 2, 4], 2)
    assert result["properties"]["messages an entry"] == "holds"
    assert "at most 1 times" in peerlock("check", "carvalho-roucairol", "-n", "2", "--passed-over", "2").stdout


def test_check_starvation(tmp_path: Path) -> None:
    assert as_json("check", "dijkstra-ring", "-n", "4", "--entries", "any")["properties"]["no starvation"] == "holds"
    own = tmp_path / "lifo.py"
    text = (ROOT / "examples" / "my_lock.py").read_text()
    own.write_text(text.replace("self.queue[0], self.queue[1:]", "self.queue[-1], self.queue[:-1]"))
    done = peerlock("check", f"{own}:CentralLock", "--entries", "any", "--json", code=1)
    result = json.loads(done.stdout)
    assert (result["property"], result["loop_from"]) == ("no starvation", 3)
    assert "repeat for ever" in peerlock("check", f"{own}:CentralLock", "--entries", "any", code=1).stdout
