"""Nothing is said or used that a power loss would make its owner forget.

The disk is a model (`disk.py`), which records every call of a real group that changes a file. At each word that leaves a
node the model says what would be left if the power were cut now.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import peerlock
from disk import Disk
from peerlock.net.files import write_durably
from peerlock.net.registries.host import HostRegistry
from peerlock.net.registries.static import StaticRegistry
from peerlock.net.shell import Shell
from peerlock.net.voters.connection import VoterConnection
from peerlock.net.voters.record_file import HEAD, Stored
from peerlock.net.voters.server import VoterServer
from peerlock.node.membership.static import NodeRecord
from peerlock.node.membership.view import View
from peerlock.node.quorum.messages import Accepted, Promise, ViewDecided
from places import NAMES, joined, until
from ports import free_ports


def test_a_file_is_the_old_one_or_the_new_one_wherever_the_power_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"old")
    disk = Disk(tmp_path, monkeypatch)
    left: list[tuple[bytes | None, bytes | None]] = []
    disk.on_step = lambda: left.append((disk.kept().get(path), disk.torn().get(path)))
    write_durably(path, b"new")
    disk.on_step()
    assert len(left) > 5
    assert {found for both in left for found in both} == {b"old", b"new"}
    assert left[-1] == (b"new", b"new")


def stored(data: bytes) -> Stored | None:
    """A voter's record; None: there is none, or half of one."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(HEAD):
        return None
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(body, type=Stored)
    return None


def forgets(found: Stored, word: Any) -> bool:
    """Does a voter with this record not know of its own word any more?"""
    epoch, record = found.record.decided.epoch, found.record
    match word:
        case Promise():
            return word.epoch > epoch and record.promised < word.ballot
        case Accepted():
            return word.epoch > epoch and (record.accepted is None or record.accepted[0] < word.ballot)
        case ViewDecided():
            return word.view.epoch > epoch
    return False


def test_a_voter_says_nothing_that_it_could_forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, said, wrong = Disk(tmp_path, monkeypatch), list[str](), list[str]()
    say = VoterConnection.say

    def checked(connection: VoterConnection, word: Any) -> None:
        if isinstance(connection.owner, VoterServer):
            said.append(type(word).__name__)
            for left in (disk.kept(), disk.torn()):
                found = stored(left.get(connection.owner.file.path, b""))
                if (
                    found is None
                    or found.counter < connection.owner.counters(connection.name)[0]
                    or forgets(found, word)
                ):
                    wrong.append(f"{connection.owner.name} says {word}, and has {found}")
        say(connection, word)

    monkeypatch.setattr(VoterConnection, "say", checked)
    listed = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)}

    async def whole() -> None:
        words: dict[str, Any] = {"voters": listed, "lease_s": 1.0, "first_start": True}
        nodes = await asyncio.wait_for(
            asyncio.gather(*(joined(peerlock.join("g", name=name, state=tmp_path / name, **words)) for name in NAMES)),
            20.0,
        )
        await until(lambda: all(len(node.members) == len(NAMES) for node in nodes))
        async with asyncio.timeout(10), nodes[0].lock("x"):
            pass
        for node in nodes:
            await node.leave()

    asyncio.run(whole())
    assert {"Promise", "Accepted", "ViewDecided", "HeartbeatAck"} <= set(said)
    assert not wrong, wrong[:3]


def epoch_left(registry: Any, left: dict[Path, bytes]) -> int:
    """The newest epoch that this node, or a node that is started after a power loss, knows to be taken."""
    if isinstance(registry, StaticRegistry):
        data = left.get(registry.path, b"")
        return msgspec.json.decode(data, type=NodeRecord).epoch if data else 0
    assert isinstance(registry, HostRegistry)
    found = [path for path in left if path.parent == registry.directory / "views" and path.name.isdigit()]
    newest = max(found, key=lambda path: int(path.name), default=None)
    return msgspec.json.decode(left[newest], type=View).epoch if newest is not None and left[newest] else 0


@pytest.mark.parametrize("kind", ["static", "host"])
def test_no_epoch_is_used_that_could_come_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, used, wrong = Disk(tmp_path, monkeypatch), list[int](), list[str]()
    carry_out, started = Shell.carry_out, Shell.epoch_started

    def check(shell: Shell, what: str) -> None:
        used.append(shell.core.view_change.known)
        for left in (disk.kept(), disk.torn()):
            if epoch_left(shell.registry, left) < shell.core.view_change.known:
                wrong.append(f"{shell.core.me.name} {what} in epoch {shell.core.view_change.known}")

    def writes(shell: Shell) -> None:
        if shell.core.table.dirty:
            check(shell, "speaks")
        carry_out(shell)

    def starts(shell: Shell, effect: Any) -> None:
        check(shell, "grants")
        started(shell, effect)

    monkeypatch.setattr(Shell, "carry_out", writes)
    monkeypatch.setattr(Shell, "epoch_started", starts)
    listed = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)}

    def words(name: str) -> dict[str, Any]:
        return {"dir": tmp_path} if kind == "host" else {"nodes": listed, "state": tmp_path / name}

    async def whole() -> None:
        nodes = await asyncio.wait_for(
            asyncio.gather(*(joined(peerlock.join("g", name=name, **words(name))) for name in NAMES)), 20.0
        )
        before = nodes[0].epoch
        async with asyncio.timeout(10), nodes[0].lock("x"):
            pass
        nodes[0].collect()
        await until(lambda: all(node.epoch > before for node in nodes))
        for node in nodes:
            await node.leave()

    asyncio.run(whole())
    assert len(set(used)) > 1
    assert not wrong, wrong[:3]
