"""Connections of the command line to this node, and the process groups that work under their locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerlock.errors import ProtocolError, RegistryError
from peerlock.node.wire import Hello, framed

if TYPE_CHECKING:
    from peerlock.net.attached.serving import HostNode
    from peerlock.net.control.session import Client
    from peerlock.net.shell import Shell
    from peerlock.net.transport.link import Link


class Clients:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.process_groups: dict[Client, bytes] = {}
        self.host_node: HostNode | None = None  # what shares the locks with attached processes, if this is one

    def serve(self, link: Link, hello: Hello) -> Client:
        """A client on this host that is not a member."""
        from peerlock.net.control.session import Client

        if not link.local:
            raise ProtocolError("a client on another host")
        link.write(framed(self.shell.core.links.hello(hello.peer)))
        return Client(self.shell, link)

    def renewed(self, until: float) -> None:
        for client in self.process_groups:
            client.renewed(until)

    def on_incarnation(self) -> None:
        """This node is about to join its group, as a new incarnation."""
        if self.host_node is not None:
            self.host_node.on_incarnation()

    def record(self) -> None:
        """A process that finds this one dead must know what works under its locks."""
        words = b"".join(words + b"\n" for words in self.process_groups.values() if words)
        if self.host_node is not None:
            words = self.host_node.record() + words
        try:
            self.shell.registry.record_process_groups(words)
        except OSError as problem:
            raise RegistryError(f"What works under a lock cannot be written down: {problem.strerror}.") from None

    def end(self) -> None:
        """What works under a lock of this node ends before the lock is another's."""
        for client in self.process_groups:
            client.end_process_groups()
        self.process_groups.clear()
