"""Ricart and Agrawala 1981, variation: broadcast and implicit reply together.

One broadcast REQUEST and, without contention, nothing else: as low as one message per entry.
"""

from __future__ import annotations

from typing import ClassVar

from peerlock.algorithms.ricart_agrawala import Message, Request
from peerlock.algorithms.ricart_agrawala_implicit import RicartAgrawalaImplicit
from peerlock.contract import Needs, Out


class RicartAgrawalaBroadcastImplicit(RicartAgrawalaImplicit):
    needs: ClassVar[Needs] = Needs(delay_bound=True, broadcast=True)

    def send_requests(self, out: Out[Message]) -> None:
        out.broadcast(self.others, Request(self.our_sequence_number))
