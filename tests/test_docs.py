"""What the documentation shows, runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = [
    (page, line[2:]) for page in PAGES for line in page.read_text().splitlines() if line.startswith("$ peerlock")
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if "$ peerlock" in page.read_text()], ids=name)
def test_commands(page: Path, tmp_path: Path) -> None:
    """In the order of the page, in one directory, since a command may read what an earlier one wrote."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for where, line in COMMANDS:
        if where == page:
            words = shlex.split(line.split("#")[0])[1:]
            done = subprocess.run(
                [sys.executable, "-m", "peerlock", *words], cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 25


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name)
def test_python(page: Path) -> None:
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_demo_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "compare.png").stat().st_size > 10_000
