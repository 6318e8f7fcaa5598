"""What goes wrong again and again is logged from time to time."""

from __future__ import annotations

import logging

log = logging.getLogger("peerlock")

AGAIN_S = 10.0  # before the same sentence is logged again
SENTENCES = 100  # different ones in that time: an unidentified peer can make them up


class Complaints:
    def __init__(self) -> None:
        self.said: dict[str, float] = {}

    def are_new(self, sentence: str, now: float) -> bool:
        """Is that to be logged? Not if it was a moment ago, nor if there was too much else."""
        if now - self.said.get(sentence, -1e9) <= AGAIN_S:
            return False
        if len(self.said) >= SENTENCES:
            self.said = {known: when for known, when in self.said.items() if now - when <= AGAIN_S}
        if len(self.said) >= SENTENCES:
            return False
        self.said[sentence] = now
        return True


_warned: set[str] = set()


def warn_once(sentence: str) -> None:
    """Of what does not change while the process runs."""
    if sentence not in _warned:
        _warned.add(sentence)
        log.warning("%s", sentence)
