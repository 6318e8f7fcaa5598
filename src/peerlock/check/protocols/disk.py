"""A model of a file system with locks, crashes and loss of power, for `node/membership/host.py`.

A process of the model is a plain function that uses `HostMember`. It is never copied: its state is
the list of answers that it has got so far. To make its next step, it runs again from the start with
these answers, up to the first call that has none (`Replayed`). So the class that is explored is the
class that ships.

**Durability.** A name is durable once its directory was synced, a content once its file was. When
the power fails, each name that is not durable may be there or not, in `members` and `views`
independently of each other, in the other directories all or none. A content that is not durable is
empty. All processes and locks are gone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from peerlock.contract import Key
from peerlock.node.membership.files import DIRECTORIES

Inode: TypeAlias = tuple[int, int]  # the process that made it, and its how many-th
Handle: TypeAlias = tuple[int, int, Inode]  # the process, its how many-th open file, and which file
Answer: TypeAlias = Any  # in the type that the call has in `Files`
FAILED = "failed"  # the answer of a call that raises OSError


class Call(NamedTuple):
    what: str
    words: tuple[Hashable, ...]

    def __str__(self) -> str:
        return f"{self.what} {' '.join(map(str, self.words))}"


class Disk(Struct):
    """Names, contents and locks. A value: every call on a copy."""

    names: dict[str, dict[str, Inode]]
    durable: dict[str, dict[str, Inode]]
    contents: dict[Inode, tuple[bytes, bool]]  # and whether it is durable
    locks: dict[tuple[Inode, int], tuple[tuple[Handle, bool], ...]]  # by file and byte: the open file, shared or not

    @classmethod
    def empty(cls) -> Disk:
        return cls({kind: {} for kind in DIRECTORIES}, {kind: {} for kind in DIRECTORIES}, {}, {})

    def __copy__(self) -> Disk:
        return Disk(
            {kind: dict(names) for kind, names in self.names.items()},
            {kind: dict(names) for kind, names in self.durable.items()},
            dict(self.contents),
            dict(self.locks),
        )

    def key(self) -> Key:
        return (
            tuple(tuple(sorted(names.items())) for names in self.names.values()),
            tuple(tuple(sorted(names.items())) for names in self.durable.values()),
            tuple(sorted(self.contents.items())),
            tuple(sorted(self.locks.items())),
        )

    def at(self, path: str) -> Inode | None:
        kind, _, name = path.partition("/")
        return self.names[kind].get(name)

    # -- calls -------------------------------------------------------------------------------------------

    def do(self, process: int, count: int, call: Call) -> Answer:
        """What the call answers; `count` is how many calls this process has made before."""
        return getattr(self, f"do_{call.what}")(*call.words, new=(process, count))

    def do_names(self, directory: str, new: Inode) -> tuple[str, ...]:
        return tuple(sorted(self.names[directory]))

    def do_exists(self, path: str, new: Inode) -> bool:
        return self.at(path) is not None

    def do_read(self, path: str, new: Inode) -> bytes | None:
        found = self.at(path)
        return None if found is None else self.contents[found][0]

    def do_create(self, path: str, new: Inode) -> Handle | str:
        if self.at(path) is not None:
            return FAILED
        kind, _, name = path.partition("/")
        self.names[kind][name] = new
        self.contents[new] = (b"", False)
        return *new, new

    def do_open(self, path: str, new: Inode) -> Handle | None:
        found = self.at(path)
        return None if found is None else (*new, found)

    def do_lock(self, handle: Handle, byte: int, shared: bool, new: Inode) -> bool:
        place = handle[2], byte
        others = tuple(lock for lock in self.locks.get(place, ()) if lock[0] != handle)
        if any(not (shared and theirs) for _, theirs in others):
            return False
        self.locks[place] = tuple(sorted((*others, (handle, shared))))
        return True

    def do_keep(self, handle: Handle, new: Inode) -> None:
        pass

    def do_write(self, handle: Handle, data: bytes, new: Inode) -> None:
        self.contents[handle[2]] = (data, False)

    def do_sync(self, handle: Handle, new: Inode) -> None:
        self.contents[handle[2]] = (self.contents[handle[2]][0], True)

    def do_close(self, handle: Handle, new: Inode) -> None:
        self.release(lambda theirs: theirs == handle)

    def do_is_at(self, handle: Handle, path: str, new: Inode) -> bool:
        return self.at(path) == handle[2]

    def do_sync_directory(self, directory: str, new: Inode) -> None:
        self.durable[directory] = dict(self.names[directory])

    def do_rename(self, old: str, to: str, new: Inode) -> str | None:
        found = self.at(old)
        if found is None:
            return FAILED
        (kind, _, name), (there, _, name_there) = old.partition("/"), to.partition("/")
        del self.names[kind][name]
        self.names[there][name_there] = found
        return None

    def do_link(self, old: str, to: str, new: Inode) -> bool | str:
        found = self.at(old)
        if found is None:
            return FAILED
        if self.at(to) is not None:
            return False
        kind, _, name = to.partition("/")
        self.names[kind][name] = found
        return True

    def do_unlink(self, path: str, new: Inode) -> None:
        kind, _, name = path.partition("/")
        self.names[kind].pop(name, None)

    def do_ended(self, handle: Handle, new: Inode) -> bool:
        return True

    # -- deaths ------------------------------------------------------------------------------------------

    def release(self, gone: Callable[[Handle], bool]) -> None:
        for place, locks in list(self.locks.items()):
            left = tuple(lock for lock in locks if not gone(lock[0]))
            if left:
                self.locks[place] = left
            else:
                del self.locks[place]

    def crash(self, process: int) -> Disk:
        after = copy(self)
        after.release(lambda handle: handle[0] == process)
        after.forget()
        return after

    def forget(self) -> None:
        """Contents that no name leads to and no lock is on are gone."""
        known = {inode for names in (*self.names.values(), *self.durable.values()) for inode in names.values()}
        known |= {inode for inode, _ in self.locks}
        self.contents = {inode: content for inode, content in self.contents.items() if inode in known}

    def power_fails(self) -> Iterator[Disk]:
        """Every disk that there may be afterwards."""
        changes = [
            (kind, name)
            for kind in ("members", "views")
            for name in sorted({*self.names[kind], *self.durable[kind]})
            if self.names[kind].get(name) != self.durable[kind].get(name)
        ]
        for others in (self.names, self.durable):
            for kept in chain.from_iterable(combinations(changes, size) for size in range(len(changes) + 1)):
                names = {kind: dict(others[kind]) for kind in DIRECTORIES}
                for kind in ("members", "views"):
                    names[kind] = dict(self.durable[kind])
                for kind, name in kept:
                    if name in self.names[kind]:
                        names[kind][name] = self.names[kind][name]
                    else:
                        names[kind].pop(name, None)
                after = Disk(names, {kind: dict(found) for kind, found in names.items()}, {}, {})
                for inode in {inode for found in names.values() for inode in found.values()}:
                    data, durable = self.contents[inode]
                    after.contents[inode] = (data if durable else b"", True)
                yield after


class NeedsAnswer(BaseException):
    """A process has come to a call that was not answered yet."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Replayed:
    """`Files` that answer what was answered before."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers, self.next = answers, 0
        self.call: Call | None = None  # that was not answered yet

    def ask(self, what: str, *words: Hashable) -> Answer:
        if self.next == len(self.answers):
            # What the process would do on its way out it does not do: it only waits.
            self.call = self.call or Call(what, words)
            raise NeedsAnswer(self.call)
        answer = self.answers[self.next]
        self.next += 1
        if answer == FAILED:
            kind = {"create": FileExistsError, "rename": FileNotFoundError, "link": FileNotFoundError}.get(
                what, OSError
            )
            raise kind(errno.EIO, f"{what} {words}")
        return answer

    def names(self, directory: str) -> list[str]:
        return list(self.ask("names", directory))

    def exists(self, path: str) -> Answer:
        return self.ask("exists", path)

    def read(self, path: str) -> Answer:
        return self.ask("read", path)

    def create(self, path: str) -> Answer:
        return self.ask("create", path)

    def open(self, path: str) -> Answer:
        return self.ask("open", path)

    def lock(self, file: Handle, byte: int, shared: bool = False) -> Answer:
        return self.ask("lock", file, byte, shared)

    def keep(self, file: Handle) -> None:
        pass

    def write(self, file: Handle, data: bytes) -> None:
        self.ask("write", file, data)

    def sync(self, file: Handle) -> None:
        self.ask("sync", file)

    def close(self, file: Handle) -> None:
        self.ask("close", file)

    def is_at(self, file: Handle, path: str) -> Answer:
        return self.ask("is_at", file, path)

    def sync_directory(self, directory: str) -> None:
        self.ask("sync_directory", directory)

    def rename(self, old: str, new: str) -> None:
        self.ask("rename", old, new)

    def link(self, old: str, new: str) -> Answer:
        return self.ask("link", old, new)

    def unlink(self, path: str) -> None:
        self.ask("unlink", path)

    def ended(self, file: Handle) -> bool:
        return True
