"""Mistakes with TLS: a join that time cannot heal fails at once, every other one says why it waits, at both ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import uvloop

import peerlock
import peerlock.sync
from etcds import Cluster, etcd
from mistaken import Authority
from peerlock.errors import LockTimeout, PeerlockError, RegistryError, UsageError
from peerlock.net.transport import tls as ours
from peerlock.net.transport.tls import Tls
from places import until
from ports import free_port

LEASE_S = 2.0
KINDS = ["list", "voters", "etcd"]
SHELLS = ["asyncio", "threads"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certs")


class Place:
    """A group of anna and ben, of some kind."""

    def __init__(self, kind: str, shell: str, directory: Path, server: Cluster | None) -> None:
        self.kind, self.shell, self.directory = kind, shell, directory
        self.nodes = {name: f"127.0.0.1:{free_port()}" for name in ("anna", "ben")}
        self.server = server
        self.left: list[Any] = []

    def words(self, name: str) -> dict[str, Any]:
        state = self.directory / f"state-{name}"
        match self.kind:
            case "list":
                return {"name": name, "nodes": self.nodes, "state": state}
            case "voters":
                voters = {"anna": self.nodes["anna"]}
                first = {"first_start": True} if name == "anna" else {}
                return {"name": name, "voters": voters, "state": state, "lease_s": LEASE_S, **first}
            case _:
                assert self.server is not None
                where = {"endpoints": self.server.clients, "prefix": f"/{self.directory.name}"}
                return {"name": name, "etcd": where, "state": state, "lease_s": LEASE_S}

    def join(self, name: str, files: dict[str, str] | None, seconds: float) -> Future[Any]:
        """In a thread of its own, with a time limit. The end of it is a member that has left again, or an exception."""
        words = {**self.words(name), "timeout": seconds, **({"tls": files} if files is not None else {})}
        done: Future[Any] = Future()

        def run() -> None:
            try:
                if self.shell == "threads":
                    with peerlock.sync.join("g", **words) as node:
                        self.stay(done, node.members)
                elif self.shell == "uvloop":
                    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                        runner.run(whole())
                else:
                    asyncio.run(whole())
            except BaseException as problem:
                if not done.done():
                    done.set_exception(problem)

        async def whole() -> None:
            async with peerlock.join("g", **words) as node:
                await asyncio.to_thread(self.stay, done, node.members)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.left.append(thread)
        return done

    over: threading.Event

    def stay(self, done: Future[Any], members: Any) -> None:
        done.set_result(members)
        self.over.wait(30)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self.over = threading.Event()
        try:
            yield
        finally:
            self.over.set()
            for thread in self.left:
                thread.join(20)
                assert not thread.is_alive()


@pytest.fixture
def place(kind: str, shell: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    found = Place(kind, shell, tmp_path, request.getfixturevalue("server") if kind == "etcd" else None)
    with found.open():
        yield found


# -- what no other node would accept ---------------------------------------------------------------------------


def _expired(authority: Authority) -> dict[str, str]:
    return authority.sign("ben", last=0, first=-9)


def _early(authority: Authority) -> dict[str, str]:
    return authority.sign("ben", first=5)


def _foreign(authority: Authority) -> dict[str, str]:
    other = Authority(authority.directory.with_name("others"), "others")
    return {**other.sign("ben"), "ca": str(authority.directory / "ca.pem")}


def _namesake(authority: Authority) -> dict[str, str]:
    """As two that were made with one command each: their names are the same."""
    other = Authority(authority.directory.with_name("others"))
    return {**other.sign("ben"), "ca": str(authority.directory / "ca.pem")}


def _misnamed(authority: Authority) -> dict[str, str]:
    return authority.sign("eve")


def _mismatched(authority: Authority) -> dict[str, str]:
    return {**authority.sign("ben"), "key": authority.sign("anna")["key"]}


def _missing(what: str) -> Callable[[Authority], dict[str, str]]:
    return lambda authority: {**authority.sign("ben"), what: str(authority.directory / "nowhere")}


def _garbage(what: str) -> Callable[[Authority], dict[str, str]]:
    def made(authority: Authority) -> dict[str, str]:
        (authority.directory / "garbage").write_text("-----BEGIN NOTHING-----\n")
        return {**authority.sign("ben"), what: str(authority.directory / "garbage")}

    return made


OWN: dict[str, tuple[Callable[[Authority], dict[str, str]], str]] = {
    "expired": (_expired, r"ben\.pem has expired: make a new certificate"),
    "not yet valid": (_early, r"ben\.pem is not valid yet: look at the clock"),
    "another authority": (_foreign, r"others/ben\.pem is not of the authority in .*certs/ca\.pem"),
    "a namesake of the authority": (_namesake, r"others/ben\.pem is not of the authority in .*certs/ca\.pem"),
    "another name": (_misnamed, r"eve\.pem is the certificate of eve, and this node is called ben"),
    "another key": (_mismatched, r"anna\.key is not the key of .*ben\.pem"),
    "no certificate": (
        _missing("cert"),
        r"nowhere, the file with the certificate for TLS, cannot be read: No such file",
    ),
    "no key": (_missing("key"), r"nowhere, the file with the key for TLS, cannot be read: No such file"),
    "no authority": (_missing("ca"), r"nowhere, the file with the authority for TLS, cannot be read: No such file"),
    "no certificate in it": (_garbage("cert"), r"garbage and .*ben\.key are not a certificate and its key"),
    "no authority in it": (_garbage("ca"), r"garbage has no certificate of an authority in it"),
    "for servers only": (
        lambda authority: authority.sign("ben", server_only=True),
        r"ben\.pem may not be used for both ends of a link",
    ),
    "a passphrase": (lambda authority: authority.sign("ben", passphrase="x"), r"ben\.key has a passphrase"),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mistake", OWN)
def test_a_mistake_of_our_own_ends_the_join_at_once(place: Place, mistake: str, authority: Authority) -> None:
    make, sentence = OWN[mistake]
    files = make(authority)
    began = time.monotonic()
    joining = place.join("ben", files, 10.0)
    with pytest.raises(UsageError, match=sentence):
        joining.result(10)
    assert time.monotonic() - began < 3


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """In this thread files are opened as another user."""
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534 if os.geteuid() == 0 else os.geteuid())
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())


@pytest.mark.parametrize("what", ["ca", "cert", "key"])
def test_a_file_that_cannot_be_read(authority: Authority, what: str, tmp_path: Path) -> None:
    files = authority.sign("ben")
    for path in (tmp_path, authority.directory, *map(Path, files.values())):
        path.chmod(0o755)
    Path(files[what]).chmod(0)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    with (
        not_root(),
        pytest.raises(UsageError, match=rf"{Path(files[what]).name}, the file .* cannot be read: Permission"),
    ):
        ours.contexts(Tls(**files), "ben")


@pytest.mark.parametrize(
    "words", [("node", "--voter", "--first-start"), ("voters", "replace", "cleo", "dora=127.0.0.1:9")]
)
def test_the_commands_of_voters_say_it_too(authority: Authority, tmp_path: Path, words: tuple[str, ...]) -> None:
    import subprocess
    import sys

    files = _expired(authority)
    path = tmp_path / "shop.toml"
    lines = "\n".join(f'{key} = "{file}"' for key, file in files.items())
    path.write_text(f'[voters]\nben = "127.0.0.1:{free_port()}"\n[tls]\n{lines}\n')
    done = subprocess.run(
        [sys.executable, "-m", "peerlock", *words, "-g", "g", "--config", str(path), "--name", "ben"],
        capture_output=True, text=True, timeout=30, env={**os.environ, "PEERLOCK_STATE": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.returncode == 2
    assert re.search(r"^peerlock: .*ben\.pem has expired", done.stderr)


# -- what is wrong between two nodes ---------------------------------------------------------------------------


def _without_certificate(files: Tls) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    made = ours.Context(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.load_verify_locations(files.ca)
    return made, ours.tls_context(files, server=True)


def _of_an_old_version(files: Tls) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    found = ours.tls_context(files, server=False), ours.tls_context(files, server=True)
    for made in found:
        made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_2
    return found


def _as_they_are(files: Tls) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return ours.tls_context(files, server=False), ours.tls_context(files, server=True)


# The files of ben, his contexts, has anna TLS, what her log says, what his says, and what his join says, if that is an error.
BETWEEN: dict[str, tuple[Any, Any, bool, str, str, str]] = {
    "expired": (_expired, _as_they_are, True, "its certificate has expired", "refuses the .*: expired", "expired"),
    "not yet valid": (
        _early, _as_they_are, True, "its certificate is not valid yet", "refuses the .*: not valid yet", "not valid yet",
    ),
    "another authority": (
        _foreign, _as_they_are, True, "certificate is not of this node's authority", "refuses the .*: not of its authority",
        "not of its authority",
    ),
    "a namesake of the authority": (
        _namesake, _as_they_are, True, "certificate is not of this node's authority", "refuses the .*: not of its authority",
        "not of its authority",
    ),
    "two authorities": (
        lambda authority: Authority(authority.directory.with_name("others"), "others").sign("ben"), _as_they_are, True,
        "refuses the .*: not of its authority", "certificate is not of this node's authority", "",
    ),
    "another name": (
        _misnamed, _as_they_are, True, "from .*it says to be ben, and its certificate is for eve",
        "does not let .* in: it says to be ben, and its certificate is for eve", "",
    ),
    "no certificate": (
        lambda authority: authority.sign("ben"), _without_certificate, True, "it has shown no certificate",
        "refuses the .*: none was shown", "none was shown",
    ),
    "an old version": (
        lambda authority: authority.sign("ben"), _of_an_old_version, True,
        r"from 127\.0\.0\.1 .*it speaks no version of TLS that this node speaks",
        r"anna at 127\.0\.0\.1:\d+ .*it speaks no version of TLS that this node speaks", "",
    ),
    "plain to TLS": (
        lambda authority: None, _as_they_are, True, "it does not speak TLS, and this node does",
        "speaks TLS, and this node does not", "speaks TLS, and this node does not",
    ),
    "TLS to plain": (
        lambda authority: authority.sign("ben"), _as_they_are, False, "speaks TLS, and this node does not",
        "it does not speak TLS, and this node does", "",
    ),
}  # fmt: skip


# In a list each dials the other, so that "TLS to plain" is "plain to TLS".
CASES = [
    (mistake, kind, shell)
    for mistake in BETWEEN
    for kind in KINDS
    for shell in (*SHELLS, "uvloop")
    if (mistake, kind) != ("TLS to plain", "list") and (shell != "uvloop" or (mistake, kind) == ("expired", "etcd"))
]


@pytest.mark.parametrize(("mistake", "kind", "shell"), CASES)
def test_a_mistake_between_two_nodes_is_in_the_log_of_both(
    place: Place, mistake: str, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ben does not look at his own certificate, as if it had expired while he ran."""
    make, made, secure, at_anna, at_ben, raised = BETWEEN[mistake]
    files, hers = make(authority), authority.sign("anna") if secure else None
    before = ours.contexts

    def contexts(files: Tls, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        return made(files) if name == "ben" else before(files, name)

    for module in ("static", "leased"):
        monkeypatch.setattr(f"peerlock.net.registries.{module}.contexts", contexts)
    anna = place.join("anna", hers, 30.0 if place.kind != "list" else 2.0)
    if place.kind != "list":
        assert anna.result(20) == ("anna",)
    ben = place.join("ben", files, 2.0)

    def logged(words: str) -> bool:
        return re.search(words, caplog.text) is not None

    asyncio.run(until(lambda: logged(at_anna) and logged(at_ben), 6.0))
    assert logged(r"(anna|ben) at 127\.0\.0\.1:\d+"), "the peer is named, and its address"
    assert "Traceback" not in caplog.text
    if (mistake, place.kind) == ("no certificate", "list"):
        return  # anna may have reached him meanwhile
    if raised or (mistake, place.kind) == ("another name", "voters"):
        with pytest.raises(RegistryError, match=raised or "certificate is for eve"):
            ben.result(10)
    else:
        with pytest.raises(
            LockTimeout, match=rf"within 2 s\. .*anna.*{at_ben.split('.*')[-1]}.* Nothing was ever held"
        ):
            ben.result(10)
    if place.kind == "list":
        with pytest.raises(LockTimeout, match=r"within 2 s\. It waits for ben\."):
            anna.result(10)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) <= 12, "the same line is not said again and again"


@pytest.mark.parametrize("shell", [*SHELLS, "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_certificates_without_a_mistake(place: Place, authority: Authority) -> None:
    files = {name: authority.sign(name) for name in ("anna", "ben")}
    anna = place.join("anna", files["anna"], 20.0)
    if place.kind != "list":
        anna.result(20)
    assert place.join("ben", files["ben"], 20.0).result(20) == ("anna", "ben")


# -- a join with a time limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("kind", "waits"),
    [
        (
            "list",
            r"It waits for anna\. The last that was heard: anna at 127\.0\.0\.1:\d+ is not reached: Connection refused\.",
        ),
        ("voters", r"The last that was heard: the voter anna at 127\.0\.0\.1:\d+ is not reached: Connection refused\."),
    ],
    ids=["list", "voters"],
)
def test_a_join_that_ends_says_for_whom_it_has_waited(place: Place, waits: str) -> None:
    began = time.monotonic()
    with pytest.raises(
        LockTimeout, match=rf"^The group g did not take this node in within 0\.6 s\. .*{waits} Nothing was"
    ):
        place.join("ben", None, 0.6).result(10)
    assert 0.5 < time.monotonic() - began < 3


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), -1.0, [1]])
def test_a_time_limit_that_is_none(timeout: Any, tmp_path: Path) -> None:
    for join in (peerlock.join, peerlock.sync.join):
        with pytest.raises(UsageError, match="timeout is a number of seconds"):
            join("g", dir=tmp_path, timeout=timeout)


def test_a_time_limit_does_not_end_who_is_in(tmp_path: Path) -> None:
    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path, timeout=5) as node:
            assert node.members

    asyncio.run(whole())
    for timeout in (5, float("inf"), 1e18):
        with peerlock.sync.join("g", dir=tmp_path, timeout=timeout) as node:
            assert node.members


def test_a_join_that_is_out_of_time_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next one, with the same name and port, finds no trace of it."""
    nodes = {name: f"127.0.0.1:{free_port()}" for name in ("anna", "ben")}

    async def whole() -> None:
        for _ in range(2):
            with pytest.raises(LockTimeout):
                await peerlock.join("g", name="ben", nodes=nodes, state=tmp_path / "ben", timeout=0.1)

    before = threading.active_count()
    asyncio.run(whole())
    for _ in range(2):
        with pytest.raises(PeerlockError):
            peerlock.sync.join("g", name="ben", nodes=nodes, state=tmp_path / "ben", timeout=0.1)
    assert threading.active_count() == before
