"""The permission to hold locks: asked of the registry, or a lease that the registry extends again
and again.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peerlock.net.shell import Shell
    from peerlock.node.effects import LeaseLapsed

log = logging.getLogger("peerlock")

AGAIN_S = 0.02  # before the registry is asked again, after another process was about to exclude this one
REFUSED_S = 2.5  # with a process that keeps this node from holding locks; then it joins again
LATE_S = 0.0005  # a timer looks at a lease so long after its end


class Permission:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.refused_since: float | None = None
        self.watching = False  # a timer looks at the end of the lease

    # -- asked for ---------------------------------------------------------------------------------------

    def request(self) -> None:
        shell = self.shell
        if not shell.closing and not shell.membership.outside and shell.asked(shell.registry.begin_holding):
            self.refused_since = None
            shell.core.holding_allowed(shell.now())
            return
        shell.core.holding_refused()
        if self.refused_since is None:
            self.refused_since = shell.now()
        if shell.now() - self.refused_since > REFUSED_S:
            # A process that was about to exclude us is stopped in the middle of it. A new
            # incarnation is free of it.
            self.refused_since = None
            shell.complain("another process keeps this node from taking locks; joining again under a new incarnation")
            shell.membership.rejoin()
        else:
            shell.after(AGAIN_S, self.request_again)

    def request_again(self) -> None:
        shell = self.shell
        if not shell.closing:
            shell.refresh_view()
            shell.core.request_hold_again(shell.now())
            shell.carry_out()

    def give_back(self) -> None:
        self.shell.asked(self.shell.registry.end_holding)

    # -- a lease -----------------------------------------------------------------------------------------

    def leased(self, until: float) -> None:
        """The registry says: no view without this node is decided before then."""
        shell = self.shell
        if shell.closing:
            return
        shell.core.leased(until, shell.now())
        shell.carry_out()
        until = shell.core.deadline.until
        if until < inf:
            shell.registry.arm(until)
            shell.clients.renewed(until)
        if not self.watching:
            self.watching = True
            self.look_at_lease()

    def look_at_lease(self) -> None:
        shell = self.shell
        self.watching = False
        deadline, now = shell.core.deadline, shell.now()
        if deadline.until == inf or shell.closing:
            return
        if deadline.expired(now):
            shell.core.lapse(now)
            shell.carry_out()
            return
        self.watching = True
        shell.after(deadline.until - now + LATE_S, self.look_at_lease)

    def lapsed(self, effect: LeaseLapsed) -> None:
        shell, lost = self.shell, effect.lost
        shell.asked(shell.registry.lapsed)
        log.log(
            logging.WARNING if lost else logging.INFO,
            "group %s: the lease of %s has run out; %s lost with it",
            shell.group, shell.core.me.name, f"{lost} hold{'s were' if lost > 1 else ' was'}" if lost else "nothing was",
        )  # fmt: skip
