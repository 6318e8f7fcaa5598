"""A certificate authority in a directory. It needs the package cryptography."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peerlock.errors import UsageError

NAME = "peerlock authority"
PEM = serialization.Encoding.PEM


class Authority(NamedTuple):
    name: x509.Name
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    def certify(self, name: str, out: Path, days: int) -> None:
        """Write NAME.key and NAME.pem."""
        key = _new_key(out / f"{name}.key")
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = _certificate(_name(name), key, self, days, authority=False).add_extension(both, critical=False)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        self._sign(made, out / f"{name}.pem")

    def _sign(self, made: x509.CertificateBuilder, path: Path) -> None:
        _save(path, made.sign(self.key, hashes.SHA256()).public_bytes(PEM), 0o644)


def read_authority(out: Path) -> Authority:
    key = serialization.load_pem_private_key((out / "ca.key").read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise UsageError(f"The key in {out / 'ca.key'} cannot sign certificates: give --out another directory.")
    return Authority(x509.load_pem_x509_certificate((out / "ca.pem").read_bytes()).subject, key)


def make_authority(out: Path, days: int) -> Authority:
    key = _new_key(out / "ca.key")
    made = Authority(_name(NAME), key)
    made._sign(_certificate(made.name, key, made, days, authority=True), out / "ca.pem")
    return made


def _name(words: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    _save(path, key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()), 0o600)
    return key


def _save(path: Path, data: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
        stream.write(data)


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: Authority, days: int, *, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(not authority, False, False, False, False, authority, authority, False, False)
    theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(theirs, critical=False)
    )
