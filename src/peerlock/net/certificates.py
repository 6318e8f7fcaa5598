"""Names in certificates."""

from __future__ import annotations

from typing import Any


def name_in(certificate: Any) -> str | None:
    """The common name in a certificate, as `ssl` shows it."""
    for field in (certificate or {}).get("subject", ()):
        for key, value in field:
            if key == "commonName":
                return str(value)
    return None
