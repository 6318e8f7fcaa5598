"""What other users of a host could do with a group, a file or a key is refused, or a warning says so."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from mistaken import Authority
from peerlock.errors import UsageError
from peerlock.net import complaints
from peerlock.net.settings import gather, registry_for
from peerlock.net.transport.endpoint import is_loopback
from ports import free_port


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complaints, "_warned", set())


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("localhost", True), ("0:0::1", True),
        ("127.attacker.example", False), ("127.0.0.1.example", False), ("localhost.example", False), ("10.0.0.1", False),
        ("127.", False), ("0.0.0.0", False), ("::", False), ("", False),
    ],
)  # fmt: skip
def test_what_is_loopback(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


def test_a_name_that_looks_like_loopback_needs_tls(tmp_path: Path) -> None:
    where = {"a": "127.attacker.example:7100"}
    kinds: list[dict[str, Any]] = [
        {"nodes": where},
        {"voters": where, "address": "127.0.0.1"},
        {"etcd": {"endpoints": ["http://127.attacker.example:1"]}, "address": "127.0.0.1"},
    ]
    for words in kinds:
        with pytest.raises(UsageError, match="Nodes on several hosts talk over TLS"):
            peerlock.sync.join("g", name="a", state=tmp_path / "a", timeout=0.1, **words)


def test_localhost_that_is_elsewhere_needs_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("127.0.0.1", 1)), (2, 1, 6, "", ("10.0.0.7", 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(UsageError, match="Nodes on several hosts talk over TLS"):
        peerlock.sync.join("g", name="a", nodes={"a": "localhost:7100"}, state=tmp_path / "a", timeout=0.1)


def kinds(directory: Path) -> dict[str, dict[str, Any]]:
    alone = {"a": f"127.0.0.1:{free_port()}"}
    return {
        "nodes": {"nodes": alone, "state": directory / "list"},
        "voters": {"voters": alone, "state": directory / "voters", "first_start": True},
        "etcd": {"etcd": {"endpoints": ["http://127.0.0.1:1"]}, "state": directory / "etcd"},
    }


@pytest.mark.parametrize("kind", ["nodes", "voters", "etcd"])
def test_loopback_without_tls_is_warned_of_once(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = {"name": "a", **kinds(tmp_path)[kind]}
    for _ in range(2):
        registry_for("g", gather(**words)).close()
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "every user of this host can join the group g" in warned[0]
    assert "Give tls=" in warned[0]
    assert "insecure=True" in warned[0]
    caplog.clear()
    (tmp_path / "other").mkdir()
    registry_for("other", gather(name="a", insecure=True, **kinds(tmp_path / "other")[kind])).close()
    assert not caplog.records, "whoever says so knows"


def test_who_is_safe_is_not_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path / "certs")
    for kind, words in kinds(tmp_path).items():
        registry_for("g", gather(name="a", tls=authority.sign("a", f"a-{kind}"), **words)).close()
    registry_for("g", gather(dir=tmp_path)).close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_etcd_on_another_host_without_tls_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path / "certs")
    where = {"endpoints": ["http://10.0.0.9:2379"], "user": "shop", "password": "secret"}
    words: dict[str, Any] = {"etcd": where, "state": tmp_path / "a", "address": "127.0.0.1", "tls": authority.sign("a")}
    registry_for("g", gather(name="a", **words)).close()
    assert "http://10.0.0.9:2379 is asked without TLS" in caplog.text
    assert "secret" not in caplog.text


# -- files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "the shop.toml"
    path.write_text('[etcd]\nendpoints = ["http://127.0.0.1:1"]\nuser = "shop"\npassword = "secret"\n')
    return path


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o646])
def test_a_password_that_all_can_read_is_refused(config: Path, mode: int) -> None:
    config.chmod(mode)
    with pytest.raises(UsageError, match="every user of this host can read it") as refused:
        gather(config)
    assert "secret" not in str(refused.value)
    command = str(refused.value).partition("Run: ")[2]
    subprocess.run(shlex.split(command), check=True)
    assert gather(config).etcd is not None
    assert config.stat().st_mode & 0o777 == 0o600


def test_a_password_that_a_group_can_read_is_warned_of(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    config.chmod(0o640)
    for _ in range(2):
        assert gather(config).etcd is not None
    assert caplog.text.count("its group can read it") == 1
    caplog.clear()
    config.chmod(0o600)
    gather(config)
    assert not caplog.records


def test_a_file_without_a_password_may_be_read_by_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('[voters]\na = "127.0.0.1:1"\n')
    path.chmod(0o644)
    assert gather(path).voters is not None
    assert not caplog.records


@pytest.mark.parametrize("mode", [0o666, 0o602])
def test_a_file_that_all_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """It says where the group is: any user could put another one in its place."""
    path = tmp_path / "shop.toml"
    path.write_text('[voters]\na = "127.0.0.1:1"\n')
    path.chmod(mode)
    with pytest.raises(UsageError, match=r"every user of this host can change it.*Run: chmod o-w"):
        gather(path)


def test_the_command_line_says_it_too(config: Path) -> None:
    config.chmod(0o644)
    done = subprocess.run(
        [sys.executable, "-m", "peerlock", "status", "--config", str(config)], capture_output=True, text=True, timeout=30,
        env={**os.environ},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "Run: chmod" in done.stderr


@pytest.mark.parametrize(("mode", "warned"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o604, 1)])
def test_a_key_that_all_can_read_is_warned_of(
    tmp_path: Path, mode: int, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = Authority(tmp_path / "certs").sign("a")
    Path(files["key"]).chmod(mode)
    nodes = {"a": f"127.0.0.1:{free_port()}"}
    for number in range(2):
        registry_for("g", gather(name="a", nodes=nodes, tls=files, state=tmp_path / f"s{number}")).close()
    assert caplog.text.count(f"{files['key']} can be read by every user of this host") == warned
    assert caplog.text.count("Run: chmod o-rwx") == warned
