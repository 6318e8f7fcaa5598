"""An attached process whose callers are threads."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from peerlock.net.attached.directory import AttachedDirectory
from peerlock.net.attached.shell import AttachedShell
from peerlock.net.attached.start import Starter
from peerlock.net.threads.on_threads import OnThreads
from peerlock.node.attached.core import AttachedCore
from peerlock.node.locks.ticket import Limits

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class AttachedThreadShell(OnThreads[AttachedCore], AttachedShell):
    """The shell of an attached process, with a thread of its own."""

    def __init__(
        self, directory: AttachedDirectory, group: str, name: str | None, algorithm: str, limits: Limits | None,
        start: Starter,
    ) -> None:  # fmt: skip
        self.use_threads(time.monotonic, group)
        self.room: dict[socket.socket, Callable[[], object]] = {}  # what to do when there is room to write
        super().__init__(directory, group, name, algorithm, limits, start)

    # -- sockets -----------------------------------------------------------------------------------------

    def watch(self, made: socket.socket, ready: Callable[[], object]) -> None:
        self.selector.register(made, READ, ready)
        self.wake()

    def unwatch(self, made: socket.socket) -> None:
        self.room.pop(made, None)
        if made.fileno() >= 0 and made in self.selector.get_map():
            self.selector.unregister(made)

    def watch_room(self, made: socket.socket, ready: Callable[[], object] | None) -> None:
        key = self.selector.get_key(made)
        if ready is None:
            self.room.pop(made, None)
        else:
            self.room[made] = ready
        self.selector.modify(made, READ if ready is None else READ | WRITE, key.data)
        self.wake()

    def ready(self, key: selectors.SelectorKey, mask: int) -> None:
        if mask & WRITE and (act := self.room.get(key.fileobj)) is not None:  # type: ignore[call-overload]
            act()
        if mask & READ:
            key.data()

    def soon(self, act: Callable[[], object]) -> None:
        act()  # the mutex is held

    # -- the end, and interruptions ----------------------------------------------------------------------

    def begin_again(self, why: str) -> None:
        self.core.abandon(why)
        self.disappear()
        self.appear()
        self.core.begin_again(self.peer(), self.page)
        self.wake_the_waiting()
        self.watch(self.hands, self.on_hands)
        self.carry_out()
        self.connect()

    def check_lease(self) -> None:
        """There is none on one host."""

    def broken_down(self) -> None:
        self.disappear()
        self._put_away()
        if self.membership.on_started is not None:
            self.membership.on_started()

    def put_away_links(self) -> None:
        """They were when it left."""


__all__ = ["AttachedThreadShell"]
