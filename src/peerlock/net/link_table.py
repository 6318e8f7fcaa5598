"""All links of one node: which there are, which are being made, and which peer is at the other end.

The first frame each way on a link is a hello. The side that was dialled checks it (version, group,
registry, certificate) and answers with its own hello, or with a sentence and the end of the link.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerlock.errors import ProtocolError
from peerlock.net.transport.link import FOR_A_CLIENT, FOR_A_PEER, Link
from peerlock.net.transport.tls import reason, refuses_us
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.wire import OLDEST, VERSION, Frame, Hello, StaticState, framed, incompatible

if TYPE_CHECKING:
    from peerlock.net.shell import Shell

HELLO_S = 10.0  # for a connection to say who it is
REDIAL_S = (0.0, 0.02, 0.1, 0.5, 1.0)


class LinkTable:
    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.up: set[Link] = set()  # every socket there is, whether or not it has said who it is
        self.by_peer: dict[Peer, Link] = {}  # those that go to members
        self.dialling: set[Peer] = set()  # a link is being made, or will be
        self.tries: dict[Peer, int] = {}  # since the peer last greeted us
        self.dialled_early: tuple[Peer, ...] = ()  # members with which links are needed before we are one

    # -- making links ------------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        if peer in self.dialling or peer in self.by_peer or self.shell.closing:
            return
        self.dialling.add(peer)
        tried = self.tries[peer] = self.tries.get(peer, -1) + 1
        if tried:
            self.shell.after(REDIAL_S[min(tried, len(REDIAL_S)) - 1], lambda: self.redial(peer))
        else:
            self.shell.connect(peer)

    def redial(self, peer: Peer) -> None:
        if peer in self.dialling and self.is_wanted(peer) and not self.shell.closing:
            self.shell.connect(peer)
        else:
            self.dialling.discard(peer)

    def dial_early(self, peers: tuple[Peer, ...]) -> None:
        """Links to these members are needed before we are one."""
        self.dialled_early = peers
        for peer in peers:
            if peer != self.shell.core.me:
                self.dial(peer)

    def is_wanted(self, peer: Peer) -> bool:
        """Is there still a reason to have a link with it?"""
        core = self.shell.core
        coming = core.view_change.coming
        return not peer.id or peer in coming or (peer in self.dialled_early and core.me not in coming)

    def connected(self, link: Link) -> None:
        """A link that we have made is up."""
        shell, peer = self.shell, link.dialled
        assert peer is not None
        self.dialling.discard(peer)
        if not self.is_wanted(peer) or shell.closing:
            link.close()
            return
        if why := shell.registry.misnamed(peer.name, link.certificate):
            self.turn_away(link, peer, why)
            return
        shell.after(HELLO_S, lambda: self.unanswered(link))
        if not peer.id:
            link.write(framed(shell.core.links.hello(peer)))  # we shall see which incarnation it is
            return
        self.replace(peer, link)
        link.write(shell.core.links.dialled(peer, shell.now()))

    def turn_away(self, link: Link, peer: Peer, why: str) -> None:
        """Another node answers at that peer's address: it is told so, and hears nothing that is
        meant for the peer.
        """
        me, group = self.shell.core.me, self.shell.group
        link.write(framed(Hello(OLDEST, group, me, peer.id, 0, f"not {peer.name}: {why}", newest=VERSION)))
        self.refuse(link, f"it is not who it should be: {why}")
        if peer.id:
            self.not_connected(peer, why)

    def unanswered(self, link: Link) -> None:
        if link.peer is None and not link.closed:
            self.refuse(link, f"{link.dialled} does not answer")

    def not_connected(self, peer: Peer, problem: OSError | str) -> None:
        shell = self.shell
        self.dialling.discard(peer)
        if not self.is_wanted(peer) or shell.closing:
            return
        why = problem if isinstance(problem, str) else reason(problem)
        shell.reason = f"{peer.name} at {shell.registry.endpoint(peer)} is not reached: {why}"
        if isinstance(problem, ssl.SSLError | ConnectionAbortedError | socket.gaierror):
            shell.complain(shell.reason)  # else it may just not be there
        if not peer.id:
            shell.registry.unlinked(peer)
            return
        shell.check_liveness(peer)
        if self.is_wanted(peer):
            self.dial(peer)
        shell.carry_out()

    # -- the other end -----------------------------------------------------------------------------------

    def on_frame(self, link: Link, frame: Frame) -> None:
        """Lock messages between members that have greeted each other do not come here."""
        shell = self.shell
        if isinstance(frame, Hello) and (link.peer or link.dialled) and shell.registry.excludes_us(frame):
            shell.membership.on_exclusion(frame.sentence)
            raise ProtocolError(f"{frame.peer.name} says: {frame.sentence}")
        if link.peer is not None:
            if isinstance(frame, StaticState):
                shell.registry.told(link.peer, frame)
            else:
                self.receive(link.peer, frame)
        elif link.client is not None:
            link.client(frame)
        elif not isinstance(frame, Hello):
            raise ProtocolError("the first frame is not a hello")
        elif link.dialled is not None:
            self.on_answer(link, link.dialled, frame)
        else:
            self.on_hello(link, frame)

    def receive(self, peer: Peer, frame: Frame) -> None:
        core, shell = self.shell.core, self.shell
        view = core.receive(peer, frame, shell.now())
        if view is None:
            return
        if not shell.asked(shell.registry.confirms, View(view.epoch, view.members)):
            raise ProtocolError(f"a view of epoch {view.epoch}, which the registry does not know")
        shell.membership.learn(view)
        if core.receive(peer, frame, shell.now()) is not None:
            raise ProtocolError(f"epoch {view.epoch} is not known here yet")

    def on_answer(self, link: Link, dialled: Peer, hello: Hello) -> None:
        why: str | None = hello.sentence or self.unfit(hello)
        if why:
            raise ProtocolError(f"{dialled} does not let us in: {why}")
        core, now, registry = self.shell.core, self.shell.now(), self.shell.registry
        if dialled.id:
            if hello.peer.id != dialled.id:
                raise ProtocolError(f"{hello.peer} answers in the place of {dialled}")
            self.greeted(link, dialled, now)
            core.links.answered(dialled, hello.received, now)
            registry.linked(dialled)
            return
        why = registry.greeted(hello.peer, link.certificate)
        if not why and hello.peer.name != dialled.name:
            why = f"it says to be {hello.peer.name}"
        if why:
            link.write(framed(self.refusal(hello, why)))
            raise ProtocolError(f"it is not who it should be: {why}")
        self.greeted(link, hello.peer, now)
        self.replace(hello.peer, link)
        core.links.linked(hello.peer, hello.received, now)
        registry.linked(hello.peer)

    def on_hello(self, link: Link, hello: Hello) -> None:
        if hello.sentence:
            raise ProtocolError(f"{hello.peer.name} has dialled and hung up: {hello.sentence}")
        shell = self.shell
        core, registry = shell.core, shell.registry
        if not hello.peer.id and not self.unfit(hello):
            link.client = shell.clients.serve(link, hello)
            link.trust(FOR_A_CLIENT)
            return
        why = self.unfit(hello) or registry.greeted(hello.peer, link.certificate)
        if not why and not registry.is_addressed(hello.to, core.me):
            why = f"this is {core.me.name} in another incarnation"
        if why:
            link.write(framed(self.refusal(hello, why)))
            raise ProtocolError(f"{hello.peer.name or 'a node without a name'} was not let in: {why}")
        self.greeted(link, hello.peer, link.greeted_at)
        self.replace(hello.peer, link)
        link.write(framed(core.links.hello(hello.peer)))
        core.links.linked(hello.peer, hello.received, shell.now())
        registry.linked(hello.peer)

    def greeted(self, link: Link, peer: Peer, now: float) -> None:
        link.peer, link.greeted_at = peer, now
        link.trust(FOR_A_PEER)

    def refusal(self, hello: Hello, why: str) -> Hello:
        shell = self.shell
        gone = shell.registry.is_gone(hello.peer)
        return Hello(OLDEST, shell.group, shell.core.me, hello.peer.id, 0, why, gone, VERSION)

    def unfit(self, hello: Hello) -> str:
        if why := incompatible(hello.oldest, hello.newest):
            return why
        if hello.group != self.shell.group:
            return f"it is of the group {hello.group!r}, this node is of the group {self.shell.group!r}"
        return ""

    def replace(self, peer: Peer, link: Link) -> None:
        old = self.by_peer.get(peer)
        self.by_peer[peer] = link
        if old is not None and old is not link:
            old.peer = None
            old.close()

    def write(self, peer: Peer, data: bytes) -> None:
        link = self.by_peer.get(peer)
        if link is not None:
            link.write(data)

    # -- the end of links --------------------------------------------------------------------------------

    def hang_up(self, peer: Peer, sentence: str) -> None:
        """The link with that peer is of no use any more, and the core knows."""
        self.dialling.discard(peer)
        self.tries.pop(peer, None)
        link = self.by_peer.pop(peer, None)
        if link is not None:
            link.peer = None
            link.close()

    def hang_up_on_all(self) -> None:
        """This incarnation is over."""
        for link in list(self.by_peer.values()):
            self.forget(link)
            link.close()
        self.dialling.clear()

    def refuse(self, link: Link, why: str) -> None:
        """Something came that makes no sense, or was not let in."""
        complain = self.shell.complain if link.dialled is not None else self.shell.complain_of_stranger
        complain(f"link {self.other_end(link)} closed: {why}")
        link.refused = True
        link.close()

    def refuse_peer(self, peer: Peer, why: str) -> None:
        link = self.by_peer.get(peer)
        if link is not None:
            self.refuse(link, why)

    def other_end(self, link: Link) -> str:
        if link.dialled is not None:
            return f"to {link.dialled.name} at {self.shell.registry.endpoint(link.dialled)}"
        return f"from {link.host or 'this host'}"

    def broken(self, link: Link, problem: ssl.SSLError) -> None:
        """TLS has ended a link. A peer that refuses our certificate will refuse it again."""
        sentence = f"link {self.other_end(link)} broken: {reason(problem)}"
        if link.dialled is not None and link.peer is None and refuses_us(problem):
            self.shell.membership.refuse(sentence)
        else:
            self.shell.complain(sentence)

    def forget(self, link: Link) -> None:
        for peer, mine in list(self.by_peer.items()):
            if mine is link:
                del self.by_peer[peer]
        link.peer = None

    def is_refused_again(self, link: Link) -> bool:
        """One end did not take what the other said: the link is made again later and later. While
        the group waits for reports, one that ended soon counts as well, for the other end does not
        say why.
        """
        soon = self.shell.now() - link.greeted_at < REDIAL_S[-1]
        return link.refused or (soon and self.shell.core.view_change.wedged)

    def lost(self, link: Link) -> None:
        """A link is down, from whichever side."""
        shell = self.shell
        self.up.discard(link)
        link.closed = True
        link.buffer = bytearray()
        link.whole = memoryview(link.buffer)
        peer = link.peer or link.dialled
        if link.dialled is not None and link.greeted_at and not self.is_refused_again(link):
            self.tries.pop(link.dialled, None)
        if peer is not None and self.by_peer.get(peer) is link:
            del self.by_peer[peer]
            if not shell.closing:
                shell.core.links.unlinked(peer, shell.now())
                shell.registry.unlinked(peer)
                shell.carry_out()
        elif peer is not None and not peer.id and not shell.closing:
            shell.registry.unlinked(peer)
        if link.client is not None:
            link.client(None)

    def close(self) -> Sequence[Link]:
        """Close all of them, known or not."""
        links = list(self.up)
        for link in links:
            link.close()
        return links
