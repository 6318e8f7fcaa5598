"""Certificates: the name in one, and new ones for a group that has none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peerlock.errors import UsageError


def name_in(certificate: Any) -> str | None:
    """The common name in a certificate, as `ssl` shows it."""
    for field in (certificate or {}).get("subject", ()):
        for key, value in field:
            if key == "commonName":
                return str(value)
    return None


def make_certificates(names: Sequence[str], out: Path, days: int) -> None:
    """An authority, if the directory has none, and one certificate of it per name."""
    try:
        from peerlock.net.transport.authority import Authority, make_authority, read_authority
    except ModuleNotFoundError:
        raise UsageError("Certificates need cryptography: pip install 'peerlock[certs]'.") from None
    from peerlock.net.files import check_name

    for name in names:
        check_name("node", name)
        if (out / f"{name}.key").exists():
            raise UsageError(f"{out / name}.key is there already: remove it if {name} is to get a new certificate.")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority: Authority = read_authority(out) if (out / "ca.key").exists() else make_authority(out, days)
    for name in names:
        authority.certify(name, out, days)
