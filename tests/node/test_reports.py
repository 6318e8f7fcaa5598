"""Reports: what survives a view change, and what a lying or broken one costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peerlock
from peerlock.errors import LockTimeout
from peerlock.node.locks.table import NOTHING, opened
from peerlock.node.wire import LockReport, Report
from peerlock.testing import Group, run
from places import until
from shells import member

FAIR = [
    "ricart-agrawala",
    "ricart-agrawala-broadcast",
    "carvalho-roucairol",
    "helary-plouzeau-raynal",
    "suzuki-kasami-a",
    "ricart-agrawala-priority",
]


@pytest.mark.parametrize("algorithm", [*FAIR, "readers"])
def test_a_waiter_is_not_starved_while_members_come_and_go(algorithm: str) -> None:
    """Its name is the last of all: when requests tie, after each change of the view, the others win."""

    async def whole() -> float:
        group, done = Group(), asyncio.Event()
        waiter = await group.join("z")

        async def comes_and_goes(name: str) -> None:
            while not done.is_set():
                node = await group.join(name)
                lock: Any = node.rwlock("x").read() if algorithm == "readers" else node.lock("x", algorithm=algorithm)
                async with lock:
                    await asyncio.sleep(2.0)
                await node.leave()

        tasks = []
        for name in "abcd":
            tasks.append(asyncio.create_task(comes_and_goes(name)))
            await asyncio.sleep(0.5)
        lock: Any = waiter.rwlock("x").write() if algorithm == "readers" else waiter.lock("x", algorithm=algorithm)
        began = asyncio.get_running_loop().time()
        async with lock:
            waited = asyncio.get_running_loop().time() - began
            done.set()
        await asyncio.gather(*tasks)
        return waited

    assert run(whole(), limit_s=600) < 15.0


def lying(node: Any, *more: LockReport) -> Callable[..., tuple[LockReport, ...]]:
    real = node._shell.core.table.report
    return lambda now: (*real(now), *more)


@pytest.mark.parametrize(
    "lie", [LockReport("x", 1, "write"), LockReport("x", 99, None), LockReport("x", 99, "read")], ids=str
)
def test_a_report_that_lies_costs_the_lock_it_lies_about(lie: LockReport) -> None:
    async def whole() -> None:
        group = Group()
        anna, ben, liar = await group.join("anna"), await group.join("ben"), await group.join("liar")
        hold = await anna.lock("x").acquire()
        truth = liar._shell.core.table.report
        table: Any = liar._shell.core.table
        table.report = lying(liar, lie)
        ben.collect()  # a new epoch
        await asyncio.sleep(5)
        assert ben.epoch == anna.epoch > 3
        for node in (anna, ben, liar):
            async with asyncio.timeout(60), node.lock("y"):
                pass
        hold.check()
        with pytest.raises(LockTimeout):
            await ben.lock("x").acquire(timeout=30)
        table.report = truth
        hold.release()  # and a new epoch
        async with asyncio.timeout(60), ben.lock("x"):
            pass

    run(whole())


def test_a_lie_about_the_view_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its link is closed, and it dials again. The group waits for it, and goes on when it has left."""

    async def whole() -> None:
        anna, ben, liar = [await peerlock.join("g", dir=tmp_path, name=name) for name in ("anna", "ben", "liar")]
        hold = await anna.lock("x").acquire()
        core: Any = liar._shell.core
        core.send_report = lambda peer, locks: lies(core, peer, locks)
        ben.collect()  # a new epoch
        await until(lambda: member(ben).core.view_change.wedged)
        with pytest.raises(LockTimeout):
            await ben.lock("y").acquire(timeout=3.0)
        assert [name.split()[0] for name in (await ben.status(0.1)).waits_for] == ["liar"]
        assert "a view of epoch 7, which the registry does not know" in caplog.text
        await liar.leave()
        async with asyncio.timeout(10), ben.lock("y"):
            hold.check()
            assert ben.members == ("anna", "ben")
            assert ben.epoch < 7
        hold.release()
        for node in (anna, ben):
            await node.leave()

    asyncio.run(whole())


def lies(core: Any, peer: Any, locks: tuple[LockReport, ...]) -> None:
    """A report for a view that nobody has decided, without one of the members."""
    session = core.links.session(peer)
    core.links.post(session, Report(session.seq + 1, session.received, 7, core.view_change.coming[:2], locks))


def test_who_waited_longest_comes_first() -> None:
    found = opened([
        (1, (LockReport("x", 5, None, 1.0), LockReport("y", 5, None, 0.5))),
        (2, (LockReport("x", 5, "write"),)),
        (3, (LockReport("x", 5, None, 7.5),)),
    ])  # fmt: skip
    assert [found["x"].older(node) for node in (1, 2, 3, 4)] == [1, 2, 0, 2]
    assert found["x"].inside == {2: "write"}
    assert found["y"].older(2) == 1
    assert NOTHING.older(1) == 0


def test_a_report_that_one_frame_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peerlock.node.membership.reports.MOST_LOCKS", 10)

    async def whole() -> None:
        group = Group()
        anna, ben = await group.join("anna"), await group.join("ben")
        holds = [await anna.lock(f"x{number}").acquire() for number in range(35)]
        cleo = await group.join("cleo")
        assert cleo.members == ben.members == ("anna", "ben", "cleo")
        for hold in holds:
            hold.check()
            assert await cleo.lock(hold.name).try_acquire(patience_s=0.5) is None
            hold.release()
            assert await ben.lock(hold.name).try_acquire(patience_s=5) is not None

    run(whole())


@pytest.mark.slow
def test_a_quarter_of_a_million_held_locks_survive_a_view_change(tmp_path: Any) -> None:
    import peerlock

    async def whole() -> None:
        async with peerlock.join("g", dir=tmp_path, name="a") as a:
            holds = [await a.lock(f"{number:060d}").acquire() for number in range(250_000)]
            async with peerlock.join("g", dir=tmp_path, name="b") as b:
                assert await b.lock(holds[0].name).try_acquire(patience_s=1) is None
                holds[0].release()
                assert await b.lock(holds[0].name).acquire(timeout=60)

    asyncio.run(whole())


def test_a_clock_that_no_lock_can_have_is_not_taken_over() -> None:
    """A fence would jump ahead of those of the next five hundred epochs, and guarded resources refuse everybody."""

    async def whole() -> None:
        group = Group()
        anna, liar = await group.join("anna"), await group.join("liar")
        async with liar.lock("x"):
            waiter = asyncio.create_task(anna.lock("x").acquire(timeout=60))
            await asyncio.sleep(1)
            liar._shell.core.table.locks["x"].clock = 2**40
        hold = await waiter
        assert hold.fence < (anna.epoch + 1) << 31
        hold.release()
        later = await anna.lock("x").acquire(timeout=60)
        assert hold.fence < later.fence < (anna.epoch + 1) << 31

    run(whole(), limit_s=600)
