"""One incarnation of a node."""

from __future__ import annotations

from msgspec import Struct


class Peer(Struct, frozen=True, order=True, array_like=True, cache_hash=True):
    """One incarnation of a member. A restart is another peer: the name may be the same, the id
    never is.
    """

    name: str
    id: int
    address: str = ""
    pid: int = 0

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid and str(self.pid) not in self.name else self.name
