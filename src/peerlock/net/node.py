"""What nodes for asyncio and for threads have in common: the names that their users see. The work
is the shell's.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from peerlock.net.base_shell import BaseShell

S = TypeVar("S", bound=BaseShell[Any])


class BaseNode(Generic[S]):
    """A member of a group."""

    __slots__ = ("__weakref__", "_shell")

    def __init__(self, shell: S) -> None:
        self._shell = shell

    @property
    def name(self) -> str:
        """The node's own name, by which the others know it."""
        return self._shell.name

    @property
    def group(self) -> str:
        return self._shell.group

    @property
    def epoch(self) -> int:
        """The number of the view that the group is in; it only ever grows."""
        return self._shell.epoch

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the nodes of that view."""
        return self._shell.members

    def __repr__(self) -> str:
        return repr(self._shell)
