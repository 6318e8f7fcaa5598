"""What the shells for asyncio and for threads have in common: the core's requests, the registry's answers, and frames on links.

They differ in how bytes move, how time passes and how a waiter is woken. Everything here runs in one thread at a time: in
that of the event loop, or under the node's mutex.

The first frame each way on a link is a hello. The side that was dialled checks it (version, group, registry, certificate)
and answers with its own hello, or with a sentence and the end of the link.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from peerlock.contract import Mode
from peerlock.errors import (
    AfterFork,
    LockTimeout,
    NodeClosed,
    PeerlockError,
    ProtocolError,
    RegistryError,
    UsageError,
    shown,
)
from peerlock.net.complaints import Complaints
from peerlock.net.control.status import NodeStatus, node_status
from peerlock.net.registries.base import Registry, View
from peerlock.net.transport.link import FOR_A_CLIENT, FOR_A_PEER, Link
from peerlock.net.transport.tls import reason, refuses_us
from peerlock.node.core import Core
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.ticket import Limits
from peerlock.node.membership.host import GroupLost
from peerlock.node.peer import Peer
from peerlock.node.wire import OLDEST, VERSION, Frame, Hello, Ping, StaticState, framed, incompatible
from peerlock.node.wire_algorithms import WireAlgorithm, wire_algorithm

log = logging.getLogger("peerlock")
T = TypeVar("T")

AGAIN_S = 0.02  # before it asks again whether it may hold, after another process was about to exclude it
HELLO_S = 10.0  # to say so
PATIENCE_S = 2.5  # with a process that keeps this node from holding locks
LOWEST = 2**31 - 1  # priority; a larger number might not fit into a message
REDIAL_S = (0.0, 0.02, 0.1, 0.5, 1.0)


nodes_of_this_process: weakref.WeakSet[Shell] = weakref.WeakSet()


def _after_fork() -> None:
    for node in list(nodes_of_this_process):
        node.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class Shell:
    """The core's `Shell`, up to how bytes move and time passes."""

    cores_of: type[Core] = Core
    clock: Callable[[], float]  # what `now` says, without the call in between

    def __init__(self, registry: Registry, group: str, algorithm: str, limits: Limits | None) -> None:
        self.registry, self.group, self.algorithm = registry, group, wire_algorithm(algorithm)
        self.pid, self.forked, self.clock = os.getpid(), False, self.now
        self.core = self.cores_of(Peer("", 0), group, self, limits, self.now())
        self.core.leases, self.core.patience_s = registry.leases, registry.patience_s
        self.failure: RegistryError | None = None  # it cannot join
        self.watching = False  # a timer looks at the end of the lease
        self.dialled_early: tuple[Peer, ...] = ()  # members with whom links are needed before we are one
        self.up: set[Link] = set()  # every socket there is, whether or not it has said who it is
        self.links: dict[Peer, Link] = {}  # those that go to members
        self.dialling: set[Peer] = set()  # a link is being made, or will be
        self.tries: dict[Peer, int] = {}  # since it last greeted us
        self.closing = False
        self.outside = False  # the group went on without us, and we are about to join again
        self.refused_since: float | None = None  # believing
        self.complaints = Complaints()
        self.reason = ""  # the last thing that went wrong, for a caller that waits to join
        self.clients: dict[Any, bytes] = {}  # connections of the command line, and what works under their locks
        self.listeners: set[Callable[[], None]] = set()  # to the start of an epoch
        self.asking: dict[int, Callable[[], None]] = {}  # for a status, by the number of the question
        self.on_started: Callable[[], None] | None = None
        registry.shell = self
        nodes_of_this_process.add(self)

    # -- for users ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.core.me.name

    @property
    def epoch(self) -> int:
        """The number of the view that the group is in; it only ever grows."""
        return self.core.view_change.epoch

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(peer.name for peer in self.core.view_change.members)

    def choice(self, algorithm: str | None, priority: int | None) -> tuple[WireAlgorithm, Mode, int]:
        """What a lock is made with."""
        if algorithm is not None and not isinstance(algorithm, str):
            raise UsageError(f"An algorithm is given by its name; got {shown(algorithm)}.")
        spec = self.algorithm if algorithm is None else wire_algorithm(algorithm)
        if priority is not None:
            if algorithm is None:
                spec = wire_algorithm("ricart-agrawala-priority")
            if spec.spec.name != "ricart-agrawala-priority":
                raise UsageError(f"{spec.spec.name} knows no priorities: use ricart-agrawala-priority.")
            if not isinstance(priority, int) or isinstance(priority, bool) or not 1 <= priority <= LOWEST:
                raise UsageError(
                    f"A priority is a whole number from 1, the highest, to {LOWEST}; got {shown(priority)}."
                )
        return spec, "write", priority or 0

    def alive(self) -> None:
        if self.forked:
            raise AfterFork(
                f"This process was forked from {self.pid}, which joined the group {self.group}: the child is not a member "
                "and holds nothing. Call join in the child."
            )

    def usable(self) -> None:
        self.alive()
        if self.closing:
            raise NodeClosed(f"This node has left the group {self.group}: join again.")

    def after_fork(self) -> None:
        """In the child: the parent's node is not ours.

        Nor are its sockets. As long as a process has them open, the others do not see the parent's end, so the child's
        copies become something else.
        """
        self.forked = True
        self.core.table.open = self.core.table.running = False
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in (*self.descriptors(), *self.registry.descriptors()):
            if descriptor >= 0:
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def on_loop_closed(self) -> None:
        """Its event loop has ended, and it did not leave: others may hold what was held here, and nobody is left to be told."""
        self.closing = True
        self.core.table.wedge()
        self.core.table.lose("the event loop of its node has ended")

    def say_farewell(self) -> None:
        """Nothing is granted here any more, who waits waits in vain, who holds has lost; then the group goes on without us."""
        core = self.core
        self.closing = True  # first: a waiter that is told may ask again
        core.close(self.now())
        self.asked(self.registry.lapsed)  # the holders were told: nothing has to be ended for them
        for client in self.clients:
            client.end_process_groups()  # what works under a lock of ours ends before the lock is another's
        self.clients.clear()
        view = self.asked(self.registry.leave)
        if view is not None:
            core.farewell(view.epoch, view.members)

    # -- what asyncio and threads do in their own ways ---------------------------------------------------

    def now(self) -> float:
        raise NotImplementedError

    def after(self, seconds: float, act: Callable[[], None]) -> Any:
        raise NotImplementedError

    def post(self, act: Callable[[], None]) -> None:
        """Do that in the thread of the node, soon. May be called from any thread."""
        raise NotImplementedError

    def descriptors(self) -> list[int]:
        """Of our sockets."""
        return []

    def over(self) -> bool:
        """The node has ended, without leaving."""
        return False

    def connect(self, peer: Peer) -> None:
        """Make a link; `connected` or `not_connected` follows."""
        raise NotImplementedError

    def relisten(self) -> None:
        """Listen for the incarnation that the registry has made."""
        raise NotImplementedError

    # -- joining -----------------------------------------------------------------------------------------

    def enter_group(self) -> None:
        """A new incarnation, and a view that has it in it."""
        try:
            self._enter_group()
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            raise RegistryError(
                f"The group {self.group} cannot be joined: {where}{problem.strerror or problem}."
            ) from None

    def _enter_group(self) -> None:
        peer = self.registry.incarnate()
        if self.core.me.id:
            self.core.rejoined(peer)
        else:
            self.core.me = peer
            self.core.view_change.me = peer
        self.relisten()
        self.outside = False
        view = self.registry.change()
        if view is not None and peer not in view.members:
            # Taken in and excluded again before we heard of it.
            self.rejoin()
        else:
            self.take(view)
        self.core.flush()

    def take(self, view: View | None) -> None:
        if view is None or self.closing:
            return
        if self.core.me not in view.members and not self.core.view_change.known:
            return  # not yet in any view
        try:
            self.core.learn(view.epoch, view.members, self.now())
        except (RegistryError, OSError) as problem:
            self.complain(f"epoch {view.epoch} cannot be written down: {problem}")
            self.after(REDIAL_S[-1], lambda: self.take(view))

    def refuse(self, sentence: str) -> None:
        """This node cannot be a member, and waiting does not help: a caller that waits for it to join is told."""
        self.complain(sentence)
        if self.on_started is not None and self.failure is None:
            self.failure = RegistryError(f"The group {self.group} does not take this node in: {sentence}.")
            self.on_started()

    def not_in_time(self, timeout: float) -> LockTimeout:
        """The error for a caller that waited for it to join, and waits no more."""
        core = self.core
        missing = (str(peer) for peer in core.blockers or core.view_change.missing() if peer != core.me)
        waits = ", ".join(dict.fromkeys((*self.registry.waits_for(), *missing)))
        return LockTimeout(
            f"The group {self.group} did not take this node in within {timeout:g} s."
            + (f" It waits for {waits}." if waits else "")
            + (f" The last that was heard: {self.reason.rstrip('.')}." if self.reason else "")
            + " Nothing was ever held."
        )

    def again(self) -> None:
        """The group went on without us."""
        if self.closing or not self.outside:
            return
        for link in list(self.links.values()):
            self.forget(link)
            link.close()
        self.dialling.clear()
        try:
            self.enter_group()
        except (PeerlockError, OSError) as problem:
            log.error("group %s: cannot join again: %s", self.group, problem)
            self.outside = True
            self.after(REDIAL_S[-1], self.again)

    def write_process_groups(self) -> None:
        """A process that finds us dead must know what works under our locks."""
        words = b"".join(words + b"\n" for words in self.clients.values() if words)
        try:
            self.registry.record_process_groups(words)
        except OSError as problem:
            raise RegistryError(f"What works under a lock cannot be written down: {problem.strerror}.") from None

    # -- the core's wishes ---------------------------------------------------------------------------------

    def write(self, peer: Peer, data: bytes) -> None:
        link = self.links.get(peer)
        if link is not None:
            link.write(data)

    def dial(self, peer: Peer) -> None:
        if self.registry.dials and peer.id:
            return
        if peer in self.dialling or peer in self.links or self.closing:
            return
        self.dialling.add(peer)
        tried = self.tries[peer] = self.tries.get(peer, -1) + 1
        if tried:
            self.after(REDIAL_S[min(tried, len(REDIAL_S)) - 1], lambda: self.redial(peer))
        else:
            self.connect(peer)

    def redial(self, peer: Peer) -> None:
        if peer in self.dialling and self.wanted(peer) and not self.closing:
            self.connect(peer)
        else:
            self.dialling.discard(peer)

    def hang_up(self, peer: Peer, sentence: str) -> None:
        self.dialling.discard(peer)
        self.tries.pop(peer, None)
        link = self.links.pop(peer, None)
        if link is not None:
            link.peer = None
            link.close()

    def look(self, peer: Peer) -> None:
        if self.closing:
            return
        self.take(self.asked(self.registry.newest))
        if peer in self.core.view_change.coming and self.asked(self.registry.lives, peer) is False:
            log.info("group %s: %s is dead", self.group, peer)
            self.take(self.asked(self.registry.change))

    def confirms(self, epoch: int, members: tuple[Peer, ...]) -> bool:
        return bool(self.asked(self.registry.confirms, View(epoch, members)))

    def refresh(self) -> None:
        self.take(self.asked(self.registry.newest))

    def suspect(self, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        if not peers:
            self.asked(self.registry.relieve)
            return ()
        answer = self.asked(self.registry.exclude, peers)
        if answer is None:
            return peers
        view, stay = answer
        if stay and stay != self.core.blockers:
            log.warning(
                "group %s: no answer from %s, which may hold a lock: waiting for it",
                self.group,
                ", ".join(map(str, stay)),
            )
        self.take(view)
        return stay

    def renew(self) -> None:
        # Not at once: the core is in the middle of something when it finds that it is time for a new epoch.
        self.after(0.0, self.renewal)

    def renewal(self) -> None:
        if not self.closing:
            self.core.renewing = False
            self.take(self.asked(self.registry.change, True))
            self.core.flush()

    def waits_outside(self) -> bool:
        return self.registry.dials or self.registry.outside

    def rejoin(self) -> None:
        if self.outside or self.closing:
            return  # that is under way
        self.outside = True
        self.dialled_early = ()  # the next incarnation will hear whom it needs
        if self.core.admitted or self.core.view_change.known:
            log.warning("group %s: excluded from epoch %s; joining again", self.group, self.core.view_change.known)
        self.asked(self.registry.end_holding)
        self.after(0.0, self.again)

    def asked(self, question: Callable[..., T], *words: Any) -> T | None:
        """Ask the registry. If it cannot answer (a full disk), that is no answer, and the node goes on."""
        try:
            return question(*words)
        except GroupLost:
            self.after(0.0, self.on_group_lost)  # not at once: the core may be in the middle of something
            return None
        except (PeerlockError, OSError) as problem:
            self.complain(f"the registry does not answer: {problem}")
            return None

    def stands(self) -> bool:
        """Is the group's place still the one that this node joined in?"""
        return self.outside or self.closing or self.asked(self.registry.stands) is not False

    def on_group_lost(self) -> None:
        """The group's place is gone. What is held here is lost; this node joins the group that is there now, or founds it."""
        if self.outside or self.closing or self.stands():
            return
        why = str(self.registry.lost())
        log.error("group %s: %s", self.group, why)
        self.core.end_membership(why.rstrip("."))
        self.core.forget()
        self.rejoin()

    def complain(self, why: str) -> None:
        """One line in the log, and the same one not again for a while."""
        self.reason = why
        if self.complaints.are_new(why, self.now()):
            log.warning("group %s: %s", self.group, why)

    def begin_holding(self) -> bool:
        if self.registry.leases:
            return False  # it is open while the lease runs
        if self.asked(self.registry.begin_holding):
            self.refused_since = None
            return True
        if self.refused_since is None:
            self.refused_since = self.now()
        if self.now() - self.refused_since > PATIENCE_S:
            # A process that was about to exclude us is stopped in the middle of it. A new incarnation is free of it.
            self.refused_since = None
            self.complain("another process keeps this node from taking locks; joining again under a new incarnation")
            self.rejoin()
        else:
            self.after(AGAIN_S, self.request_hold_again)
        return False

    def request_hold_again(self) -> None:
        if not self.closing:
            self.take(self.asked(self.registry.newest))
            self.core.now = self.now()
            self.core.request_hold_if_needed()
            self.core.flush()

    def end_holding(self) -> None:
        self.asked(self.registry.end_holding)

    def leased(self, until: float) -> None:
        """The registry says: nobody excludes this node before then."""
        if self.closing:
            return
        self.core.leased(until, self.now())
        self.core.flush()
        if self.core.table.may_hold:
            self.registry.arm(self.core.table.until)
            for client in self.clients:
                client.renewed(self.core.table.until)
        if not self.watching:
            self.watching = True
            self.look_at_lease()

    def look_at_lease(self) -> None:
        self.watching = False
        table, now = self.core.table, self.now()
        if not table.may_hold or self.closing:
            return
        if now >= table.until:
            self.core.lapse(now)
            self.core.flush()
            return
        self.watching = True
        self.after(table.until - now + 0.0005, self.look_at_lease)

    def lapsed(self, held: int) -> None:
        self.asked(self.registry.lapsed)
        log.log(
            logging.WARNING if held else logging.INFO,
            "group %s: the lease of %s has run out; %s lost with it",
            self.group, self.name, f"{held} hold{'s were' if held > 1 else ' was'}" if held else "nothing was",
        )  # fmt: skip

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        """Links to these members are needed before we are one."""
        self.dialled_early = peers
        for peer in peers:
            if peer != self.core.me:
                self.dial(peer)

    def wake_at(self, when: float) -> None:
        self.after(max(0.0, when - self.now()), self.tick)

    def tick(self) -> None:
        if not self.stands():
            self.on_group_lost()
        if not self.closing:
            self.core.tick(self.now())
            self.core.flush()

    def withheld_due_at(self, when: float) -> None:
        self.after(max(0.0, when - self.now()), self.on_withheld_due)

    def on_withheld_due(self) -> None:
        if not self.closing:
            self.core.on_withheld_due(self.now())
            self.core.flush()

    def spin(self, local_lock: LocalLock) -> None:
        """Whether that can be done, and pays, depends on how a node waits."""

    def learned(self, epoch: int, members: tuple[Peer, ...]) -> None:
        self.registry.learned(View(epoch, members))

    def started(self, epoch: int) -> None:
        log.info(
            "group %s: epoch %s with %s",
            self.group,
            epoch,
            ", ".join(peer.name for peer in self.core.view_change.members),
        )
        for listener in list(self.listeners):
            listener()
        if self.on_started is not None:
            self.on_started()

    def note(self, level: str, sentence: str) -> None:
        log.log(logging.WARNING if level == "warning" else logging.INFO, "group %s: %s", self.group, sentence)

    # -- links -------------------------------------------------------------------------------------------

    def connected(self, link: Link) -> None:
        """A link that we have made is up."""
        peer = link.dialled
        assert peer is not None
        self.dialling.discard(peer)
        if not self.wanted(peer) or self.closing:
            link.close()
            return
        if why := self.registry.misnamed(peer.name, link.certificate):
            self.turn_away(link, peer, why)
            return
        self.after(HELLO_S, lambda: self.unanswered(link))
        if not peer.id:
            link.write(framed(self.core.hello(peer)))  # we shall see which incarnation it is
            return
        self.replace(peer, link)
        link.write(self.core.dialled(peer, self.now()))

    def turn_away(self, link: Link, peer: Peer, why: str) -> None:
        """Another node answers at that peer's address: it is told so, and hears nothing that is meant for the peer."""
        link.write(
            framed(Hello(OLDEST, self.group, self.core.me, peer.id, 0, f"not {peer.name}: {why}", newest=VERSION))
        )
        self.ends(link, f"it is not who it should be: {why}")
        if peer.id:
            self.not_connected(peer, why)

    def unanswered(self, link: Link) -> None:
        if link.peer is None and not link.closed:
            self.ends(link, f"{link.dialled} does not answer")

    def wanted(self, peer: Peer) -> bool:
        """Is there still a reason to have a link with it?"""
        coming = self.core.view_change.coming
        return not peer.id or peer in coming or (peer in self.dialled_early and self.core.me not in coming)

    def not_connected(self, peer: Peer, problem: OSError | str) -> None:
        self.dialling.discard(peer)
        if not self.wanted(peer) or self.closing:
            return
        why = problem if isinstance(problem, str) else reason(problem)
        self.reason = f"{peer.name} at {self.registry.endpoint(peer)} is not reached: {why}"
        if isinstance(problem, ssl.SSLError | ConnectionAbortedError | socket.gaierror):
            self.complain(self.reason)  # else it may just not be there
        if not peer.id:
            self.registry.unlinked(peer)
            return
        self.look(peer)
        if self.wanted(peer):
            self.dial(peer)
        self.core.flush()

    def replace(self, peer: Peer, link: Link) -> None:
        old = self.links.get(peer)
        self.links[peer] = link
        if old is not None and old is not link:
            old.peer = None
            old.close()

    def on_frame(self, link: Link, frame: Frame) -> None:
        """What is said between members, once they have greeted each other, does not come here."""
        if isinstance(frame, Hello) and frame.gone and self.registry.dials and (link.peer or link.dialled):
            self.on_exclusion(frame.sentence)
            raise ProtocolError(f"{frame.peer.name} says: {frame.sentence}")
        if link.peer is not None:
            if isinstance(frame, StaticState):
                self.registry.told(link.peer, frame)
            else:
                self.core.receive(link.peer, frame, self.now())
        elif link.client is not None:
            link.client(frame)
        elif not isinstance(frame, Hello):
            raise ProtocolError("the first frame is not a hello")
        elif link.dialled is not None:
            self.on_answer(link, link.dialled, frame)
        else:
            self.on_hello(link, frame)

    def on_answer(self, link: Link, dialled: Peer, hello: Hello) -> None:
        why: str | None = hello.sentence or self.unfit(hello)
        if why:
            raise ProtocolError(f"{dialled} does not let us in: {why}")
        if dialled.id:
            if hello.peer.id != dialled.id:
                raise ProtocolError(f"{hello.peer} answers in the place of {dialled}")
            link.peer, link.greeted_at = dialled, self.now()
            link.trust(FOR_A_PEER)
            self.core.answered(dialled, hello.received, self.now())
            self.registry.linked(dialled)
            return
        why = self.registry.greeted(hello.peer, link.certificate)
        if not why and hello.peer.name != dialled.name:
            why = f"it says to be {hello.peer.name}"
        if why:
            link.write(framed(self.refusal(hello, why)))
            raise ProtocolError(f"it is not who it should be: {why}")
        link.peer, link.greeted_at = hello.peer, self.now()
        link.trust(FOR_A_PEER)
        self.replace(hello.peer, link)
        self.core.linked(hello.peer, hello.received, self.now())
        self.registry.linked(hello.peer)

    def on_hello(self, link: Link, hello: Hello) -> None:
        if hello.sentence:
            raise ProtocolError(f"{hello.peer.name} has dialled and hung up: {hello.sentence}")
        if not hello.peer.id and not self.unfit(hello):
            link.client = self.serve(link, hello)
            link.trust(FOR_A_CLIENT)
            return
        why = self.unfit(hello) or self.registry.greeted(hello.peer, link.certificate)
        if not why and hello.to != self.core.me.id and not (self.registry.dials and not hello.to):
            why = f"this is {self.core.me.name} in another incarnation"
        if why:
            link.write(framed(self.refusal(hello, why)))
            raise ProtocolError(f"{hello.peer.name or 'a node without a name'} was not let in: {why}")
        link.peer = hello.peer
        link.trust(FOR_A_PEER)
        self.replace(hello.peer, link)
        link.write(framed(self.core.hello(hello.peer)))
        self.core.linked(hello.peer, hello.received, self.now())
        self.registry.linked(hello.peer)

    def hears(self, peer: Peer) -> bool:
        """Does the other end of its link answer? It is asked, and has a while to answer: until then yes."""
        session = self.core.sessions.get(peer)
        if session is None or peer not in self.links:
            return False
        if not session.pinged:
            session.pinged = self.now()
            self.core.send(session, Ping())
            self.core.flush()
        return self.now() - session.pinged < PATIENCE_S

    def refusal(self, hello: Hello, why: str) -> Hello:
        gone = self.registry.is_gone(hello.peer)
        return Hello(OLDEST, self.group, self.core.me, hello.peer.id, 0, why, gone, VERSION)

    def on_exclusion(self, sentence: str) -> None:
        """The others go on without this incarnation, and say so."""
        log.error("group %s: %s: everything that was held here is lost", self.group, sentence)
        self.core.end_membership(sentence)
        self.rejoin()

    def unfit(self, hello: Hello) -> str:
        if why := incompatible(hello.oldest, hello.newest):
            return why
        if hello.group != self.group:
            return f"it is of the group {hello.group!r}, this node is of the group {self.group!r}"
        return ""

    def serve(self, link: Link, hello: Hello) -> Any:
        """A client on this host that is not a member: the command line."""
        from peerlock.net.control.session import Client

        if not link.local:
            raise ProtocolError("a client on another host")
        link.write(framed(self.core.hello(hello.peer)))
        return Client(self, link)

    def ask_status(self, done: Callable[[NodeStatus], None], wait_s: float) -> None:
        """Ask every member; `done` hears what is known when all have answered, or after a while."""
        core = self.core
        self.refresh()  # a node that was stopped may have been excluded meanwhile
        number = core.ask_for_status()
        core.flush()
        answers = core.answers[number]
        others = [peer for peer in core.view_change.members if peer != core.me]

        def look(late: bool = False) -> None:
            if number in core.answers and (late or len(answers) >= len(others)):
                del core.answers[number]
                self.asking.pop(number, None)
                done(node_status(core, answers, self.now(), self.registry.waits_for(), self.registry.kind))

        self.asking[number] = look
        core.on_answer = lambda number: self.asking[number]() if number in self.asking else None
        look()
        if number in core.answers:
            self.after(wait_s, lambda: look(late=True))

    def ends(self, link: Link, why: str) -> None:
        """Something came that makes no sense, or was not let in."""
        self.complain(f"link {self.other_end(link)} closed: {why}")
        link.refused = True
        link.close()

    def other_end(self, link: Link) -> str:
        if link.dialled is not None:
            return f"to {link.dialled.name} at {self.registry.endpoint(link.dialled)}"
        return f"from {link.host or 'this host'}"

    def broken(self, link: Link, problem: ssl.SSLError) -> None:
        """TLS has ended a link. A peer that refuses our certificate will refuse it again."""
        certain = link.dialled is not None and link.peer is None and refuses_us(problem)
        (self.refuse if certain else self.complain)(f"link {self.other_end(link)} broken: {reason(problem)}")

    def forget(self, link: Link) -> None:
        for peer, mine in list(self.links.items()):
            if mine is link:
                del self.links[peer]
        link.peer = None

    def is_refused_again(self, link: Link) -> bool:
        """One end did not take what the other said: the link is made again later and later. While the group waits for
        reports, one that ended soon counts as well, for the other end does not say why.
        """
        soon = self.now() - link.greeted_at < REDIAL_S[-1]
        return link.refused or (soon and self.core.view_change.wedged)

    def lost(self, link: Link) -> None:
        """A link is down, from whichever side."""
        self.up.discard(link)
        link.closed = True
        link.buffer = bytearray()
        link.whole = memoryview(link.buffer)
        peer = link.peer or link.dialled
        if link.dialled is not None and link.greeted_at and not self.is_refused_again(link):
            self.tries.pop(link.dialled, None)
        if peer is not None and self.links.get(peer) is link:
            del self.links[peer]
            if not self.closing:
                self.core.unlinked(peer, self.now())
                self.registry.unlinked(peer)
                self.core.flush()
        elif peer is not None and not peer.id and not self.closing:
            self.registry.unlinked(peer)
        if link.client is not None:
            link.client(None)
