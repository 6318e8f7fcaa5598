"""`peerlock run`: a command under a lock, as with flock, consul lock and etcdctl lock.

The command runs in a process group of its own, with the terminal of `peerlock run`, which ends with
the exit status of the command. The command must not go on without the lock:

- If the lock is lost, its group gets TERM, a little later KILL, and the exit code is 75.
- If `peerlock run` is killed, also with -9, the kernel kills the command (`PR_SET_PDEATHSIG`). The
  rest of the group is ended before the lock is granted to another process: by the node that the
  lock was taken through, or by the node that finds this process dead. It was told the group before
  the command was started.

On one host `peerlock run` is attached to the host's node, which it starts if there is none. In other
groups the lock is taken through a resident node (`peerlock node`), if one runs here. So a command of
one second causes no view changes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, Directory, GroupName
from peerlock.cli.under_lock import LOST, Held, under_lock
from peerlock.errors import LockError, LockTimeout, PeerlockError, ProtocolError, RegistryError, Unreachable, UsageError
from peerlock.net.control.client import Caller, reach
from peerlock.net.processes.groups import process_group_of
from peerlock.net.registries.leased import LeasedRegistry
from peerlock.net.settings import Prepared, Settings, algorithm_and_limits, gather, kind_of
from peerlock.net.shell import Shell
from peerlock.node.wire import ClientResult

BUSY, UNREACHABLE = 1, 69
JOIN_S = 2.0  # that -n and -w allow for joining the group, if it takes longer than they say
NONBLOCK_S = 0.2  # for --nonblock: no node answers that a lock is busy, so the command asks and gives up
LEAST_WAIT_S = 0.05  # for the lock, however long joining took


class CommandLine(TyperCommand):
    """Options stand before the lock's name or right after it. The command begins at `--` or at the
    next word that is no option. All words from there on belong to the command, also options and a
    `--`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before, words = self._options_of(ctx, args)
        after, command = self._options_of(ctx, words[1:])
        return super().parse_args(ctx, [*before, *after, "--", *words[:1], *command])

    def _options_of(self, ctx: Any, args: list[str]) -> tuple[list[str], list[str]]:
        """The options at the beginning, and the rest without the `--` between them."""
        values, rest, _ = self.make_parser(ctx).parse_args(list(args))
        words = args[len(args) - len(rest) - (values.get("name") is not None) :]
        options = args[: len(args) - len(words)]
        return options[:-1] if options[-1:] == ["--"] else options, words


NodeName = Annotated[
    str | None,
    typer.Option("--name", help="Name of this node, if the group spans several hosts and no resident node runs here."),
]


@app.command(cls=CommandLine, context_settings={"allow_interspersed_args": False, "allow_extra_args": True})
def run(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME [--] COMMAND...", help="The lock, then the command and its arguments.")
    ],
    now: Annotated[bool, typer.Option("-n", "--nonblock", help="The same as -w 0.2.")] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "-w",
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="Time limit. Joining the group may take longer.",
        ),
    ] = None,
    shared: Annotated[bool, typer.Option("-s", "--shared", help="Take a readers-writer lock as a reader.")] = False,
    exclusive: Annotated[bool, typer.Option("-x", "--exclusive", help="Take a readers-writer lock as writer.")] = False,
    code: Annotated[
        int, typer.Option("-E", "--conflict-exit-code", min=0, max=255, help="Exit code if the lock was not granted.")
    ] = BUSY,
    group: GroupName = "default",
    config: Config = None,
    directory: Directory = None,
    node: NodeName = None,
) -> None:
    """Run a command while holding a lock: peerlock run backup -- rsync -a /srv /mnt

    The command starts when the lock is granted. It has this terminal, and
    PEERLOCK_LOCK and PEERLOCK_FENCE in its environment. peerlock run ends with
    the exit code of the command, or with one of its own:

    1 (or -E): the lock was not granted in time. 2: wrong usage.
    69: no group can be reached. 75: the lock was lost; the command was ended, or
    was not started. 126: the command cannot be run. 127: it was not found.
    """
    if shared and exclusive:
        raise UsageError("-s and -x exclude each other: a reader, or the writer.")
    command = context.args
    if not command:
        raise UsageError(f"There is no command: peerlock run {name} -- COMMAND...")
    mode = "read" if shared else "write" if exclusive else ""
    patience = NONBLOCK_S if now else wait

    def settings(needs_tls: bool) -> Settings:
        return gather(config, needs_tls=needs_tls, dir=directory, name=node)

    try:
        with leaving_when_told(), holding(group, settings, name, mode, patience) as held:
            result = under_lock(command, held, name)
    except LockTimeout:
        result = code
    except (Unreachable, RegistryError) as problem:
        print(f"peerlock: {problem}", file=sys.stderr)
        result = UNREACHABLE
    except LockError as problem:
        print(f"peerlock: {problem}", file=sys.stderr)
        result = LOST
    raise typer.Exit(result)


@contextlib.contextmanager
def leaving_when_told() -> Iterator[None]:
    """A process that is told to end while it waits leaves the group first. Else the others would
    wait for its lease.
    """

    def ended(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def holding(
    group: str, settings: Callable[[bool], Settings], name: str, mode: str, patience: float | None
) -> Iterator[Held]:
    """The lock, as a process attached to the host's node; or, in a group of several hosts, through
    a resident node, or as a member.
    """
    local = settings(False)
    if kind_of(local) in ("", "dir") and local.share != "never":
        with as_node(group, settings(True), name, mode, patience) as held:
            yield held
        return
    caller = reach(group, local, resident=True)
    if caller is not None:
        with contextlib.closing(caller):
            yield ThroughResident(caller, name, mode, patience)
        return
    if local.nodes is not None:
        raise Unreachable(
            f"No node of the group {group} runs on this host: start one with peerlock node. The lock was never held."
        )
    with as_node(group, settings(True), name, mode, patience) as held:
        yield held


class ThroughResident(Held):
    def __init__(self, caller: Caller, name: str, mode: str, patience: float | None) -> None:
        self.caller, self.channel = caller, caller.socket.fileno()
        try:
            self.number = caller.send("acquire", lock=name, mode=mode)
            caller.socket.settimeout(None if patience is None else max(patience, LEAST_WAIT_S))
            frame = caller.read()
        except TimeoutError:
            raise LockTimeout(f"The lock {name} was not granted in time. It was never held.") from None
        except (OSError, ProtocolError) as problem:
            raise Unreachable(f"The node {caller.node} is gone ({problem}). The lock was never held.") from None
        assert isinstance(frame, ClientResult)
        if not frame.ok and isinstance(frame.value, dict):
            raise Unreachable(str(frame.value["sentence"]))
        if not frame.ok:
            raise UsageError(str(frame.value))
        self.fence, self.leased = frame.value["fence"], bool(frame.value.get("leased"))
        self.until: float = frame.value.get("until", inf)  # of the lease, as far as the node has said
        caller.socket.settimeout(3.0)

    def record_process_groups(self, group: int) -> None:
        if not group:
            self.caller.socket.settimeout(0.5)  # the command has ended; the end of the connection says so, too
        try:
            self.caller.call("record_process_groups", group=group)
        except (OSError, ProtocolError) as problem:
            why = str(problem) or "no answer"
            raise Unreachable(f"The node {self.caller.node} is gone ({why}). The command was not started.") from None
        if group and self.until < inf:
            self.guard(group, self.until)  # a node that is stopped never says that the lease is over

    def remaining(self) -> float:
        return self.until - time.clock_gettime(time.CLOCK_BOOTTIME)

    def pending(self) -> bool:
        return bool(self.caller.kept or self.caller.buffer)

    def lost(self) -> str | None:
        try:
            frame = self.caller.kept.pop(0) if self.caller.kept else self.caller.read()
        except (OSError, ProtocolError) as problem:
            return f"the node {self.caller.node} is gone ({problem})"
        if isinstance(frame, ClientResult) and frame.ok and isinstance(frame.value, dict) and "until" in frame.value:
            self.until = frame.value["until"]
            if self.guardian is not None:
                self.guardian.must_end_at(self.until)
        return str(frame.value.get("sentence")) if isinstance(frame, ClientResult) and not frame.ok else None


@contextlib.contextmanager
def as_node(group: str, settings: Settings, name: str, mode: str, patience: float | None) -> Iterator[Held]:
    from peerlock.net.threads.node import started

    algorithm, limits = algorithm_and_limits(settings)
    shell = Prepared(group, settings, algorithm, limits).threads_shell()
    registry = shell.registry if isinstance(shell, Shell) else None
    renews = registry if isinstance(registry, LeasedRegistry) else None
    # With leases, a dead member keeps a new one waiting until its lease is over.
    allowed = JOIN_S + (renews.patience_s if renews is not None else 0.0)
    limit, began = None if patience is None else max(patience, allowed), time.monotonic()
    try:
        joined = started(shell, limit)
    except LockTimeout as problem:
        raise Unreachable(str(problem)) from None
    with joined as node:
        rwlock = node.rwlock(name)
        lock = rwlock.read() if mode == "read" else rwlock.write() if mode == "write" else node.lock(name)
        left = None if patience is None else max(LEAST_WAIT_S, patience - (time.monotonic() - began))
        hold = lock.acquire(timeout=left)
        inner, outer = os.pipe()

        class Member(Held):
            fence, channel, leased = hold.fence, inner, renews is not None

            def record_process_groups(self, group: int) -> None:
                shell.record_process_groups(process_group_of(group))
                if group and renews is not None:
                    renews.on_leased = self.guard(group, node._shell.core.deadline.until)

            def dismiss(self) -> None:
                if renews is not None:
                    renews.on_leased = None
                super().dismiss()

            def lost(self) -> str | None:
                return str(hold.error) if not hold.held else None

            def remaining(self) -> float:
                return hold.remaining()

        hold.on_loss = lambda: os.write(outer, b"!")
        if not hold.held:  # before `on_loss` was set
            os.write(outer, b"!")
        try:
            yield Member()
        finally:
            with contextlib.suppress(PeerlockError):
                hold.release()
            os.close(inner)
            os.close(outer)
