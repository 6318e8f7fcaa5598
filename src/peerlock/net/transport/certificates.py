"""Certificates: the names in them, and making some for people who have none."""

from __future__ import annotations

import datetime
import os
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
    """An authority, if the directory has none, and a certificate of it for each name."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ModuleNotFoundError:
        raise UsageError("Certificates need cryptography: pip install 'peerlock[certs]'.") from None
    from peerlock.net.files import check_name

    for name in names:
        check_name("node", name)
        if (out / f"{name}.key").exists():
            raise UsageError(f"{out / name}.key is there already: remove it if {name} is to get a new certificate.")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)

    def called(name: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def save(path: Path, data: bytes, mode: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)

    def save_key(path: Path, key: Any) -> None:
        plain = serialization.NoEncryption()
        save(path, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain), 0o600)

    def signed(subject: str, key: Any, issuer: Any, by: Any, authority: bool) -> Any:
        usage = x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False)
        made = (
            x509.CertificateBuilder()
            .subject_name(called(subject))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
        )
        if not authority:
            both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
            made = made.add_extension(both, critical=False)
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(subject)]), critical=False)
        return made.sign(by, hashes.SHA256())

    pem = serialization.Encoding.PEM
    if (out / "ca.key").exists():
        authority: Any = serialization.load_pem_private_key((out / "ca.key").read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((out / "ca.pem").read_bytes()).subject
    else:
        authority = ec.generate_private_key(ec.SECP256R1())
        issuer = called("peerlock authority")
        save_key(out / "ca.key", authority)
        save(out / "ca.pem", signed("peerlock authority", authority, issuer, authority, True).public_bytes(pem), 0o644)
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        save_key(out / f"{name}.key", key)
        save(out / f"{name}.pem", signed(name, key, issuer, authority, False).public_bytes(pem), 0o644)
