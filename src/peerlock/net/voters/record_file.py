"""A voter's record on disk: written and synced before the voter says anything that rests on it.

    peerlock voter 1 <sha256 of the next line>
    {"group":"shop","name":"anna","counter":17,"seen":{"ben":12},"record":{...}}

The file is replaced as a whole, so a crash leaves the old one or the new one. Anything else in it
is damage, and a voter does not start from damage: what it has promised is not known any more.
`counter` goes up with each writing and is part of whatever the voter says; `seen` are the highest
counters of the others. So a record that was restored from a copy is found out by voters that have
heard of a later one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct

from peerlock.errors import RegistryError
from peerlock.file_lock import give_up, lock_for_one
from peerlock.net.files import write_durably
from peerlock.node.quorum.voter import VoterRecord

HEAD = b"peerlock voter 1 "


class Stored(Struct):
    group: str
    name: str
    counter: int
    seen: dict[str, int]
    record: VoterRecord
    lease_s: float = 0.0  # that was promised


class RecordFile:
    def __init__(self, path: Path, group: str, name: str) -> None:
        self.path, self.group, self.name = path, group, name
        self.lock = lock_for_one(path, f"The voter {name} of the group {group}")

    def read(self, first_start: bool, first: VoterRecord) -> Stored:
        what_to_do = (
            f"Without it the voter does not know what it has promised, and must not vote. If a majority of the voters is well, "
            f"put a new one in its place: peerlock voters replace {self.name} NEW=HOST:PORT"
        )
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            if first_start:
                return Stored(self.group, self.name, 0, {}, first)
            raise RegistryError(
                f"The voter {self.name} has no record: {self.path} is missing. If this voter has never run before, "
                f"start it with --first-start. If the file was moved, put it back; not an older copy of it. {what_to_do}."
            ) from None
        except OSError as problem:
            raise RegistryError(f"{self.path} cannot be read: {problem.strerror}. {what_to_do}.") from None
        head, _, body = data.partition(b"\n")
        body = body.rstrip(b"\n")
        if not head.startswith(HEAD) or head[len(HEAD) :] != hashlib.sha256(body).hexdigest().encode():
            raise RegistryError(f"{self.path} is damaged, or is no record of a voter. {what_to_do}.")
        try:
            stored = msgspec.json.decode(body, type=Stored)
        except msgspec.DecodeError as problem:
            raise RegistryError(f"{self.path} is damaged ({problem}). {what_to_do}.") from None
        if (stored.group, stored.name) != (self.group, self.name):
            raise RegistryError(
                f"{self.path} is the record of the voter {stored.name} of the group {stored.group}, not of {self.name} of "
                f"{self.group}: give each voter a file of its own with state=."
            )
        return stored

    def write(self, stored: Stored) -> None:
        body = msgspec.json.encode(stored)
        write_durably(self.path, HEAD + hashlib.sha256(body).hexdigest().encode() + b"\n" + body + b"\n")

    def close(self) -> None:
        if self.lock >= 0:
            give_up(self.lock)
            self.lock = -1
