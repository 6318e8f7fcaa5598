"""Prints the tools of the dependency group `test` in pyproject.toml, for pips that do not know groups."""

import tomllib
from pathlib import Path

print(*tomllib.loads(Path("pyproject.toml").read_text())["dependency-groups"]["test"])
