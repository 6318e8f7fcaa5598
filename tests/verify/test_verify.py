"""`peerlock verify` finds what there is to find, and nothing else."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peerlock.verify.history import Belief, beliefs, judge, overlaps
from peerlock.verify.log import Line, read
from peerlock.verify.plan import Plan
from peerlock.verify.run import await_grants, judged, staged, start_all


def verify(*words: str) -> tuple[int, dict[str, Any]]:
    from peerlock.cli import app
    from peerlock.cli import verify as command

    _ = command
    done = CliRunner().invoke(app.app, ["verify", "--json", *words])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("registry", ["embedded", "etcd", "static", "host", "attached"])
def test_a_group_that_is_well(registry: str, tmp_path: Path) -> None:
    picture = tmp_path / "run.png"
    code, found = verify("--registry", registry, "--seconds", "8", "--seed", "3", "--plot", str(picture))
    assert code == 0, found
    assert found["overlaps"] == found["stale_writes_accepted"] == found["lost_updates"] == 0
    assert found["owner_changes"] > 20
    assert "stale_writes_refused" in found
    assert found["faults"]
    assert found["recovery_s"] < 10
    assert picture.stat().st_size > 10_000


def test_through_a_proxy() -> None:
    code, found = verify("--proxy", "--seconds", "8", "--seed", "4", "--faults", "partition,reset,kill,pair,one_way")
    assert code == 0, found
    assert found["hosts"] == "a proxy on loopback"


def test_a_fixed_list_through_a_proxy() -> None:
    code, found = verify(
        "--proxy", "--registry", "static", "--seconds", "8", "--seed", "6", "--faults", "partition,reset,kill,pair"
    )
    assert code == 0, found
    assert found["hosts"] == "a proxy on loopback"


def test_etcd_through_a_proxy() -> None:
    code, found = verify(
        "--proxy", "--registry", "etcd", "--seconds", "8", "--seed", "0", "--faults", "partition,authority,slow,reset"
    )
    assert code == 0, found
    assert found["faults"]
    assert (found["hosts"], found["seed"]) == ("a proxy on loopback", 0)


def test_five_voters() -> None:
    code, found = verify("--voters", "5", "--seconds", "8", "--seed", "5", "--faults", "kill,authority,pause_long,slow")
    assert code == 0, found
    assert found["faults"]


@pytest.mark.parametrize("registry", ["embedded", "etcd"])
def test_two_that_cannot_talk_do_not_stop_the_others(registry: str) -> None:
    """They reach everybody else, and those who decide. One of them is excluded, until it reaches everybody again.

    A member is given up after `stall_s` of silence, here one lease.
    """
    with staged(Plan(registry=registry, lease_s=1.0)) as cluster:
        start_all(cluster)
        if cluster.etcds is not None:
            assert cluster.etcds.leader() in cluster.etcds.places
        cluster.hosts.cut(4, 5)
        cluster.hosts.cut(5, 4)
        end, inside = time.monotonic() + 30.0, set[int]()
        while not ({1, 2, 3} <= inside and len(inside & {4, 5}) == 1):
            assert time.monotonic() < end, inside
            since = time.monotonic()
            time.sleep(2.0)
            inside = {host for host, when in cluster.last_grants().items() if when > since}
        cluster.hosts.mend(4, 5)
        cluster.hosts.mend(5, 4)
        _, missing = await_grants(cluster, time.monotonic(), 10.0)
        assert not missing
        cluster.close()
        found, _, _ = judged(cluster)
        assert found.ok, found


@pytest.mark.parametrize("registry", ["embedded", "etcd", "static"])
def test_a_host_that_is_cut_off(registry: str) -> None:
    """With leases it loses its locks, and the others go on. A fixed list waits for it as soon as the
    token is on its way to it: if it did not ask before it was cut off, the others go on, too.
    """
    with staged(Plan(registry=registry, lease_s=1.0)) as cluster:
        start_all(cluster)
        others = [
            host for host in (*cluster.hosts_of_nodes, *(cluster.etcds.places if cluster.etcds else ())) if host != 5
        ]
        ways = [way for other in others for way in ((5, other), (other, 5))]
        for way in ways:
            cluster.hosts.cut(*way)
        time.sleep(6.0)
        since = time.monotonic()
        time.sleep(4.0)
        inside = {host for host, when in cluster.last_grants().items() if when > since}
        assert inside == {1, 2, 3, 4} or (registry == "static" and not inside)
        for way in ways:
            cluster.hosts.mend(*way)
        _, missing = await_grants(cluster, time.monotonic(), 20.0)
        assert not missing
        cluster.close()
        found, _, _ = judged(cluster)
        assert found.ok, found


def test_a_guard_is_needed() -> None:
    code, found = verify("--seconds", "12", "--seed", "7", "--faults", "between", "--no-guard")
    assert code == 1
    assert found["stale_writes_accepted"]
    code, found = verify("--seconds", "12", "--seed", "7", "--faults", "between")
    assert code == 0, found
    assert found["stale_writes_refused"]
    assert not found["stale_writes_accepted"]


def test_a_lease_that_is_not_checked_is_found() -> None:
    code, found = verify(
        "--seconds", "15", "--seed", "7", "--faults", "between,pause_long", "--planted", "lease not checked"
    )
    assert code == 1
    assert found["overlaps"]


# -- the judge -----------------------------------------------------------------------------------------------


def line(t: float, what: str, **more: Any) -> Line:
    return Line(t, 1, what, **more)


def test_a_hold_ends_with_its_lease() -> None:
    events = [line(0, "lease", until=2.0), line(1, "granted", fence=5), line(9, "lost", fence=5)]
    assert beliefs("a", events, []) == [Belief("a", 1, 2.0, 5, "lease")]


def test_leases_that_follow_each_other_are_one() -> None:
    events = [
        line(0, "lease", until=2.0), line(0.5, "granted", fence=5), line(1, "lease", until=3.0), line(2.5, "lease", until=4.5),
        line(4, "released", fence=5),
    ]  # fmt: skip
    assert beliefs("a", events, [])[0].end == 4
    late = [
        line(0, "lease", until=2.0),
        line(0.5, "granted", fence=5),
        line(3, "lease", until=5.0),
        line(4, "released", fence=5),
    ]
    assert beliefs("a", late, [])[0].end == 2.0


def test_who_is_told_that_it_holds_believes() -> None:
    events = [
        line(0, "lease", until=2.0),
        line(1, "granted", fence=5),
        line(8, "checked", fence=5, since=7.5),
        line(9, "released", fence=5),
    ]
    assert beliefs("a", events, [])[0].end == 7.5


def test_the_dead_believe_nothing() -> None:
    events = [line(0, "lease", until=9.0), line(1, "granted", fence=5)]
    assert beliefs("a", events, [(3.0, 1)])[0].end == 3.0
    events.append(line(3.5, "writes", fence=5, value=1))  # it was alive then, whatever its killer noted
    assert beliefs("a", events, [(3.0, 1)])[0].end == 3.5


def test_overlaps_and_fences() -> None:
    one, two, three = (
        Belief("a", 0, 5, 1, "released"),
        Belief("b", 4, 6, 2, "released"),
        Belief("c", 6, 7, 3, "released"),
    )
    assert overlaps([one, two, three]) == [(one, two)]

    def hold(start: float, fence: int) -> list[Line]:
        return [
            line(start, "granted", fence=fence), line(start + 0.1, "writes", fence=fence, value=1),
            line(start + 0.2, "wrote", fence=fence, value=1), line(start + 1, "released", fence=fence),
        ]  # fmt: skip

    logs = {"a": hold(0, 9), "b": hold(2, 4)}
    verdict, _ = judge(logs, {}, 1)
    assert (verdict.fences_out_of_order, verdict.stale_writes_accepted, verdict.lost_updates) == (1, 1, 1)
    assert not verdict.ok


def test_half_a_line_is_left_out(tmp_path: Path) -> None:
    log, whole = tmp_path / "log", b'{"t":1.5,"pid":1,"what":"granted","fence":7}\n'
    log.write_bytes(whole + whole[:20])
    assert read(log) == [Line(1.5, 1, "granted", fence=7)]
    for last in range(1, len(whole)):  # from within a line on
        assert read(log, last) == []
