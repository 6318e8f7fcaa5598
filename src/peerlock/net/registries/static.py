"""The registry of a fixed list of hosts: the papers' assumption, stated.

Everybody on the list is a member, and a node that is down is waited for, as in the papers, until it is back or the
operator says that it is dead. So no node ever has to guess, and a decision needs everybody:

- Of two nodes the one with the greater name dials the other, again and again. A node says its name with its certificate,
  and its incarnation.
- Each node keeps a file with the newest epoch that it has heard of, written and synced before it acts on it. On a new
  link both sides tell what they know.
- The *first* of the list that is present decides. It decides a view when it has a link to everybody who is present, all
  of them agree on who is absent, and the members (their incarnations) are others than those of its view. The epoch is
  one more than any that any of them has heard of.

One view an epoch: only one node decides, it writes the epoch down before it tells anybody, and it never takes one that
it, or anybody present, knows. Who is first changes only with who is absent, and everybody present must agree on that.

*Absent* is who has left, by its own word, or who the operator says is dead. The operator must be right: a node that is
taken for dead and is not may hold a lock. What it says is not listened to any more, under that incarnation; started
again it is present again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peerlock.errors import RegistryError, UsageError
from peerlock.file_lock import give_up, lock_for_one
from peerlock.net.complaints import warn_once
from peerlock.net.files import check_name, directory_for, listen_at, listen_on, make_private, write_durably
from peerlock.net.processes.groups import end_process_groups
from peerlock.net.registries.base import Endpoint, Registry, View
from peerlock.net.transport.tls import contexts
from peerlock.node.peer import Peer
from peerlock.node.wire import Hello, StaticState, framed


class Tls(Struct, frozen=True):
    """Files in PEM: the authority that signed every node's certificate, this node's certificate, its key."""

    ca: str
    cert: str
    key: str


class NodeRecord(Struct):
    """What a node remembers."""

    group: str
    name: str
    epoch: int = 0
    starts: int = 0  # how often this node was started
    absent: dict[str, int] = {}  # who need not be waited for, in this incarnation and older ones
    seen: dict[str, int] = {}  # the newest incarnation of each that anybody has told of


def parse_address(name: str, text: str) -> Endpoint:
    host, colon, port = str(text).rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise UsageError(f"The address of {name} must be HOST:PORT; got {text!r}.")
    return Endpoint(host=host.strip("[]"), port=int(port))


def is_loopback(host: str) -> bool:
    """An address, or `localhost` if that leads nowhere else: any other name is what a name server says it is."""
    try:
        if host != "localhost":
            return ipaddress.ip_address(host).is_loopback
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
    except (OSError, ValueError):
        return False


def check_tls(group: str, tls: Tls | None, insecure: bool, where: Iterable[Endpoint]) -> None:
    if tls is not None or insecure:
        return
    if not all(is_loopback(endpoint.host) for endpoint in where):
        raise UsageError(
            "Nodes on several hosts talk over TLS: give tls= (ca, cert, key); `peerlock certs` makes them. "
            "With insecure=True anybody who can reach the ports can take the locks."
        )
    warn_once(
        f"Without TLS every user of this host can join the group {group} as a node that is not there, and take its locks. "
        "Give tls= (`peerlock certs` makes the files), or insecure=True if all of them may."
    )


class StaticRegistry(Registry):
    kind = "static"
    outside = True

    def __init__(
        self,
        group: str,
        name: str,
        nodes: Mapping[str, str],
        *,
        tls: Tls | None = None,
        insecure: bool = False,
        assume_dead: tuple[str, ...] = (),
        state: str | Path | None = None,
    ) -> None:
        self.group, self.name = check_name("group", group), check_name("node", name)
        self.nodes = {check_name("node", other): parse_address(other, text) for other, text in nodes.items()}
        if name not in self.nodes:
            raise UsageError(
                f"This node is called {name!r} and is not on the list: {', '.join(self.nodes)}. "
                "Set name= or PEERLOCK_NAME, or add it to the list of every node."
            )
        check_tls(group, tls, insecure, self.nodes.values())
        self._tls = contexts(tls, self.name) if tls is not None else None
        self.order = sorted(self.nodes)
        self.me: Peer | None = None
        self.present: dict[str, Peer] = {}  # who has a link to us
        self.tells: dict[Peer, StaticState] = {}
        self.view: View | None = None
        self.wants_renewal = False
        self.gone = False
        self.path = self._place(state)
        self.lock = lock_for_one(self.path, f"The node {name} of the group {group}")
        try:
            self.record = self._read()
            for dead in assume_dead:
                self._assume(dead)
        except BaseException:
            give_up(self.lock)
            raise

    # -- the file --------------------------------------------------------------------------------------

    def _place(self, state: str | Path | None) -> Path:
        if state is not None:
            return Path(state)
        directory = directory_for(self.group)
        make_private(directory)
        return directory / f"static-{self.name}.json"

    def _read(self) -> NodeRecord:
        try:
            record = msgspec.json.decode(self.path.read_bytes(), type=NodeRecord)
        except FileNotFoundError:
            return NodeRecord(self.group, self.name)
        except (OSError, msgspec.DecodeError) as problem:
            raise RegistryError(
                f"{self.path} cannot be read ({problem}): it says which epochs this node has seen. Restore it, or stop "
                "all nodes of the group, remove it everywhere and start again; fences then start again, too."
            ) from None
        if (record.group, record.name) != (self.group, self.name):
            raise RegistryError(
                f"{self.path} is of the node {record.name} of the group {record.group}, not of {self.name} of {self.group}."
            )
        return record

    def _write(self) -> None:
        write_durably(self.path, msgspec.json.encode(self.record))

    # -- this node -------------------------------------------------------------------------------------

    def incarnate(self) -> Peer:
        # A later incarnation has a larger id, so that old news can be told from new.
        self.record.starts += 1
        self._write()
        with contextlib.suppress(FileNotFoundError):
            left_behind = self.process_groups.read_bytes()  # by an earlier process of this name
            if not end_process_groups(left_behind, self.process_groups.stat().st_uid):
                raise RegistryError(
                    f"{self.process_groups} names commands that work under locks of an earlier {self.name}, and they cannot "
                    "be ended: end them, and remove the file."
                )
            self.process_groups.unlink()
        self.present, self.tells, self.view = {}, {}, None
        self.me = Peer(self.name, self.record.starts << 31 | secrets.randbits(31), "", os.getpid())
        return self.me

    @property
    def process_groups(self) -> Path:
        return self.path.with_name(self.path.name + ".groups")

    def record_process_groups(self, words: bytes) -> None:
        if self.lock >= 0:  # else the file may be another process's by now
            write_durably(self.process_groups, words)

    def listeners(self) -> list[socket.socket]:
        where = self.nodes[self.name]
        made = listen_on(self.name, where.host, where.port)
        self.control.unlink(missing_ok=True)  # of a process that is dead: we have its lock
        return [made, listen_at(self.control, 0o600)]

    @property
    def control(self) -> Path:
        """Where the command line finds this node."""
        return self.path.with_suffix(".socket")

    def endpoint(self, peer: Peer) -> Endpoint:
        return self.nodes[peer.name]

    def tls(self, server: bool) -> ssl.SSLContext | None:
        return self._tls[server] if self._tls is not None else None

    def greeted(self, peer: Peer, certificate: str | None) -> str | None:
        if peer.name not in self.nodes:
            return f"{peer.name} is not on the list of this node ({', '.join(self.order)})"
        if peer.name == self.name:
            return f"{peer.name} is the name of this node"
        if why := self.misnamed(peer.name, certificate):
            return f"it says to be {peer.name}, and {why}"
        if self.is_gone(peer):
            return f"{peer.name} was said to be dead, or has left, in this incarnation"
        if peer.id < self.record.seen.get(peer.name, 0):
            return f"this is an old incarnation of {peer.name}, or it has lost its file and counts from the beginning"
        present = self.present.get(peer.name)
        if present is not None and present.id != peer.id and self.shell.hears(present):
            return f"{peer.name} is here already, with another process ({present.pid}): there can be one of that name"
        return None

    # -- links -----------------------------------------------------------------------------------------

    def reach(self, peer: Peer) -> None:
        """This registry makes the links by itself."""

    def is_addressed(self, to: int, me: Peer) -> bool:
        """A node that starts does not know which incarnations the others are."""
        return to in (0, me.id)

    def excludes_us(self, hello: Hello) -> bool:
        return hello.gone

    def dial(self) -> None:
        """A node that starts dials all others: one may still have a link to an earlier incarnation of this node."""
        for name in self.order:
            if name != self.name and name not in self.present:
                self.shell.links.dial(Peer(name, 0))

    def linked(self, peer: Peer) -> None:
        self._saw(peer.name, peer.id)
        self._write()
        self.present[peer.name] = peer
        self.tell()

    def _saw(self, name: str, incarnation: int) -> None:
        """There is, or was, that incarnation. Who is absent in an older one is not absent any more."""
        self.record.seen[name] = max(incarnation, self.record.seen.get(name, 0))
        if self.record.absent.get(name, incarnation) < incarnation:
            del self.record.absent[name]

    def unlinked(self, peer: Peer) -> None:
        if self.present.get(peer.name) == peer:
            del self.present[peer.name]
        self.tells.pop(peer, None)
        if peer.name < self.name and peer.name not in self.present:
            self.shell.links.dial(Peer(peer.name, 0))
        self.heed()

    def tell(self, leaving: bool = False, renew: bool = False) -> None:
        """Everybody who is linked hears what we know."""
        absent, seen = (tuple(sorted(found.items())) for found in (self.record.absent, self.record.seen))
        words = framed(StaticState(self.record.epoch, absent, seen, leaving, renew))
        for peer in self.present.values():
            self.shell.links.write(peer, words)
        self.decide()

    def told(self, peer: Peer, tell: StaticState) -> None:
        if tell.leaving:
            self._are_absent({peer.name: peer.id})
            return
        self.tells[peer] = tell
        self.wants_renewal = self.wants_renewal or tell.renew
        self.heed()
        self.decide()

    def heed(self) -> None:
        """What the others have told of who is there and who is not, in the newest incarnation that anybody knows of."""
        before = (dict(self.record.absent), dict(self.record.seen))
        gone: dict[str, int] = {}
        for tell in self.tells.values():
            for name, incarnation in tell.seen:
                if name in self.nodes and name != self.name:
                    self._saw(name, incarnation)
        for tell in self.tells.values():
            for name, incarnation in tell.absent:
                if name not in self.nodes or name == self.name or incarnation < self.record.seen.get(name, 0):
                    continue  # old news
                if name in self.present:
                    self.shell.complain(f"{name} is said to be dead, but it has a link to this node: it is waited for")
                elif self.record.absent.get(name, -1) < incarnation:
                    gone[name] = incarnation
        if gone:
            self._are_absent(gone)
        elif before != (self.record.absent, self.record.seen):
            self._write()
            self.tell()

    def _are_absent(self, names: Mapping[str, int]) -> None:
        self.record.absent |= names
        self._write()
        for name in names:
            peer = self.present.pop(name, None)
            if peer is not None:
                self.tells.pop(peer, None)
                self.shell.links.hang_up(peer, f"{name} is not waited for any more")
        self.tell()

    def is_gone(self, peer: Peer) -> bool:
        return peer.name in self.nodes and peer.id <= self.record.absent.get(peer.name, -1)

    # -- views -----------------------------------------------------------------------------------------

    def everybody(self) -> list[str]:
        return [name for name in self.order if name not in self.record.absent]

    def waits_for(self) -> tuple[str, ...]:
        return tuple(name for name in self.everybody() if name != self.name and name not in self.present)

    def decide(self) -> None:
        """If it is for us to decide, and everybody is there and agrees, and there is something to decide."""
        names = self.everybody()
        if not names or names[0] != self.name or self.me is None or self.waits_for() or self.gone:
            return
        mine = tuple(sorted(self.record.absent.items()))
        others = [self.present[name] for name in names if name != self.name]
        if any(peer not in self.tells or self.tells[peer].absent != mine for peer in others):
            return
        members = tuple(sorted([self.me, *others]))
        if self.view is not None and self.view.members == members and not self.wants_renewal:
            return
        self.wants_renewal = False
        epoch = 1 + max([self.record.epoch, *(self.tells[peer].epoch for peer in others)])
        self.shell.membership.take(View(epoch, members))

    def newest(self) -> View | None:
        return self.view

    def change(self, even_if_the_same: bool = False) -> View | None:
        self.dial()
        if even_if_the_same:
            self.wants_renewal = True
            self.tell(renew=True)
        else:
            self.decide()
        return None

    def learned(self, view: View) -> None:
        """Written down before anything is done in that epoch."""
        if view.epoch > self.record.epoch:
            before, self.record.epoch = self.record.epoch, view.epoch
            try:
                self._write()
            except RegistryError:
                self.record.epoch = before
                raise
        self.view = view

    def kick(self, name: str) -> str:
        if name not in self.nodes:
            raise UsageError(f"{name} is not on the list: {', '.join(self.order)}.")
        if name == self.name:
            raise UsageError(f"{name} is this node, which is alive.")
        if name in self.present:
            raise UsageError(f"{name} is alive: it has a link to {self.name}. Stop it first.")
        self._assume(name)
        self.tell()
        return f"{name} is taken for dead. If it is not, two nodes may hold one lock: make sure that it is off."

    def _assume(self, name: str) -> None:
        if name not in self.nodes or name == self.name:
            raise UsageError(f"--assume-dead {name}: it must be another node of the list: {', '.join(self.order)}.")
        self.record.absent[name] = self.record.seen.get(name, 0)
        self._write()

    def leave(self) -> View | None:
        self.gone = True
        with contextlib.suppress(RegistryError):
            self.tell(leaving=True)
        return None

    def close(self) -> None:
        if self.lock >= 0:
            self.control.unlink(missing_ok=True)
            give_up(self.lock)
            self.lock = -1


__all__: list[Any] = ["StaticRegistry", "Tls"]
