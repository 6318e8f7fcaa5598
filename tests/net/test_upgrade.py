"""A group is upgraded one node at a time, while it works, and back.

The old nodes run the code of the version before, which is kept in tests/previous (scripts/keep_previous.py).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcds import Cluster, etcd
from peerlock.node import wire
from peerlock.node.peer import Peer
from peerlock.node.quorum import messages as voting
from peerlock.node.wire import Hello, incompatible, packed
from places import KINDS, NAMES, Place

PREVIOUS = Path(__file__).parents[1] / "previous" / f"peerlock-{wire.OLDEST}.zip"
OLD, NEW = wire.OLDEST, wire.VERSION

MEMBER = """
import json, os, select, sys
import peerlock.sync
from peerlock.node import wire

words, counter, log, pause_s = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
node = peerlock.sync.join("g", **words)
print(wire.VERSION, flush=True)
while not select.select([sys.stdin], [], [], pause_s)[0]:
    with node.lock("counter") as hold:
        with open(counter) as file:
            value = int(file.read()) + 1
        with open(counter, "w") as file:
            file.write(str(value))
        with open(log, "a") as file:
            print(words["name"], wire.VERSION, hold.fence, file=file)
status = node.status(1.0)
print(json.dumps([sorted(getattr(status, "older", ())), sorted(status.members)]), flush=True)
node.leave()
"""


class Worker:
    """A process that counts under a lock, until it is told to leave."""

    def __init__(self, place: Place, name: str, version: int, pause_s: float) -> None:
        self.name, self.version = name, version
        files = [str(place.directory / "counter"), str(place.directory / "log")]
        words = {key: str(value) if isinstance(value, Path) else value for key, value in place.words(name).items()}
        path = {"PYTHONPATH": str(PREVIOUS)} if version == OLD else {}
        theirs = {key: value for key, value in os.environ.items() if version != OLD or key != "PEERLOCK_SHARE"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, json.dumps(words), *files, str(pause_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**theirs, **path},
        )  # fmt: skip

    def joined(self) -> None:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 30.0)[0], f"{self.name} was not let in"
        assert self.process.stdout.readline().strip() == str(self.version), "the code that was meant"

    def leave(self) -> Any:
        """What it says of the group before it goes: who is not upgraded, and who is there."""
        said, _ = self.process.communicate("\n", timeout=30)
        assert self.process.returncode == 0
        return json.loads(said)


class Site:
    """Places for workers, of one version or the other."""

    def __init__(self, place: Place, pause_s: float = 0.002) -> None:
        self.place, self.pause_s = place, pause_s
        self.workers: dict[str, Worker] = {}
        (place.directory / "counter").write_text("0")
        (place.directory / "log").write_text("")

    def start(self, version: int, *names: str) -> None:
        started = [Worker(self.place, name, version, self.pause_s) for name in names]
        self.workers |= {worker.name: worker for worker in started}
        for worker in started:
            worker.joined()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in (self.place.directory / "log").read_text().splitlines()]

    def all_get_in(self) -> None:
        """Everybody who is there now, three times each from now on."""
        before = len(self.lines())

        def done() -> bool:
            later = [(name, int(version)) for name, version, _ in self.lines()[before:]]
            return all(later.count((worker.name, worker.version)) >= 3 for worker in self.workers.values())

        wait(done)

    def end(self) -> None:
        for worker in self.workers.values():
            worker.process.kill()
            worker.process.communicate()


def wait(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path, server: Cluster) -> Iterator[Site]:
    tmp_path.chmod(0o700)
    made = Site(Place(request.param, tmp_path, server.clients))
    try:
        yield made
    finally:
        made.end()


def test_one_node_after_the_other_and_one_back(site: Site) -> None:
    site.start(OLD, *NAMES)
    site.all_get_in()
    for at, name in enumerate(NAMES):
        site.workers[name].leave()
        site.start(NEW, name)
        site.all_get_in()
        assert len({worker.version for worker in site.workers.values()}) == (1 if at == 2 else 2)
    site.workers["ben"].leave()
    site.start(OLD, "ben")
    site.all_get_in()
    older, members = site.workers["cleo"].leave()
    assert [name.split()[0] for name in older] == ["ben"], "an operator sees who is left to do"
    assert len(members) == 3
    for name in ("anna", "ben"):
        site.workers[name].leave()
    fences = [int(fence) for _, _, fence in site.lines()]
    assert fences == sorted(set(fences))
    assert int((site.place.directory / "counter").read_text()) == len(fences), "no update was lost"


def test_five_that_ask_again_at_once_old_and_new(tmp_path: Path) -> None:
    """Only the new ones tell the successor first; the old ones are successors all the same."""
    tmp_path.chmod(0o700)
    site = Site(Place("host", tmp_path, []), pause_s=0.0)
    try:
        site.start(OLD, "anna", "ben")
        site.start(NEW, "cleo", "dora", "emil")
        for _ in range(20):
            site.all_get_in()
        for worker in site.workers.values():
            worker.leave()
        fences = [int(fence) for _, _, fence in site.lines()]
        assert fences == sorted(set(fences))
        assert int((tmp_path / "counter").read_text()) == len(fences), "no update was lost"
    finally:
        site.end()


def test_versions_that_have_one_in_common() -> None:
    assert incompatible(OLD, OLD) == incompatible(OLD, NEW) == incompatible(NEW, NEW + 1) == ""
    assert incompatible(NEW + 1, NEW + 2) == (
        f"it speaks versions {NEW + 1} to {NEW + 2} of the protocol, this node speaks {OLD} to {NEW}: "
        "upgrade this node first, one version at a time"
    )
    assert "upgrade it first" in incompatible(OLD - 1, OLD - 1)


def test_a_hello_that_says_no_newest_version_is_of_version_1() -> None:
    said = msgspec.msgpack.encode([0, 1, "g", ["anna", 7, "", 0], 8, 9, "", False])
    hello = wire.opened(said)
    assert isinstance(hello, Hello)
    assert (hello.oldest, hello.newest, hello.received) == (1, 1, 9)


def test_later_fields_are_passed_over() -> None:
    """As version 1 does with what version 2 has added, and version 2 with what will come."""
    hello = Hello(OLD, "g", Peer("anna", 7), newest=NEW)
    more = [*msgspec.msgpack.decode(packed(hello)), "of a later version"]
    assert wire.opened(packed(more)) == hello
    voter_hello = voting.VoterHello(OLD, "g", "anna", True, newest=NEW)
    word = voting.unsealed(voting.enveloped(3, 4, voter_hello)[wire.LENGTH.size :])
    more = msgspec.msgpack.decode(voting.enveloped(3, 4, voter_hello)[wire.LENGTH.size :])
    more[2].append("of a later version")
    assert voting.unsealed(packed(more)) == word
