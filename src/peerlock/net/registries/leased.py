"""What registries with leases have in common. How voters or a store are reached is not in here.

The node asks (in its own thread), the heartbeat thread does, and answers through `Shell.post`. A
kind of registry says how its agent is made, and carries what the agent sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from peerlock.errors import UsageError, shown
from peerlock.file_lock import give_up, open_locked
from peerlock.net.files import check_name, directory_for, listen_at, listen_on, make_private
from peerlock.net.processes.groups import end_process_groups
from peerlock.net.processes.watchdog import Watchdog
from peerlock.net.registries.base import Registry, View
from peerlock.net.registries.heartbeat_thread import HeartbeatThread, boottime, log
from peerlock.net.transport.endpoint import Endpoint, is_loopback, parse_address
from peerlock.net.transport.tls import Tls, check_tls, contexts
from peerlock.node.membership.agent import MembershipAgent
from peerlock.node.membership.lease import RHO
from peerlock.node.peer import Peer
from peerlock.node.store.requests import Request

if TYPE_CHECKING:
    from peerlock.net.shell import Shell

LEASE_S = 5.0
STALL_S = 10.0
SHORTEST_S, LONGEST_S = 0.5, 3600.0


def checked_lease(lease_s: float | None) -> float:
    if lease_s is None:
        return LEASE_S
    if not SHORTEST_S <= lease_s <= LONGEST_S:
        raise UsageError(
            f"A lease is at least {SHORTEST_S} s, so that a busy machine can keep it, and at most {LONGEST_S:g}; "
            f"got {shown(lease_s)}."
        )
    return lease_s


A = TypeVar("A", bound=MembershipAgent)


class LeasedRegistry(Registry, Generic[A]):
    leases = True
    outside = True

    def __init__(
        self,
        group: str,
        name: str | None = None,
        *,
        where: list[Endpoint],
        address: str | None = None,
        bind: str | None = None,
        tls: Tls | None = None,
        insecure: bool = False,
        lease_s: float | None = None,
        stall_s: float | None = None,
        watchdog: bool = False,
        state: str | Path | None = None,
        clock: Callable[[], float] | None = None,
        steady: Callable[[], float] | None = None,
        resident: bool = False,
    ) -> None:
        """`where` the deciders are; `address`: where the others reach this node, HOST or HOST:PORT;
        `bind`: what this host has.
        """
        self.group = check_name("group", group)
        self.name = check_name("node", name or f"{socket.gethostname().split('.')[0]}-{os.getpid()}")
        self.lease_s, self.stall_s = checked_lease(lease_s), STALL_S if stall_s is None else stall_s
        if not 0 < self.stall_s < inf:
            raise UsageError(f"stall_s is a number of seconds above 0; got {shown(stall_s)}.")
        # Not before its own heartbeats would stop: an event loop that is merely busy is no broken pair.
        self.patience_s = max(self.lease_s, self.stall_s)
        self.resident = resident  # serves the command line
        if clock is not None:
            self.clock = clock
        if steady is not None:
            self.steady = steady
        self.host, self.port = self._address(address, where)
        self.bind, self.source = bind or self.host, bind
        check_tls(group, tls, insecure, [Endpoint(host=self.bind), *where])
        self.tls_contexts = contexts(tls, self.name) if tls is not None else None
        self.path = self._place(state)
        self.me: Peer | None = None
        self.links: set[Peer] = set()
        self.listening: socket.socket | None = None  # for all incarnations
        self.process_groups: tuple[Path, int] | None = None
        self.departed = threading.Event()
        self.on_leased: Callable[[float], None] | None = None  # for an observer
        self.asked_at: float | None = None  # the node was asked whether it is there, and has not answered
        self.agent = self.make_agent(AgentShell(self))
        self.heartbeat_thread = HeartbeatThread(f"peerlock beats {group}")
        self.watchdog = Watchdog() if watchdog else None

    # For leases, which must be over after a suspension; and for patience and promises, which may
    # become longer by one.
    clock: Callable[[], float] = staticmethod(boottime)
    steady: Callable[[], float] = staticmethod(time.monotonic)

    # -- for the kinds -----------------------------------------------------------------------------------

    def make_agent(self, shell: AgentShell) -> A:
        raise NotImplementedError

    def send(self, to: str, message: Any) -> None:
        """To a voter."""
        raise NotImplementedError

    def ask(self, request: Request) -> None:
        """Of a store."""
        raise NotImplementedError

    def begin(self) -> None:
        """In the heartbeat thread: connect to the voters, or to the store."""
        raise NotImplementedError

    # -- where we are ------------------------------------------------------------------------------------

    def _address(self, address: str | None, where: list[Endpoint]) -> tuple[str, int]:
        if address is not None:
            if address.count(":") == 1 or "]:" in address:
                found = parse_address("this node", address)
                return found.host, found.port
            return address.strip("[]"), 0
        if all(is_loopback(endpoint.host) for endpoint in where):
            return "127.0.0.1", 0
        for endpoint in where:
            # Which of our addresses leads there? Nothing is sent.
            with contextlib.suppress(OSError):
                family, _, _, _, there = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, socket.SOCK_DGRAM) as made:
                    made.connect(there)
                    return made.getsockname()[0], 0
        raise UsageError(
            f"No way to {', '.join(map(str, where))} was found: say where this node is reached with address= "
            "(HOST or HOST:PORT)."
        )

    def _place(self, state: str | Path | None) -> Path:
        if state is not None:
            return Path(state)
        directory = directory_for(self.group)
        make_private(directory)
        return directory / f"{self.kind}-{self.name}"

    @property
    def control(self) -> Path:
        """Where the command line finds this node."""
        return self.path.with_name(f"{self.path.name}{'' if self.resident else '.member'}.socket")

    # -- what a node asks ----------------------------------------------------------------------------------

    def incarnate(self) -> Peer:
        self._end_orphans()
        if self.listening is None:
            self.listening = listen_on(self.name, self.bind, self.port)
        host, port = self.host, self.listening.getsockname()[1]
        self.links.clear()
        self.me = Peer(
            self.name, secrets.randbits(62) + 1, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", os.getpid()
        )
        return self.me

    def listeners(self) -> list[socket.socket]:
        assert self.listening is not None
        self.control.unlink(missing_ok=True)
        return [self.listening.dup(), listen_at(self.control, 0o600)]

    def descriptors(self) -> list[int]:
        found = [self.listening.fileno()] if self.listening is not None else []
        found += [self.watchdog.channel.fileno()] if self.watchdog is not None else []
        return found + self.heartbeat_thread.descriptors()

    def endpoint(self, peer: Peer) -> Endpoint:
        return parse_address(peer.name, peer.address)

    def tls(self, server: bool) -> ssl.SSLContext | None:
        return self.tls_contexts[server] if self.tls_contexts is not None else None

    def greeted(self, peer: Peer, certificate: str | None) -> str | None:
        why = self.misnamed(peer.name, certificate)
        return f"it says to be {peer.name}, and {why}" if why else None

    def change(self, even_if_the_same: bool = False) -> View | None:
        if even_if_the_same:
            known = self.shell.core.view_change.known
            self.heartbeat_thread.call(lambda: self.agent.wants_renewal(known, self.clock()))
        else:
            me = self.me
            assert me is not None
            self.heartbeat_thread.call(self._arrive, me)
        return None

    def _arrive(self, me: Peer) -> None:
        self.lapsed()  # nothing is held by the one before: the watchdog has nothing to end
        if not self.agent.started:
            self.begin()
        self.agent.links = frozenset(self.links)
        self.agent.arrive(me, self.clock())

    def exclude(self, peers: tuple[Peer, ...]) -> tuple[View | None, tuple[Peer, ...]]:
        self.heartbeat_thread.call(lambda: self.agent.suspect(peers, self.clock()))
        return None, peers

    def relieve(self) -> None:
        self.heartbeat_thread.call(lambda: self.agent.suspect((), self.clock()))

    def linked(self, peer: Peer) -> None:
        self.links.add(peer)
        self._reached()

    def unlinked(self, peer: Peer) -> None:
        self.links.discard(peer)
        self._reached()

    def _reached(self) -> None:
        links = frozenset(self.links)
        self.heartbeat_thread.call(lambda: self.agent.reached(links, self.clock()))

    def answer(self) -> None:
        """The node is there."""
        self.asked_at = None

    # What works under our locks stands in a file that this process has locked for as long as it
    # lives: a file that nobody has locked is of a process that is dead, and what it started is
    # ended by the next one with its name.

    def _end_orphans(self) -> None:
        for path in self.path.parent.glob(f"{self.path.name}.*.groups"):
            with contextlib.suppress(OSError):
                descriptor = open_locked(path, os.O_RDWR, wait=False)
                try:
                    if end_process_groups(os.pread(descriptor, 2**20, 0), os.fstat(descriptor).st_uid):
                        path.unlink()
                finally:
                    give_up(descriptor)

    def record_process_groups(self, words: bytes) -> None:
        if self.process_groups is None:
            if not words:
                return
            path = self.path.with_name(f"{self.path.name}.{secrets.token_hex(6)}.groups")
            self.process_groups = path, open_locked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, wait=True)
        _, descriptor = self.process_groups
        # Written over what was there before anything is cut off: killed in between, we have left
        # nobody out.
        os.pwrite(descriptor, words.ljust(os.fstat(descriptor).st_size, b"\n"), 0)
        os.ftruncate(descriptor, len(words))

    def kick(self, name: str) -> str:
        raise UsageError(
            f"{name} is excluded as soon as it has not been heard of for {self.lease_s:g} s: no kick is needed. "
            "To leave it out at once, end it with a signal that it can handle: it leaves the group itself."
        )

    def waits_for(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.agent.waits_for(self.clock())
        return found

    def leave(self) -> View | None:
        self.heartbeat_thread.call(lambda: self.agent.leave(self.clock()))
        return None

    def left(self, wait_s: float) -> bool:
        return self.departed.wait(wait_s)

    def arm(self, until: float) -> None:
        if self.watchdog is not None and not self.shell.closing:
            self.watchdog.must_be_dead_at(until + RHO * self.lease_s)

    def lapsed(self) -> None:
        if self.watchdog is not None:
            self.watchdog.must_be_dead_at(inf)

    def close(self) -> None:
        self.heartbeat_thread.stop()
        self.control.unlink(missing_ok=True)
        if self.listening is not None:
            self.listening.close()
            self.listening = None
        if self.process_groups is not None:
            path, descriptor = self.process_groups
            self.process_groups = None
            path.unlink(missing_ok=True)
            give_up(descriptor)
        if self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None


class AgentShell:
    """What an agent asks for. All of this happens in the heartbeat thread."""

    def __init__(self, registry: LeasedRegistry[Any]) -> None:
        self.registry = registry
        self.timer: asyncio.TimerHandle | None = None
        self.said_so = False  # that the node hangs

    def post(self, act: Callable[[Shell], None]) -> None:
        shell = self.registry.shell
        shell.post(lambda: act(shell))

    def learned(self, view: View) -> None:
        self.post(lambda shell: shell.membership.take(view))

    def leased(self, until: float) -> None:
        registry = self.registry
        registry.shell.core.deadline.extend(until, registry.clock())
        registry.arm(until)
        if registry.on_leased is not None:
            registry.on_leased(until)
        self.post(lambda shell: shell.permission.leased(until))

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        self.post(lambda shell: shell.links.dial_early(peers))

    def left(self) -> None:
        self.registry.departed.set()

    def new_incarnation(self) -> None:
        self.post(lambda shell: shell.membership.rejoin())

    def complain(self, sentence: str) -> None:
        self.post(lambda shell: shell.complain(sentence))

    def refuse(self, sentence: str) -> None:
        self.post(lambda shell: shell.membership.refuse(sentence))

    def steady(self) -> float:
        return self.registry.steady()

    def wake_at(self, when: float) -> None:
        registry = self.registry
        if self.timer is not None:
            self.timer.cancel()
        self.timer = registry.heartbeat_thread.loop.call_later(max(0.0, when - registry.clock()), self.tick)

    def tick(self) -> None:
        self.timer = None
        self.registry.agent.tick(self.registry.clock())

    def may_send_heartbeat(self) -> bool:
        registry = self.registry
        now = registry.clock()
        if registry.watchdog is not None and not registry.watchdog.is_there():
            log.error("group %s: the watchdog of %s is gone: no lease without it", registry.group, registry.name)
            return False
        if registry.asked_at is None:
            registry.asked_at = now
            registry.shell.post(registry.answer)
        silent = now - (registry.asked_at or now)
        if silent < registry.stall_s:
            self.said_so = False
        elif not self.said_so:
            self.said_so = True
            log.error(
                "group %s: the node %s has not answered for %.1f s: it hangs, and is not kept alive any longer",
                registry.group, registry.name, silent,
            )  # fmt: skip
        return silent < registry.stall_s

    def send(self, to: str, message: Any) -> None:
        self.registry.send(to, message)

    def ask(self, request: Request) -> None:
        self.registry.ask(request)


__all__ = ["LEASE_S", "STALL_S", "LeasedRegistry"]
