"""A model of the disk below a directory: what a power loss would leave of it at this moment.

It records the calls of `os` that change files, while they happen. Data of a file survive from its `fsync` on. A name
survives from the `fsync` of its directory on. Anything else may survive or not, so there are two ends to look at:

    kept()   nothing survives that was not synced
    torn()   every name survives, and of each file only the data that were synced
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class File:
    def __init__(self, synced: bytes) -> None:
        self.synced = synced


class Disk:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root.resolve()
        self.names: dict[Path, File] = {}  # as a process sees them
        self.synced: dict[Path, File] = {}
        self.open: dict[int, File | Path] = {}  # a directory is its path
        self.guard = threading.RLock()
        self.steps: list[str] = []
        self.on_step: Callable[[], None] = lambda: None  # before a call, and after the last one
        self.real = {name: getattr(os, name) for name in ("open", "close", "fsync", "fdatasync", "link", "unlink")}
        self.real |= {name: getattr(os, name) for name in ("rename", "replace", "write", "pwrite", "ftruncate")}
        for path in self.root.rglob("*"):
            if path.is_file():
                self.names[path] = self.synced[path] = File(path.read_bytes())
        for name in self.real:
            monkeypatch.setattr(os, name, self.recording(name))

    def recording(self, name: str) -> Callable[..., Any]:
        real, follow = self.real[name], getattr(self, f"_{name}", None)

        def call(*words: Any, **more: Any) -> Any:
            with self.guard:
                if name != "close":
                    self.on_step()
                found = real(*words, **more)
                if follow is not None:
                    follow(found, *words, **more)
                self.steps.append(name)
                return found

        return call

    def place(self, path: Any, dir_fd: int | None = None) -> Path | None:
        """None: not on this disk."""
        if isinstance(path, int):
            return None
        found = Path(os.fsdecode(path))
        if dir_fd is not None and not found.is_absolute():
            found = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) / found
        found = found.absolute()
        return found if found.is_relative_to(self.root) else None

    # -- the calls -----------------------------------------------------------------------------------------

    def _open(self, fd: int, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self.open.pop(fd, None)
        place = self.place(path, dir_fd)
        if place is not None:
            self.open[fd] = place if place.is_dir() else self.names.setdefault(place, File(b""))

    def _close(self, _: None, fd: int) -> None:
        self.open.pop(fd, None)

    def _fsync(self, _: None, fd: int) -> None:
        found = self.open.get(fd)
        if isinstance(found, File):
            found.synced = Path(f"/proc/self/fd/{fd}").read_bytes()
        elif found is not None:
            for path in [path for path in self.synced if path.parent == found]:
                del self.synced[path]
            self.synced |= {path: file for path, file in self.names.items() if path.parent == found}

    _fdatasync = _fsync

    def _link(self, _: None, old: Any, new: Any, **more: Any) -> None:
        before, after = self.place(old, more.get("src_dir_fd")), self.place(new, more.get("dst_dir_fd"))
        if before in self.names and after is not None:
            self.names[after] = self.names[before]

    def _rename(self, _: None, old: Any, new: Any, **more: Any) -> None:
        before, after = self.place(old, more.get("src_dir_fd")), self.place(new, more.get("dst_dir_fd"))
        if before in self.names and after is not None:
            self.names[after] = self.names.pop(before)

    _replace = _rename

    def _unlink(self, _: None, path: Any, *, dir_fd: int | None = None) -> None:
        place = self.place(path, dir_fd)
        if place is not None:
            self.names.pop(place, None)

    # -- after a power loss --------------------------------------------------------------------------------

    def kept(self) -> dict[Path, bytes]:
        with self.guard:
            return {path: file.synced for path, file in self.synced.items()}

    def torn(self) -> dict[Path, bytes]:
        with self.guard:
            return {path: file.synced for path, file in self.names.items()}
