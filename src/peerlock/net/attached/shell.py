"""What drives an attached process: its page, its connection to the host node, and the socket that
other processes hand numbers over to.

A connection that ends is made again, to the same host node or to the next one; where none runs, one
is started. What this process holds it holds meanwhile, and it enters again where it has a number.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import msgspec

from peerlock.errors import LockTimeout, PeerlockError, ProtocolError, RegistryError, Unreachable
from peerlock.net.attached.connection import Connection
from peerlock.net.attached.directory import AttachedDirectory, Generation, is_stopped
from peerlock.net.attached.page import OwnPage
from peerlock.net.attached.start import Starter
from peerlock.net.base_shell import BaseShell, Handlers, log
from peerlock.net.control.status import NodeStatus
from peerlock.net.files import check_name, short_name
from peerlock.node import effects
from peerlock.node.attached.chain import ProcessId
from peerlock.node.attached.core import AttachedCore
from peerlock.node.attached.messages import Attach, FromHostNode, Group, Handed
from peerlock.node.locks.ticket import Limits
from peerlock.node.peer import Peer
from peerlock.node.wire import Answer, ClientCall, ClientResult

LATE_S = 0.1  # for what the host node need not know at once
MOST_PATHS = 10_000
LOOK_S = 0.15  # while a caller waits, between two looks whether the host node is stopped
IDLE_LOOK_S = 10.0  # else
STOPPED_S = 0.25  # a host node that stays stopped for longer is ended
AGAIN_S = (0.005, 0.01, 0.02, 0.05)  # between tries to reach a host node
_handed = msgspec.msgpack.Decoder(Handed)
_encode = msgspec.msgpack.Encoder().encode


class Attachment:
    """In the place of a member's `Membership`: how the process comes to its host node."""

    look_at = inf  # the host node looks whether the group's place stands

    def __init__(self) -> None:
        self.on_started: Callable[[], None] | None = None
        self.failure: PeerlockError | None = None

    def stands(self) -> bool:
        return True


class HostWatch:
    """Finds the host node, and looks after it. A host node that is stopped helps nobody, and what is
    held does not need it: it is ended, and the next one takes its place.
    """

    def __init__(self, shell: AttachedShell) -> None:
        self.shell = shell
        self.host: Generation | None = None  # that is connected
        self.stopped_since: float | None = None

    def reached(self) -> Connection:
        """A connection to the newest host node. Where none answers, one is started. In a thread of its
        own, for it may take a while.
        """
        shell = self.shell
        try:
            newest = shell.directory.newest()
            if newest is None:
                raise Unreachable("no host node has run yet")
            if is_stopped(newest):
                time.sleep(STOPPED_S)
                self.end_if_stopped(newest)
            made = Connection(Path(newest.socket), shell.group, Attach(shell.process, shell.name, os.getpid()))
        except (Unreachable, OSError):
            shell.start()
            raise
        if not made.welcome.sentence and made.welcome.generation == newest.number:
            self.host = newest
            return made
        made.close()
        if made.welcome.sentence:
            raise RegistryError(made.welcome.sentence)
        raise Unreachable("there is a newer host node")

    def look(self) -> None:
        """A caller waits."""
        shell = self.shell
        if self.is_lost():
            return
        if shell.connection is not None and self.host is not None:
            stopped, now = is_stopped(self.host), shell.now()
            if not stopped:
                self.stopped_since = None
            elif self.stopped_since is None:
                self.stopped_since = now
            elif now - self.stopped_since >= STOPPED_S:
                self.end_if_stopped(self.host)
        shell.core.looked_at_host()
        shell.carry_out()

    def look_now_and_then(self) -> None:
        """Also if no caller waits: others may wait for what this process keeps."""
        shell = self.shell
        if shell.closing or shell.forked:
            return
        if self.is_lost():
            return
        if self.host is not None and is_stopped(self.host):
            shell.core.table.alarm()
            shell.carry_out()
        shell.after(IDLE_LOOK_S, self.look_now_and_then)

    def is_lost(self) -> bool:
        """The directory was removed or moved: what is held is lost, and callers that wait are told."""
        shell = self.shell
        if shell.closing or shell.page.path.exists():
            return shell.closing
        log.error("group %s: %s is gone; this node has left the group", shell.group, shell.directory.path)
        shell.say_farewell()
        return True

    def end_if_stopped(self, host: Generation) -> None:
        shell = self.shell
        if is_stopped(host):
            log.warning("group %s: the host node (process %d) is stopped, and is ended", shell.group, host.pid)
            shell.directory.signal_host(host, signal.SIGKILL)


class AttachedShell(BaseShell[AttachedCore]):
    def __init__(
        self, directory: AttachedDirectory, group: str, name: str | None, algorithm: str, limits: Limits | None,
        start: Starter,
    ) -> None:  # fmt: skip
        super().__init__(group, algorithm)
        self.directory, self.start = directory, start
        directory.make()
        self.own_name = check_name("node", name) if name else f"{socket.gethostname().split('.')[0]}-{os.getpid()}"
        self.appear()
        self.core = AttachedCore(self.peer(), group, limits or Limits(), self.page, self.hand)
        self.host_name = ""
        self.membership = Attachment()
        self.connection: Connection | None = None
        self.connecting = False
        self.tries = 0
        self.asking: dict[int, Callable[[ClientResult], None]] = {}
        self.asked = 0
        self.paths: dict[ProcessId, str] = {}  # of processes that numbers were handed over to
        self.flushing = False  # what was said goes out soon
        self.flushing_late = False  # what need not be known at once goes out in a while
        self.host_watch = HostWatch(self)
        self.handlers: Handlers = {effects.LookAtHost: lambda effect: self.after(LOOK_S, self.host_watch.look)}

    def appear(self) -> None:
        """A page and a socket of its own."""
        self.process: ProcessId = secrets.randbits(63)
        try:
            self.page = OwnPage(self.directory.page(self.process), self.directory.shared)
        except OSError as problem:
            raise RegistryError(f"{self.directory.path} cannot be used: {problem.strerror}.") from None
        try:
            self.hands = self._listen()
        except BaseException:
            self.page.close()
            raise

    def disappear(self) -> None:
        """From then on this process is dead for its host node."""
        self.unwatch(self.hands)
        self.hands.close()
        self.directory.hands(self.process).unlink(missing_ok=True)
        self.page.close()
        if self.connection is not None:
            self.unwatch(self.connection.socket)
            self.connection.close()
            self.connection = None

    def peer(self) -> Peer:
        return Peer(self.own_name, self.process, "", os.getpid())

    @property
    def name(self) -> str:
        return self.core.me.name

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def epochs(self) -> int:
        return self.core.views

    @property
    def members(self) -> tuple[str, ...]:
        return self.core.members

    # -- what asyncio and threads do in their own ways ---------------------------------------------------

    def watch(self, made: socket.socket, ready: Callable[[], object]) -> None:
        raise NotImplementedError

    def unwatch(self, made: socket.socket) -> None:
        raise NotImplementedError

    def watch_room(self, made: socket.socket, ready: Callable[[], object] | None) -> None:
        """Until there is room to write; None: no more."""
        raise NotImplementedError

    # -- the host node -----------------------------------------------------------------------------------

    def enter_group(self) -> None:
        self.watch(self.hands, self.on_hands)
        self.connect()
        self.after(IDLE_LOOK_S, self.host_watch.look_now_and_then)

    def connect(self) -> None:
        """To the newest generation; in a thread of its own, for a host node that is stopped does not
        answer.
        """
        if not (self.closing or self.forked or self.connecting) and self.connection is None:
            self.connecting = True
            threading.Thread(target=self._reach, daemon=True, name="peerlock connects").start()

    def _reach(self) -> None:
        try:
            found: Connection | Exception = self.host_watch.reached()
        except (PeerlockError, OSError) as problem:
            found = problem
        if self.is_gone() and isinstance(found, Connection):
            found.close()
        self.post(lambda: self._on_reached(found))

    def _on_reached(self, found: Connection | Exception) -> None:
        self.connecting = False
        if isinstance(found, Connection):
            if self.closing or self.forked:
                found.close()
            else:
                self.connected(found)
        elif isinstance(found, Unreachable | OSError):
            self.reason = str(found)
            pause = AGAIN_S[min(self.tries, len(AGAIN_S) - 1)]
            self.tries += 1
            self.after(pause, self.connect)
        elif isinstance(found, PeerlockError):
            self.fail(found)

    def fail(self, failure: PeerlockError) -> None:
        """It cannot be attached."""
        self.complain(str(failure).rstrip("."))
        if self.membership.on_started is not None:
            self.membership.failure = failure
            self.membership.on_started()
        else:
            self.after(1.0, self.connect)

    def connected(self, made: Connection) -> None:
        self.tries, self.connection, self.host_name = 0, made, made.welcome.name
        self.watch(made.socket, self.on_host)
        made.on_unsent = lambda waits: self.watch_room(made.socket, made.flush if waits else None)
        self.core.welcomed(made.welcome.generation, self.now())
        self.carry_out()
        self.on_frames(made)  # what came along with the welcome

    def on_host(self) -> None:
        made = self.connection
        if made is not None:
            self.on_frames(made)

    def on_frames(self, made: Connection) -> None:
        try:
            for frame in made.read():
                self.on_frame(made, frame)
        except ProtocolError as problem:
            self.disconnected(str(problem))

    def on_frame(self, made: Connection, frame: object) -> None:
        match frame:
            case FromHostNode():
                self.core.receive(made.welcome.generation, frame, self.now())
            case Group():
                self.core.in_view(frame.epoch, frame.members)
                if self.membership.on_started is not None:
                    self.membership.on_started()
            case ClientResult():
                done = self.asking.pop(frame.number, None)
                if done is not None:
                    done(frame)
            case Answer():
                pass
            case _:
                raise ProtocolError(f"it says {type(frame).__name__}, which is no word of a host node")

    def disconnected(self, why: str) -> None:
        made, self.connection = self.connection, None
        if made is None:
            return
        self.unwatch(made.socket)
        made.close()
        self.core.disconnected()
        if not self.closing:
            log.info("group %s: the host node is gone (%s)", self.group, why)
            self.after(0.0, self.connect)

    # -- hand-overs --------------------------------------------------------------------------------------

    def _listen(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            path = self.directory.hands(self.process)
            with short_name(path) as short:
                made.bind(short)
            path.chmod(0o600)
            made.setblocking(False)
        except OSError as problem:
            made.close()
            raise RegistryError(f"{self.directory.path} cannot be used: {problem.strerror}.") from None
        return made

    def hand(self, process: ProcessId, handed: Handed) -> bool:
        """Hand a number over. False: that process cannot be reached."""
        path = self.paths.get(process)
        try:
            if path is not None:
                self.hands.sendto(_encode(handed), path)
                return True
            with short_name(self.directory.hands(process)) as short:
                self.hands.sendto(_encode(handed), short)
                if len(self.paths) < MOST_PATHS and not short.startswith("/proc"):
                    self.paths[process] = short
        except OSError:  # it is gone, or does not read
            self.paths.pop(process, None)
            return False
        return True

    def on_hands(self) -> None:
        try:
            data = self.hands.recv(65536)
        except OSError:
            return
        with contextlib.suppress(msgspec.DecodeError):
            self.core.handed(_handed.decode(data), self.clock())

    def read_now(self) -> None:
        """What has come, without waiting for the event loop's turn."""
        self.on_host()

    # -- effects -----------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        core, table, handlers = self.core, self.core.table, self.handlers
        while True:
            if table.dirty and not self.flushing:
                self.flushing = True
                self.soon(self.flush)
            elif table.late and not self.flushing_late:
                self.flushing_late = True
                self.after(LATE_S, self.flush_late)
            if not core.effects:
                return
            effect = core.effects.pop(0)
            if type(effect) is effects.Wake:
                effect.ticket.woken()
            elif type(effect) in handlers:
                handlers[type(effect)](effect)

    def soon(self, act: Callable[[], object]) -> None:
        """In this turn of the event loop, or under this mutex, once what is going on is done."""
        raise NotImplementedError

    def flush_late(self) -> None:
        self.flushing_late = False
        self.flush()

    def flush(self) -> None:
        """What is to be said to the host node goes out together."""
        self.flushing = False
        for frame in self.core.take_frames():
            if self.connection is not None:
                self.connection.write(frame)

    # -- callers -----------------------------------------------------------------------------------------

    def collect(self) -> None:
        self.core.request_epoch()

    def ask_status(self, done: Callable[[NodeStatus], None], wait_s: float) -> None:
        """The host node knows."""

        def answered(result: ClientResult) -> None:
            done(msgspec.convert(result.value, NodeStatus))

        if self.connection is None:
            self.after(0.05, lambda: self.ask_status(done, wait_s))
            return
        self.asked += 1
        self.asking[self.asked] = answered
        self.connection.write(ClientCall(self.asked, "status", {}))

    def not_in_time(self, timeout: float) -> LockTimeout:
        return LockTimeout(
            f"The host node of the group {self.group} did not answer within {timeout:g} s"
            + (f": {self.reason.rstrip('.')}." if self.reason else ".")
            + " Nothing was ever held."
        )

    def record_process_groups(self, words: bytes) -> None:
        self.page.record_process_groups(words)

    # -- the end -----------------------------------------------------------------------------------------

    def say_farewell(self) -> None:
        """What is held is given back, and the callers that wait are told."""
        self.closing = True
        self.core.close(self.now())
        self.carry_out()
        self.flush()
        self.disappear()

    def open_descriptors(self) -> list[int]:
        made = [self.hands, *([self.connection.socket] if self.connection is not None else [])]
        return [each.fileno() for each in made]


__all__ = ["AttachedShell", "Attachment"]
