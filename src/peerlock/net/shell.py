"""What drives a core: the part that the shells for asyncio and for threads have in common.

Something happens: a frame, a timer, a call of a user, a word of the registry. The shell tells the
core, in one input. Then `carry_out` does what the core asks for: first the writes, one per peer,
then its effects, until there are none left. The shell asks the registry, and its answer is the next
input.

The shells differ in how bytes move, how time passes and how a waiter is woken. Everything here runs
in one thread at a time: in that of the event loop, or under the node's mutex. Links are in
`link_table.py`, joining and rejoining in `membership.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar, TypeVar

from peerlock.errors import LockTimeout, PeerlockError
from peerlock.net.base_shell import BaseShell, Handlers
from peerlock.net.clients import Clients
from peerlock.net.control.status import NodeStatus, node_status
from peerlock.net.link_table import LinkTable
from peerlock.net.membership import Membership
from peerlock.net.permission import Permission
from peerlock.net.registries.base import Registry
from peerlock.node import effects
from peerlock.node.core import Core
from peerlock.node.locks.ticket import Limits
from peerlock.node.membership.host import GroupLost
from peerlock.node.peer import Peer
from peerlock.node.wire_algorithms import DEFAULT

log = logging.getLogger("peerlock")
T = TypeVar("T")

ANSWER_S = 2.5  # for a peer to say that it is there


class Shell(BaseShell[Core]):
    cores_of: ClassVar[type[Core]] = Core
    membership: Membership

    def __init__(self, registry: Registry, group: str, algorithm: str = DEFAULT, limits: Limits | None = None) -> None:
        super().__init__(group, algorithm)
        self.registry = registry
        self.core = self.cores_of(
            Peer("", 0), group, limits, self.now(),
            leases=registry.leases, patience_s=registry.patience_s, waits_outside=registry.outside,
        )  # fmt: skip
        self.links = LinkTable(self)
        self.membership = Membership(self)
        self.permission = Permission(self)
        self.clients = Clients(self)
        self.listeners: set[Callable[[effects.EpochStarted], None]] = set()
        self.asking: dict[int, Callable[[], None]] = {}  # for a status, by the number of the question
        self.handlers: Handlers = {
            effects.OthersAsk: lambda effect: effect.ticket.others_ask(),
            effects.MaySpin: lambda effect: None,  # whether that can be done, and pays, depends on how a node waits
            effects.WakeAt: self.wake_at,
            effects.WithheldDueAt: self.withheld_due_at,
            effects.Write: lambda effect: self.links.write(effect.peer, effect.data),
            effects.Dial: lambda effect: registry.reach(effect.peer),
            effects.HangUp: self.hang_up,
            effects.Refuse: lambda effect: self.links.refuse_peer(effect.peer, effect.sentence),
            effects.CheckLiveness: self.redial_if_alive,
            effects.RefreshView: self.refresh_view,
            effects.Suspect: self.suspect,
            effects.RequestEpoch: lambda effect: self.after(0.0, self.request_epoch),
            effects.Rejoin: lambda effect: self.membership.rejoin(),
            effects.BeginHolding: lambda effect: self.permission.request(),
            effects.EndHolding: lambda effect: self.permission.give_back(),
            effects.LeaseLapsed: lambda effect: self.permission.lapsed(effect),
            effects.EpochStarted: self.epoch_started,
            effects.Answered: lambda effect: self.asking.get(effect.number, bool)(),
            effects.Warn: lambda effect: log.warning("group %s: %s", group, effect.sentence),
        }
        registry.shell = self

    # -- what asyncio and threads do in their own ways ---------------------------------------------------

    def descriptors(self) -> list[int]:
        """Of our sockets."""
        return []

    def connect(self, peer: Peer) -> None:
        """Make a link; `connected` or `not_connected` of the link table follows."""
        raise NotImplementedError

    def relisten(self) -> None:
        """Listen for the incarnation that the registry has made."""
        raise NotImplementedError

    def enter_group(self) -> None:
        self.membership.enter_group()

    def not_in_time(self, timeout: float) -> LockTimeout:
        return self.membership.not_in_time(timeout)

    # -- effects -----------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Do what the core asks for, and what it asks for because of that."""
        core, queue, links, handlers = self.core, self.core.effects, self.links.by_peer, self.handlers
        table = core.table
        while True:
            if table.dirty:
                for peer, data in core.take_writes():
                    link = links.get(peer)
                    if link is not None:
                        link.write(data)
            if not queue:
                return
            effect = queue.pop(0)
            if type(effect) is effects.Wake:
                effect.ticket.woken()
            else:
                handlers[type(effect)](effect)

    def hang_up(self, effect: effects.HangUp) -> None:
        self.links.hang_up(effect.peer, effect.sentence)
        self.registry.unlinked(effect.peer)

    def redial_if_alive(self, effect: effects.CheckLiveness) -> None:
        if not self.closing:
            self.check_liveness(effect.peer)
        self.core.links.may_redial(effect.peer)

    def check_liveness(self, peer: Peer) -> None:
        """If it is dead, the group goes on without it."""
        self.membership.take(self.asked(self.registry.newest))
        if peer in self.core.view_change.coming and self.asked(self.registry.lives, peer) is False:
            log.info("group %s: %s is dead", self.group, peer)
            self.membership.take(self.asked(self.registry.change))

    def refresh_view(self, effect: effects.RefreshView | None = None) -> None:
        self.membership.take(self.asked(self.registry.newest))

    def suspect(self, effect: effects.Suspect) -> None:
        if not effect.peers:
            self.asked(self.registry.relieve)
        answer = self.asked(self.registry.exclude, effect.peers) if effect.peers else (None, ())
        if answer is None:
            self.core.links.waits_for(effect.peers)
            return
        view, blockers = answer
        if blockers and blockers != self.core.links.failure_detector.blockers:
            names = ", ".join(map(str, blockers))
            log.warning("group %s: no answer from %s, which may hold a lock: waiting for it", self.group, names)
        self.core.links.waits_for(blockers)
        self.membership.take(view)

    def request_epoch(self) -> None:
        if not self.closing:
            self.core.epoch_requested()
            self.membership.take(self.asked(self.registry.change, True))
            self.carry_out()

    def epoch_started(self, effect: effects.EpochStarted) -> None:
        members = ", ".join(peer.name for peer in self.core.view_change.members)
        log.info("group %s: epoch %s with %s", self.group, effect.epoch, members)
        for listener in list(self.listeners):
            listener(effect)
        self.membership.started()

    # -- timers ------------------------------------------------------------------------------------------

    def wake_at(self, effect: effects.WakeAt) -> None:
        self.after(max(0.0, effect.when - self.now()), self.tick)

    def tick(self) -> None:
        if not self.membership.stands():
            self.membership.on_group_lost()
        if not self.closing:
            self.core.tick(self.now())
            self.carry_out()

    def withheld_due_at(self, effect: effects.WithheldDueAt) -> None:
        self.after(max(0.0, effect.when - self.now()), self.on_withheld_due)

    def on_withheld_due(self) -> None:
        if not self.closing:
            self.core.on_withheld_due(self.now())
            self.carry_out()

    # -- the registry ------------------------------------------------------------------------------------

    def asked(self, question: Callable[..., T], *words: Any) -> T | None:
        """Ask the registry. If it cannot answer (a full disk), that is no answer, and the node goes
        on.
        """
        try:
            return question(*words)
        except GroupLost:
            self.after(0.0, self.membership.on_group_lost)
            return None
        except (PeerlockError, OSError) as problem:
            self.complain(f"the registry does not answer: {problem}")
            return None

    def complain_of_stranger(self, why: str) -> None:
        """A connection that came did not say who it is: what this node finds out by itself tells
        its caller more.
        """
        before = self.reason
        self.complain(why)
        self.reason = before or why

    def hears(self, peer: Peer) -> bool:
        """Does the other end of its link answer? It is asked, and has a while to answer: until then
        yes.
        """
        silent_s = self.core.links.silent_for(peer, self.now()) if peer in self.links.by_peer else inf
        self.carry_out()
        return silent_s < ANSWER_S

    # -- users -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.core.me.name

    @property
    def epoch(self) -> int:
        return self.core.view_change.epoch

    @property
    def epochs(self) -> int:
        return self.core.views

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(peer.name for peer in self.core.view_change.members)

    def collect(self) -> None:
        self.core.request_epoch()

    def ask_status(self, done: Callable[[NodeStatus], None], wait_s: float) -> None:
        """Ask every member; `done` hears what is known when all have answered, or after a while."""
        core = self.core
        self.refresh_view()  # a node that was stopped may have been excluded meanwhile
        number = core.ask_for_status()
        answers = core.answers[number]
        others = [peer for peer in core.view_change.members if peer != core.me]

        def look(late: bool = False) -> None:
            if number in core.answers and (late or len(answers) >= len(others)):
                del core.answers[number]
                self.asking.pop(number, None)
                done(node_status(core, answers, self.now(), self.registry.waits_for(), self.registry.kind))

        self.asking[number] = look
        self.carry_out()
        look()
        if number in core.answers:
            self.after(wait_s, lambda: look(late=True))

    def record_process_groups(self, words: bytes) -> None:
        self.registry.record_process_groups(words)

    # -- the end -----------------------------------------------------------------------------------------

    def say_farewell(self) -> None:
        """Nothing is granted here any more: callers that wait and holders are told. Then the group
        goes on without us.
        """
        core = self.core
        self.closing = True  # first: a waiter that is told may ask again
        core.close(self.now())
        self.carry_out()
        self.asked(self.registry.lapsed)  # the holders were told: nothing has to be ended for them
        self.clients.end()
        view = self.asked(self.registry.leave)
        if view is not None:
            core.links.farewell(view.epoch, view.members)
        self.carry_out()

    def on_loop_closed(self) -> None:
        """The event loop has ended, and the node did not leave: others may hold what was held here,
        and no caller is left.
        """
        self.closing = True
        self.core.end_membership("the event loop of its node has ended")

    def open_descriptors(self) -> list[int]:
        return [*self.descriptors(), *self.registry.descriptors()]
