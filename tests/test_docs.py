"""What the documentation shows, runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from peerlock.check.protocols import all as registries
from peerlock.check.protocols import view_mutants
from terminal import terminal

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    (page, line[2:]) for page in PAGES for line in page.read_text().splitlines() if line.startswith("$ peerlock")
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def in_a_pipe(words: list[str], directory: Path) -> tuple[int, str]:
    done = subprocess.run(
        words, cwd=directory, capture_output=True, text=True, check=False, env={**os.environ, "PEERLOCK_DIR": str(directory)}
    )  # fmt: skip
    return done.returncode, done.stderr


def at_a_terminal(words: list[str], directory: Path) -> tuple[int, str]:
    with terminal(*words, cwd=directory, env={"PEERLOCK_DIR": str(directory)}) as shown:
        return shown.wait(240), shown.shown


@pytest.mark.parametrize("way", [in_a_pipe, at_a_terminal])
@pytest.mark.parametrize("page", [page for page in PAGES if "$ peerlock" in page.read_text()], ids=name)
def test_commands(page: Path, way: Callable[[list[str], Path], tuple[int, str]], tmp_path: Path) -> None:
    """In the order of the page, in one directory, since a command may read what an earlier one wrote."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for where, line in COMMANDS:
        if where == page:
            words = shlex.split(line.split("#")[0])[1:]
            code, shown = way([sys.executable, "-m", "peerlock", *words], tmp_path)
            assert code == 0, f"{line}\n{shown}"


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 25


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name)
def test_python(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLOCK_DIR", str(tmp_path))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)  # what an example writes does not belong to the project
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_papers_side_by_side(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "papers.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "compare.png").stat().st_size > 10_000


@pytest.mark.parametrize("algorithm", ["suzuki-kasami-a", "dijkstra-ring"])
def test_the_demo_runs(algorithm: str) -> None:
    env = {**os.environ, "ALGORITHM": algorithm, "DEMO_SECONDS": "3"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost updates 0   overlaps 0" in done.stdout
    assert "killed while holding 1" in done.stdout


def test_the_demo_says_no_to_what_is_not_allowed() -> None:
    env = {**os.environ, "ALGORITHM": "ricart-agrawala-implicit"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 2
    assert "silence for permission" in done.stderr


def test_every_rule_of_the_argument_is_one_that_is_taken_away() -> None:
    """What stands in italics after the name of a command, and each rule of a view change stands there."""
    text = (ROOT / "docs" / "guide" / "guarantees.md").read_text()
    argument = re.sub(r"\s+", " ", text[text.index("## The argument") : text.index("## Guards")])
    named = set[str]()
    for sentence in re.findall(r"`peerlock check-(?:views|registries)`[^.]*", argument):
        named |= set(re.findall(r"\*([^*]+)\*", sentence))
    named = {name for name in named if name not in (", ", " or ")}
    views = {mutant.rule for mutant in view_mutants.MUTANTS}
    others = {explored.name for explored in (*registries.MUTANTS, *registries.CLEAN)}
    assert len(named) > 15
    assert not {name for name in named - views if not any(other.startswith(name) for other in others)}
    assert not views - named


def test_every_promise_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "guide" / "promises.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 40
    for path, test in named:
        source = (ROOT / path).read_text()
        assert not test or f"def {test}(" in source, f"{path}::{test}"
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "|---"))]
    assert all("`tests/" in row or "`peerlock " in row for row in rows)
