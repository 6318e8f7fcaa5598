"""Names, and places on a host: directories that no other user can enter, files that are there as a
whole, sockets.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from peerlock.errors import RegistryError, UsageError, shown

MACHINE = Path("/etc/machine-id")
LONGEST = 100  # bytes of a path that a socket can be bound to
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def check_name(what: str, name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UsageError(
            f"{shown(name)} cannot be the name of a {what}: use up to 64 letters, digits, dots, dashes and underscores."
        )
    return name


def lock_names(names: Iterable[str]) -> list[str]:
    """Names of several locks, each once, in the order in which every caller takes them."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise UsageError(f"lock_all needs the names of locks, as in lock_all(['orders', 'stock']); got {shown(names)}.")
    return sorted({check_name("lock", name) for name in names})


def directory_for(group: str) -> Path:
    """Depends on the machine, the user and the group, and never on the environment."""
    check_name("group", group)
    # Two places would be two groups: what cannot be read at the moment is an error, and never
    # another place.
    return home_of(os.geteuid(), group) / ".local" / "state" / "peerlock" / machine_name(group) / group


def machine_name(group: str) -> str:
    """What tells this machine from others that have the same home directory. A container may have
    no machine-id.
    """
    try:
        found = MACHINE.read_text().strip()
    except FileNotFoundError:
        found = ""
    except (OSError, UnicodeDecodeError) as problem:
        raise RegistryError(
            f"{MACHINE} cannot be read ({problem}), so the place of the group {group} is not known: try again, "
            "or give a directory with dir=."
        ) from None
    if found == "uninitialized":
        raise RegistryError(f"{MACHINE} is not set yet, so the place of the group {group} is not known: try again.")
    return found[:12] or check_name("host", socket.gethostname())


def home_of(uid: int, group: str) -> Path:
    """The home directory that the user database names; there is no other."""
    why = "it has none of its own"
    try:
        home = Path(pwd.getpwuid(uid).pw_dir)
        if home.is_absolute() and home.stat().st_uid == uid:
            return home
    except KeyError:
        why = unreadable("/etc/passwd") or "the user database does not know it"
    except OSError as problem:
        why = f"{problem.filename}: {problem.strerror}"
    raise RegistryError(
        f"User {uid} has no home directory where the group {group} would have its place ({why}): "
        "give a directory with dir=."
    )


def unreadable(path: str) -> str:
    """Why the file cannot be read: no descriptor is left, for example. Nothing: it can be, or is
    not there.
    """
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return f"{path}: {problem.strerror}"
    return ""


def make_private(directory: Path) -> None:
    """Make a directory that only this user can enter, and check that it is one."""
    ours = [directory, *directory.parents[:4]]  # the group, the machine, peerlock, state, .local
    for path in reversed(ours):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = os.lstat(path)
        if found.st_uid not in (os.geteuid(), 0) or (not stat.S_ISLNK(found.st_mode) and found.st_mode & 0o022):
            raise RegistryError(
                f"{path} can be changed by others (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}): somebody "
                f"could put another group in the place of yours. Run: chmod go-w {path}"
            )
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise RegistryError(f"{directory} is not a directory: move it away, the group needs its place.")
    if found.st_uid != os.geteuid():
        raise RegistryError(
            f"{directory} belongs to user {found.st_uid}, not to you ({os.geteuid()}): the group of another user. "
            "For a group shared between users give a directory of its own with dir=."
        )
    if found.st_mode & 0o077:
        raise RegistryError(
            f"{directory} can be entered by others (mode {stat.S_IMODE(found.st_mode):o}): anybody could join. "
            f"Run: chmod 700 {directory}"
        )


def check_shared(directory: Path) -> None:
    try:
        found = directory.stat()
    except OSError as problem:
        raise RegistryError(
            f"{directory} cannot be used ({problem.strerror}): make it first, with the owner and mode of those who share it, "
            "like: install -d -m 2770 -g GROUP DIRECTORY"
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        raise RegistryError(f"{directory} is not a directory.")
    if found.st_mode & 0o002:
        raise RegistryError(f"{directory} can be written by everybody: anybody could join. Run: chmod o-w {directory}")


def make_for(path: Path, mode: int) -> bool:
    """A directory of ours that has that mode, also if the process that made it was killed before.
    True: it is new.
    """
    new = False
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        new = True
    found = path.stat()
    if found.st_uid == os.geteuid() and found.st_mode & mode != mode:
        path.chmod(mode)
    return new


def write_all(fd: int, data: bytes) -> None:
    """All of it, or an error: half a file must not be taken for a whole one."""
    while data:
        data = data[os.write(fd, data) :]


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file as a whole: after a crash there is the old one or the new one."""
    draft = path.with_name(path.name + ".new")
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(draft, path)
        fd = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as problem:
        raise RegistryError(f"{path} cannot be written: {problem.strerror}.") from None


def listen_on(name: str, host: str, port: int) -> socket.socket:
    """A socket that other hosts reach."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
        made.setblocking(False)
    except OSError as problem:
        raise RegistryError(f"{name} cannot listen at {host}:{port}: {problem.strerror or problem}.") from None
    return made


def listen_at(path: Path, mode: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        with short_name(path) as short:
            made.bind(short)
        path.chmod(mode)
        made.listen(128)
        made.setblocking(False)
    except OSError as problem:
        made.close()
        raise RegistryError(f"{path} cannot be listened at: {problem.strerror}.") from None
    return made


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a path that a socket address has room for."""
    text = str(path)
    if len(os.fsencode(text)) <= LONGEST:
        yield text
        return
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
