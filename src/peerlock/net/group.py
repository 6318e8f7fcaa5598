"""Joining a group: which registry, from what the caller, the environment and a file say.

Keywords come first, then the environment (`PEERLOCK_NAME`, `PEERLOCK_NODES`, `PEERLOCK_TLS_CA`, ...), then the file
named by `config` or `PEERLOCK_CONFIG`. Nothing said at all: the group of this user on this machine.

    # shop.toml, the same on every host
    [nodes]
    anna = "10.0.0.1:7100"
    ben = "10.0.0.2:7100"

    [tls]
    ca = "ca.pem"
    cert = "{name}.pem"
    key = "{name}.key"

With `[voters]` in the place of `[nodes]` the group decides for itself who its members are, with `[etcd]` etcd keeps it:

    [voters]                                    [etcd]
    anna = "10.0.0.1:7100"                      endpoints = ["http://10.0.0.9:2379"]
    ben = "10.0.0.2:7100"
    carl = "10.0.0.3:7100"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peerlock.errors import UsageError
from peerlock.net.aio import Joining, Node
from peerlock.net.etcd import Etcd
from peerlock.net.host import HostRegistry
from peerlock.net.registry import Registry
from peerlock.net.static import StaticRegistry, Tls
from peerlock.node.desk import Limits
from peerlock.node.wire import DEFAULT, spoken


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
    stay_awake: bool | None = None
    voters: dict[str, str] | None = None
    etcd: Etcd | None = None
    address: str | None = None
    bind: str | None = None
    lease_s: float | None = None
    stall_s: float | None = None
    watchdog: bool | None = None
    first_start: bool | None = None


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
    stay_awake: bool | None = None,
    voters: Mapping[str, str] | None = None,
    etcd: Etcd | Mapping[str, Any] | None = None,
    address: str | None = None,
    bind: str | None = None,
    lease_s: float | None = None,
    stall_s: float | None = None,
    watchdog: bool | None = None,
    first_start: bool | None = None,
) -> Joining:
    """Become a member of a group: `async with peerlock.join("shop") as node`, or `node = await peerlock.join("shop")`.

    Without anything else the group is that of this user on this machine: nothing has to run, nothing to be configured.

    - `algorithm`: what its locks use unless they say otherwise.
    - `dir`: a directory for a group that several users of one machine share.
    - `nodes`, `name`, `tls`: a fixed list of hosts, by name; which of them this is; the files for mutual TLS.
    - `assume_dead`: nodes of the list that are dead for certain, by the operator's word.
    - `voters`: three or five nodes, by name, that decide who the members are; any others come and go. A node whose name is one
      of them votes; `first_start`: it has never run before.
    - `etcd`: the same, decided with the help of etcd: its endpoints, user, password, certificates.
    - `lease_s`: for how long a node may believe that it holds a lock without being confirmed. `stall_s`: after
      which an event loop that does
      not answer is taken to hang. `watchdog`: a process that kills this one if its lease is over and it does not notice.
    - `address`: where the others reach this node, HOST or HOST:PORT, if that cannot be guessed. `bind`: the address
      of this host, if that is
      another one (behind a proxy, in a container).
    - `stay_awake`: False: who waits for a lock sleeps at once, also where it would pay to stay awake for a moment.
      (Threads always do.)
    - `config`: a TOML file that says the same.
    """
    settings = gather(
        config, name=name, dir=dir, algorithm=algorithm, nodes=nodes, tls=tls, insecure=insecure,
        assume_dead=assume_dead, state=state, local_grants=local_grants, idle_locks=idle_locks, stay_awake=stay_awake,
        voters=voters, etcd=etcd, address=address, bind=bind, lease_s=lease_s, stall_s=stall_s, watchdog=watchdog,
        first_start=first_start,
    )  # fmt: skip
    algorithm, limits = prepared(settings)
    return Joining(lambda: Node(registry_for(group, settings), group, algorithm=algorithm, limits=limits))


def prepared(settings: Settings) -> tuple[str, Limits]:
    """The algorithm and the limits, checked before anything is made."""
    algorithm = settings.algorithm or DEFAULT
    spoken(algorithm)
    usual = Limits()
    for what, value in (("local_grants", settings.local_grants), ("idle_locks", settings.idle_locks)):
        if value is not None and value < 1:
            raise UsageError(f"{what} must be a whole number of at least 1; got {value!r}.")
    return algorithm, Limits(
        settings.local_grants or usual.local_grants,
        settings.idle_locks or usual.idle_locks,
        usual.stay_awake if settings.stay_awake is None else settings.stay_awake,
    )


def registry_for(group: str, settings: Settings, resident: bool = False) -> Registry:
    kinds = [kind for kind in ("dir", "nodes", "voters", "etcd") if getattr(settings, kind) is not None]
    if len(kinds) > 1:
        raise UsageError(
            f"{' and '.join(kinds)} are different kinds of groups (one host, a fixed list, voters, etcd): give one of them."
        )
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
        from peerlock.net.embedded import EmbeddedRegistry

        return EmbeddedRegistry(group, settings.voters, settings.name, first_start=bool(settings.first_start), **rest)
    from peerlock.net.etcd import EtcdRegistry

    assert settings.etcd is not None
    return EtcdRegistry(group, settings.etcd, settings.name, **rest)


# -- what was said where -----------------------------------------------------------------------------------


def gather(config: str | Path | None = None, **said: Any) -> Settings:
    """Keywords before the environment before the file."""
    environment = from_environment(os.environ)
    path = config if config is not None else os.environ.get("PEERLOCK_CONFIG")
    found = from_file(Path(path)) if path else {}
    found |= environment
    found |= {key: str(value) if isinstance(value, Path) else value for key, value in said.items() if value is not None}
    name = found.get("name")
    tls = found.get("tls")
    if isinstance(tls, Mapping):
        if name is None and any("{name}" in str(value) for value in tls.values()):
            raise UsageError(
                "The files for TLS are named after this node ({name}): say which it is, with name= or --name."
            )
        found["tls"] = {key: str(value).replace("{name}", str(name)) for key, value in tls.items()}
    try:
        return msgspec.convert(found, Settings, from_attributes=True)
    except msgspec.ValidationError as problem:
        raise UsageError(f"The settings of the group are not right: {problem}.") from None


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "PEERLOCK_FENCE" in environment:  # a command of `peerlock run`, to which PEERLOCK_NAME is the lock's
        environment = {**environment, "PEERLOCK_NAME": environment.get("PEERLOCK_NODE", "")}
    for key in ("name", "dir", "algorithm", "state", "address", "bind"):
        value = environment.get(f"PEERLOCK_{key.upper()}")
        if value:
            found[key] = value
    for key in ("nodes", "voters"):
        listed = environment.get(f"PEERLOCK_{key.upper()}")
        if listed:
            pairs = [part.strip().partition("=") for part in listed.split(",") if part.strip()]
            if not all(equals and name and address for name, equals, address in pairs):
                raise UsageError(f"PEERLOCK_{key.upper()} must be NAME=HOST:PORT,NAME=HOST:PORT,...; got {listed!r}.")
            found[key] = {name: address for name, _, address in pairs}
    endpoints = environment.get("PEERLOCK_ETCD")
    if endpoints:
        place: dict[str, Any] = {"endpoints": tuple(endpoint.strip() for endpoint in endpoints.split(","))}
        found["etcd"] = place
        for key in ("user", "password", "ca", "cert", "key"):
            if environment.get(f"PEERLOCK_ETCD_{key.upper()}"):
                place[key] = environment[f"PEERLOCK_ETCD_{key.upper()}"]
    for key in ("lease_s", "stall_s"):
        seconds = environment.get(f"PEERLOCK_{key.upper()}")
        if seconds:
            try:
                found[key] = float(seconds)
            except ValueError:
                raise UsageError(f"PEERLOCK_{key.upper()} must be a number of seconds; got {seconds!r}.") from None
    tls = {key: environment.get(f"PEERLOCK_TLS_{key.upper()}") for key in ("ca", "cert", "key")}
    if any(tls.values()):
        missing = [f"PEERLOCK_TLS_{key.upper()}" for key, value in tls.items() if not value]
        if missing:
            raise UsageError(f"TLS needs three files; {' and '.join(missing)} is not set.")
        found["tls"] = tls
    return found


def from_file(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} is not TOML: {problem}.") from None
    unknown = set(found) - set(Settings.__struct_fields__)
    if unknown:
        raise UsageError(
            f"{path} says {', '.join(sorted(unknown))}; known are {', '.join(Settings.__struct_fields__)}."
        )
    for table, files in (("tls", ("ca", "cert", "key")), ("etcd", ("ca", "cert", "key"))):
        if isinstance(found.get(table), dict):
            found[table] = {
                key: str(path.parent / str(value)) if key in files else value for key, value in found[table].items()
            }
    return found
