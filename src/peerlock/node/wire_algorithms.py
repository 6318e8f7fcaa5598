"""The algorithms as they are known on the wire: each has a number and a decoder of its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_

import msgspec
from msgspec import Struct

from peerlock.algorithms import (
    CATALOGUE,
    AlgorithmSpec,
    carvalho_roucairol,
    choose,
    dijkstra_ring,
    helary_plouzeau_raynal,
    naimi_trehel,
    ricart_agrawala,
    ricart_agrawala_rw,
    ricart_agrawala_token,
    suzuki_kasami_a,
    suzuki_kasami_b,
    suzuki_kasami_b_as_printed,
)  # fmt: skip
from peerlock.contract import Wire
from peerlock.errors import ProtocolError, UsageError


class WireAlgorithm(Struct, frozen=True):
    """An algorithm as it is known on the wire."""

    number: int
    spec: AlgorithmSpec
    message: Callable[[msgspec.Raw], Wire]  # out of a body; it raises what is `UNREADABLE`

    @property
    def name(self) -> str:
        return self.spec.name


_PLAIN = ricart_agrawala.Request, ricart_agrawala.Reply
_MESSAGES: Mapping[str, tuple[int, tuple[type[Wire], ...]]] = {
    "suzuki-kasami-a": (1, (suzuki_kasami_a.Request, suzuki_kasami_a.Privilege)),
    "suzuki-kasami-b": (2, (
        suzuki_kasami_b_as_printed.Request, suzuki_kasami_b_as_printed.Reply, suzuki_kasami_b.PrivilegeWithRounds)),
    "helary-plouzeau-raynal": (3, (helary_plouzeau_raynal.Req, helary_plouzeau_raynal.Token)),
    "dijkstra-ring": (4, (dijkstra_ring.Signal, dijkstra_ring.Token)),
    "ricart-agrawala": (5, _PLAIN),
    "ricart-agrawala-broadcast": (6, _PLAIN),
    "ricart-agrawala-rw": (7, (ricart_agrawala_rw.Request, ricart_agrawala.Reply)),
    "ricart-agrawala-priority": (8, _PLAIN),
    "carvalho-roucairol": (9, (carvalho_roucairol.Request, carvalho_roucairol.Reply)),
    "ricart-agrawala-token": (10, (ricart_agrawala_token.Request, ricart_agrawala_token.Token)),
    "naimi-trehel": (11, (naimi_trehel.Request, naimi_trehel.Token)),
}  # fmt: skip
_REFUSED = {
    "ricart-agrawala-implicit": "it takes silence for permission, so it is safe only where no message is late",
    "ricart-agrawala-broadcast-implicit": "it takes silence for permission, so it is safe only where no message is late",
    "ricart-agrawala-failures": "it takes a slow node for a dead one; here the view of the group says who is dead",
    "ricart-agrawala-dynamic": "here the view of the group does its work: nodes join and leave with any algorithm",
}
DEFAULT = "suzuki-kasami-a"
DEFAULT_RW = "ricart-agrawala-rw"
_known: dict[str | int, WireAlgorithm] = {}


def wire_algorithm(algorithm: str | int) -> WireAlgorithm:
    """The algorithm of that name or number on the wire; a sentence if it is not to be used there."""
    found = _known.get(algorithm)
    if found is not None:
        return found
    name = algorithm
    if isinstance(name, int):
        name = next((known for known, (number, _) in _MESSAGES.items() if number == algorithm), "")
        if not name:
            raise ProtocolError(f"no algorithm has the number {algorithm}: is the other node of a newer version?")
    if name in _REFUSED:
        raise UsageError(f"{name} cannot be used for a real lock: {_REFUSED[name]}. Use {DEFAULT}.")
    spec = choose(name)
    number, types = _MESSAGES[name]
    found = _known[name] = _known[number] = WireAlgorithm(
        number, spec, msgspec.msgpack.Decoder(reduce(or_, types)).decode
    )
    return found


def is_known_algorithm(number: int) -> bool:
    """Has an algorithm that number?"""
    return any(number == known for known, _ in _MESSAGES.values())


ON_THE_WIRE: tuple[str, ...] = tuple(_MESSAGES)
assert set(_MESSAGES) | set(_REFUSED) == set(CATALOGUE)
