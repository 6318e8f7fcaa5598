"""The house rules that a program can check: words, sizes, widths."""

from __future__ import annotations

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
