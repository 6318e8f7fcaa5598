"""A connection from an attached process to its host node: frames, over a Unix socket that never
blocks.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from peerlock.errors import ProtocolError, Unreachable
from peerlock.net.files import short_name
from peerlock.node.attached.messages import Attach, Attached
from peerlock.node.peer import Peer
from peerlock.node.wire import OLDEST, VERSION, Frame, Hello, framed, next_frame, opened

ANSWER_S = 5.0  # for a host node to greet


class Connection:
    """It greets and is greeted while it is made; after that it does not block."""

    def __init__(self, where: Path, group: str, attach: Attach) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_S)
        self.buffer = bytearray()
        self.unsent = b""
        self.on_unsent: Callable[[bool], None] = lambda waits: None  # something waits to be sent, or no more
        self.closed = False
        try:
            with short_name(where) as short:
                self.socket.connect(short)
            self.socket.sendall(framed(Hello(OLDEST, group, Peer(attach.name, 0, "", os.getpid()), newest=VERSION)))
            hello = self._wait()
            if isinstance(hello, Hello) and hello.sentence:
                raise ProtocolError(hello.sentence)
            self.socket.sendall(framed(attach))
            self.welcome = self._welcome()
            self.socket.setblocking(False)
        except BaseException as problem:
            self.socket.close()
            if isinstance(problem, OSError | ProtocolError):
                raise Unreachable(f"The host node at {where} does not answer: {problem}.") from None
            raise

    def _welcome(self) -> Attached:
        while True:
            frame = self._wait()
            if isinstance(frame, Attached):
                return frame

    def _wait(self) -> Frame:
        while True:
            body = next_frame(self.buffer)
            if body is not None:
                return opened(body)
            data = self.socket.recv(65536)
            if not data:
                raise ProtocolError("it has closed the connection")
            self.buffer += data

    def read(self) -> list[Frame]:
        """What has come. `ProtocolError`: it has ended, or makes no sense."""
        while not self.closed:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                break
            except OSError as problem:
                raise ProtocolError(str(problem)) from None
            if not data:
                raise ProtocolError("it has closed the connection")
            self.buffer += data
            if len(data) < 65536:
                break
        frames = []
        while self.buffer and (body := next_frame(self.buffer)) is not None:
            frames.append(opened(body))
        return frames

    def write(self, message: object) -> None:
        data = self.unsent + framed(message)
        before = bool(self.unsent)
        self.unsent = self._send(data)
        if bool(self.unsent) != before:
            self.on_unsent(not before)

    def flush(self) -> None:
        """There is room again."""
        self.unsent = self._send(self.unsent)
        if not self.unsent:
            self.on_unsent(False)

    def _send(self, data: bytes) -> bytes:
        try:
            while data and not self.closed:
                data = data[self.socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the end of the connection is read
        return data

    def close(self) -> None:
        self.closed = True
        self.socket.close()


__all__ = ["Connection"]
