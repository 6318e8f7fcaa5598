"""The registry of a fixed list of hosts: files and links around `node/membership/static.py`, which
has the rules.

A node says its name with its certificate, and its incarnation. Of two nodes the one with the
greater name dials the other, again and again. The record is a file that is replaced whole and
synced. One process per host may use it, so a name of the list has one process.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from peerlock.errors import RegistryError, UsageError
from peerlock.file_lock import give_up, lock_for_one
from peerlock.net.files import check_name, directory_for, listen_at, listen_on, make_private, write_durably
from peerlock.net.processes.groups import end_process_groups
from peerlock.net.registries.base import Registry
from peerlock.net.transport.endpoint import Endpoint, parse_address
from peerlock.net.transport.tls import Tls, check_tls, contexts
from peerlock.node.membership.static import NodeRecord, StaticMember
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import Hello, StaticState, framed

YEAR_2025 = 1_735_689_600  # its beginning, in seconds: the operator's words are counted from there
AGAIN_S = 1.0  # before a record that could not be written is tried again


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
        self.path = self._place(state)
        self.lock = lock_for_one(self.path, f"The node {name} of the group {group}")
        try:
            self.member = StaticMember(name, self.nodes, self._read(), Output(self))
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

    # -- this node -------------------------------------------------------------------------------------

    def incarnate(self) -> Peer:
        starts = self.member.count_start()
        with contextlib.suppress(FileNotFoundError):
            left_behind = self.process_groups.read_bytes()  # by an earlier process of this name
            if not end_process_groups(left_behind, self.process_groups.stat().st_uid):
                raise RegistryError(
                    f"{self.process_groups} names commands that work under locks of an earlier {self.name}, and they cannot "
                    "be ended: end them, and remove the file."
                )
            self.process_groups.unlink()
        me = Peer(self.name, starts << 31 | secrets.randbits(31), "", os.getpid())
        self.member.start(me)
        return me

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

    def close(self) -> None:
        if self.lock >= 0:
            self.control.unlink(missing_ok=True)
            give_up(self.lock)
            self.lock = -1

    # -- links -----------------------------------------------------------------------------------------

    def greeted(self, peer: Peer, certificate: str | None) -> str | None:
        if peer.name not in self.nodes:
            return f"{peer.name} is not on the list of this node ({', '.join(self.member.order)})"
        if peer.name == self.name:
            return f"{peer.name} is the name of this node"
        if why := self.misnamed(peer.name, certificate):
            return f"it says to be {peer.name}, and {why}"
        return self.member.unwelcome(peer, self.shell.hears)

    def reach(self, peer: Peer) -> None:
        """This registry makes the links by itself."""

    def is_addressed(self, to: int, me: Peer) -> bool:
        """A node that starts does not know which incarnations the others are."""
        return to in (0, me.id)

    def excludes_us(self, hello: Hello) -> bool:
        return hello.gone

    def is_gone(self, peer: Peer) -> bool:
        return self.member.is_absent(peer)

    def linked(self, peer: Peer) -> None:
        self.handle(lambda: self.member.linked(peer))

    def unlinked(self, peer: Peer) -> None:
        self.handle(lambda: self.member.unlinked(peer))

    def told(self, peer: Peer, tell: StaticState) -> None:
        self.handle(lambda: self.member.on_state(peer, tell))

    def handle(self, event: Callable[[], None]) -> None:
        """What the record cannot take now (a full disk) is tried again, and told to no other node
        before.
        """
        try:
            event()
        except RegistryError as problem:
            self.shell.complain(str(problem))
            self.shell.after(AGAIN_S, self.publish_again)

    def publish_again(self) -> None:
        if not self.shell.closing:
            self.handle(self.member.publish)

    # -- views -----------------------------------------------------------------------------------------

    def waits_for(self) -> tuple[str, ...]:
        return self.member.missing()

    def newest(self) -> View | None:
        return self.member.view

    def change(self, even_if_the_same: bool = False) -> View | None:
        self.member.dial()
        self.handle(self.member.request_epoch if even_if_the_same else self.member.publish)
        return None

    def learned(self, view: View) -> None:
        self.member.learned(view)

    def kick(self, name: str) -> str:
        if name not in self.nodes:
            raise UsageError(f"{name} is not on the list: {', '.join(self.member.order)}.")
        if name == self.name:
            raise UsageError(f"{name} is this node, which is alive.")
        if name in self.member.present:
            raise UsageError(f"{name} is alive: it has a link to {self.name}. Stop it first.")
        self._assume(name)
        self.handle(self.member.request_epoch)
        return f"{name} is taken for dead. If it is not, two nodes may hold one lock: make sure that it is off."

    def _assume(self, name: str) -> None:
        if name not in self.nodes or name == self.name:
            raise UsageError(f"--assume-dead {name}: it must be another node of the list: {', '.join(self.nodes)}.")
        self.member.assume_dead(name, int(time.time()) - YEAR_2025)

    def leave(self) -> View | None:
        with contextlib.suppress(RegistryError):
            self.member.leave()
        return None


class Output:
    """What the member asks for, done."""

    def __init__(self, registry: StaticRegistry) -> None:
        self.registry = registry

    def write(self, record: NodeRecord) -> None:
        write_durably(self.registry.path, msgspec.json.encode(record))

    def tell(self, peer: Peer, state: StaticState) -> None:
        self.registry.shell.links.write(peer, framed(state))

    def dial(self, name: str) -> None:
        self.registry.shell.links.dial(Peer(name, 0))

    def hang_up(self, peer: Peer, why: str) -> None:
        self.registry.shell.links.hang_up(peer, why)

    def decided(self, view: View) -> None:
        if not self.registry.shell.closing:
            self.registry.shell.membership.learn(view)

    def complain(self, sentence: str) -> None:
        self.registry.shell.complain(sentence)
