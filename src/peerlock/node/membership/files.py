"""What the registry of one host needs of a file system.

`net/registries/group_directory.py` is the real one, `check/protocols/disk.py` the model that the
checker explores.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol, TypeAlias

ALIVE, HOLDING = 0, 1  # bytes of a member's file
RECORD_BYTES = 4096  # of a member's file: the two bytes that carry locks, then the member as JSON
DIRECTORIES = ("members", "joining", "sockets", "views", "drafts")
File: TypeAlias = Any  # an open file; locks belong to it and last until it is closed, or the process ends


class Files(Protocol):
    """The calls of a file system that the protocol uses, on paths like `views/7`. Any of them may
    raise `OSError`.
    """

    def names(self, directory: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes | None:
        """The content; None if there is no such file."""
        ...

    def create(self, path: str) -> File:
        """A new file; `FileExistsError` if there is one."""
        ...

    def open(self, path: str) -> File | None:
        """A file of any member, to lock it; None if there is no such file."""
        ...

    def lock(self, file: File, byte: int, shared: bool = False) -> bool:
        """False: another process has a lock on that byte which does not go together with this one."""
        ...

    def keep(self, file: File) -> None:
        """The lock is to last until `close`, whatever the program does to its descriptors."""

    def write(self, file: File, data: bytes) -> None: ...

    def sync(self, file: File) -> None: ...

    def close(self, file: File) -> None: ...

    def is_at(self, file: File, path: str) -> bool:
        """Does the path name this very file?"""
        ...

    def sync_directory(self, directory: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> bool:
        """False: there is one already."""
        ...

    def unlink(self, path: str) -> None:
        """A file that is missing is no error."""

    def ended(self, file: File) -> bool:
        """Ends the process groups that worked under the locks of a dead member. True: none of them
        is left.
        """
        ...


def name_of(id: int) -> str:
    return f"{id:016x}"


def path_of(kind: str, id: int) -> str:
    return f"{kind}/{name_of(id)}"


def ids_in(names: list[str]) -> list[int]:
    """Incarnations that files are named after; other names are not ours."""
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append(int(name, 16))
    return found
