"""The lock for threads.

    with peerlock.sync.join("shop") as node:
        with node.lock("orders") as hold:
            ...

The core runs under one mutex a node. The thread that asks or releases runs it itself and writes what is to be sent;
one reader thread a node waits for sockets and timers, runs the core for what comes, and wakes who was granted.
Nothing passes through another thread's queue.

Sockets do not block: what a socket does not take at once the reader thread sends when it can. Everything but the
waiting (for sockets, for a grant) happens under the mutex, TLS included.

A thread that waits sleeps on a lock of its own ticket, which is released with the grant. Interrupted (a signal
handler that raises), it gives the ticket up, or the lock back.

**Interrupted in the middle of the core.** A signal's handler may raise between any two steps of Python in the main
thread, and a core that was left half way is good for nothing: a message may be neither sent nor kept. So it is not gone
on with (`upset`). Whatever was held here is lost, and its holders are told; the node joins again as a new incarnation;
threads that wait ask again. That takes milliseconds (where there are leases: one of these), and is rare: the core's part
of an entry is a few microseconds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from types import TracebackType
from typing import Any

from peerlock.contract import Mode
from peerlock.errors import LockTimeout, NodeClosed, PeerlockError, UsageError
from peerlock.net.certificates import name_in
from peerlock.net.charges import end_charges
from peerlock.net.dialling import is_numeric, resolved
from peerlock.net.holds import AnyHold, already_held, not_in_time, other_algorithm
from peerlock.net.host import check_name, short_name
from peerlock.net.pace import YIELD_S
from peerlock.net.registry import Endpoint, Registry
from peerlock.net.shell import HELLO_S, STRANGERS, Link, Shell, log, long_lived
from peerlock.net.status import NodeStatus
from peerlock.node.table import DONE, FAILED, HELD, LOST, WAITING, Limits
from peerlock.node.wire import DEFAULT, DEFAULT_RW, Peer, Spoken, spoken

ACCEPT_AGAIN_S = 1.0  # when this process or the machine has no room for another socket
FAREWELL_S = 2.0  # for the group to know that this node is gone


class ThreadLink(Link):
    """A socket that does not block, served by the reader thread."""

    def __init__(self, shell: ThreadNode, dialled: Peer | None, made: socket.socket, connecting: bool) -> None:
        super().__init__(shell, dialled)
        self.node, self.socket = shell, made
        self.connecting, self.shaking = connecting, False  # TCP, then TLS
        self.out = bytearray()
        self.wants = 0  # what the selector waits for
        shell.up.add(self)

    def watch(self) -> None:
        """Tell the selector what this link waits for."""
        if self.closed:
            return
        wants = selectors.EVENT_READ
        if self.connecting:
            wants = selectors.EVENT_WRITE
        elif self.out:
            wants |= selectors.EVENT_WRITE
        if wants != self.wants:
            if self.wants:
                self.node.selector.modify(self.socket, wants, self)
            else:
                self.node.selector.register(self.socket, wants, self)
            self.wants = wants

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if self.out or self.shaking or self.connecting:
            self.out += data
        else:
            sent = self.send(data)
            if sent < len(data):
                self.out += data[sent:]
        if self.out:
            self.watch()

    def send(self, data: bytes | bytearray) -> int:
        try:
            return self.socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return 0
        except OSError:
            self.node.soon(self.gone)  # the reader finds out why
            return len(data)

    def ready(self, mask: int) -> None:
        """The selector says so."""
        if self.connecting:
            self.connecting = False
            problem = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                self.fail(os.strerror(problem))
                return
            self.node.connects(self)
            return
        if self.shaking:
            self.shake()
            return
        if mask & selectors.EVENT_READ:
            self.read()
        if mask & selectors.EVENT_WRITE and self.out and not self.closed:
            del self.out[: self.send(self.out)]
        self.watch()

    def shake(self) -> None:
        """TLS."""
        assert isinstance(self.socket, ssl.SSLSocket)
        try:
            self.socket.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.watch()
            return
        except (OSError, ValueError) as problem:
            self.fail(f"TLS: {problem}")
            return
        self.shaking = False
        self.certificate = name_in(self.socket.getpeercert())
        self.node.shaken(self)

    def read(self) -> None:
        while not self.closed:
            try:
                count = self.socket.recv_into(self.room())
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                self.gone()
                return
            self.buffer_updated(count)

    def fail(self, why: str) -> None:
        self.shut()
        if self.dialled is not None:
            self.node.not_connected(self.dialled, why)
        else:
            log.warning("group %s: a link that came was not made: %s", self.node.group, why)

    def gone(self) -> None:
        """The other side is gone."""
        if self.shut():
            self.node.lost(self)

    def shut(self) -> bool:
        if self.wants:
            self.node.selector.unregister(self.socket)
            self.wants = 0
        self.node.strangers.discard(self)
        self.node.up.discard(self)
        if self.socket.fileno() < 0:
            return False
        self.closed = True
        self.socket.close()
        self.buffer = bytearray()
        return True

    def close(self) -> None:
        if self.closed:
            return
        if self.out and not self.connecting and not self.shaking:
            del self.out[: self.send(self.out)]
        self.closed = True
        self.node.soon(self.gone)


class Hold(AnyHold):
    """A lock that was granted, until `release`, or until it is lost."""

    _lock: Lock
    _gate: Any = None  # the waiting thread sleeps on it
    _event: threading.Event | None = None
    _thread: int | None = None  # whose body it is
    on_loss: Callable[[], object] | None = None  # called by the reader thread

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost."""
        self._lock._node.alive()
        with self._lock._node.mutex:
            if self._event is None:
                self._event = threading.Event()
                if self.state == LOST:
                    self._event.set()
            return self._event

    def detach(self) -> Hold:
        """The hold outlives the body it was taken in: whoever has it releases it."""
        if self._thread is not None and self.state != LOST:
            bodies = self._lock._bodies.get(self._thread, [])
            bodies[:] = [None if other is self else other for other in bodies]
            self._thread = None
        return self

    def release(self) -> None:
        """Give the lock back. `LockLost` if it was lost before."""
        node = self._lock._node
        node.alive()
        self.detach()
        with node.mutex:
            held = self.state == HELD
            if held and self.desk is not None:
                try:
                    self.desk.release(self, node.now())
                    node.core.flush()
                except BaseException as problem:
                    node.upset(problem)
                    raise
        if self.state == DONE and held:
            return
        if self.state == LOST:
            raise self.loss()
        raise self.released_before()

    def __enter__(self) -> Hold:
        self.check()
        return self

    def __exit__(self, *what: object) -> None:
        if self.state == HELD:
            self.release()
        elif self.state == LOST:
            raise self.loss()

    def woken(self) -> None:
        gate = self._gate  # whoever asked may be about to forget it
        if gate is not None and gate.locked():
            gate.release()
        if self.state == LOST:
            if self._event is not None:
                self._event.set()
            if self.on_loss is not None:
                try:
                    self.on_loss()
                except BaseException:  # also sys.exit: in this thread it would end the node, and not the program
                    log.exception("the lock %s is lost, and so is what was to be done about it", self.name)


class Lock:
    """A named lock of a group. Many threads may use one object; each `acquire` gives a hold of its own."""

    def __init__(self, node: ThreadNode, name: str, algorithm: Spoken, mode: Mode, priority: int = 0) -> None:
        self.name = name
        self.mode: Mode = mode
        self._node, self._spoken, self._priority = node, algorithm, priority
        # By thread, the last one last: holds whose bodies run; None: it was detached or released.
        self._bodies: dict[int, list[Hold | None]] = {}

    def acquire(self, *, timeout: float | None = None) -> Hold:
        """Wait for the lock. `LockTimeout` if it is not granted within `timeout` seconds."""
        hold = self._asker()
        try:
            self._acquire(hold, timeout)
        except BaseException:
            self._give_up(hold)
            raise
        return hold

    def _asker(self) -> Hold:
        hold = Hold()
        hold.mode, hold._lock = self.mode, self
        return hold

    def _acquire(self, hold: Hold, timeout: float | None) -> None:
        node = self._node
        now = node.now()
        end = None if timeout is None else now + max(0.0, timeout)
        node.alive()  # before the mutex: in a forked child nobody may ever release it
        if now - node.yielded > YIELD_S:
            # A thread that does nothing but lock would leave the reader no turn before the interpreter's switch interval.
            node.yielded = now
            time.sleep(0)
        gate = hold._gate = threading.Lock()
        gate.acquire()
        self._ask(hold)
        while hold.state != HELD and not self._wait(hold, gate, timeout, end):
            self._ask(hold)  # the node has joined again, and what was asked before is forgotten
        hold._gate = None

    def _ask(self, hold: Hold) -> None:
        node = self._node
        with node.mutex:
            node.usable()
            try:
                node.core.now = now = node.now()  # it may have taken long to come here
                desk = node.core.table.desk(self.name, self._spoken)
                if desk.spoken is not self._spoken:
                    raise other_algorithm(desk, self._spoken)
                if self._priority:
                    desk.priority = self._priority
                me = threading.get_ident()
                if desk.has and any(
                    isinstance(other, Hold) and other._thread == me for other in (desk.holder, *(desk.sharers or ()))
                ):
                    raise already_held("thread", self.name)
                desk.acquire(hold, now)
                if node.core.table.dirty:
                    node.core.flush()
            except PeerlockError:
                raise
            except BaseException as problem:
                node.upset(problem)
                hold.desk = None
                raise
            if hold.state == WAITING:
                node.waiting.add(hold)

    def _wait(self, hold: Hold, gate: Any, timeout: float | None, end: float | None) -> bool:
        """True: it is held. False: it must be asked for again."""
        left = -1 if end is None else max(0.0, min(end - self._node.now(), threading.TIMEOUT_MAX))
        granted = gate.acquire(timeout=left)
        if not granted and not self._give_up(hold, keep=True):
            raise not_in_time(self.name, timeout or 0.0)
        self._node.waiting.discard(hold)
        if hold.state == WAITING:
            return False
        if hold.state != HELD:
            raise hold.error or NodeClosed(f"The node has left the group {self._node.group}. The lock was never held.")
        return True

    def _give_up(self, hold: Hold, keep: bool = False) -> bool:
        """Stop waiting. True: it was granted at the last moment, and is kept if `keep`."""
        node = self._node
        if node.forked:
            return False
        with node.mutex:
            node.waiting.discard(hold)
            if hold.desk is None:
                return False
            try:
                if hold.state == WAITING:
                    hold.desk.cancel(hold, node.now())
                    node.core.flush()
                    return False
                if hold.state == HELD and not keep:
                    hold.desk.release(hold, node.now())
                    node.core.flush()
            except BaseException as problem:
                node.upset(problem)
                raise
            return True

    def try_acquire(self, *, patience_s: float = 0.0) -> Hold | None:
        """The lock if it is granted within `patience_s` seconds, else None: nobody answers "busy", so it asks and gives up."""
        try:
            return self.acquire(timeout=patience_s)
        except TimeoutError:
            return None

    def __enter__(self) -> Hold:
        hold = self._asker()
        try:
            self._acquire(hold, None)
            hold._thread = me = threading.get_ident()
            self._bodies.setdefault(me, []).append(hold)
        except BaseException:
            hold.detach()
            self._give_up(hold)
            raise
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended: list[Hold | None] = []
        try:
            self._end_body(ended, error)
        except PeerlockError:
            raise
        except BaseException:  # a signal's handler has raised: the body has ended all the same
            if not ended:
                self._end_body(ended, error)
            elif ended[0] is not None:
                ended[0].detach()
                self._give_up(ended[0])
            raise

    def _end_body(self, ended: list[Hold | None], error: BaseException | None) -> None:
        me = threading.get_ident()
        bodies = self._bodies.get(me)
        if not bodies:
            raise UsageError(
                f"The body of the lock {self.name} ends in another thread than it began in. To hand a lock over, use acquire, "
                "or detach the hold."
            )
        hold = bodies[-1]
        ended.append(hold)
        bodies.pop()
        if not bodies:
            self._bodies.pop(me, None)
        if hold is None:  # detached, or released in the body
            return
        hold._thread = None
        if hold.state == LOST:
            raise hold.loss() from error
        hold.release()

    def __repr__(self) -> str:
        return f"<lock {self.name} of {self._node!r}>"


class RWLock:
    """A lock for readers, who share it, and writers, who do not."""

    def __init__(self, node: ThreadNode, name: str, algorithm: Spoken) -> None:
        self._node, self.name, self._algorithm = node, name, algorithm

    def read(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "read")

    def write(self) -> Lock:
        return Lock(self._node, self.name, self._algorithm, "write")


class ThreadNode(Shell):
    """A member of a group. Made by `peerlock.sync.join`."""

    def __init__(
        self, registry: Registry, group: str, *, algorithm: str = DEFAULT, limits: Limits | None = None
    ) -> None:
        self.mutex = threading.RLock()
        self.now = registry.clock  # type: ignore[method-assign]
        self.inbox: deque[Callable[[], None]] = deque()  # from other threads
        self.yielded = 0.0
        self.waiting: set[Hold] = set()  # threads sleep on their gates
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.listening: list[socket.socket] = []
        self.strangers: set[ThreadLink] = set()
        self.bell, self.rope = socket.socketpair()
        self.bell.setblocking(False)
        self.rope.setblocking(False)
        self.selector.register(self.bell, selectors.EVENT_READ, None)
        self.reader = threading.Thread(target=self._read, name=f"peerlock {group}", daemon=True)
        super().__init__(registry, group, algorithm, limits)

    # -- for users ---------------------------------------------------------------------------------------

    def lock(self, name: str, *, algorithm: str | None = None, priority: int | None = None) -> Lock:
        """The lock of that name. Every node must use it with the same algorithm."""
        return Lock(self, check_name("lock", name), *self.choice(algorithm, priority))

    def rwlock(self, name: str) -> RWLock:
        """A lock for readers and writers."""
        return RWLock(self, check_name("lock", name), spoken(DEFAULT_RW))

    @contextmanager
    def lock_all(self, names: Iterable[str]) -> Iterator[tuple[Hold, ...]]:
        """Several locks, taken in one global order, so that two that want the same never wait for each other."""
        with contextlib.ExitStack() as stack:
            yield tuple([stack.enter_context(self.lock(name)) for name in sorted(set(names))])

    def status(self, wait_s: float = 1.0) -> NodeStatus:
        """Members, epoch, and every lock that is held or waited for, wherever in the group."""
        done, found = threading.Event(), list[NodeStatus]()

        def take(status: NodeStatus) -> None:
            found.append(status)
            done.set()

        self.alive()
        with self.mutex:
            self.usable()
            self.ask_status(take, wait_s)
        while not done.wait(wait_s):
            self.usable()  # the node may have been closed meanwhile
        return found[0]

    def leave(self) -> None:
        """Leave the group. What is still held is lost; who waits gets `NodeClosed`."""
        if self.forked:
            return
        with self.mutex:
            if self.closing:
                return
        try:
            with self.mutex:
                self.say_farewell()
                for link in list(self.up):
                    link.close()
            self.ring()
            if threading.current_thread() is not self.reader and self.reader.ident is not None:
                self.reader.join()
            self.registry.left(FAREWELL_S)
        finally:  # also if a signal's handler raises meanwhile
            self.closing = True
            self.ring()
            self.registry.close()

    def collect(self) -> None:
        """Forget idle locks now: a new view with the same members. It happens by itself when there are many."""
        with self.mutex:
            self.usable()
            self.core.full()

    # -- the shell -----------------------------------------------------------------------------------------

    def post(self, act: Callable[[], None]) -> None:
        self.inbox.append(act)
        self.ring()

    def upset(self, problem: BaseException) -> None:
        """Somebody was interrupted in the middle of the core, with the mutex held: nobody knows how far it came."""
        if isinstance(problem, PeerlockError):
            return  # that is an answer
        core, table = self.core, self.core.table
        log.warning(
            "group %s: %s was interrupted in the middle of its work (%s): it joins again",
            self.group, self.name, type(problem).__name__,
        )  # fmt: skip
        why = "a signal's handler raised in the middle of the node's work"
        table.wedge()
        lost = table.lose(why)
        orders = {order for link in self.up if link.client is not None for order in link.client.orders.values()}
        for desk in table.desks.values():
            lost += desk.lose(f"The lock {desk.name} is lost: {why}.")  # whatever it says of itself
            desk.queue = desk.want = None
            desk.drop()  # whoever still has this desk can do nothing with it
        table.desks, table.dirty = {}, {}
        core.count(())
        core.alarmed = core.renewing = False
        waiting, self.waiting = self.waiting, set()
        for words in self.clients.values():
            end_charges(words)  # what works under a lock of ours ends before the lock is another's
        self.clients.clear()
        for ticket in lost:
            ticket.woken()
        for hold in waiting:
            if hold.state == WAITING:
                hold.desk = None
                hold.woken()
        for order in orders:
            if order.state == WAITING:
                order.desk, order.state = None, FAILED
                order.error = NodeClosed(f"The node {self.name} joins again: {why}. The lock was never held.")
                order.woken()
        self.rejoin()

    def heed_the_clock(self) -> None:
        """If the lease is over, whoever looks next must see it, whether or not the reader had its turn."""
        table = self.core.table
        if self.forked:
            return
        if table.gate and self.now() >= table.until:
            with self.mutex:
                if table.gate and self.now() >= table.until:
                    try:
                        self.core.lapse(self.now())
                        self.core.flush()
                    except BaseException as problem:
                        self.upset(problem)
                        raise

    def after_fork(self) -> None:
        self.mutex = threading.RLock()  # whoever had it is not here
        super().after_fork()

    def descriptors(self) -> list[int]:
        links = [link for link in self.up if isinstance(link, ThreadLink)]
        return [made.fileno() for made in (*self.listening, self.bell, self.rope, *(link.socket for link in links))]

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        with self.mutex:
            self.number += 1
            heappush(self.timers, (self.now() + seconds, self.number, act))
            if self.timers[0][1] == self.number:
                self.ring()

    def soon(self, act: Callable[[], None]) -> None:
        self.after(0.0, act)

    def ring(self) -> None:
        """Wake the reader."""
        if threading.current_thread() is not self.reader:
            with contextlib.suppress(OSError):
                self.rope.send(b"!")

    def _read(self) -> None:
        try:
            self._serve()
        except BaseException:
            # A defect of ours. Nobody may wait for a thread that is not there any more.
            log.exception("group %s: the reader of %s has ended", self.group, self.name)
            with self.mutex:
                self.closing = True
                try:
                    self.core.close(self.now())
                finally:
                    self.registry.close()
                    self._put_away()
                    if self.on_started is not None:
                        self.on_started()

    def _serve(self) -> None:
        while True:
            with self.mutex:
                if self.closing:
                    self._put_away()
                    return
                wait = max(0.0, self.timers[0][0] - self.now()) if self.timers else None
            events = self.selector.select(wait)
            with self.mutex:
                for key, mask in events:
                    self._shielded(lambda key=key, mask=mask: self._one(key, mask), key.data)  # type: ignore[misc]
                while self.inbox:
                    self._shielded(self.inbox.popleft())
                while self.timers and self.timers[0][0] <= self.now():
                    self._shielded(heappop(self.timers)[2])
                self.core.flush()

    def _shielded(self, act: Callable[[], None], link: Any = None) -> None:
        """What goes wrong with one link, or with one thing that was to be done, must not end the reader."""
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
        elif key.fileobj is self.bell:
            with contextlib.suppress(OSError):
                self.bell.recv(4096)
        else:
            self._accept(key.fileobj)

    def _accept(self, listening: Any) -> None:
        try:
            made, _ = listening.accept()
        except OSError as problem:
            if problem.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self.complain(f"a link that came was not made: {problem.strerror}")
                self.selector.unregister(listening)  # or the reader would do nothing else
                self.after(ACCEPT_AGAIN_S, lambda: self._listen_again(listening))
            return
        made.setblocking(False)
        self._take_in(made)

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self.listening:
            self.selector.register(listening, selectors.EVENT_READ, "accept")

    def _take_in(self, made: socket.socket) -> None:
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
        link.shaking, link.local = tls is not None, local
        self.strangers.add(link)
        self.after(HELLO_S, lambda: self._late(link))
        if len(self.strangers) > STRANGERS:
            self._late(next(iter(self.strangers)))
        link.watch()

    def _late(self, link: ThreadLink) -> None:
        self.strangers.discard(link)
        if link.peer is None and link.client is None and not link.closed:
            self.ends(link, "somebody dialled and did not say who it is")

    def connect(self, peer: Peer) -> None:
        where = self.registry.endpoint(peer)
        if where.path or is_numeric(where.host):
            self._connect(peer, where, [] if where.path else resolved(where))
        else:
            # Whoever is asked for a name may take long, and this thread must not: it has the node's mutex.
            threading.Thread(target=self._resolve, args=(peer, where), daemon=True, name="peerlock names").start()

    def _resolve(self, peer: Peer, where: Endpoint) -> None:
        try:
            found = resolved(where)
        except OSError as problem:
            why = str(problem)
            self.post(lambda: self.not_connected(peer, why))
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
            self.soon(lambda why=why: self.not_connected(peer, str(why)))  # type: ignore[misc]
            return
        if problem not in (0, errno.EINPROGRESS, errno.EAGAIN):
            made.close()
            self.soon(lambda: self.not_connected(peer, os.strerror(problem)))
            return
        link = ThreadLink(self, peer, made, connecting=bool(problem))
        if problem:
            link.watch()
        else:
            self.soon(lambda: self.connects(link))

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
            link.fail(str(problem))
            return
        link.shaking = True
        link.shake()

    def shaken(self, link: ThreadLink) -> None:
        if link.dialled is not None:
            self.connected(link)
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

    def _put_away(self) -> None:
        for link in list(self.up):
            if isinstance(link, ThreadLink):
                link.shut()
        while self.timers:
            heappop(self.timers)
        for made in (*self.listening, self.bell, self.rope):
            made.close()
        self.selector.close()

    def __repr__(self) -> str:
        return f"<node {self.name} of the group {self.group}, epoch {self.epoch}>"

    def __enter__(self) -> ThreadNode:
        return self

    def __exit__(self, *what: object) -> None:
        self.leave()


def started(node: ThreadNode, timeout: float | None = None) -> ThreadNode:
    """Join, and wait for the first view."""
    there = threading.Event()
    node.on_started = there.set
    try:
        with node.mutex:
            node.enter_group()
        node.reader.start()
        if not there.wait(timeout):
            raise LockTimeout(
                f"The group {node.group} did not take this node in within {timeout:g} s. Nothing was ever held."
            )
        if node.failure is not None:
            raise node.failure
        node.usable()
    except BaseException:
        with contextlib.suppress(PeerlockError):
            if node.reader.ident is None:
                node.reader.start()
            node.leave()
        raise
    node.on_started = None
    return node
