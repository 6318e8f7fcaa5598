"""The command line's side of a connection to a node on the same host."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from peerlock.errors import ProtocolError, Unreachable, UsageError
from peerlock.net.group import Settings
from peerlock.net.hall import Hall
from peerlock.net.places import check_shared, directory_for, short_name
from peerlock.node.wire import LARGEST, LENGTH, OLDEST, VERSION, Call, Hello, Peer, Result, framed, opened

RESIDENT = "resident"  # in the address of a member that serves the command line


class Caller:
    """A connection; calls and results, one at a time, but for locks, which answer when they are granted."""

    def __init__(self, path: Path, group: str, timeout_s: float = 3.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout_s)
        self.number = 0
        self.buffer = b""
        self.kept: list[Any] = []  # came while another answer was waited for
        try:
            with short_name(path) as short:
                self.socket.connect(short)
            self.socket.sendall(framed(Hello(OLDEST, group, Peer("client", 0, "", os.getpid()), newest=VERSION)))
            hello = self.read()
        except OSError as problem:
            self.socket.close()
            raise Unreachable(f"No answer at {path}: {problem}.") from None
        except ProtocolError as problem:
            self.socket.close()
            raise Unreachable(f"{path}: {problem}.") from None
        assert isinstance(hello, Hello)
        self.node = hello.peer

    def read(self) -> Any:
        """The next frame; it may take as long as the socket's time-out."""
        while True:
            if len(self.buffer) >= LENGTH.size:
                (length,) = LENGTH.unpack_from(self.buffer)
                if length > LARGEST:
                    raise ProtocolError(f"a frame of {length} bytes")
                if len(self.buffer) >= LENGTH.size + length:
                    body = self.buffer[LENGTH.size : LENGTH.size + length]
                    self.buffer = self.buffer[LENGTH.size + length :]
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
        self.socket.sendall(framed(Call(self.number, what, said)))
        return self.number

    def call(self, what: str, **said: Any) -> Any:
        number = self.send(what, **said)
        while True:
            frame = self.read()
            if isinstance(frame, Result) and frame.number == number:
                if not frame.ok:
                    raise UsageError(str(frame.value))
                return frame.value
            self.kept.append(frame)  # of a lock that is lost

    def close(self) -> None:
        self.socket.close()


def places(group: str, settings: Settings) -> list[tuple[Path, bool]]:
    """Sockets of nodes of the group on this host, and whether each belongs to a resident; residents first."""
    if settings.voters is not None or settings.etcd is not None:
        kind = "etcd" if settings.voters is None else "embedded"
        if settings.state is not None:
            return [(Path(f"{settings.state}.socket"), True), (Path(f"{settings.state}.member.socket"), False)]
        sockets = sorted(directory_for(group).glob(f"{kind}-{settings.name or '*'}.socket"))
        known = [(path, not path.name.endswith(".member.socket")) for path in sockets]
        return sorted(known, key=lambda place: not place[1])
    if settings.nodes is not None:
        if settings.state is not None:
            return [(Path(settings.state).with_suffix(".socket"), True)]
        directory = directory_for(group)
        return [(path, True) for path in sorted(directory.glob("static-*.socket"))]
    if settings.dir is not None:
        check_shared(Path(settings.dir))
        directory = Path(settings.dir).absolute() / group
    else:
        directory = directory_for(group)
    if not (directory / "views").is_dir():
        return []
    newest = Hall.of(directory, settings.dir is not None).newest()
    found = [
        (directory / "sockets" / f"{peer.id:016x}", peer.address == RESIDENT)
        for peer in (newest.members if newest else ())
    ]
    return sorted(found, key=lambda place: not place[1])


def reach(group: str, settings: Settings, *, resident: bool = False, timeout_s: float = 3.0) -> Caller | None:
    """A node of the group that answers; None: there is none."""
    for path, serves in places(group, settings):
        if serves or not resident:
            with contextlib.suppress(Unreachable):
                return Caller(path, group, timeout_s)
    return None


__all__ = ["RESIDENT", "Caller", "places", "reach"]
