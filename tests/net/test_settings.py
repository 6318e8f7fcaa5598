"""What is said of a group must fit together: a cluster that lost a line of its settings is not a lock on one host."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import UsageError
from peerlock.net.settings import gather
from places import make_certs
from ports import free_port

FILE = """
lease_s = 5.0
{group}
[tls]
ca = "ca.pem"
cert = "a.pem"
key = "a.key"
"""


@pytest.mark.parametrize("lost", ["", "[nodes]", "[voters]"])
def test_a_cluster_that_lost_its_kind_is_refused(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "shop.toml"
    path.write_text(FILE.format(group=lost))
    with pytest.raises(UsageError, match=r"(nodes|voters) is empty|lease_s and tls are for groups"):
        peerlock.sync.join("g", config=path)
    with pytest.raises(UsageError):
        peerlock.join("g", config=path)
    path.write_text("# everything was commented out\n")
    with pytest.raises(UsageError, match="says nothing"):
        peerlock.sync.join("g", config=path)


ALONE: dict[str, Any] = {
    "tls": {"ca": "a", "cert": "b", "key": "c"},
    "insecure": True,
    "assume_dead": ("a",),
    "state": "x",
    "address": "127.0.0.1",
    "bind": "127.0.0.1",
    "lease_s": 5.0,
    "stall_s": 0.0,
    "watchdog": True,
    "first_start": True,
}


@pytest.mark.parametrize("setting", ALONE)
@pytest.mark.parametrize("where", ["nothing", "dir"])
def test_a_setting_without_its_kind_of_group_is_refused(setting: str, where: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {} if where == "nothing" else {"dir": tmp_path}
    with pytest.raises(UsageError, match=rf"^{setting} is for groups .*\. Give (nodes|voters|.*or etcd)"):
        peerlock.join("g", **{setting: ALONE[setting]}, **more)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        *(("nodes", name) for name in ("address", "bind", "lease_s", "stall_s", "watchdog", "first_start")),
        ("voters", "assume_dead"),
        ("etcd", "assume_dead"),
        ("etcd", "first_start"),
    ],
)
def test_a_setting_of_another_kind_of_group_is_refused(kind: str, setting: str) -> None:
    listed = {"a": "127.0.0.1:1"}
    group: dict[str, Any] = {kind: listed if kind != "etcd" else {"endpoints": ["http://127.0.0.1:1"]}}
    with pytest.raises(UsageError, match=f"^{setting} is for groups .*{kind}"):
        peerlock.join("g", name="a", **group, **{setting: ALONE[setting]})


def test_what_says_no_is_not_refused(tmp_path: Path) -> None:
    """A program may hand on every keyword, with what means nothing."""
    words: dict[str, Any] = {"insecure": False, "watchdog": False, "first_start": False, "assume_dead": ()}
    with peerlock.sync.join("g", dir=tmp_path, tls=None, **words) as node:
        assert node.members


@pytest.mark.parametrize(
    "name", ["PEERLOCK_NODES", "PEERLOCK_VOTERS", "PEERLOCK_ETCD", "PEERLOCK_CONFIG", "PEERLOCK_DIR"]
)
def test_an_empty_variable_that_would_choose_the_group_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `PEERLOCK_VOTERS=$VOTERS` gives it, where VOTERS is not set."""
    monkeypatch.setenv(name, "")
    with pytest.raises(UsageError, match=f"{name} is set, and empty"):
        peerlock.join("g")


@pytest.mark.parametrize("words", [{"config": ""}, {"dir": ""}, {"nodes": {}}, {"voters": {}}])
def test_an_empty_keyword_that_would_choose_the_group_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(words))} is empty"):
        peerlock.join("g", **words)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PEERLOCK_CONFG", "PEERLOCK_CONFIG"),
        ("PEERLOCK_VOTER", "PEERLOCK_VOTERS"),
        ("PEERLOCK_LEASE", "PEERLOCK_LEASE_S"),
        ("PEERLOCK_TLS_CERTIFICATE", "PEERLOCK_TLS_CERT"),
        ("PEERLOCK_XYZZY", "known are PEERLOCK_"),
    ],
)
def test_an_unknown_variable_is_refused(name: str, nearest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(UsageError, match=f"{name} is no setting of peerlock.*{nearest}"):
        peerlock.join("g")


def test_an_unknown_variable_is_refused_by_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('[voters]\na = "127.0.0.1:1"\n')
    done = subprocess.run(
        [sys.executable, "-m", "peerlock", "run", "x", "--", "true"], capture_output=True, text=True, timeout=30,
        env={**os.environ, "PEERLOCK_CONFG": str(path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "PEERLOCK_CONFG is no setting of peerlock" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name",
    ["PEERLOCK_SERVICE_HOST", "PEERLOCK_VOTERS_SERVICE_PORT_HTTP", "PEERLOCK_PORT", "PEERLOCK_A_PORT_7100_TCP_ADDR"],
)
def test_what_kubernetes_says_of_a_service_of_that_name_is_left_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:7100")
    assert gather(algorithm="ricart-agrawala").algorithm == "ricart-agrawala"


def test_a_command_of_peerlock_run_can_join(tmp_path: Path) -> None:
    """It finds the variables that `peerlock run` sets, and none of them is refused."""
    script = "import peerlock.sync; print(peerlock.sync.join('h').name)"
    done = subprocess.run(
        [sys.executable, "-m", "peerlock", "run", "-g", "g", "x", "--", sys.executable, "-c", script],
        capture_output=True, text=True, timeout=60,
        env={**os.environ, "PEERLOCK_DIR": str(tmp_path), "PEERLOCK_NAME": "anna", "PEERLOCK_GROUP": "g"},
    )  # fmt: skip
    assert done.stdout == "anna\n", done.stderr


def test_the_password_of_etcd_may_stand_in_the_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('[etcd]\nendpoints = ["http://127.0.0.1:1"]\nuser = "shop"\n')
    monkeypatch.setenv("PEERLOCK_ETCD_PASSWORD", "secret")
    found = gather(path).etcd
    assert found is not None
    assert (found.user, found.password, found.endpoints) == ("shop", "secret", ("http://127.0.0.1:1",))
    with pytest.raises(UsageError, match=r"PEERLOCK_ETCD_PASSWORD is set.*PEERLOCK_ETCD"):
        gather()


def test_the_kind_of_group_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peerlock")
    make_certs(tmp_path / "certs", "a")
    tls = {key: str(tmp_path / "certs" / file) for key, file in (("ca", "ca.pem"), ("cert", "a.pem"), ("key", "a.key"))}
    alone = {"a": f"127.0.0.1:{free_port()}"}
    words: dict[str, dict[str, Any]] = {
        f"group g: a joins the group of this host at {tmp_path / 'g'}": {"dir": tmp_path},
        "group g: a joins a fixed list of nodes (a), with TLS": {"nodes": alone, "state": tmp_path / "s", "tls": tls},
        "group g: a joins a group with voters (a), with a lease of 3 s, without TLS": {
            "voters": alone, "state": tmp_path / "v", "first_start": True, "lease_s": 3.0,
        },
    }  # fmt: skip
    for line, more in words.items():
        caplog.clear()
        with peerlock.sync.join("g", name="a", **more):
            pass
        kinds = [record.getMessage() for record in caplog.records if " joins " in record.getMessage()]
        assert kinds == [line]

    async def whole() -> None:
        async with peerlock.join("g", name="a", dir=tmp_path):
            pass

    caplog.clear()
    asyncio.run(whole())
    assert f"group g: a joins the group of this host at {tmp_path / 'g'}" in caplog.text
