"""`peerlock run`: a command under a lock, for people who know flock, consul lock and etcdctl lock.

The command runs in a process group of its own, with our terminal, and its exit status is ours. It must not work on
without the lock:

- If the lock is lost, its group gets TERM, a little later KILL, and the exit code is 75.
- If we are killed, with -9 too, the kernel kills the command (`PR_SET_PDEATHSIG`), and whoever takes the lock next
  first ends what is left of the group: the node that we took the lock through, or the process that finds us dead. It
  knows the group, because we told before the command was started.

Where a resident node runs (`peerlock node`) the lock is taken through it: no view changes for a command of a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from math import inf
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from peerlock.cli.app import app
from peerlock.cli.under_lock import LOST, Held, under_lock
from peerlock.errors import (
    LockError,
    LockTimeout,
    PeerlockError,
    ProtocolError,
    RegistryError,
    Unreachable,
    UsageError,
)
from peerlock.net.control.client import Caller, reach
from peerlock.net.processes.groups import Guardian, process_group_of
from peerlock.net.settings import Settings, gather, prepared, registry_for
from peerlock.node.wire import ClientResult

BUSY, UNREACHABLE = 1, 69
JOIN_S = 2.0  # that -n and -w allow for becoming a member, beside the waiting


class CommandLine(TyperCommand):
    """Options stand before the lock's name or right after it. The command begins at `--` or at the next word that is
    no option, and everything from there on is the command's own: its options, and a `--` of its own.
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


@app.command(cls=CommandLine, context_settings={"allow_interspersed_args": False, "allow_extra_args": True})
def run(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME [--] COMMAND...", help="The lock, then the command and its arguments.")
    ],
    now: Annotated[bool, typer.Option("-n", "--nonblock", help="Do not wait: give up if others have it.")] = False,
    wait: Annotated[
        float | None, typer.Option("-w", "--wait", metavar="SECONDS", min=0.0, help="Wait no longer.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("-s", "--shared", help="As a reader of a readers' and writers' lock.")
    ] = False,
    exclusive: Annotated[bool, typer.Option("-x", "--exclusive", help="As the writer of one.")] = False,
    code: Annotated[int, typer.Option("-E", "--conflict-exit-code", min=0, max=255, help="Exit code for busy.")] = BUSY,
    group: Annotated[str, typer.Option("-g", "--group", envvar="PEERLOCK_GROUP", help="The group.")] = "default",
    config: Annotated[str | None, typer.Option(help="A TOML file that describes the group.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Directory of a group shared between users.")] = None,
) -> None:
    """Run a command while holding a lock: peerlock run backup -- rsync -a /srv /mnt

    Waits for the lock, gives the command this terminal, ends with its status.

    In the command's environment: PEERLOCK_LOCK and PEERLOCK_FENCE.

    Exit codes of its own: 1 (or -E) busy; 69 no group can be reached;
    75 the lock was lost and the command ended; 126, 127 it cannot be run;
    2 wrong usage.
    """
    if shared and exclusive:
        raise UsageError("-s and -x exclude each other: a reader, or the writer.")
    command = context.args
    if not command:
        raise UsageError(f"There is no command: peerlock run {name} -- COMMAND...")
    mode = "read" if shared else "write" if exclusive else ""
    patience = 0.05 if now else wait
    settings = gather(config, dir=directory)
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
    """Who is told to end while it waits leaves the group before it does; else the others would have to wait for its lease."""

    def ended(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def holding(group: str, settings: Settings, name: str, mode: str, patience: float | None) -> Iterator[Held]:
    """The lock, through a resident node, or as a member."""
    caller = reach(group, settings, resident=True)
    if caller is not None:
        with contextlib.closing(caller):
            yield ThroughResident(caller, name, mode, patience)
        return
    if settings.nodes is not None:
        raise Unreachable(
            f"No node of the group {group} runs on this host: start one with peerlock node. The lock was never held."
        )
    with as_member(group, settings, name, mode, patience) as held:
        yield held


class ThroughResident(Held):
    def __init__(self, caller: Caller, name: str, mode: str, patience: float | None) -> None:
        self.caller, self.channel = caller, caller.socket.fileno()
        try:
            self.number = caller.send("acquire", lock=name, mode=mode)
            caller.socket.settimeout(None if patience is None else max(patience, 0.05))
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
        self.until: float = frame.value.get("until", inf)  # as far as the node has said
        self.guardian: Guardian | None = None
        caller.socket.settimeout(3.0)

    def record_process_groups(self, group: int) -> None:
        if not group:
            self.caller.socket.settimeout(0.5)  # it is over; the end of the connection says so, too
        try:
            self.caller.call("record_process_groups", group=group)
        except (OSError, ProtocolError) as problem:
            why = str(problem) or "no answer"
            raise Unreachable(f"The node {self.caller.node} is gone ({why}). The command was not started.") from None
        if group and self.until < inf:
            self.guardian = Guardian(group)  # the node may be stopped, and never say that the lease is over
            self.guardian.must_end_at(self.until)

    def dismiss(self) -> None:
        if self.guardian is not None:
            self.guardian.dismiss()

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
def as_member(group: str, settings: Settings, name: str, mode: str, patience: float | None) -> Iterator[Held]:
    from peerlock.net.threads.node import started
    from peerlock.net.threads.shell import ThreadShell

    algorithm, limits = prepared(settings)
    registry = registry_for(group, settings)
    # Where there are leases a member that has died keeps others outside until its own is over.
    allowed = JOIN_S + (registry.patience_s if registry.leases else 0.0)
    deadline = None if patience is None else time.monotonic() + max(patience, allowed)
    try:
        joined = started(
            ThreadShell(registry, group, algorithm, limits),
            None if patience is None else max(patience, allowed),
        )
    except LockTimeout as problem:
        raise Unreachable(str(problem)) from None
    with joined as node:
        rwlock = node.rwlock(name)
        lock = rwlock.read() if mode == "read" else rwlock.write() if mode == "write" else node.lock(name)
        hold = lock.acquire(
            timeout=None if deadline is None else max(patience or 0.0, deadline - time.monotonic() - allowed)
        )
        inner, outer = os.pipe()

        class Member(Held):
            fence, channel, leased = hold.fence, inner, registry.leases
            guardian: Guardian | None = None

            def record_process_groups(self, group: int) -> None:
                registry.record_process_groups(process_group_of(group))
                if not registry.leases:
                    return
                if group:
                    guardian = self.guardian = Guardian(group)
                    guardian.must_end_at(node._shell.core.deadline.until)
                    registry.on_leased = guardian.must_end_at  # type: ignore[attr-defined]

            def dismiss(self) -> None:
                if self.guardian is not None:
                    registry.on_leased = None  # type: ignore[attr-defined]
                    self.guardian.dismiss()

            def lost(self) -> str | None:
                return str(hold.error) if not hold.held else None

            def remaining(self) -> float:
                return hold.remaining()

        hold.on_loss = lambda: os.write(outer, b"!")
        if not hold.held:  # before anybody could be told
            os.write(outer, b"!")
        try:
            yield Member()
        finally:
            with contextlib.suppress(PeerlockError):
                hold.release()
            os.close(inner)
            os.close(outer)
