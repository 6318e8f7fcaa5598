"""Suzuki and Kasami 1985: Algorithm B, repaired.

The figure, `suzuki_kasami_b_as_printed`, fails twice:

1. A holder that enters again without asking still has RN[I] = L-1 after the critical section, so it
   waits for N-1 REPLYs a second time. No node will ever send them: all wait for ever. Repair: a
   round ends with an entry that was asked for.
2. RN[j] = LN[j] + 1 mod L is meant to say "j waits". But a node i to which all of j's new requests
   are still under way has RN[j] = L-1 from the round before, which is LN[j] + 1 as soon as j has
   entered L-1 times in the new round. Then i sends the privilege to j, which does not want it and
   never passes it on. REPLYs do not help: they only keep j from starting a third round. Repair: one
   bit a node beside RN and LN that says which round the number is from.
"""

from __future__ import annotations

from typing import ClassVar, Self

from peerlock.algorithms.suzuki_kasami_b_as_printed import AsPrinted, Message, Privilege
from peerlock.contract import NOBODY, Inside, Members, Mode, NodeId, Out, Row, put, row


class PrivilegeWithRounds(Privilege, frozen=True, tag=4):
    """The repaired PRIVILEGE: with the round that each LN[j] is from."""

    called: ClassVar[str] = "PRIVILEGE"

    ln_round: Row


class SuzukiKasamiB(AsPrinted):
    """The two repairs and nothing else."""

    asked: bool = False  # this entry was asked for
    rn_round: Row = ()  # the round of RN[j], a bit; it turns with j's first request of a round
    ln_round: Row = ()  # the round of LN[j], a bit; holder only

    @classmethod
    def start(cls, me: NodeId, shape: Members, inside: Inside = NOBODY, *, l: int = 2) -> Self:
        node = super().start(me, shape, inside, l=l)
        node.rn_round = row(shape.all, 0)
        node.ln_round = node.rn_round if node.have_privilege else ()
        return node

    def request(self, mode: Mode, out: Out[Message]) -> None:
        self.asked = not self.have_privilege
        if self.asked and self.rn[self.me] in (-1, self.l - 1):
            self.turn(self.me)
        super().request(mode, out)

    def on_request(self, j: NodeId, n: int, out: Out[Message]) -> None:
        if self.request_count[j] == 0:
            self.turn(j)
        super().on_request(j, n, out)

    def turn(self, j: NodeId) -> None:
        self.rn_round = put(self.rn_round, j, 1 - self.rn_round[j])

    def on_privilege(self, privilege: Privilege, out: Out[Message]) -> None:
        assert self.requesting and not self.have_privilege, f"privilege for node {self.me}, which does not wait: {self}"
        assert isinstance(privilege, PrivilegeWithRounds)
        self.ln_round = privilege.ln_round
        super().on_privilege(privilege, out)

    def release(self, out: Out[Message]) -> None:
        self.ln_round = put(self.ln_round, self.me, self.rn_round[self.me])
        super().release(out)

    def ends_round(self) -> bool:
        return self.asked and super().ends_round()

    def finish(self, out: Out[Message]) -> None:
        self.asked = False
        super().finish(out)

    def waits(self, j: NodeId) -> bool:
        # The next number: one more in the same round, or the first of the other round.
        other_round = self.rn_round[j] != self.ln_round[j]
        return super().waits(j) and other_round == (self.rn[j] == 0)

    def pass_privilege(self, to: NodeId, q: tuple[NodeId, ...], out: Out[Message]) -> None:
        out.send(to, PrivilegeWithRounds(q, self.ln, self.ln_round))
        self.q, self.ln, self.ln_round, self.have_privilege = (), (), (), False
