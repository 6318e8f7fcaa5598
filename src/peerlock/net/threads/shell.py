"""The thread that reads: sockets and timers of a node whose users are threads.

There is one per node. It waits for sockets and timers without the node's mutex, and runs the core
under it for what has come. Sockets do not block: what a socket does not take at once is sent by the
reader when it can. Everything but the waiting happens under the mutex, TLS included.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlock.errors import NodeClosed, PeerlockError
from peerlock.net.files import short_name
from peerlock.net.link_table import HELLO_S
from peerlock.net.registries.base import Registry
from peerlock.net.shell import Shell, log
from peerlock.net.threads.link import ThreadLink
from peerlock.net.transport.connect import is_numeric, resolved
from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.transport.link import long_lived
from peerlock.net.transport.listen import NO_ROOM, max_unidentified
from peerlock.node.locks.ticket import FAILED, WAITING, Limits
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import DEFAULT

if TYPE_CHECKING:
    from peerlock.net.threads.hold import Abandoned, Hold

CONNECT_S = 3.0  # then it is tried anew
ACCEPT_AGAIN_S = 1.0  # when this process or the machine has no room for another socket
FAREWELL_S = 2.0  # for the group to know that this node is gone


class ThreadShell(Shell):
    """The shell of a node, with a thread of its own."""

    def __init__(self, registry: Registry, group: str, algorithm: str = DEFAULT, limits: Limits | None = None) -> None:
        self.new_mutex()
        self.now = registry.clock  # type: ignore[method-assign]
        self.inbox: deque[Callable[[], object]] = deque()  # from other threads
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Callable[[], object]]] = []
        self.number = 0
        self.listening: list[socket.socket] = []
        self.unidentified: dict[ThreadLink, None] = {}  # the oldest first
        self.most = max_unidentified()
        self.yield_at = 0.0  # when an acquire that does not have to wait must let the reader have its turn
        self.waiting: set[Hold] = set()  # their threads wait
        self.abandoned: deque[Abandoned] = deque()  # bodies that ended without their `__exit__`
        self.wake_receiver, self.wake_sender = socket.socketpair()
        self.wake_receiver.setblocking(False)
        self.wake_sender.setblocking(False)
        self.selector.register(self.wake_receiver, selectors.EVENT_READ, None)
        self.reader = threading.Thread(target=self._read, name=f"peerlock {group}", daemon=True)
        super().__init__(registry, group, algorithm, limits)

    def post(self, act: Callable[[], object]) -> None:
        self.inbox.append(act)
        self.wake()

    def new_mutex(self) -> None:
        self.mutex = threading.RLock()
        # Has this very thread the mutex? Then a handler or a finalizer runs in the middle of the
        # node's work.
        self.is_in_core: Callable[[], bool] = self.mutex._is_owned  # type: ignore[attr-defined]  # as `threading.Condition` does

    def after_fork(self) -> None:
        self.new_mutex()  # the thread that had the old one is not here
        super().after_fork()

    def descriptors(self) -> list[int]:
        links = [link for link in self.links.up if isinstance(link, ThreadLink)]
        return [
            made.fileno()
            for made in (*self.listening, self.wake_receiver, self.wake_sender, *(link.socket for link in links))
        ]

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        with self.mutex:
            self.number += 1
            heappush(self.timers, (self.now() + seconds, self.number, act))
            if self.timers[0][1] == self.number:
                self.wake()

    def soon(self, act: Callable[[], object]) -> None:
        self.after(0.0, act)

    def wake(self) -> None:
        """Wake the reader."""
        if threading.current_thread() is not self.reader:
            with contextlib.suppress(OSError):
                self.wake_sender.send(b"!")

    def _read(self) -> None:
        try:
            self._serve()
        except BaseException:
            # A defect of ours. No caller may wait for a thread that is gone.
            log.exception("group %s: the reader of %s has ended", self.group, self.core.me.name)
            with self.mutex:
                self.closing = True
                try:
                    self.core.close(self.now())
                    self.carry_out()
                finally:
                    self.registry.close()
                    self._put_away()
                    self.membership.started()

    def _serve(self) -> None:
        while True:
            with self.mutex:
                if self.closing:
                    self._put_away()
                    return
                wait = max(0.0, self.timers[0][0] - self.now()) if self.timers else None
            events = self.selector.select(wait)
            with self.mutex:
                self._handle(events)

    def _handle(self, events: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, mask in events:
            self._shielded(lambda key=key, mask=mask: self._one(key, mask), key.data)  # type: ignore[misc]
        while self.inbox:
            self._shielded(self.inbox.popleft())
        while self.timers and self.timers[0][0] <= self.now():
            self._shielded(heappop(self.timers)[2])
        self._give_back_what_was_left()
        self.carry_out()

    def _give_back_what_was_left(self) -> None:
        while self.abandoned:
            hold = getattr(self.abandoned.popleft(), "hold", None)  # none if the lock was not granted
            if hold is not None:
                hold._put_back()

    def _shielded(self, act: Callable[[], object], link: Any = None) -> None:
        """What goes wrong with one link, or with one thing that was to be done, must not end the
        reader.
        """
        try:
            act()
        except (OSError, ValueError, PeerlockError) as problem:
            self.complain(f"{type(problem).__name__}: {problem}")
            if isinstance(link, ThreadLink):
                link.gone()

    def _one(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, ThreadLink):
            if not key.data.closed:
                key.data.ready(mask)
        elif key.fileobj is self.wake_receiver:
            with contextlib.suppress(OSError):
                self.wake_receiver.recv(4096)
        else:
            self._accept(key.fileobj)

    def _accept(self, listening: Any) -> None:
        try:
            made, address = listening.accept()
        except OSError as problem:
            if problem.errno in NO_ROOM:
                self.complain(f"a link that came was not made: {problem.strerror}")
                self.selector.unregister(listening)  # or the reader would do nothing else
                self.after(ACCEPT_AGAIN_S, lambda: self._listen_again(listening))
            return
        made.setblocking(False)
        self._take_in(made, str(address[0]) if made.family != socket.AF_UNIX else "")

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self.listening:
            self.selector.register(listening, selectors.EVENT_READ, "accept")

    def _take_in(self, made: socket.socket, host: str) -> None:
        if made.family != socket.AF_UNIX:
            long_lived(made)
        local = made.family == socket.AF_UNIX
        tls = None if local else self.registry.tls(server=True)
        if tls is not None:
            try:
                made = tls.wrap_socket(made, server_side=True, do_handshake_on_connect=False)
            except (OSError, ValueError) as problem:
                made.close()
                self.complain(f"a link that came was not made: {problem}")
                return
        link = ThreadLink(self, None, made, connecting=False)
        link.shaking, link.local, link.host = tls is not None, local, host
        self.unidentified[link] = None
        self.after(HELLO_S, lambda: self._late(link))
        if len(self.unidentified) > self.most:
            self._late(next(iter(self.unidentified)))
        link.watch()

    def _late(self, link: ThreadLink) -> None:
        self.unidentified.pop(link, None)
        if link.peer is None and link.client is None and not link.closed:
            self.links.refuse(link, "it did not say who it is")

    def connect(self, peer: Peer) -> None:
        where = self.registry.endpoint(peer)
        if where.path or is_numeric(where.host):
            self._connect(peer, where, [] if where.path else resolved(where))
        else:
            # The look-up of a name may take long, and this thread must not: it has the node's
            # mutex.
            threading.Thread(target=self._resolve, args=(peer, where), daemon=True, name="peerlock names").start()

    def _resolve(self, peer: Peer, where: Endpoint) -> None:
        try:
            found = resolved(where)
        except OSError as problem:
            why = problem
            self.post(lambda: self.links.not_connected(peer, why))
        else:
            self.post(lambda: self._connect(peer, where, found))

    def _connect(self, peer: Peer, where: Endpoint, found: list[Any]) -> None:
        made: socket.socket | None = None
        try:
            if where.path:
                made = socket.socket(socket.AF_UNIX)
                made.setblocking(False)
                with short_name(Path(where.path)) as short:
                    problem = made.connect_ex(short)
            else:
                family, kind, proto, _, address = found[0]
                made = socket.socket(family, kind, proto)
                made.setblocking(False)
                long_lived(made)
                if self.registry.source is not None:
                    made.bind((self.registry.source, 0))
                problem = made.connect_ex(address)
        except OSError as why:
            if made is not None:
                made.close()
            self.soon(lambda why=why: self.links.not_connected(peer, why))  # type: ignore[misc]
            return
        if problem not in (0, errno.EINPROGRESS, errno.EAGAIN):
            made.close()
            self.soon(lambda: self.links.not_connected(peer, OSError(problem, os.strerror(problem))))
            return
        link = ThreadLink(self, peer, made, connecting=bool(problem))
        self.after(CONNECT_S, lambda: self._unconnected(link))
        if problem:
            link.watch()
        else:
            self.soon(lambda: self.connects(link))

    def _unconnected(self, link: ThreadLink) -> None:
        if (link.connecting or link.shaking) and not link.closed:
            link.fail(TimeoutError())

    def connects(self, link: ThreadLink) -> None:
        """The socket is connected; TLS comes first."""
        tls = self.registry.tls(server=False) if link.socket.family != socket.AF_UNIX else None
        if tls is None:
            self.shaken(link)
            return
        if link.wants:
            self.selector.unregister(link.socket)
            link.wants = 0
        assert link.dialled is not None
        try:
            link.socket = tls.wrap_socket(link.socket, server_hostname=link.dialled.name, do_handshake_on_connect=False)
        except (OSError, ValueError) as problem:
            link.fail(problem)
            return
        link.shaking = True
        link.shake()

    def shaken(self, link: ThreadLink) -> None:
        if link.dialled is not None:
            self.links.connected(link)
        if not link.closed:
            link.watch()
            if isinstance(link.socket, ssl.SSLSocket):
                link.read()

    def relisten(self) -> None:
        with self.mutex:
            before, self.listening = self.listening, []
            for old in before:
                with contextlib.suppress(KeyError):  # it rests
                    self.selector.unregister(old)
                old.close()
            self.listening = self.registry.listeners()
            for made in self.listening:
                self.selector.register(made, selectors.EVENT_READ, "accept")

    # -- the end, and interruptions ----------------------------------------------------------------------

    def leave(self) -> None:
        """Leave the group. What is still held is lost; waiters get `NodeClosed`."""
        if self.forked:
            return
        if self.is_in_core() and threading.current_thread() is not self.reader:
            # A signal's handler in the middle of the node's work: the reader thread does it, soon.
            self.post(self.leave)
            return
        with self.mutex:
            if self.closing:
                return
        try:
            with self.mutex:
                self.say_farewell()
                self.links.close()
            self.wake()
            if threading.current_thread() is not self.reader and self.reader.ident is not None:
                self.reader.join()
            self.registry.left(FAREWELL_S)
        finally:  # also if a signal's handler raises meanwhile
            self.closing = True
            self.wake()
            self.registry.close()

    def upset(self, problem: BaseException) -> None:
        """A thread was interrupted in the middle of the core, with the mutex held: it is not known
        how far it came.
        """
        if isinstance(problem, PeerlockError):
            return  # that is an answer
        log.warning(
            "group %s: %s was interrupted in the middle of its work (%s): it joins again",
            self.group, self.core.me.name, type(problem).__name__,
        )  # fmt: skip
        why = "a signal's handler raised in the middle of the node's work"
        tickets = {
            ticket for link in self.links.up if link.client is not None for ticket in link.client.tickets.values()
        }
        waiting, self.waiting = self.waiting, set()
        self.core.abandon(why)
        self.clients.end()
        for hold in waiting:
            if hold.state == WAITING:
                hold.local_lock = None
            hold.woken()
        for ticket in tickets:
            if ticket.state == WAITING:
                ticket.local_lock, ticket.state = None, FAILED
                ticket.error = NodeClosed(f"The node {self.core.me.name} joins again: {why}. The lock was never held.")
                ticket.woken()
        self.carry_out()
        self.membership.rejoin()

    def check_lease(self) -> None:
        """If the lease is over, the next look must see it, whether or not the reader had its turn."""
        if self.forked:
            return
        deadline = self.core.deadline
        if deadline.expired(self.now()):
            inner = self.is_in_core()  # this very thread is in the middle of the core
            with self.mutex:
                if deadline.expired(self.now()) and not inner:
                    try:
                        self.core.lapse(self.now())
                        self.carry_out()
                    except BaseException as problem:
                        self.upset(problem)
                        raise
        if self.core.table.may_hold and not self.is_in_core() and not self.membership.stands():
            with self.mutex:
                self.membership.on_group_lost()

    def _put_away(self) -> None:
        for link in list(self.links.up):
            if isinstance(link, ThreadLink):
                link.shut()
        while self.timers:
            heappop(self.timers)
        for made in (*self.listening, self.wake_receiver, self.wake_sender):
            made.close()
        self.selector.close()
