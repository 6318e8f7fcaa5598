"""A user's own algorithm: `./mine.py:MyLock` works wherever a name of the catalogue does.

The file is run, as any Python file that is imported. Its class is looked at before anything uses
it, so a mistake is a sentence about a method and not a traceback from the middle of a run.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from copy import copy
from importlib.machinery import SourceFileLoader
from operator import is_
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from peerlock.algorithms import AlgorithmSpec, check_options, choose
from peerlock.contract import Algorithm, Members, Needs, Neighbours, Ring, State, Wire
from peerlock.errors import ContractError, UsageError

T = TypeVar("T")
Option: TypeAlias = bool | int | float | str | tuple[int, ...]  # of an algorithm

# Each method of the contract with the arguments that drivers pass.
_METHODS = {
    "start": ("me", "shape", "inside"),
    "request": ("mode", "out"),
    "release": ("out",),
    "receive": ("source", "message", "out"),
    "on_timeout": ("name", "out"),
    "key": (),
}


def find(name: str, *, as_printed: bool = False, **options: Option) -> AlgorithmSpec:
    """An algorithm by its name in the catalogue, or a class by file and name."""
    path, colon, class_name = name.rpartition(":")
    if file_of(name) is None:
        return choose(name, as_printed=as_printed, **options)
    if not colon or not class_name or not path:
        raise UsageError(f"Say which class of which file, like ./mine.py:MyLock; got {name!r}.")
    if as_printed:
        raise UsageError(f"{name} is your own class and has no form as printed: leave that out.")
    return wrap(load(path, class_name), name, **options)


def file_of(name: str) -> str | None:
    """The file of a user's own algorithm; None: the name is one of the catalogue."""
    path, colon, _ = name.rpartition(":")
    return path if colon else name if name.endswith(".py") else None


def source(path: str) -> Path:
    """The Python text at `path`. Nothing else that Python could load is accepted."""
    if not path.endswith(".py"):
        raise UsageError(f"{path!r} is not a Python file: give one whose name ends in .py.")
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"There is no file {path}.")
    return file


class _Text(SourceFileLoader):
    """Runs the text as it is: a compiled file beside it may be old, or belong to another file."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def load(path: str, class_name: str) -> Any:
    """The class of that name in the file at `path`."""
    file = source(path)
    name = f"peerlock_own_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_Text(name, str(file)))
    assert spec is not None and spec.loader is not None
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


def wrap(algorithm: object, name: str | None = None, **options: Option) -> AlgorithmSpec:
    """A class as an algorithm, or a sentence about what it lacks."""
    name = str(name or getattr(algorithm, "__name__", repr(algorithm)))
    if not inspect.isclass(algorithm) or not issubclass(algorithm, State):
        raise ContractError(
            f"{name} is not a class derived from peerlock.contract.State; see docs/guide/your-own-algorithm.md."
        )
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
        raise ContractError(
            f"{name}.needs must be a peerlock.contract.Needs: on which networks does the algorithm run?"
        )
    made = cast("type[Algorithm[Wire]]", algorithm)
    known = inspect.signature(made.start).parameters
    for option in options:
        if option not in known:
            raise ContractError(f"{name}.start takes no option {option!r}.")
    if algorithm.needs.shape not in (Members, Ring, Neighbours):
        raise ContractError(f"{name}.needs.shape must be Members, Ring or Neighbours; got {algorithm.needs.shape!r}.")
    return AlgorithmSpec(name, "own", made, check_options(name, made, options))


# -- while it runs ---------------------------------------------------------------------------------


def check_state(chosen: AlgorithmSpec, algorithm: object) -> None:
    """A state is a value: every field can be hashed."""
    if not isinstance(algorithm, chosen.algorithm):
        raise ContractError(f"{chosen.name}.start returned {algorithm!r}; it must return the node that it made.")
    if chosen.form == "own" and isinstance(algorithm, Struct):
        for name, value in asdict(algorithm).items():
            if kind := _unhashable(value):
                raise ContractError(f"{chosen.name}.{name} holds a {kind}, {_USE}.")


def check_message(chosen: AlgorithmSpec, message: Wire) -> None:
    """A message is a value, too."""
    if chosen.form == "own" and isinstance(message, Struct):
        for name, value in asdict(message).items():
            if kind := _unhashable(value):
                raise ContractError(f"{chosen.name} sent {message.kind}, whose {name} holds a {kind}, {_USE}.")


_USE = "which can change; use a tuple, a frozenset, or a Book"


def _unhashable(value: object) -> str | None:
    """The type of the part of a value that cannot be hashed; None: all of it can."""
    try:
        hash(value)
        return None
    except TypeError:
        inner = value if isinstance(value, tuple) else astuple(value) if isinstance(value, Struct) else ()
        return next(filter(None, map(_unhashable, inner)), type(value).__name__)


class _Reversed(frozenset[T]):
    """An equal set whose members come in another order."""

    def __iter__(self) -> Iterator[T]:
        yield from reversed(list(super().__iter__()))


def twin(value: T) -> T:
    """An equal value that is another object where it can be, with its sets in another order."""
    if isinstance(value, Struct):
        made = copy(value)
        changed = {name: new for name, old in asdict(made).items() if (new := twin(old)) is not old}
        return replace(made, **changed) if changed else made
    if isinstance(value, tuple) and type(value) is tuple:
        items = tuple(twin(item) for item in value)
        return value if all(map(is_, items, value)) else cast("T", items)
    if isinstance(value, frozenset) and type(value) is frozenset and len(value) > 1:
        return cast("T", _Reversed(value))
    return value


def has_order(value: object) -> bool:
    """Is there a set in it that has more than one order?"""
    inner = astuple(value) if isinstance(value, Struct) else value if isinstance(value, tuple) else ()
    return (isinstance(value, frozenset) and len(value) > 1) or any(map(has_order, inner))
