"""A member of a group whose views are kept in a store: etcd, or whatever can compare and set.

The store has the newest view under one key, and a heartbeat for each member under another.
Everything that is done to it is one transaction, and every answer has the whole of it (`Snapshot`),
as it was right after. The store orders transactions; it knows nothing of leases, clocks or who is
dead.

    Renew   if the view is the one I know: write my heartbeat.       Done: my lease runs for D from when I sent this.
    Swap    if the view is the one I know, and these heartbeats are as I saw them: write the next view.

1. A lease rests on a heartbeat that was written while the view was one with this member, and not
   marked as leaving.
2. A member is excluded if its heartbeat is the one that I saw D ago, on my clock, from when the
   answer *came*. It was sent before that, so the lease that rests on it is over. If it has renewed
   since, the transaction fails. (My own lease ends by a clock that counts suspension, `now`; my
   patience with others ends by one that does not, `steady`. A clock that jumps ahead ends leases
   too early and patience never.)
3. A member that still renews (one end of a pair that cannot talk to each other) is marked first. A
   marked member does not renew; then 2 applies.
4. A member that leaves holds nothing before it says so. A joiner writes its heartbeat with the view
   that has it in it.
5. An epoch lower than one that was seen is refused: a backup was restored.

A keep-alive of the store's own proves nothing here: a leader that was deposed without noticing may
still answer it.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from peerlock.node.membership.view import View


class StoredHeartbeat(Struct, frozen=True):
    id: int  # of the incarnation
    revision: int  # which writing of it this is; 0: there is none
    apart: tuple[int, ...] = ()  # members that it cannot reach


class Snapshot(Struct, frozen=True):
    """All that the store knows of a group."""

    at: int  # goes up with every change of the store
    revision: int = 0  # which writing of the view this is; 0: there is none yet
    view: View | None = None
    heartbeats: tuple[StoredHeartbeat, ...] = ()


class Renew(Struct, frozen=True):
    number: int
    revision: int  # that the view must have
    id: int
    apart: tuple[int, ...] = ()


AT_ONCE = 50  # that one view excludes: a store takes only so many comparisons in a transaction (etcd: 128)


class Swap(Struct, frozen=True):
    number: int
    revision: int  # that the view must have
    heartbeats: tuple[tuple[int, int], ...]  # and these heartbeats: whose, which
    view: View
    heartbeat: int = 0  # also written: the heartbeat of a joiner
    without: tuple[int, ...] = ()  # also removed: those of excluded members


class Look(Struct, frozen=True):
    number: int


Request: TypeAlias = Renew | Swap | Look
