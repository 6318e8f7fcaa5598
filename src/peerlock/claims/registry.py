"""The list of claims, filled by the modules that test them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from peerlock.claims.evidence import Finding, Lab

PAPERS = {
    "every-algorithm": "Every algorithm",
    "suzuki-kasami-1985": "Suzuki and Kasami 1985",
    "helary-plouzeau-raynal-1986": "Helary, Plouzeau and Raynal 1986",
    "dijkstra-1983": "Dijkstra 1983",
    "ricart-agrawala-1981": "Ricart and Agrawala 1981",
    "carvalho-roucairol-1983": "Carvalho and Roucairol 1983, and the authors' response",
}


class Claim(Struct, frozen=True):
    id: str
    paper: str  # a key of PAPERS
    words: str  # the claim in our words
    test: Callable[[Lab], Finding]


CLAIMS: dict[str, Claim] = {}


def claim(id: str, paper: str, words: str) -> Callable[[Callable[[Lab], Finding]], Callable[[Lab], Finding]]:
    """Register the function that tests a claim."""
    assert paper in PAPERS, paper

    def register(test: Callable[[Lab], Finding]) -> Callable[[Lab], Finding]:
        assert id not in CLAIMS, f"{id} is claimed twice"
        CLAIMS[id] = Claim(id, paper, words, test)
        return test

    return register
