"""Broken figures: does the checker notice?

A mechanical mutant is an algorithm with one line changed: a guard negated, an assignment to a
variable of the node dropped, or an effect (`out.send`, `out.idle`, ...) dropped. A hand-made one is
a line replaced by another. Each is explored over a few small configurations until something catches
it: a property, an exception, more messages an entry than the paper claims, a node that is passed
over more often than in the sound algorithm, or three times its states and no end. What nothing
catches survives, and a survivor needs a reason.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from peerlock.algorithms import AlgorithmSpec, Size, choose
from peerlock.check.run import STARVATION, Configuration, run
from peerlock.contract import NOBODY, Inside, NodeId, Shape
from peerlock.errors import UsageError

Change: TypeAlias = Callable[[ast.AST, ast.AST], None]  # of a node of the tree, in a method
UNCHANGED = ("start", "charged", "asked", "successor", "rewire", "join", "leave")  # methods


class Mutant(Struct, frozen=True):
    what: str  # drops `self.q = ...` in release
    spec: AlgorithmSpec


class Setting(Struct, frozen=True):
    """A small configuration."""

    shapes: Mapping[NodeId, Shape]
    entries: tuple[int, ...]
    size: Size
    inside: Inside = NOBODY
    fifo: bool = False
    delay_bound: int | None = None
    crashes: int = 0
    leavers: tuple[NodeId, ...] = ()
    liveness: bool = False  # look for starvation under fair delivery as well


# -- making mutants --------------------------------------------------------------------------------


def mechanical(name: str) -> Iterator[Mutant]:
    """Every mechanical mutant of an algorithm of the catalogue, in the form that users get."""
    spec = choose(name)
    tree = ast.parse(inspect.getsource(sys.modules[spec.algorithm.__module__]))
    for at, (what, change) in enumerate(_places(tree)):
        mutated = copy.deepcopy(tree)
        change(mutated)
        yield Mutant(what, _compiled(spec, ast.unparse(ast.fix_missing_locations(mutated)), f"mechanical_{at}"))


def by_hand(name: str, old: str, new: str, as_printed: bool = False) -> Mutant:
    """An algorithm with one piece of its text replaced."""
    spec = choose(name, as_printed=as_printed)
    source = inspect.getsource(sys.modules[spec.algorithm.__module__])
    if source.count(old) != 1:
        raise UsageError(f"{name}: {old!r} is there {source.count(old)} times, not once.")
    return Mutant(f"{old.strip()} -> {new.strip()}", _compiled(spec, source.replace(old, new), "by_hand"))


def _compiled(spec: AlgorithmSpec, source: str, suffix: str) -> AlgorithmSpec:
    original = sys.modules[spec.algorithm.__module__]
    module = types.ModuleType(f"{original.__name__}_{suffix}")
    module.__dict__["__package__"] = original.__package__
    sys.modules[module.__name__] = module  # the message classes look their annotations up there
    try:
        exec(compile(source, module.__name__, "exec"), module.__dict__)
        return replace(spec, algorithm=getattr(module, spec.algorithm.__name__))
    finally:
        del sys.modules[module.__name__]


def _places(tree: ast.Module) -> Iterator[tuple[str, Callable[[ast.Module], None]]]:
    """Where something can be changed, and how."""
    for class_at, node in enumerate(tree.body):
        if not isinstance(node, ast.ClassDef):
            continue
        for method_at, method in enumerate(node.body):
            if isinstance(method, ast.FunctionDef) and method.name not in UNCHANGED:
                for at, found in enumerate(ast.walk(method)):
                    change = _change_of(found)
                    if change is not None:
                        words, act = change
                        yield f"{node.name}.{method.name}: {words}", _at(class_at, method_at, at, act)


def _at(class_at: int, method_at: int, at: int, act: Change) -> Callable[[ast.Module], None]:
    def change(tree: ast.Module) -> None:
        kind = tree.body[class_at]
        assert isinstance(kind, ast.ClassDef)
        method = kind.body[method_at]
        act(list(ast.walk(method))[at], method)

    return change


def _change_of(node: ast.AST) -> tuple[str, Change] | None:
    if isinstance(node, ast.If | ast.IfExp):
        return f"not ({ast.unparse(node.test)})", _negate
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(part, ast.Attribute) for target in targets for part in ast.walk(target)):
            return f"drops {ast.unparse(node)}", _drop
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).startswith("out.")
    ):
        return f"drops {ast.unparse(node)}", _drop
    return None


def _negate(node: ast.AST, method: ast.AST) -> None:
    assert isinstance(node, ast.If | ast.IfExp)
    node.test = ast.UnaryOp(ast.Not(), node.test)


def _drop(node: ast.AST, method: ast.AST) -> None:
    for parent in ast.walk(method):
        for field in ("body", "orelse"):
            statements = getattr(parent, field, None)
            if isinstance(statements, list) and node in statements:
                statements[statements.index(node)] = ast.Pass()


# -- catching them -----------------------------------------------------------------------------------


class Look(Struct, frozen=True):
    """What exploring one configuration has shown."""

    problem: str | None
    passed_over: int = 0  # how often the last node that asks
    states: int = 0


def caught(spec: AlgorithmSpec, settings: Sequence[Setting], sound: Sequence[Look]) -> str | None:
    """What catches an algorithm in these settings; `sound` is how they look if all is well."""
    for setting, usual in zip(settings, sound, strict=True):
        found = look(spec, setting, 3 * usual.states + 1000, usual.passed_over)
        if found.problem is not None:
            return found.problem
    return None


def look(spec: AlgorithmSpec, setting: Setting, max_states: int, passed_over: int | None = None) -> Look:
    """Explore one configuration."""
    last = max(at for at, left in enumerate(setting.entries) if left) + 1
    configuration = Configuration(
        spec, setting.shapes, setting.entries, setting.inside, setting.fifo, setting.crashes, setting.delay_bound,
        setting.leavers, costs=True, size=setting.size, passed_over=last, max_states=max_states,
    )  # fmt: skip
    try:
        found = run(configuration)
    except Exception as problem:
        return Look(type(problem).__name__)
    wrong = [name for name, verdict in found.verdicts.items() if verdict == "violated"]
    if passed_over is not None and found.passed_over > passed_over:
        wrong.append("passed over more often")
    if not found.outcome.finished:
        wrong.append("states without end")
    if setting.liveness and not wrong:
        found.look_for_starvation()
        wrong += ["starvation"] if found.verdicts[STARVATION] == "violated" else []
    return Look(wrong[0] if wrong else None, found.passed_over, found.outcome.states)
