"""The command line's side of a connection to a node on the same host."""

from __future__ import annotations

import contextlib
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from peerlock.errors import PeerlockError, ProtocolError, RegistryError, Unreachable, UsageError
from peerlock.net.control.status import NodeStatus
from peerlock.net.files import check_name, check_shared, directory_for, short_name
from peerlock.net.registries.group_directory import GroupDirectory
from peerlock.net.settings import Settings
from peerlock.node.membership.files import ALIVE, path_of
from peerlock.node.membership.host import HostMember
from peerlock.node.peer import Peer
from peerlock.node.wire import OLDEST, VERSION, ClientCall, ClientResult, Hello, framed, next_frame, opened

RESIDENT = "resident"  # in the address of a member that serves the command line


class Ended(Unreachable):
    """Nothing listens there."""


class Caller:
    """A connection; calls and results, one at a time, but for locks, which answer when they are
    granted.
    """

    def __init__(self, path: Path, group: str, timeout_s: float = 3.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout_s)
        self.number = 0
        self.buffer = bytearray()
        self.kept: list[Any] = []  # came while another answer was waited for
        try:
            with short_name(path) as short:
                self.socket.connect(short)
            self.socket.sendall(framed(Hello(OLDEST, group, Peer("client", 0, "", os.getpid()), newest=VERSION)))
            hello = self.read()
        except OSError as problem:
            self.socket.close()
            ended = isinstance(problem, ConnectionRefusedError | FileNotFoundError)
            raise (Ended if ended else Unreachable)(f"No answer at {path}: {problem}.") from None
        except ProtocolError as problem:
            self.socket.close()
            raise Unreachable(f"{path}: {problem}.") from None
        assert isinstance(hello, Hello)
        self.node = hello.peer

    def read(self) -> Any:
        """The next frame; it may take as long as the socket's time-out."""
        while True:
            body = next_frame(self.buffer)
            if body is not None:
                frame = opened(body)
                if isinstance(frame, Hello) and frame.sentence:
                    raise ProtocolError(frame.sentence)
                return frame
            data = self.socket.recv(65536)
            if not data:
                raise ProtocolError("the node has closed the connection")
            self.buffer += data

    def send(self, what: str, **said: Any) -> int:
        self.number += 1
        self.socket.sendall(framed(ClientCall(self.number, what, said)))
        return self.number

    def call(self, what: str, **said: Any) -> Any:
        number = self.send(what, **said)
        while True:
            frame = self.read()
            if isinstance(frame, ClientResult) and frame.number == number:
                if not frame.ok:
                    raise UsageError(str(frame.value))
                return frame.value
            self.kept.append(frame)  # of a lock that is lost

    def close(self) -> None:
        self.socket.close()


class Place(NamedTuple):
    """Where a node of this host can be asked."""

    path: Path
    resident: bool  # it serves `peerlock run`
    name: str


KINDS = ("embedded", "etcd", "static")  # whose sockets lie in the group's directory, with the kind in their names


def places(group: str, settings: Settings) -> list[Place]:
    """Sockets of nodes of the group on this host; residents first."""
    kind = "embedded" if settings.voters is not None else "etcd" if settings.etcd is not None else "static"
    if kind == "static" and settings.nodes is None:
        members = [Place(path, peer.address == RESIDENT, str(peer)) for path, peer in _on_this_host(group, settings)]
        return sorted(members, key=lambda place: not place.resident)
    given = _with_state(kind, Path(settings.state), settings.name) if settings.state is not None else []
    found = []
    for place in _in_directory(group, kind):
        # `peerlock run` uses the node that the settings name; to look at the group any will do.
        meant = not given and (kind == "static" or settings.name in (None, place.name))
        found.append(place._replace(resident=place.resident and meant))
    return given + sorted(found, key=lambda place: not place.resident)


def _with_state(kind: str, state: Path, name: str | None) -> list[Place]:
    who = name or state.name
    if kind == "static":
        return [Place(state.with_suffix(".socket"), True, name or state.stem)]
    return [Place(Path(f"{state}.socket"), True, who), Place(Path(f"{state}.member.socket"), False, who)]


def _in_directory(group: str, kind: str) -> list[Place]:
    found = []
    try:
        directory = directory_for(group)
    except RegistryError:
        return []  # this user has no home: every node has a state= of its own
    for path in sorted(directory.glob(f"{kind}-*.socket")):
        name = path.name[len(kind) + 1 : -len(".socket")]
        found.append(Place(path, not name.endswith(".member"), name.removesuffix(".member")))
    return found


def _on_this_host(group: str, settings: Settings) -> list[tuple[Path, Peer]]:
    registry = _registry(group, settings)
    newest = registry.newest() if registry is not None else None
    directory = _directory(group, settings)
    return [(directory / path_of("sockets", peer.id), peer) for peer in newest.members] if newest else []


def _registry(group: str, settings: Settings) -> HostMember | None:
    """The directory of a group on one host; None: no process has joined it."""
    directory = _directory(group, settings)
    try:
        there = (directory / "views").is_dir()
        return HostMember(GroupDirectory(directory, settings.dir is not None), str(directory)) if there else None
    except OSError as problem:
        raise RegistryError(
            f"{directory} cannot be looked at ({problem.strerror}): what is held in the group {group} is unknown."
        ) from None


def _directory(group: str, settings: Settings) -> Path:
    if settings.dir is None:
        return directory_for(group)
    check_shared(Path(settings.dir))
    return Path(settings.dir).absolute() / check_name("group", group)


def reach(group: str, settings: Settings, *, resident: bool = False, timeout_s: float = 3.0) -> Caller | None:
    """A node of the group that answers; None: there is none."""
    for place in places(group, settings):
        if place.resident or not resident:
            with contextlib.suppress(Unreachable):
                return Caller(place.path, group, timeout_s)
    return None


# -- looking at a group --------------------------------------------------------------------------------------


class Heard:
    """What became of the attempt to reach each node of this host."""

    def __init__(self, group: str, found: list[Place], timeout_s: float) -> None:
        self.callers: list[tuple[Place, Caller]] = []
        self.silent: list[Place] = []  # there, as far as can be seen, and without an answer
        self.ended: list[Place] = []  # nothing listens there
        if not found:
            return
        with ThreadPoolExecutor(min(32, len(found))) as at_once:  # each that is stopped takes all of the time
            for place, came in zip(found, at_once.map(partial(_reached, group, timeout_s), found), strict=True):
                if isinstance(came, Caller):
                    self.callers.append((place, came))
                else:
                    (self.ended if isinstance(came, Ended) else self.silent).append(place)

    def close(self) -> None:
        for _, caller in self.callers:
            caller.close()


def _reached(group: str, timeout_s: float, place: Place) -> Caller | Unreachable:
    try:
        return Caller(place.path, group, timeout_s)
    except Unreachable as problem:
        return problem


def look(group: str, settings: Settings, timeout_s: float = 1.5) -> NodeStatus:
    """What the nodes of this host know of the group. `UsageError`: none of them says anything; why,
    and what to do.
    """
    heard = Heard(group, places(group, settings), timeout_s)
    if not heard.callers and not heard.silent and _is_of_no_kind(settings):
        # Nothing says what kind of group it is, and it is none of one host.
        others = Heard(group, [place for kind in KINDS for place in _in_directory(group, kind)], timeout_s)
        heard = others if others.callers or others.silent else heard
    try:
        status = _most_complete(heard)
    finally:
        heard.close()
    if status is None:
        raise UsageError(_nothing_heard(group, settings, heard))
    names = [*(str(caller.node) for _, caller in heard.callers), *(place.name for place in heard.silent)]
    outside = [name for name in dict.fromkeys(names) if not any(_is(member, name) for member in status.members)]
    return msgspec.structs.replace(status, outside=tuple(outside))


def _is(member: str, name: str) -> bool:
    """A socket is called after a node; a status has the node's process behind its name."""
    return member == name or member.startswith(f"{name} (")


def _is_of_no_kind(settings: Settings) -> bool:
    return settings.dir is None and settings.nodes is None and settings.voters is None and settings.etcd is None


def _most_complete(heard: Heard) -> NodeStatus | None:
    """Of a few nodes: one that is cut off from the others knows less than the rest."""
    best: NodeStatus | None = None
    for place, caller in heard.callers[:3]:
        try:
            status = msgspec.convert(caller.call("status"), NodeStatus)
        except (OSError, PeerlockError):
            heard.silent.append(place)
            continue
        if best is None or (status.complete, status.epoch) > (best.complete, best.epoch):
            best = status
        if best.complete:
            break
    return best


def _nothing_heard(group: str, settings: Settings, heard: Heard) -> str:
    silent = f" No answer from: {', '.join(place.name for place in heard.silent)}." if heard.silent else ""
    unknown = f"No node of the group {group} answers on this host, so what is held is unknown.{silent}"
    if settings.nodes is not None or settings.voters is not None or settings.etcd is not None:
        listed = f" The nodes of the list are {', '.join(settings.nodes)}." if settings.nodes is not None else ""
        return (
            f"{unknown}{listed} Run this on the host of a member, or start a member here with peerlock node. "
            "A program that has joined with state=PATH is found with --state PATH."
        )
    if heard.silent:
        return unknown
    registry = _registry(group, settings)
    newest = registry.newest() if registry is not None else None
    if registry is None or newest is None:
        return (
            f"No process has joined the group {group} in {_directory(group, settings)}: there is nothing to see. "
            "A group with voters, with etcd or of a fixed list is another one: give --config."
        )
    alive = [str(peer) for peer in newest.members if not _has_ended(registry, peer)]
    if alive:
        return f"{unknown} No answer from: {', '.join(alive)}."
    return (
        f"All members of epoch {newest.epoch} of the group {group} have ended: {', '.join(map(str, newest.members))}. "
        "No lock is held in it."
    )


def _has_ended(registry: HostMember, peer: Peer) -> bool:
    """The kernel has given its lock back. A socket that is gone would be no proof."""
    proof = registry.locked(peer.id, ALIVE)
    if proof is not None:
        registry.files.close(proof)
    return proof is not None


__all__ = ["RESIDENT", "Caller", "Place", "look", "places", "reach"]
