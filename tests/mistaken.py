"""Certificates with mistakes, for tests: expired, of another authority, for other uses."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """Its certificate and those that it signs are files in a directory: ca.pem, NAME.pem, NAME.key."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.name = name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        (directory / "ca.pem").write_bytes(self._signed(name, self.key, -1, 30, None).public_bytes(PEM))

    def _signed(
        self, name: str, key: ec.EllipticCurvePrivateKey, first: int, last: int, uses: list[Any] | None
    ) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        made = (
            x509.CertificateBuilder()
            .subject_name(_called(name))
            .issuer_name(_called(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + first * day)
            .not_valid_after(now + last * day)
            .add_extension(x509.BasicConstraints(ca=name == self.name, path_length=None), critical=True)
        )
        if uses is not None:
            made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        return made.sign(self.key, hashes.SHA256())

    def sign(
        self,
        name: str,
        file: str = "",
        *,
        first: int = -1,
        last: int = 30,
        server_only: bool = False,
        passphrase: str = "",
    ) -> dict[str, str]:
        """A certificate that is good from day `first` to day `last`. The files, as `tls=` wants them."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.SERVER_AUTH] if server_only else None
        where = self.directory / (file or name)
        locked = serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else None
        private = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, locked if locked is not None else serialization.NoEncryption()
        )
        where.with_suffix(".key").touch(mode=0o600)
        where.with_suffix(".key").write_bytes(private)
        where.with_suffix(".pem").write_bytes(self._signed(name, key, first, last, uses).public_bytes(PEM))
        return {"ca": str(self.directory / "ca.pem"), "cert": f"{where}.pem", "key": f"{where}.key"}
