"""The commands together, and what all of them share."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer
from rich.console import Console
from typer.models import CommandInfo, TyperInfo

from peerlock.errors import PeerlockError, Unfinished, UsageError

app = typer.Typer(
    name="peerlock",
    help="A distributed lock without a server. Also runs, draws, compares and checks the algorithms of its papers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AsJsonList = Annotated[bool, typer.Option("--json", help="Print a JSON list.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"peerlock {version('peerlock')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_version)
    ] = False,
) -> None:
    pass


# The modules of the commands, as `peerlock --help` groups them.
PANELS = {
    "The lock": ("run", "node", "status", "voters", "kick", "trace", "certs"),
    "The papers": (
        "algorithms", "sim", "compare", "diagram", "replay", "play", "check", "verdicts", "claims", "lab",
    ),
    "Development of peerlock": ("sim_nodes", "check_protocols", "verify", "bench"),
}  # fmt: skip


def run() -> int:
    """Run the command that was asked for and give its exit code."""
    if sys.argv[1:2] == ["run"]:
        importlib.import_module("peerlock.cli.run")  # often run, and briefly: nothing else is loaded
        return answered(app)
    for panel, modules in PANELS.items():
        for module in modules:
            importlib.import_module(f"peerlock.cli.{module}")
        commands: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
        for command in commands:
            if not isinstance(command.rich_help_panel, str):
                command.rich_help_panel = panel
    return answered(app)


def answered(commands: typer.Typer) -> int:
    """The exit code: 2 and one sentence for every mistake that a user can correct."""
    try:
        code = commands(standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Unfinished as problem:
        print(f"peerlock: {problem}", file=sys.stderr)
        return 3
    except PeerlockError as problem:
        print(f"peerlock: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("peerlock: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:
        print(f"peerlock: {problem.filename or 'a file'}: {problem.strerror}.", file=sys.stderr)
        return 2
    except Exception as problem:
        # An error of the parser: its classes have only this method in common.
        words = getattr(problem, "format_message", None)
        if words is None:
            raise
        context = getattr(problem, "ctx", None)
        hint = f" Try: {context.command_path} --help" if context is not None else ""
        text = words()
        print(f"peerlock: {text}{'' if text.endswith(('.', '?')) else '.'}{hint}", file=sys.stderr)
        return 2


def print_json(value: Mapping[str, object] | Sequence[object] | msgspec.Struct) -> None:
    """One JSON value, and nothing else, on stdout."""
    print(json.dumps(value, indent=2, default=msgspec.to_builtins))


def console() -> Console:
    """For tables: as wide as the terminal, or 160 columns in a pipe."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def numbers(text: str, what: str) -> list[int]:
    """`5`, `1..100` or `2,3,5`."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            if first > last or last - first >= 10**7:
                raise ValueError
            return list(range(first, last + 1))
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{text!r} is not a {what}: write 7, 1..100 or 1,2,5.") from None


def options(texts: Iterable[str], l: int | None = None) -> dict[str, Any]:
    """`--set NAME=VALUE`, any number of times, and `--l`."""
    from peerlock.sim.transcript import value_of

    result: dict[str, Any] = {} if l is None else {"l": l}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r}: write --set NAME=VALUE.")
        if (name := name.replace("-", "_")) in result:
            raise UsageError(f"{name} is set twice.")
        result[name] = value_of(value)
    return result


def check_output(path: Path | None, *endings: str) -> None:
    """Refuse a file that cannot be written before the work begins."""
    if path is None:
        return
    if endings and path.suffix.lower() not in endings:
        raise UsageError(f"{path}: the name of this file ends in {' or '.join(endings)}.")
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give the name of a file.")
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: there is no directory {folder}.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"{path} cannot be written: permission denied.")


@contextmanager
def output(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears, or replaces the old one, only when it is complete."""
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:  # a device or a pipe
            yield stream
        return
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save(path: Path, text: str) -> None:
    with output(path) as stream:
        stream.write(text.encode())


def short(value: float | None, digits: int = 2) -> str:
    """A figure for a table."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:g}" if value == int(value) and abs(value) < 1e15 else f"{value:.{digits}f}"
