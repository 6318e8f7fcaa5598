"""What a node does for clients that are not members: the command line on the same host.

A client says hello with no incarnation, then calls and gets results. It can see the status, take
locks through this node, kick a node of a fixed list, and have a lock traced. A lock that it took is
its own until it releases or its connection ends; if it has named a process group that works under
the lock, that group is ended first. So `peerlock run` needs no membership of its own where a node
runs anyway.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from peerlock.contract import Mode
from peerlock.errors import PeerlockError, ProtocolError, RegistryError, UsageError
from peerlock.net.control.tracing import Tracer
from peerlock.net.files import check_name
from peerlock.net.processes.groups import end_process_groups, group_of_a_client
from peerlock.node.attached.messages import Attach
from peerlock.node.locks.ticket import FAILED, HELD, LOST, WAITING, Ticket
from peerlock.node.wire import ClientCall, ClientResult, framed
from peerlock.node.wire_algorithms import DEFAULT_RW, wire_algorithm

if TYPE_CHECKING:
    from peerlock.net.control.status import NodeStatus
    from peerlock.net.shell import Shell
    from peerlock.net.transport.link import Link


class ClientTicket(Ticket):
    """A lock that a client wants, or has."""

    client: Client
    number: int
    told = False  # the client, that it has the lock

    def woken(self) -> None:
        self.client.woken(self)


class Client:
    """One connection."""

    def __init__(self, shell: Shell, link: Link) -> None:
        self.shell, self.link = shell, link
        self.tickets: dict[int, ClientTicket] = {}
        shell.clients.process_groups[self] = b""  # what works under its locks
        self.owner = link.owner()  # the user at the other end, whose processes these are
        self.tracers: dict[str, Tracer] = {}

    def __call__(self, frame: Any) -> None:
        """A frame, or None: the connection has ended."""
        if frame is None:
            self.end()
        elif isinstance(frame, Attach):
            if self.shell.clients.host_node is None:
                raise ProtocolError("this node is no host node")
            self.shell.clients.host_node.attach(self, frame)
        elif isinstance(frame, ClientCall):
            try:
                self.answer(frame)
            except PeerlockError as problem:
                self.say(frame.number, False, str(problem))
            except (ValueError, TypeError, OverflowError) as problem:
                self.say(frame.number, False, f"{frame.what}: {problem}")
        else:
            raise ProtocolError("a client says nothing but calls")

    def say(self, number: int, ok: bool, value: Any) -> None:
        self.link.write(framed(ClientResult(number, ok, value)))

    def answer(self, call: ClientCall) -> None:
        said = call.said
        match call.what:
            case "status":
                self.shell.ask_status(lambda status: self.show(call.number, status), 1.0)
            case "kick":
                self.say(call.number, True, self.shell.registry.kick(str(said.get("name"))))
            case "acquire":
                self.acquire(call.number, str(said.get("lock")), str(said.get("mode") or ""), said.get("algorithm"))
            case "release":
                ticket = self.tickets.pop(int(said.get("number") or 0), None)
                if ticket is None:
                    raise UsageError("There is no such lock.")
                self.give_back(ticket)
                self.say(call.number, True, None)
            case "record_process_groups":
                before = self.shell.clients.process_groups.get(self)
                self.shell.clients.process_groups[self] = group_of_a_client(int(said.get("group") or 0), self.owner)
                try:
                    self.shell.clients.record()
                except RegistryError as problem:
                    self.shell.clients.process_groups[self] = before or b""
                    raise UsageError(f"{problem} The command was not started.") from None
                self.say(call.number, True, None)
            case "trace":
                self.trace(str(said.get("lock")))
                self.say(call.number, True, None)
            case "traced":
                self.say(call.number, True, self.traced(str(said.get("lock"))))
            case "renew":
                self.shell.core.request_epoch()
                self.say(call.number, True, None)
            case other:
                raise UsageError(f"This node does not know {other!r}: is it of an older version?")

    def show(self, number: int, status: NodeStatus) -> None:
        self.say(number, True, msgspec.to_builtins(status))

    # -- locks -----------------------------------------------------------------------------------------

    def acquire(self, number: int, name: str, mode: str, algorithm: Any) -> None:
        """`mode`: read or write of a lock for readers and writers; nothing: a plain one."""
        check_name("lock", name)
        if number in self.tickets:
            raise UsageError(f"The number {number} is in use.")
        shell = self.shell
        shell.usable()
        wanted = (
            wire_algorithm(DEFAULT_RW)
            if mode
            else shell.algorithm
            if algorithm is None
            else wire_algorithm(str(algorithm))
        )
        local_lock = shell.core.table.local_lock(name, wanted)
        if local_lock.wire_algorithm is not wanted:
            raise UsageError(
                f"The lock {name} is used with {local_lock.wire_algorithm.name} in this group, and here with {wanted.name}."
            )
        ticket = ClientTicket()
        ticket.client, ticket.number = self, number
        kind: Mode = "read" if mode == "read" else "write"
        ticket.mode = kind
        self.tickets[number] = ticket
        shell.core.acquire(local_lock, ticket, shell.now())
        shell.carry_out()
        if ticket.state == HELD and not ticket.told:
            self.woken(ticket)  # granted at once: it was never woken

    def woken(self, ticket: ClientTicket) -> None:
        core = self.shell.core
        if ticket.state == HELD:
            ticket.told = True
            grant: dict[str, Any] = {"fence": ticket.fence, "leased": core.table.leases}
            if core.table.leases:
                grant["until"] = core.deadline.until
            self.say(ticket.number, True, grant)
        elif ticket.state in (LOST, FAILED):
            if ticket.state == LOST and core.table.leases:
                self.end_process_groups()  # others may have the lock from now on
            self.tickets.pop(ticket.number, None)
            self.say(ticket.number, False, {"lost": ticket.state == LOST, "sentence": str(ticket.error)})

    def renewed(self, until: float) -> None:
        """The lease runs on: a command under a lock has until then, whatever becomes of this node."""
        for ticket in self.tickets.values():
            if ticket.state == HELD:
                self.say(ticket.number, True, {"until": until})

    def give_back(self, ticket: ClientTicket) -> None:
        if ticket.local_lock is None:
            return
        if ticket.state == HELD:
            self.shell.core.release(ticket, self.shell.now())
        elif ticket.state == WAITING:
            self.shell.core.cancel(ticket, self.shell.now())
        self.shell.carry_out()

    def end_process_groups(self) -> bool:
        return end_process_groups(self.shell.clients.process_groups.get(self, b""), self.owner)

    def end(self) -> None:
        """The client is gone. What it started must be gone, too, before its locks are another's."""
        for tracer in self.tracers.values():
            tracer.stop()
        if not self.end_process_groups():
            self.shell.after(0.05, self.end)
            return
        self.shell.clients.process_groups.pop(self, None)
        with contextlib.suppress(
            RegistryError
        ):  # then more stands there than there is; it is looked at before it is ended
            self.shell.clients.record()
        for ticket in list(self.tickets.values()):
            self.give_back(ticket)
        self.tickets.clear()

    # -- traces ----------------------------------------------------------------------------------------

    def trace(self, name: str) -> None:
        """Begin to write down what happens to a lock, from the next epoch on."""
        self.tracers[check_name("lock", name)] = Tracer(self.shell, name)

    def traced(self, name: str) -> Any:
        tracer = self.tracers.pop(name, None)
        if tracer is None:
            raise UsageError(f"{name} is not being traced.")
        tracer.stop()
        return tracer.observers()
