"""Arguments of wrong types and values, at every public call, on a free and on a busy lock.

Each is a `UsageError` that names the argument, and costs nothing: no ticket is left behind, and the lock can be taken
afterwards by this node and by a node of another process. There is one group: an asyncio node, a node for threads, and a
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import select
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from numpy import float32, float64

import peerlock
import peerlock.sync
from peerlock.errors import LockTimeout, UsageError, shown
from peerlock.guards import GuardedFile
from peerlock.prometheus import serve
from ports import free_port
from processes import Member, members

NUMBERS = itertools.count()
PATIENCE_S = 20.0


class Strange:
    """No value at all."""


class Mute:
    """It cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


STRANGE: tuple[Any, ...] = (b"5", [], {}, Strange(), Mute(), 1j)
HUGE = 10**5000  # more digits than Python shows
NO_SECONDS: tuple[Any, ...] = ("5", "", True, nan, *STRANGE)
# Whether these are a time or a mistake is for the call to say. In either case nothing is lost.
ODD_SECONDS: tuple[Any, ...] = (-1, -0.5, HUGE, -HUGE, Decimal("0.01"), Fraction(1, 100), float64(0.01), float32(0.01))
NO_NAMES: tuple[Any, ...] = (None, 5, True, "", "a b", "a/b", "a\n", "ä", "x" * 65, ("x",), *STRANGE)


def name_of(value: Any) -> str:
    return type(value).__name__ if isinstance(value, Strange | Mute) else f"{type(value).__name__} {shown(value):.20}"


# -- the two kinds of nodes ----------------------------------------------------------------------------------


class Threads:
    """A node, and how to call it."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def do(self, what: Callable[[Any], Any]) -> Any:
        return what(self.node)

    def enter(self, what: Callable[[Any], Any]) -> None:
        with what(self.node):
            pass


class Asyncio(Threads):
    """Its loop runs in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, node: Any) -> None:
        super().__init__(node)
        self.loop = loop

    def in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def do(self, what: Callable[[Any], Any]) -> Any:
        async def call() -> Any:
            found = what(self.node)
            return await found if inspect.isawaitable(found) else found

        return self.in_loop(call())

    def enter(self, what: Callable[[Any], Any]) -> None:
        async def call() -> None:
            async with what(self.node):
                pass

        self.in_loop(call())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("group")


@pytest.fixture(scope="module")
def other(directory: Path) -> Iterator[Member]:
    """A node of another process."""
    with members(directory, "other") as (made,):
        yield made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    try:
        yield made
    finally:
        made.call_soon_threadsafe(made.stop)
        thread.join()
        made.run_until_complete(made.shutdown_default_executor())
        made.close()


@pytest.fixture(scope="module")
def kinds(directory: Path, other: Member, loop: asyncio.AbstractEventLoop) -> Iterator[dict[str, Threads]]:
    async def join() -> Any:
        return await peerlock.join("g", dir=directory, name="aio")

    with peerlock.sync.join("g", dir=directory, name="threads") as node:
        made = Asyncio(loop, asyncio.run_coroutine_threadsafe(join(), loop).result(PATIENCE_S))
        try:
            yield {"threads": Threads(node), "asyncio": made}
        finally:
            made.do(lambda node: node.leave())


@pytest.fixture(params=["asyncio", "threads"])
def kind(request: pytest.FixtureRequest, kinds: dict[str, Threads]) -> Threads:
    return kinds[request.param]


@contextlib.contextmanager
def locked(kind: Threads, other: Member, busy: bool, free_after_s: float = 2.0) -> Iterator[str]:
    """A lock of its own for each test; if it is busy, the other process has it for a while. Afterwards nothing is lost."""
    name = f"x{next(NUMBERS)}"
    held = threading.Lock()

    def free() -> None:
        if held.acquire(blocking=False):
            asked(other, "release", name)

    freed = threading.Timer(free_after_s, free)  # a call that waits must not wait for ever
    if busy:
        asked(other, "acquire", name)
        freed.start()
    try:
        yield name
    finally:
        left = tickets(kind, name)
        if busy:
            freed.cancel()
            freed.join()
            free()
    assert left == (0, None, None), f"{name}: waiters, a holder or sharers are left"
    kind.enter(lambda node: in_time(node.lock(name)))
    asked(other, "acquire", name, 5)
    asked(other, "release", name)
    kind.enter(lambda node: in_time(node.lock(name)))


def tickets(kind: Threads, name: str) -> tuple[int, Any, Any]:
    def look(node: Any) -> tuple[int, Any, Any]:
        local_lock = node._shell.core.table.locks.get(name)
        return (
            (len(local_lock.queue or ()), local_lock.holder, local_lock.sharers)
            if local_lock is not None
            else (0, None, None)
        )

    found: tuple[int, Any, Any] = kind.do(look)
    return found


class in_time:  # noqa: N801 - it reads as a function
    """A lock for `with` and `async with` that must be granted soon."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __enter__(self) -> None:
        self.hold = self.lock.acquire(timeout=5)

    def __exit__(self, *what: object) -> None:
        self.hold.release()

    async def __aenter__(self) -> None:
        self.hold = await self.lock.acquire(timeout=5)

    async def __aexit__(self, *what: object) -> None:
        self.hold.release()


def asked(other: Member, *words: object) -> None:
    other.tell(*words)
    assert other.process.stdout is not None
    assert select.select([other.process.stdout], [], [], PATIENCE_S)[0], f"the other process waits: {words}"
    other.answer()


BUSY = pytest.mark.parametrize("busy", [False, True], ids=["free", "busy"])


def wrong(what: str, *values: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(what, values, ids=name_of)


# -- locks -----------------------------------------------------------------------------------------------------

WAITS: dict[str, Callable[[Any, Any], Any]] = {
    "timeout": lambda lock, value: lock.acquire(timeout=value),
    "patience_s": lambda lock, value: lock.try_acquire(patience_s=value),
}


@BUSY
@pytest.mark.parametrize("argument", WAITS)
@wrong("value", *NO_SECONDS)
def test_what_is_no_time_to_wait(kind: Threads, other: Member, busy: bool, argument: str, value: Any) -> None:
    with locked(kind, other, busy) as name, pytest.raises(UsageError, match=argument):
        kind.do(lambda node: WAITS[argument](node.lock(name), value))


@BUSY
def test_patience_may_not_be_left_open(kind: Threads, other: Member, busy: bool) -> None:
    with locked(kind, other, busy) as name, pytest.raises(UsageError, match="patience_s"):
        kind.do(lambda node: node.lock(name).try_acquire(patience_s=None))


@BUSY
@pytest.mark.parametrize("argument", WAITS)
@wrong("value", *ODD_SECONDS)
def test_a_time_that_is_odd(kind: Threads, other: Member, busy: bool, argument: str, value: Any) -> None:
    with locked(kind, other, busy, 0.1) as name, contextlib.suppress(UsageError, LockTimeout):
        hold = kind.do(lambda node: WAITS[argument](node.lock(name), value))
        if hold is not None:
            kind.do(lambda node: hold.release())


@BUSY
@pytest.mark.parametrize("mode", ["read", "write"])
@wrong("value", "5", True, nan)
def test_a_lock_for_readers_and_writers(kind: Threads, other: Member, busy: bool, mode: str, value: Any) -> None:
    name = f"rw{next(NUMBERS)}"
    writer = kind.do(lambda node: node.rwlock(name).write().acquire()) if busy else None
    with pytest.raises(UsageError, match="timeout"):
        kind.do(lambda node: getattr(node.rwlock(name), mode)().acquire(timeout=value))
    if writer is not None:
        kind.do(lambda node: writer.release())
    assert tickets(kind, name) == (0, None, None)
    kind.enter(lambda node: in_time(node.rwlock(name).write()))


@BUSY
@wrong("value", None, inf)
def test_without_an_end_it_may_wait_for_ever(kind: Threads, other: Member, busy: bool, value: Any) -> None:
    """None is no mistake; and neither is infinity, if it is not refused."""
    with locked(kind, other, busy, 0.1) as name, contextlib.suppress(UsageError):
        hold = kind.do(lambda node: node.lock(name).acquire(timeout=value))
        kind.do(lambda node: hold.release())


@pytest.mark.parametrize("call", ["lock", "rwlock"])
@wrong("value", *NO_NAMES)
def test_what_is_no_name(kind: Threads, call: str, value: Any) -> None:
    with pytest.raises(UsageError, match="name of a lock"):
        kind.do(lambda node: getattr(node, call)(value))


@wrong("value", 5, 1, True, "", "nonsense", *STRANGE)
def test_what_is_no_algorithm(kind: Threads, value: Any) -> None:
    with pytest.raises(UsageError, match=r"algorithm"):
        kind.do(lambda node: node.lock("x", algorithm=value))


@wrong("value", 0, -1, True, 1.0, nan, inf, "1", 2**31, HUGE, Decimal(1), *STRANGE)
def test_what_is_no_priority(kind: Threads, value: Any) -> None:
    with pytest.raises(UsageError, match="priority"):
        kind.do(lambda node: node.lock("x", priority=value))


def test_the_lowest_priority_there_is(kind: Threads, other: Member) -> None:
    name = f"x{next(NUMBERS)}"
    kind.enter(lambda node: in_time(node.lock(name, priority=2**31 - 1)))


@BUSY
@wrong("value", None, 5, "orders", b"orders", [5], ["a b"], [["a"]], [None, "a"], Strange(), ["zz", "a b"])
def test_what_are_no_names(kind: Threads, other: Member, busy: bool, value: Any) -> None:
    with locked(kind, other, busy) as name:
        if isinstance(value, list):
            value = [*value, name]  # which a call that takes one lock after the other would wait for
        with pytest.raises(UsageError, match="lock"):
            kind.enter(lambda node: node.lock_all(value))
    assert tickets(kind, "zz") == (0, None, None)


@wrong("value", "5", None, True, nan, inf, -inf, -1, HUGE, Decimal(1), *STRANGE)
def test_what_is_no_time_for_a_status(kind: Threads, value: Any) -> None:
    with pytest.raises(UsageError, match="wait_s"):
        kind.do(lambda node: node.status(value))
    assert kind.do(lambda node: (dict(node._shell.core.answers), dict(node._shell.asking))) == ({}, {})
    assert kind.do(lambda node: node.status(1)).complete


@pytest.mark.parametrize(
    "call",
    [
        lambda node: node.lock(),
        lambda node: node.lock("x", "suzuki-kasami-a"),
        lambda node: node.lock("x", nonsense=1),
        lambda node: node.rwlock(),
        lambda node: node.lock_all(),
        lambda node: node.collect(1),
        lambda node: node.leave(1),
        lambda node: node.lock("x").acquire(5),
        lambda node: node.lock("x").acquire(patience_s=5),
        lambda node: node.lock("x").try_acquire(5),
    ],
    ids=range(10),
)
def test_what_python_itself_refuses(kind: Threads, call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        kind.do(call)


@pytest.mark.parametrize("method", ["check", "release", "remaining", "detach"])
def test_the_methods_of_a_hold_take_nothing(kind: Threads, other: Member, method: str) -> None:
    with locked(kind, other, busy=False) as name:
        hold = kind.do(lambda node: node.lock(name).acquire())
        with pytest.raises(TypeError, match="argument"):
            kind.do(lambda node: getattr(hold, method)(5))
        assert kind.do(lambda node: hold.held)
        kind.do(lambda node: hold.release())


@wrong("value", 5, "print", *STRANGE)
def test_what_cannot_be_called_on_a_loss(kinds: dict[str, Threads], value: Any) -> None:
    with kinds["threads"].node.lock(f"x{next(NUMBERS)}").acquire() as hold:
        with pytest.raises(UsageError, match="on_loss"):
            hold.on_loss = value
        assert hold.on_loss is None
        hold.on_loss = print
        hold.on_loss = None


@wrong("value", None, "80", True, -1, 0, 65536, 80.0, HUGE, *STRANGE)
def test_what_is_no_port_for_metrics(kind: Threads, value: Any) -> None:
    with pytest.raises(UsageError, match="port"):
        serve(kind.node, value)


# -- joining -----------------------------------------------------------------------------------------------------

NO_TEXTS: tuple[Any, ...] = (5, True, "", "a\0b", ["x"], *STRANGE)
NO_FLAGS: tuple[Any, ...] = ("yes", "", 1, 0, 1.0, *STRANGE)
NO_COUNTS: tuple[Any, ...] = ("8", 0, -1, -HUGE, True, 1.5, nan, inf, *STRANGE)
NO_LEASES: tuple[Any, ...] = ("5", True, nan, inf, -1, 0, HUGE, *STRANGE)
NO_HOSTS: tuple[Any, ...] = (
    5, True, "a=127.0.0.1:1", [], ["a"], {}, {"a": 5}, {5: "127.0.0.1:1"}, {"a b": "127.0.0.1:1"}, {"a": "nonsense"},
    {"a": "127.0.0.1:0"}, {"a": "127.0.0.1:99999"}, {"a": "127.0.0.1:²"}, b"5", Strange(),
)  # fmt: skip
NO_ETCDS: tuple[Any, ...] = (
    5, True, "http://127.0.0.1:1", {}, {"endpoints": "http://127.0.0.1:1"}, {"endpoints": []}, {"endpoints": [5]},
    {"endpoints": ["nonsense"]}, {"endpoints": [""]}, {"endpoints": ["http://127.0.0.1:1"], "nonsense": 1},
    {"endpoints": ["http://127.0.0.1:1"], "user": 5}, {"endpoints": ["http://127.0.0.1:99999"]}, b"5", Strange(),
)  # fmt: skip
NO_TLS: tuple[Any, ...] = (
    5, True, "ca.pem", {}, {"ca": "a.pem", "cert": "b.pem"}, {"ca": 5, "cert": "b", "key": "c"}, {5: "a"}, b"5", Strange(),
    {"ca": "no/such.pem", "cert": "b", "key": "c"}, {"ca": "a\0b", "cert": "b", "key": "c"},
)  # fmt: skip

WRONG: dict[str, tuple[Any, ...]] = {
    "name": (5, True, "", "a b", "x" * 65, ["x"], *STRANGE),
    "dir": NO_TEXTS,
    "state": NO_TEXTS,
    "config": ("no/such.toml", *NO_TEXTS),
    "address": NO_TEXTS,
    "bind": NO_TEXTS,
    "algorithm": (5, 1, True, "", "nonsense", *STRANGE),
    "nodes": NO_HOSTS,
    "voters": NO_HOSTS,
    "etcd": NO_ETCDS,
    "tls": NO_TLS,
    "insecure": NO_FLAGS,
    "spin": NO_FLAGS,
    "watchdog": NO_FLAGS,
    "first_start": NO_FLAGS,
    "assume_dead": (5, True, "ben", [5], ["nobody"], b"5", Strange()),
    "local_grants": NO_COUNTS,
    "idle_locks": NO_COUNTS,
    "lease_s": NO_LEASES,
    "stall_s": NO_LEASES,
}


def base(argument: str, directory: Path) -> dict[str, Any]:
    """A group in which that argument matters, without it."""
    place = f"127.0.0.1:{free_port()}"
    words: dict[str, Any] = {"name": "a", "state": directory / "state"}
    if argument in ("tls", "assume_dead"):
        words["nodes"] = {"a": place}
    elif argument in ("address", "bind", "first_start", "insecure", "lease_s", "stall_s", "state", "watchdog"):
        words["voters"] = {"v": place}
    elif argument not in ("nodes", "voters", "etcd"):
        words = {"name": "a", "dir": directory}
    words.pop(argument, None)
    return words


def joins() -> Iterator[Any]:
    for argument, values in WRONG.items():
        for value in values:
            yield pytest.param(argument, value, id=f"{argument} {name_of(value)}")


def join_in(flavour: str, *group: Any, **words: Any) -> None:
    if flavour == "threads":
        peerlock.sync.join(*group, **words).leave()
        return

    async def join() -> None:
        async with asyncio.timeout(PATIENCE_S), peerlock.join(*group, **words):
            pass

    asyncio.run(join())


FLAVOURS = pytest.mark.parametrize("flavour", ["asyncio", "threads"])


@FLAVOURS
@pytest.mark.parametrize(("argument", "value"), list(joins()))
def test_joining(flavour: str, argument: str, value: Any, tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(UsageError) as refused:
        join_in(flavour, "g", **base(argument, tmp_path), **{argument: value})
    said = str(refused.value)
    assert len(said) < 600
    assert said.endswith((".", "MyLock.)")) or argument == "tls", said
    assert threading.active_count() == before
    assert list(tmp_path.glob("**/*.lock")) == [] or argument == "assume_dead"


@FLAVOURS
@wrong("group", *NO_NAMES)
def test_joining_what_is_no_group(flavour: str, group: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name of a group"):
        join_in(flavour, group, dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


@FLAVOURS
def test_joining_with_words_that_there_are_not(flavour: str, tmp_path: Path) -> None:
    for group, words in (((), {}), (("g", "name"), {}), (("g",), {"nonsense": 1})):
        with pytest.raises(TypeError, match="argument"):
            join_in(flavour, *group, dir=tmp_path, **words)


@FLAVOURS
def test_after_a_mistake_the_same_place_can_be_joined(flavour: str, tmp_path: Path) -> None:
    """Nothing of the failed attempt is in the way: no lock on the file of a fixed list, no port."""
    words = {"name": "a", "nodes": {"a": f"127.0.0.1:{free_port()}"}, "state": tmp_path / "state"}
    with pytest.raises(UsageError, match="nobody"):
        join_in(flavour, "g", **words, assume_dead=["nobody"])
    join_in(flavour, "g", **words)


# -- guards ------------------------------------------------------------------------------------------------------


@wrong("value", "5", None, True, nan, inf, 1.0, -1, Decimal(5), *STRANGE)
def test_what_is_no_fence(tmp_path: Path, value: Any) -> None:
    guarded = GuardedFile(tmp_path / "data")
    guarded.write(3, b"before")
    for call in (lambda: guarded.take(value), lambda: guarded.write(value, b"after")):
        with pytest.raises(UsageError, match="fence"):
            call()
    assert guarded.read() == (3, b"before")
    guarded.write(4, b"later")


@wrong("value", "text", None, 5, True, [1], Strange())
def test_what_cannot_be_written_to_a_guarded_file(tmp_path: Path, value: Any) -> None:
    guarded = GuardedFile(tmp_path / "data")
    guarded.write(3, b"before")
    with pytest.raises(UsageError, match="bytes"):
        guarded.write(4, value)
    assert guarded.read() == (3, b"before")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.lock"]
    guarded.write(3, b"later")


@wrong("value", None, 5, True, "", "a\0b", *STRANGE)
def test_what_is_no_path_of_a_guarded_file(value: Any) -> None:
    with pytest.raises(UsageError, match="path"):
        GuardedFile(value)
