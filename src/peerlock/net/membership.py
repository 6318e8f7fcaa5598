"""How a node becomes a member of its group, and becomes one again when the group went on without
it.

The registry decides views. Every view that is heard of comes through here: what must be durable
about it is written down first, and then the core learns it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlock.errors import LockTimeout, PeerlockError, RegistryError
from peerlock.node.membership.view import View

if TYPE_CHECKING:
    from peerlock.net.shell import Shell

log = logging.getLogger("peerlock")

AGAIN_S = 1.0  # before what has failed is tried again
FEW = 3  # processes that ask for a place at the same time: each asks for a view itself
JOIN_S_EACH = 0.01  # of more: they spread out over that
LOOK_S = 0.05  # between two looks at the group's place by callers that take locks


class Membership:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.outside = False  # the group went on without us, and we are about to join again
        self.failure: RegistryError | None = None  # it cannot join
        self.look_at = 0.0  # from then on a grant looks whether the group's place stands
        self.on_started: Callable[[], None] | None = None  # the first view is here, or will never be

    # -- joining -----------------------------------------------------------------------------------------

    def enter_group(self) -> None:
        """A new incarnation, and a view that has it in it."""
        try:
            self._enter_group()
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            raise RegistryError(
                f"The group {self.shell.group} cannot be joined: {where}{problem.strerror or problem}."
            ) from None

    def _enter_group(self) -> None:
        shell = self.shell
        peer = shell.registry.incarnate()
        shell.core.rejoined(peer)
        shell.clients.on_incarnation()
        shell.relisten()
        self.outside = False
        crowd = shell.registry.crowd()
        if crowd <= FEW:
            self.ask_for_view()
        else:  # one of them asks first, and its view has all in it that have come by then
            shell.after(JOIN_S_EACH * crowd * random.random(), self.ask_if_still_outside)

    def ask_if_still_outside(self) -> None:
        shell = self.shell
        if shell.closing or self.outside or shell.core.view_change.known:
            return  # it was admitted meanwhile
        try:
            self.ask_for_view()
        except (PeerlockError, OSError) as problem:
            self.outside = True
            self.refuse(str(problem))
            shell.after(AGAIN_S, self.again)

    def ask_for_view(self) -> None:
        shell = self.shell
        view = shell.registry.change()
        if view is not None and shell.core.me not in view.members:
            self.rejoin()  # admitted and excluded again before we heard of it
        else:
            self.take(view)
        shell.carry_out()

    def started(self) -> None:
        if self.on_started is not None:
            self.on_started()

    def refuse(self, sentence: str) -> None:
        """This node cannot be a member, and waiting does not help: a caller that waits for it to
        join is told.
        """
        self.shell.complain(sentence)
        if self.on_started is not None and self.failure is None:
            self.failure = RegistryError(f"The group {self.shell.group} does not take this node in: {sentence}.")
            self.on_started()

    def not_in_time(self, timeout: float) -> LockTimeout:
        """The error for a caller that waited for it to join, and waits no more."""
        shell = self.shell
        core = shell.core
        blockers = core.links.failure_detector.blockers or core.view_change.missing()
        missing = (str(peer) for peer in blockers if peer != core.me)
        waits = ", ".join(dict.fromkeys((*shell.registry.waits_for(), *missing)))
        return LockTimeout(
            f"The group {shell.group} did not take this node in within {timeout:g} s."
            + (f" It waits for {waits}." if waits else "")
            + (f" The last that was heard: {shell.reason.rstrip('.')}." if shell.reason else "")
            + " Nothing was ever held."
        )

    # -- views -------------------------------------------------------------------------------------------

    def take(self, view: View | None) -> None:
        """The registry says that this is the newest view."""
        shell = self.shell
        if view is None or shell.closing:
            return
        if shell.core.me not in view.members and not shell.core.view_change.known:
            return  # not yet in any view
        try:
            self.learn(view)
        except (RegistryError, OSError) as problem:
            shell.complain(f"epoch {view.epoch} cannot be written down: {problem}")
            shell.after(AGAIN_S, lambda: self.take(view))

    def learn(self, view: View) -> None:
        """What must be durable about a view is, before the core hears of it."""
        shell = self.shell
        if view.epoch > shell.core.view_change.known:
            shell.registry.learned(view)
            shell.core.learn(view.epoch, view.members, shell.now())

    # -- joining again -----------------------------------------------------------------------------------

    def rejoin(self) -> None:
        """The group goes on without this incarnation."""
        shell = self.shell
        if self.outside or shell.closing:
            return  # that is under way
        self.outside = True
        shell.links.dialled_early = ()  # the next incarnation will hear which it needs
        if shell.core.admitted or shell.core.view_change.known:
            log.warning("group %s: excluded from epoch %s; joining again", shell.group, shell.core.view_change.known)
        shell.asked(shell.registry.end_holding)
        shell.after(0.0, self.again)

    def again(self) -> None:
        shell = self.shell
        if shell.closing or not self.outside:
            return
        shell.links.hang_up_on_all()
        try:
            self.enter_group()
        except (PeerlockError, OSError) as problem:
            log.error("group %s: cannot join again: %s", shell.group, problem)
            self.outside = True
            shell.after(AGAIN_S, self.again)

    def on_exclusion(self, sentence: str) -> None:
        """The others go on without this incarnation, and say so."""
        shell = self.shell
        log.error("group %s: %s: everything that was held here is lost", shell.group, sentence)
        shell.core.end_membership(sentence)
        self.rejoin()

    def stands(self) -> bool:
        """Is the group's place still the one that this node joined in?"""
        shell = self.shell
        self.look_at = shell.now() + LOOK_S
        return self.outside or shell.closing or shell.asked(shell.registry.stands) is not False

    def on_group_lost(self) -> None:
        """The group's place is gone. What is held here is lost; this node joins the group that is
        there now, or founds it.
        """
        shell = self.shell
        if self.outside or shell.closing or self.stands():
            return
        why = str(shell.registry.lost())
        log.error("group %s: %s", shell.group, why)
        shell.core.end_membership(why.rstrip("."))
        shell.core.forget()
        shell.carry_out()
        self.rejoin()
