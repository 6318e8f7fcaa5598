"""What the environment says about a group: the variables `PEERLOCK_*`.

A variable that no user of it knows is refused: one that is mistyped would leave a cluster a lock on
one host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peerlock.errors import UsageError

KINDS = ("dir", "nodes", "voters", "etcd")  # what chooses the kind of group; nothing: this user's on this host
TEXTS = ("name", "dir", "algorithm", "state", "address", "bind", "share")
SECONDS = ("lease_s", "stall_s")
FILES = ("ca", "cert", "key")
VARIABLES = tuple(
    f"PEERLOCK_{name.upper()}"
    for name in (
        "config", "group", "nodes", "voters", "etcd", *TEXTS, *SECONDS, *(f"tls_{file}" for file in FILES),
        *(f"etcd_{part}" for part in ("user", "password", *FILES)), "lock", "fence",  # these two are set by `peerlock run`
    )
)  # fmt: skip
# What Kubernetes and Docker tell of a service that is called peerlock, or peerlock-something.
SERVICE = re.compile(r"PEERLOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def check_variables(environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if not name.startswith("PEERLOCK_") or SERVICE.fullmatch(name):
            continue
        if name not in VARIABLES:
            import difflib

            known = [known.removeprefix("PEERLOCK_") for known in VARIABLES]
            near = difflib.get_close_matches(name.removeprefix("PEERLOCK_"), known, 1, 0.5)
            hint = f"did you mean PEERLOCK_{near[0]}?" if near else f"known are {', '.join(VARIABLES)}."
            raise UsageError(f"{name} is no setting of peerlock: {hint} Correct it, or unset it.")
        if not value and name.removeprefix("PEERLOCK_").lower() in (*KINDS, "config"):
            raise UsageError(f"{name} is set, and empty: give it a value, or unset it for a lock on this host alone.")


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in TEXTS:
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
        found["etcd"] = {"endpoints": tuple(endpoint.strip() for endpoint in endpoints.split(","))}
    credentials = {key: environment.get(f"PEERLOCK_ETCD_{key.upper()}") for key in ("user", "password", *FILES)}
    if any(credentials.values()):
        found["etcd_credentials"] = {key: value for key, value in credentials.items() if value}
    for key in SECONDS:
        seconds = environment.get(f"PEERLOCK_{key.upper()}")
        if seconds:
            try:
                found[key] = float(seconds)
            except ValueError:
                raise UsageError(f"PEERLOCK_{key.upper()} must be a number of seconds; got {seconds!r}.") from None
    tls = {key: environment.get(f"PEERLOCK_TLS_{key.upper()}") for key in FILES}
    if any(tls.values()):
        missing = [f"PEERLOCK_TLS_{key.upper()}" for key, value in tls.items() if not value]
        if missing:
            raise UsageError(f"TLS needs three files; {' and '.join(missing)} is not set.")
        found["tls"] = tls
    return found
