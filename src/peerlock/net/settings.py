"""Joining a group: which registry, from what the caller, the environment and a file say.

Keywords come first, then the environment (`PEERLOCK_NAME`, `PEERLOCK_NODES`, `PEERLOCK_TLS_CA`,
...), then the file named by `config` or `PEERLOCK_CONFIG`. Nothing said at all: the group of this
user on this machine. Settings that do not belong together are refused, and so are variables that no
user of it knows: a cluster whose list was lost, or whose file was mistyped, would be a lock on one
host.

    # shop.toml, the same on every host
    [nodes]
    anna = "10.0.0.1:7100"
    ben = "10.0.0.2:7100"

    [tls]
    ca = "ca.pem"
    cert = "{name}.pem"
    key = "{name}.key"

With `[voters]` in the place of `[nodes]` the group decides for itself which nodes are members, with
`[etcd]` etcd keeps it:

    [voters]                                    [etcd]
    anna = "10.0.0.1:7100"                      endpoints = ["https://10.0.0.9:2379"]
    ben = "10.0.0.2:7100"
    carl = "10.0.0.3:7100"
"""

from __future__ import annotations

import logging
import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from peerlock.errors import UsageError, shown
from peerlock.net.aio.node import Joining
from peerlock.net.aio.shell import AioShell, LoopShell
from peerlock.net.complaints import warn_once
from peerlock.net.environment import FILES, KINDS, check_variables, from_environment
from peerlock.net.registries.base import Registry
from peerlock.net.registries.etcd import Etcd
from peerlock.net.registries.host import HostRegistry
from peerlock.net.registries.leased import LeasedRegistry
from peerlock.net.registries.static import StaticRegistry
from peerlock.net.transport.tls import Tls
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire_algorithms import DEFAULT, wire_algorithm

if TYPE_CHECKING:
    from peerlock.net.attached.directory import AttachedDirectory
    from peerlock.net.attached.start import Starter
    from peerlock.net.threads.on_threads import ThreadsShell

log = logging.getLogger("peerlock")

BELONGS = {  # settings that not all kinds have
    "tls": ("nodes", "voters", "etcd"),
    "insecure": ("nodes", "voters", "etcd"),
    "state": ("nodes", "voters", "etcd"),
    "assume_dead": ("nodes",),
    "address": ("voters", "etcd"),
    "bind": ("voters", "etcd"),
    "lease_s": ("voters", "etcd"),
    "stall_s": ("voters", "etcd"),
    "watchdog": ("voters", "etcd"),
    "first_start": ("voters",),
}

Share: TypeAlias = Literal["always", "never", "auto"]


class Settings(Struct, kw_only=True, forbid_unknown_fields=True):
    """What can be said about a group, wherever it is said."""

    name: str | None = None
    dir: str | None = None
    algorithm: str | None = None
    nodes: dict[str, str] | None = None
    tls: Tls | None = None
    insecure: bool | None = None
    assume_dead: tuple[str, ...] | None = None
    state: str | None = None
    local_grants: int | None = None
    idle_locks: int | None = None
    spin: bool | None = None
    voters: dict[str, str] | None = None
    etcd: Etcd | None = None
    address: str | None = None
    bind: str | None = None
    lease_s: float | None = None
    stall_s: float | None = None
    watchdog: bool | None = None
    first_start: bool | None = None
    share: Share | None = None


def join(
    group: str,
    *,
    name: str | None = None,
    dir: str | Path | None = None,
    algorithm: str | None = None,
    nodes: Mapping[str, str] | None = None,
    tls: Tls | Mapping[str, str] | None = None,
    insecure: bool | None = None,
    assume_dead: tuple[str, ...] | None = None,
    state: str | Path | None = None,
    config: str | Path | None = None,
    local_grants: int | None = None,
    idle_locks: int | None = None,
    spin: bool | None = None,
    voters: Mapping[str, str] | None = None,
    etcd: Etcd | Mapping[str, Any] | None = None,
    address: str | None = None,
    bind: str | None = None,
    lease_s: float | None = None,
    stall_s: float | None = None,
    watchdog: bool | None = None,
    first_start: bool | None = None,
    share: Share | None = None,
    timeout: float | None = None,
) -> Joining:
    """Join a group: `async with peerlock.join("shop") as node`, or `node = await
    peerlock.join("shop")`.

    Without anything else the group is that of this user on this machine. The guide has a table of
    all parameters, their variables and their defaults.

    - One machine: `dir`, a directory that several users share.
    - A fixed list: `nodes`, `name`, `tls`; `assume_dead`: nodes that the operator says are dead.
    - Voters: `voters`; `first_start`: this voter has never run before. `etcd`: the same in a store.
    - With leases: `lease_s`; `stall_s`: an event loop that is silent for so long hangs; `watchdog`:
      a process that kills this one if its lease is over and it does not notice.
    - `address`: where the others reach this node. `bind`: the address of this host, if it differs.
    - `algorithm`, `local_grants`, `idle_locks`, `spin`: how its locks work.
    - `share`: "always" attaches this process to its host's node, which is started if there is none;
      "never": it is a member itself; "auto", the default: attached in a group on one host, else a
      member.
    - `config`: a TOML file that says the same. `state`: the file that this node must not lose.
    - `timeout`: seconds to become a member; then `LockTimeout` says for which nodes the group
      waits.
    """
    said = locals()
    prepared = prepare(**said)
    return Joining(prepared.aio_shell, timeout)


class Prepared(Struct, frozen=True):
    """What `join` was told, checked before anything is made."""

    group: str
    settings: Settings
    algorithm: str
    limits: Limits

    def registry(self) -> Registry:
        return registry_for(self.group, self.settings)

    def aio_shell(self) -> LoopShell:
        if not self.attaches():
            return AioShell(self.registry(), self.group, self.algorithm, self.limits)
        from peerlock.net.aio.attached import AttachedAioShell

        return AttachedAioShell(*self.attached())

    def threads_shell(self) -> ThreadsShell:
        if not self.attaches():
            from peerlock.net.threads.shell import ThreadShell

            return ThreadShell(self.registry(), self.group, self.algorithm, self.limits)
        from peerlock.net.threads.attached import AttachedThreadShell

        return AttachedThreadShell(*self.attached())

    def attaches(self) -> bool:
        """Is this process attached to its host's node, or a member itself?"""
        share, one_host = self.settings.share or "auto", kind_of(self.settings) in ("", "dir")
        if share == "always" and not one_host:
            raise UsageError(
                'share="always" is for groups on one host: leave it out in a group with nodes, voters or etcd. There each '
                "process is a member."
            )
        if share == "auto" and one_host:
            from peerlock.net.attached.start import can_attach

            return can_attach()
        return share == "always"

    def attached(self) -> tuple[AttachedDirectory, str, str | None, str, Limits, Starter]:
        """What the shell of an attached process is made from."""
        from peerlock.net.attached.directory import AttachedDirectory
        from peerlock.net.attached.start import starter

        settings = self.settings
        directory = AttachedDirectory(self.group, settings.dir)
        start = starter(directory, self.group, settings.dir)
        return directory, self.group, settings.name, self.algorithm, self.limits, start


def prepare(group: str, *, config: str | Path | None = None, timeout: float | None = None, **said: Any) -> Prepared:
    settings = gather(config, **said)
    algorithm, limits = algorithm_and_limits(settings)
    check_timeout(timeout)
    return Prepared(group, settings, algorithm, limits)


def algorithm_and_limits(settings: Settings) -> tuple[str, Limits]:
    """The algorithm and the limits, checked before anything is made."""
    algorithm = settings.algorithm or DEFAULT
    wire_algorithm(algorithm)
    usual = Limits()
    for what, value in (("local_grants", settings.local_grants), ("idle_locks", settings.idle_locks)):
        if value is not None and value < 1:
            raise UsageError(f"{what} must be a whole number of at least 1; got {shown(value)}.")
    return algorithm, Limits(
        settings.local_grants or usual.local_grants,
        settings.idle_locks or usual.idle_locks,
        usual.spin if settings.spin is None else settings.spin,
    )


def check_timeout(timeout: float | None) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise UsageError(f"timeout is a number of seconds, from 0, or None for no limit; got {timeout!r}.")


def kind_of(settings: Settings) -> str:
    """`dir`, `nodes`, `voters`, `etcd`, or nothing: the group of this user on this host."""
    kinds = [kind for kind in KINDS if getattr(settings, kind) is not None]
    if len(kinds) > 1:
        raise UsageError(
            f"{' and '.join(kinds)} are different kinds of groups (one host, a fixed list, voters, etcd): give one of them."
        )
    return kinds[0] if kinds else ""


def check_together(settings: Settings) -> None:
    """A setting that the group's kind has no use for means that another kind was meant."""
    kind = kind_of(settings)
    if kind and not getattr(settings, kind):
        raise UsageError(f"{kind} is empty: say what is meant by it, or leave it out for a lock on this host alone.")
    said = {name: getattr(settings, name) for name in sorted(BELONGS)}
    wrong = [
        name
        for name, value in said.items()
        if kind not in BELONGS[name] and value is not None and value is not False and value != ()
    ]
    if not wrong:
        return
    kinds = [other for other in KINDS if all(other in BELONGS[name] for name in wrong)] or BELONGS[wrong[0]]
    here = f"a group with {kind}" if kind in ("nodes", "voters", "etcd") else "a lock on this host alone"
    raise UsageError(
        f"{_list(wrong, 'and')} {'is' if len(wrong) == 1 else 'are'} for groups with {_list(kinds, 'or')}, and this is {here}. "
        f"Give {_list(kinds, 'or')}, or leave {'it' if len(wrong) == 1 else 'them'} out."
    )


def _list(names: Sequence[str], word: str) -> str:
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def registry_for(group: str, settings: Settings, resident: bool = False) -> Registry:
    registry = _registry_for(group, settings, resident)
    log.info("group %s: %s joins %s", group, registry.name, described(settings, registry))
    return registry


def described(settings: Settings, registry: Registry) -> str:
    """What kind of group that is, for the log: a lock that is narrower than it was meant to be can
    be seen there.
    """
    if isinstance(registry, HostRegistry):
        return f"the group of this host at {registry.directory}"
    tls = "with TLS" if settings.tls is not None else "without TLS"
    if isinstance(registry, StaticRegistry):
        return f"a fixed list of nodes ({', '.join(registry.nodes)}), {tls}"
    assert isinstance(registry, LeasedRegistry)
    if settings.voters is not None:
        return f"a group with voters ({', '.join(settings.voters)}), with a lease of {registry.lease_s:g} s, {tls}"
    assert settings.etcd is not None
    where = ", ".join(settings.etcd.endpoints)
    return f"a group in etcd ({where}), with a lease of {registry.lease_s:g} s, {tls}"


def _registry_for(group: str, settings: Settings, resident: bool) -> Registry:
    kind_of(settings)
    if settings.voters is not None or settings.etcd is not None:
        return leased_registry(group, settings, resident=resident)
    if settings.nodes is None:
        return HostRegistry(group, settings.name, settings.dir, resident)
    if settings.name is None:
        raise UsageError(f"Which of {', '.join(settings.nodes)} is this node? Set name= or PEERLOCK_NAME.")
    return StaticRegistry(
        group,
        settings.name,
        settings.nodes,
        tls=settings.tls,
        insecure=bool(settings.insecure),
        assume_dead=settings.assume_dead or (),
        state=settings.state,
    )


def leased_registry(
    group: str,
    settings: Settings,
    clock: Callable[[], float] | None = None,
    steady: Callable[[], float] | None = None,
    resident: bool = False,
) -> Registry:
    rest: dict[str, Any] = {
        "address": settings.address, "bind": settings.bind, "tls": settings.tls, "insecure": bool(settings.insecure),
        "lease_s": settings.lease_s,
        "stall_s": settings.stall_s, "watchdog": bool(settings.watchdog), "state": settings.state,
        "clock": clock, "steady": steady, "resident": resident,
    }  # fmt: skip
    if settings.voters is not None:
        from peerlock.net.registries.quorum import EmbeddedRegistry

        return EmbeddedRegistry(group, settings.voters, settings.name, first_start=bool(settings.first_start), **rest)
    from peerlock.net.registries.etcd import EtcdRegistry

    assert settings.etcd is not None
    return EtcdRegistry(group, settings.etcd, settings.name, **rest)


# -- what was said where -----------------------------------------------------------------------------------


def gather(config: str | Path | None = None, *, needs_tls: bool = True, **said: Any) -> Settings:
    """Keywords before the environment before the file. To look at a group of this host no files for
    TLS are needed.
    """
    check_variables(os.environ)
    for key, value in {"config": config, **said}.items():
        check_text(key, value)
    if config is not None and not isinstance(config, str | Path):
        raise UsageError(f"config must be the path of a TOML file; got {shown(config)}.")
    environment = from_environment(os.environ)
    path = config if config is not None else os.environ.get("PEERLOCK_CONFIG")
    if path == "":
        raise UsageError("config is empty: name the file that describes the group, or leave config out.")
    found = from_file(Path(path)) if path is not None else {}
    credentials = environment.pop("etcd_credentials", {})
    found |= environment
    found |= {key: str(value) if isinstance(value, Path) else value for key, value in said.items() if value is not None}
    if found.get("share") not in (None, *get_args(Share)):
        raise UsageError(
            f"share (or PEERLOCK_SHARE) is one of {', '.join(get_args(Share))}; got {shown(found['share'])}."
        )
    if credentials and said.get("etcd") is None:
        if not isinstance(found.get("etcd"), dict):
            raise UsageError(
                f"PEERLOCK_ETCD_{next(iter(credentials)).upper()} is set, and no etcd is given: set PEERLOCK_ETCD to its "
                "endpoints, or give a file with [etcd]."
            )
        found["etcd"] = {**found["etcd"], **credentials}
    if not needs_tls:
        found.pop("tls", None)
    name = found.get("name")
    tls = found.get("tls")
    if isinstance(tls, Mapping):
        if name is None and any("{name}" in str(value) for value in tls.values()):
            raise UsageError(
                "The files for TLS are named after this node ({name}): say which it is, with name=, --name or PEERLOCK_NAME."
            )
        found["tls"] = {key: str(value).replace("{name}", str(name)) for key, value in tls.items()}
    try:
        settings = msgspec.convert(found, Settings, from_attributes=True)
    except msgspec.ValidationError as problem:
        why, _, where = str(problem).partition(" - at ")
        which = where.strip("`").removeprefix("$.") or "of the group"
        raise UsageError(f"The setting {which} is not right: {why}.") from None
    check_together(settings)
    return settings


def check_text(key: str, value: object) -> None:
    """An empty word would mean that nothing was said, and the group would be another one."""
    if isinstance(value, str | Path):
        if value == "":
            raise UsageError(f"{key} is empty: give it a value, or leave it out.")
        if "\0" in str(value):
            raise UsageError(f"{key} has a NUL character in it: {shown(value)}.")


def from_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} is not TOML: {problem}.") from None
    if not found:
        raise UsageError(
            f"{path} says nothing: describe the group in it, or leave it out for a lock on this host alone."
        )
    unknown = set(found) - set(Settings.__struct_fields__)
    if unknown:
        raise UsageError(
            f"{path} says {', '.join(sorted(unknown))}; known are {', '.join(Settings.__struct_fields__)}."
        )
    check_private(path, "password" in (found.get("etcd") or {}))
    for table in ("tls", "etcd"):
        if isinstance(found.get(table), dict):
            found[table] = {
                key: str(path.parent / str(value)) if key in FILES else value for key, value in found[table].items()
            }
    return found


def check_private(path: Path, secret: bool) -> None:
    """A user who can change the file can lead this node to another group; a user who can read a
    password has it.
    """
    mode, quoted = path.stat().st_mode, shlex.quote(str(path))
    if secret and mode & 0o004:
        raise UsageError(
            f"{path} has a password in it, and every user of this host can read it. Run: chmod 600 {quoted}"
        )
    if mode & 0o002:
        raise UsageError(
            f"{path} says where the group is, and every user of this host can change it. Run: chmod o-w {quoted}"
        )
    if secret and mode & 0o040:
        warn_once(
            f"{path} has a password in it, and its group can read it. Unless that is wanted, run: chmod 600 {quoted}"
        )
