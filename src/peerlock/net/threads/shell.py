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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerlock.errors import NodeClosed
from peerlock.net.files import short_name
from peerlock.net.link_table import HELLO_S
from peerlock.net.registries.base import Registry
from peerlock.net.shell import Shell
from peerlock.net.threads.link import ThreadLink
from peerlock.net.threads.on_threads import OnThreads
from peerlock.net.transport.connect import is_numeric, resolved
from peerlock.net.transport.endpoint import Endpoint
from peerlock.net.transport.link import long_lived
from peerlock.net.transport.listen import NO_ROOM, max_unidentified
from peerlock.node.core import Core
from peerlock.node.locks.ticket import FAILED, WAITING, Limits
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import DEFAULT

if TYPE_CHECKING:
    pass

CONNECT_S = 3.0  # then it is tried anew
ACCEPT_AGAIN_S = 1.0  # when this process or the machine has no room for another socket
FAREWELL_S = 2.0  # for the group to know that this node is gone


class ThreadShell(OnThreads[Core], Shell):
    """The shell of a node, with a thread of its own."""

    def __init__(self, registry: Registry, group: str, algorithm: str = DEFAULT, limits: Limits | None = None) -> None:
        self.listening: list[socket.socket] = []
        self.unidentified: dict[ThreadLink, None] = {}  # the oldest first
        self.most = max_unidentified()
        self.use_threads(registry.clock, group)
        super().__init__(registry, group, algorithm, limits)

    def descriptors(self) -> list[int]:
        links = [link for link in self.links.up if isinstance(link, ThreadLink)]
        return [
            made.fileno()
            for made in (*self.listening, self.wake_receiver, self.wake_sender, *(link.socket for link in links))
        ]

    def ready(self, key: selectors.SelectorKey, mask: int) -> None:
        if not isinstance(key.data, ThreadLink):
            self._accept(key.fileobj)
        elif not key.data.closed:
            key.data.ready(mask)

    def failed(self, data: Any) -> None:
        if isinstance(data, ThreadLink):
            data.gone()

    def broken_down(self) -> None:
        self.registry.close()
        self._put_away()
        self.membership.started()

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

    def fall_silent(self) -> None:
        self.links.close()

    def left(self) -> None:
        self.registry.left(FAREWELL_S)

    def close_registry(self) -> None:
        self.registry.close()

    def begin_again(self, why: str) -> None:
        tickets = {
            ticket for link in self.links.up if link.client is not None for ticket in link.client.tickets.values()
        }
        self.core.abandon(why)
        self.clients.end()
        self.wake_the_waiting()
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

    def put_away_links(self) -> None:
        for link in list(self.links.up):
            if isinstance(link, ThreadLink):
                link.shut()
        for made in self.listening:
            made.close()
