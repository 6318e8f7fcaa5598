"""What the locks on members' files prove: that a member is dead, or that it holds nothing and
cannot begin to.
"""

from __future__ import annotations

import msgspec

from peerlock.node.membership.files import ALIVE, HOLDING, RECORD_BYTES, File, Files, path_of
from peerlock.node.peer import Peer

PEER = msgspec.json.Decoder(Peer)


class Proofs:
    def __init__(self, files: Files) -> None:
        self.files = files

    def locked(self, id: int, byte: int) -> File | None:
        """The file of a member, with a shared lock on that byte; None: the member has it locked, or
        has no file.
        """
        file = self.files.open(path_of("members", id))
        if file is None:
            return None
        try:
            if self.files.lock(file, byte, shared=True):
                return file
        except BaseException:
            self.files.close(file)
            raise
        self.files.close(file)
        return None

    def dead(self, id: int) -> File | None:
        """The lock that proves it; None: alive, or unknown. What worked under its locks is ended
        first.
        """
        file = self.locked(id, ALIVE)
        if file is None:
            return None
        ended = False
        try:
            ended = self.files.ended(file)
        finally:
            if not ended:
                self.files.close(file)
        return file if ended else None

    def lives(self, id: int) -> bool | None:
        """None: that cannot be known."""
        proof = self.dead(id)
        if proof is not None:
            self.files.close(proof)
            return False
        return True if self.files.exists(path_of("members", id)) else None

    def read(self, id: int) -> Peer | None:
        data = self.files.read(path_of("members", id))
        try:
            return PEER.decode(data[2:RECORD_BYTES].rstrip(b"\0")) if data else None
        except msgspec.DecodeError:
            return None

    def idle(self, id: int) -> File | None:
        """The lock that proves that a live member holds nothing, and cannot begin to; None: it may,
        or is dead.
        """
        file = self.locked(id, HOLDING)
        if file is None:
            return None
        alive = False
        try:
            dead = self.locked(id, ALIVE)  # then it is not idle: what worked under its locks may go on
            if dead is None:
                alive = True
            else:
                self.files.close(dead)
        finally:
            if not alive:
                self.files.close(file)
        return file if alive else None
