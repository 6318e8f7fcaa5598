"""A user's own algorithm: `./mine.py:MyLock` works wherever a name of the catalogue does.

The file is run, as any Python file that is imported; its class is looked at before anything uses it, so that a mistake is
a sentence about a method and not a traceback from the middle of a run.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from peerlock.algorithms import Chosen, check_options, choose
from peerlock.contract import Members, Needs, Neighbours, Ring, State
from peerlock.errors import ContractError, UsageError

# Each method of the contract with the arguments that drivers pass.
_METHODS = {
    "start": ("me", "shape", "inside"),
    "request": ("mode", "out"),
    "release": ("out",),
    "receive": ("source", "message", "out"),
    "on_timeout": ("name", "out"),
    "key": (),
}


def find(name: str, *, as_printed: bool = False, **options: Any) -> Chosen:
    """An algorithm by its name in the catalogue, or a class by file and name."""
    path, colon, class_name = name.rpartition(":")
    if not colon and not name.endswith(".py"):
        return choose(name, as_printed=as_printed, **options)
    if not colon or not class_name or not path:
        raise UsageError(f"Say which class of which file, like ./mine.py:MyLock; got {name!r}.")
    if as_printed:
        raise UsageError(f"{name} is your own class and has no form as printed: leave that out.")
    return wrap(load(path, class_name), name, **options)


def load(path: str, class_name: str) -> Any:
    """The class of that name in the file at `path`."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(f"peerlock_own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    try:
        # What the file prints is not part of any answer.
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise ContractError(f"{path} cannot be imported: {type(problem).__name__}: {problem}.") from problem
    if not hasattr(module, class_name):
        classes = [key for key, value in vars(module).items() if inspect.isclass(value) and issubclass(value, State)]
        mine = [key for key in classes if getattr(module, key).__module__ == module.__name__]
        raise UsageError(f"{path} has no {class_name}. It has: {', '.join(mine) or 'no class derived from State'}.")
    return getattr(module, class_name)


def wrap(algorithm: Any, name: str | None = None, **options: Any) -> Chosen:
    """A class as an algorithm, or a sentence about what it lacks."""
    name = str(name or getattr(algorithm, "__name__", repr(algorithm)))
    if not inspect.isclass(algorithm) or not issubclass(algorithm, State):
        raise ContractError(f"{name} is not a class derived from peerlock.State; see docs/guide/your-own-algorithm.md.")
    for method, arguments in _METHODS.items():
        function = getattr(algorithm, method, None)
        wanted = f"{method}({', '.join(arguments)})"
        if not callable(function):
            raise ContractError(f"{name} has no method {wanted}.")
        if method == "start" and not inspect.ismethod(function):
            raise ContractError(f"{name}.start must be a classmethod: it makes the node.")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ContractError(f"{name}.{method} must be a plain function that runs to its end: no async, no yield.")
        given = arguments if method == "start" else ("self", *arguments)
        try:
            inspect.signature(function).bind(*given)
        except TypeError:
            signature = inspect.signature(function)
            raise ContractError(f"{name}.{method}{signature} cannot be called as {wanted}.") from None
    if not isinstance(algorithm.needs, Needs):
        raise ContractError(f"{name}.needs must be a peerlock.Needs: on which networks does the algorithm run?")
    made: Any = algorithm
    known = inspect.signature(made.start).parameters
    for option in options:
        if option not in known:
            raise ContractError(f"{name}.start takes no option {option!r}.")
    if algorithm.needs.shape not in (Members, Ring, Neighbours):
        raise ContractError(f"{name}.needs.shape must be Members, Ring or Neighbours; got {algorithm.needs.shape!r}.")
    return Chosen(name, "own", made, check_options(name, made, options))
