"""The comparison with other locks: that it measures what it says, with real servers; how fast is not tested here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.peers import curves, drivers, duels, servers
from benchmarks.peers.drivers import ROWS, Row
from benchmarks.peers.figures import Comparison, Contended, Duel, Figures, contended, median_of
from benchmarks.peers.scenes import play
from benchmarks.peers.servers import STARTERS
from benchmarks.peers.side_by_side import chosen, compare, steps
from benchmarks.peers.tables import rounds, shown
from benchmarks.peers.targets import over_runs, targets
from peerlock.errors import UsageError

BY_NAME = {row.name: row for row in ROWS}


@pytest.mark.parametrize(
    "name",
    ["peerlock", "peerlock, threads", "peerlock, ricart-agrawala", "flock", "multiprocessing.Lock", "peerlock, TCP",
     "Redis BLPOP", "Redis BLPOP, Unix socket", "redis-py Lock, 1 ms", "PostgreSQL advisory", "PostgreSQL, Unix socket",
     "etcd lock", "PySyncObj, no batches"],
)  # fmt: skip
def test_every_lock_excludes(name: str, tmp_path: Path) -> None:
    row = BY_NAME[name]
    assert row.missing() == ""
    with STARTERS[row.server](tmp_path) as address:
        found = contended(play(row, "contended", 2, 0.4, address))
    assert found.grants_a_second > 0
    assert found.lost_updates == 0


def test_a_lock_that_does_not_exclude_is_found_out() -> None:
    row = Row("no lock at all", NoLock)
    for _ in range(5):
        if contended(play(row, "contended", 2, 0.5)).lost_updates:
            return
    raise AssertionError("updates were lost, and nobody noticed")


class NoLock(drivers.Blocking):
    def use(self, name: str) -> None:
        pass

    def take(self) -> None:
        pass

    def give(self) -> None:
        pass


def test_scenes_give_what_the_tables_show() -> None:
    row = BY_NAME["peerlock, asyncio"]
    alone = play(row, "uncontended", 2, 0.2)[0]
    assert alone["us"] > 0
    assert alone["asyncio_lock_us"] > 0
    assert sum(told["turns"] for told in play(row, "alternation", 2, 0.3)) > 10
    assert sum(len(told["times"]) for told in play(row, "parked", 2, 0.3)) > 10
    assert len(play(row, "first touch", 2, 0.2)[0]["times"]) > 5


def test_what_is_not_installed_is_skipped_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.PACKAGES, "redis", ("no-such-server", "/nowhere/redis-server"))
    assert BY_NAME["Redis BLPOP"].missing() == "apt-get install no-such-server"
    nobody = Row("nobody", drivers.Flock, modules=("no_such_module",))
    assert nobody.missing() == "pip install 'peerlock[peers]'"
    found = compare([nobody], 1, 0.1)
    assert found.skipped == {"nobody": "pip install 'peerlock[peers]'"}
    assert any("nobody is not here" in part for part in shown(found) if isinstance(part, str))


def test_rows_are_chosen_by_how_their_names_begin() -> None:
    assert len(chosen([])) == len(ROWS)
    assert [row.name for row in chosen(["redis b", "flock"])] == ["flock", "Redis BLPOP", "Redis BLPOP, Unix socket"]
    with pytest.raises(UsageError, match=r"Nothing here is called 'zebra'\. There are: peerlock; "):
        chosen(["zebra"])


def figures(us: float, changes: float, fairness: float = 1.0, parked: float = 80.0) -> Figures:
    crowd = Contended(changes, changes, 1.0, 2.0, fairness, 0.0, 3.0, 50.0)
    crowds = {3: crowd, 5: crowd}
    return Figures(us, us, us / 0.5, crowds, crowds, 1.0, parked, parked, parked, parked / 60, 1.0)


def fought(row: str, ratio: float, fairness: float = 1.0, parked: float = 1.3) -> list[Duel]:
    crowds = [
        Duel(row, "Redis BLPOP", way, of, (ratio, ratio, 9.9), fairness=(fairness, fairness, 1.0))
        for way in ("contended", "apart")
        for of in (3, 5)
    ]
    alike = Duel(row, "Redis BLPOP, Unix socket", "contended", 3, (0.1,), fairness=(0.1,), aimed=False)
    return [*crowds, alike, Duel(row, "a bare message", "parked", 2, (parked, parked, 9.9))]


def test_targets_are_ratios() -> None:
    rows = {"peerlock": figures(0.9, 15_000), "Redis BLPOP": figures(100.0, 6_000), "flock": figures(0.1, 90_000)}
    found = {target.words: target for target in targets(rows, fought("peerlock", 2.5))}
    assert all(target.met for target in found.values())
    assert sorted(target.value for target in found.values()) == pytest.approx(
        sorted([1.8, 100 / 0.9, 2.5, 2.5, 1.0, 2.5, 2.5, 1.0, 0.0, 1.3])
    )
    rows["peerlock"] = figures(1.1, 11_000)
    missed = [target for target in targets(rows, fought("peerlock", 1.9, 0.5, 1.7)) if not target.met]
    assert len(missed) == 8


def test_what_must_never_be_is_not_made_better_by_other_runs() -> None:
    good, bad = figures(1.0, 10), figures(1.0, 10)
    bad.contended = {3: msgspec.structs.replace(good.contended[3], lost_updates=1.0)}
    middle: Figures = median_of([good, bad, good])
    assert middle.contended[3].lost_updates == 1
    in_turns = Duel("peerlock", "Redis BLPOP", "apart", 5, (3.0,), lost_updates=2.0)
    for runs, worst in (
        ([({"peerlock": good}, ()), ({"peerlock": bad}, ())], 1.0),
        ([({"peerlock": good}, (in_turns,)), ({"peerlock": bad}, ())], 2.0),
    ):
        (lost,) = (each for each in over_runs(runs) if each.words.endswith("lost updates"))
        assert (lost.value, lost.met) == (worst, False)


def test_a_target_is_the_median_of_what_each_run_says() -> None:
    runs = [({"peerlock": figures(1.0, 20)}, fought("peerlock", ratio)) for ratio in (2.0, 5.0, 1.8)]
    (found,) = (each for each in over_runs(runs) if each.words.startswith("peerlock: 3 processes, owner changes"))
    assert found.of_runs == (2.0, 5.0, 1.8)
    assert (found.value, found.met) == (2.0, True)


def test_duels_are_with_the_best_networked_peer() -> None:
    names = ["peerlock", "peerlock, asyncio", "flock", "Redis BLPOP", "PostgreSQL advisory"]
    rows = [BY_NAME[name] for name in names]
    seen = {name: figures(1.0, changes) for name, changes in zip(names, (50, 40, 90, 10, 20), strict=True)}
    words = [words for words, _ in duels.planned(rows, seen, 0.2)]
    assert words[:2] == [f"{of} processes, in turns with PostgreSQL advisory" for of in (3, 5)]
    assert len(words) == duels.how_many(rows)
    assert steps(rows, 3) == 3 * (1 + len(rows) + len(words))
    assert not duels.how_many([BY_NAME["flock"]])
    alike = [*rows, BY_NAME["Redis BLPOP, Unix socket"]]
    assert duels.how_many(alike) == len(words) + 2
    assert not list(duels.planned(rows, {}, 0.2))


def test_a_duel_is_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duels, "ROUNDS", 2)
    ours = [BY_NAME["peerlock"], BY_NAME["peerlock, dijkstra-ring"]]
    first, second = duels.crowd(ours, BY_NAME["Redis BLPOP"], "contended", 3, 0.2)
    for duel in (first, second):
        assert len(duel.ratios) == len(duel.fairness) == len(duel.theirs) == 2
        assert duel.ratios == tuple(mine / theirs for mine, theirs in zip(duel.mine, duel.theirs, strict=True))
        assert min(duel.ratios) > 0
        assert duel.lost_updates == 0
    (parked,) = duels.parked(ours[0], 0.4)
    assert (parked.way, len(parked.ratios)) == ("parked", 2)
    found = Comparison(1, 0.2, {}, [], {}, {}, [], [first, second, parked])
    assert [each[:3] for each in rounds(found)] == [
        ("peerlock", "Redis BLPOP", "3 processes"),
        ("peerlock, dijkstra-ring", "Redis BLPOP", "3 processes"),
        ("peerlock", "a bare message", "parked"),
    ]
    assert any(getattr(part, "title", "") == "duels" for part in shown(found))


def test_medians_field_by_field() -> None:
    middle: Figures = median_of([figures(1.0, 10), figures(3.0, 30), figures(2.0, 20)])
    assert middle.uncontended_us == 2.0
    assert middle.contended[3].owner_changes_a_second == 20


def test_the_command(tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    done = CliRunner().invoke(
        app,
        ["peers", "--only", "flock", "--runs", "1", "--seconds", "0.2", "--json", "--plot", str(picture)],
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["rows"]["flock"]["contended"]["3"]["lost_updates"] == 0
    assert {floor["loop"] for floor in found["floor"]} == {"asyncio", "uvloop"}
    assert picture.read_text().startswith("<?xml")
    assert set(found) == set(Comparison.__struct_fields__)


def test_the_guard_against_getting_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "bench_quick.py"))
    stored = tmp_path / "stored.json"
    stored.write_text(json.dumps({"a": 1.0}))
    there: Any = script["main"].__globals__
    monkeypatch.setitem(there, "STORED", stored)
    monkeypatch.setattr("sys.argv", ["bench_quick"])
    monkeypatch.setitem(there, "RATIOS", {"a": lambda: 1.5})
    assert script["main"]() == 0
    monkeypatch.setitem(there, "RATIOS", {"a": lambda: 1.7})
    assert script["main"]() == 1


def test_the_scenes_of_this_lock_alone_are_known_to_every_process() -> None:
    assert play(curves.row(count=3), "names", 1, 0.2)[0]["us"] > 0
    assert sum(told["entries"] for told in play(curves.row(count=2), "waiters", 2, 0.3)) > 10
