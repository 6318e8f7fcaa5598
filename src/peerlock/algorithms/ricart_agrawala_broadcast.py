"""Ricart and Agrawala 1981, variation: broadcast messages.

Where the network can carry one message to all nodes, a REQUEST is one message: N per entry instead
of 2(N-1).
"""

from __future__ import annotations

from typing import ClassVar

from peerlock.algorithms.ricart_agrawala import Message, Request, RicartAgrawala
from peerlock.contract import Needs, Out


class RicartAgrawalaBroadcast(RicartAgrawala):
    needs: ClassVar[Needs] = Needs(broadcast=True)

    def ask(self, out: Out[Message]) -> None:
        out.broadcast(self.others, Request(self.our_sequence_number))
