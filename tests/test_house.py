"""The house rules that a program can check: words, sizes, widths."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = sorted((ROOT / "src").rglob("*.py"))
TEXTS = [
    *PYTHON,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "scripts").glob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
]

# Words that this project once had for things that have a name in its field: docs/GLOSSARY.md has the names.
BANNED = (
    "desks?|seats?|tenants?|lodgers?|households?|residences?|offices?|clerks?|booths?|bureaus?|vouch(?:es|ed|ing)?|rulings?|"
    "salutes?|knock(?:s|ed|ing)?|heirs?|crew|torment|diallers?|dead letters"
)


def words(text: str) -> list[str]:
    """Identifiers are looked at word by word: `on_vouch`, `LeavesTheOffice`."""
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_words_of_the_field(path: Path) -> None:
    if path == Path(__file__):
        return
    banned = re.compile(BANNED, re.IGNORECASE)
    found = [
        f"{number}: {line.strip()}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(banned.fullmatch(word) for word in words(line))
    ]
    assert found == [], "docs/GLOSSARY.md has the word to use"


LINES, FUNCTION, METHODS = 450, 60, 35


def test_sizes() -> None:
    sizes: list[tuple[str, int, int]] = []
    for path in PYTHON:
        text = path.read_text()
        sizes.append((str(path.relative_to(ROOT / "src" / "peerlock")), text.count("\n"), LINES))
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    sizes.append((node.name, (node.end_lineno or 0) - node.lineno + 1, FUNCTION))
                case ast.ClassDef():
                    methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
                    sizes.append((node.name, methods, METHODS))
                case _:
                    pass
    too_large = [f"{name}: {size}" for name, size, most in sizes if size > most]
    assert too_large == [], "more than one thing may be in there"


def test_every_file_begins_with_a_sentence() -> None:
    for path in PYTHON:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        assert first or path.name == "__init__.py", path


def test_the_architecture_names_what_is_there() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    named = re.findall(r"((?:`[A-Za-z_.]+`(?:, | and |\s)*)+)\s*\(\[[^]]+\]\(\.\./([^)]+\.py)\)", text)
    assert len(named) > 20
    missing = [
        (name, path)
        for names, path in named
        for name in re.findall(r"`([^`]+)`", names)
        if name not in defined_in(ROOT / path)
    ]
    assert missing == []


def defined_in(path: Path) -> set[str]:
    """Classes, functions and constants of a module, and `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            methods = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {name for each in methods for name in (each.name, f"{node.name}.{each.name}")}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found |= {name.id for name in names}
    return found
