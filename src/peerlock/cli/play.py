"""`peerlock play`: carry out a transcript, step by step."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated

import typer

from peerlock.cli.app import app, save
from peerlock.errors import ScriptError
from peerlock.sim.transcript import play as play_text


@app.command()
def play(
    transcript: Annotated[Path, typer.Argument(metavar="TRANSCRIPT", help="A text file of steps.")],
    write: Annotated[bool, typer.Option("--write", help="Write the outcome of each step into the file.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if an outcome differs from the file.")] = False,
) -> None:
    """Carry out the steps of a transcript and print the outcome of each."""
    try:
        text = transcript.read_text(encoding="utf-8")
    except OSError as problem:
        raise ScriptError(f"{transcript} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise ScriptError(f"{transcript} is not a text file.") from None
    happened = play_text(text)
    if write:
        save(transcript, happened)
    elif not check:
        print(happened, end="")
    elif happened != text:
        lines = difflib.unified_diff(text.splitlines(), happened.splitlines(), "written", "happened", lineterm="")
        print("\n".join(lines))
        sys.exit(1)
