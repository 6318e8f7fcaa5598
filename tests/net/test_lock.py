"""The lock for asyncio, over a group in memory and in virtual time: every promise of its interface."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peerlock.errors import AlreadyHeld, Disagreement, LockLost, LockTimeout, NodeClosed, UsageError
from peerlock.net.aio.hold import Hold
from peerlock.net.aio.node import Node
from peerlock.net.yielding import SOON_S, YIELD_S
from peerlock.node.locks.ticket import Limits
from peerlock.node.wire_algorithms import ON_THE_WIRE
from peerlock.testing import Group, NothingHappens, run


def scenario(test: Callable[[Group], Awaitable[None]]) -> Callable[[], None]:
    def case() -> None:
        async def whole() -> None:
            await test(Group())

        run(whole())

    case.__name__ = test.__name__
    return case


async def three(group: Group) -> list[Node]:
    return [await group.join(name) for name in ("anna", "ben", "cleo")]


@pytest.mark.parametrize("algorithm", ON_THE_WIRE)
def test_every_algorithm(algorithm: str) -> None:
    async def whole() -> None:
        group = Group(algorithm=algorithm)
        nodes = await three(group)
        inside, entries, fences = 0, 0, []

        async def work(node: Node) -> None:
            nonlocal inside, entries
            for _ in range(20):
                async with node.lock("orders") as hold:
                    inside += 1
                    assert inside == 1
                    fences.append(hold.fence)
                    await asyncio.sleep(0.01)
                    inside -= 1
                    entries += 1

        await asyncio.gather(*(work(node) for node in nodes for _ in range(2)))
        assert entries == 120
        assert fences == sorted(set(fences)), "fences strictly increase"

    run(whole())


@scenario
async def test_first_come_first_served_within_a_node(group: Group) -> None:
    anna, ben, _ = await three(group)
    hold = await ben.lock("x").acquire()
    order = []

    async def wait(number: int) -> None:
        async with anna.lock("x"):
            order.append(number)

    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(wait(number)))
        await asyncio.sleep(0.01)
    hold.release()
    await asyncio.gather(*tasks)
    assert order == list(range(20))


@scenario
async def test_nobody_is_first_because_of_its_number(group: Group) -> None:
    """Of those that wait when a lock is released it is the one after the holder, whoever that is."""
    nodes = await three(group)
    served = list[str]()

    async def want(node: Node) -> None:
        async with node.lock("x"):
            served.append(node.name)

    for holder in (0, 1, 2):
        hold = await nodes[holder].lock("x").acquire()
        waiting = [asyncio.create_task(want(nodes[each])) for each in (0, 1, 2) if each != holder]
        await asyncio.sleep(1)
        hold.release()
        await asyncio.gather(*waiting)
    assert served == ["ben", "cleo", "cleo", "anna", "anna", "ben"]


@scenario
async def test_who_had_to_wait_yields_sooner_for_a_while(group: Group) -> None:
    anna, ben, _ = await three(group)
    hold = await anna.lock("x").acquire()
    waiter = asyncio.create_task(ben.lock("x").acquire())
    await asyncio.sleep(1)
    assert ben._shell.pace.step == SOON_S
    hold.release()
    (await waiter).release()
    turns = 0
    while ben._shell.pace.step < YIELD_S and turns < 100:
        turns += 1
        ben._shell.pace.yield_at = -1.0  # as if that time had passed
        async with ben.lock("x"):
            pass
    assert 5 < turns < 20


@scenario
async def test_who_had_to_wait_does_not_yield_before_its_body(group: Group) -> None:
    anna, ben, _ = await three(group)
    hold = await anna.lock("x").acquire()
    ben._shell.pace.yield_at = -1.0

    async def body() -> float:
        async with ben.lock("x"):
            return ben._shell.pace.yield_at

    waiter = asyncio.create_task(body())
    await asyncio.sleep(1)
    hold.release()
    assert await waiter == -1.0, "others have had their turn; now it is ours"


@pytest.mark.parametrize("algorithm", [name for name in ON_THE_WIRE if not name.endswith(("-rw", "-priority"))])
def test_a_node_that_asked_before_is_not_passed_over(algorithm: str) -> None:
    """Anna and Ben ask while Cleo has the lock. Anna gets it first, and her tasks ask again and again: nothing more
    comes from Ben, and he has his turn all the same.
    """

    async def main(group: Group) -> None:
        anna, ben, cleo = await three(group)
        hold, ended, entries = await cleo.lock("x").acquire(), asyncio.Event(), 0

        async def work() -> None:
            nonlocal entries
            while not ended.is_set():
                async with anna.lock("x"):
                    entries += 1
                    await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0.05)
        waits = asyncio.create_task(ben.lock("x").acquire(timeout=5))
        await asyncio.sleep(0.05)
        hold.release()
        (await waits).release()
        assert entries <= 16
        ended.set()
        await asyncio.gather(*tasks)

    run(main(Group(algorithm=algorithm)))


@scenario
async def test_a_node_with_many_waiters_does_not_pass_over_the_others(group: Group) -> None:
    anna, ben, _ = await three(group)
    entered = []

    async def work(node: Node, times: int) -> None:
        for _ in range(times):
            async with node.lock("x"):
                entered.append(node.name)
                await asyncio.sleep(0.01)

    crowd = [asyncio.create_task(work(anna, 20)) for _ in range(10)]
    await asyncio.sleep(0.1)
    await work(ben, 3)
    assert entered.count("anna") < 60, "ben came in between"
    await asyncio.gather(*crowd)


@scenario
async def test_a_time_out_raises_and_leaves_nothing_behind(group: Group) -> None:
    anna, ben, _ = await three(group)
    hold = await anna.lock("x").acquire()
    with pytest.raises(LockTimeout, match=r"not granted within 5 s. It was never held"):
        await ben.lock("x").acquire(timeout=5)
    assert await ben.lock("x").try_acquire(patience_s=1) is None
    hold.release()
    assert (await ben.lock("x").acquire(timeout=1)).held


@scenario
async def test_the_same_task_gets_a_sentence_instead_of_waiting_for_itself(group: Group) -> None:
    anna, *_ = await three(group)
    lock = anna.lock("x")
    async with lock:
        with pytest.raises(AlreadyHeld, match="would wait for itself"):
            await lock.acquire()
        with pytest.raises(AlreadyHeld):
            async with anna.lock("x"):
                pass
    async with lock:
        pass


@scenario
async def test_the_owner_is_the_hold(group: Group) -> None:
    anna, ben, _ = await three(group)
    lock = anna.lock("x")
    async with lock as hold:
        hold.detach()
    assert hold.held
    assert await ben.lock("x").try_acquire(patience_s=1) is None
    await asyncio.create_task(_release(hold))
    assert not hold.held
    with pytest.raises(UsageError, match="released before"):
        hold.release()
    with pytest.raises(LockLost, match="this hold is over"):
        hold.check()


async def _release(hold: Hold) -> None:
    hold.release()


@scenario
async def test_a_body_whose_hold_was_released_does_not_release_another_ones(group: Group) -> None:
    anna, *_ = await three(group)
    lock, inside = anna.lock("x"), asyncio.Event()

    async def other() -> None:
        async with lock as hold:
            inside.set()
            await asyncio.sleep(5)
            hold.check()

    async with lock as hold:
        hold.release()
        async with lock:
            pass
        task = asyncio.create_task(other())
        await inside.wait()
    await task


@scenario
async def test_readers_share_and_writers_do_not(group: Group) -> None:
    anna, ben, cleo = await three(group)
    readers, most = 0, 0

    async def read(node: Node) -> None:
        nonlocal readers, most
        async with node.rwlock("x").read():
            readers += 1
            most = max(most, readers)
            await asyncio.sleep(1)
            readers -= 1

    await asyncio.gather(*(read(node) for node in (anna, ben, cleo, anna)))
    assert most == 4
    async with anna.rwlock("x").write() as write:
        assert await ben.rwlock("x").read().try_acquire(patience_s=1) is None
    async with ben.rwlock("x").read() as after:
        assert after.fence > write.fence


@scenario
async def test_a_reader_that_leaves_first_does_not_let_a_writer_in(group: Group) -> None:
    anna = await group.join("anna")
    lock = anna.rwlock("x")
    for _ in range(3):
        async with lock.read():
            pass
    first, second = lock.read(), lock.read()
    go, inside = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        async with second:
            inside.set()
            await go.wait()

    async with first:
        task = asyncio.create_task(stay())
        await inside.wait()
    assert await lock.write().try_acquire(patience_s=1) is None
    go.set()
    await task
    assert await lock.write().try_acquire(patience_s=1) is not None


@scenario
async def test_a_body_that_ends_in_another_task(group: Group) -> None:
    """The only one that runs is known; of several, a task can end its own."""
    anna = await group.join("anna")
    lock = anna.lock("x")
    await asyncio.create_task(lock.__aenter__())
    await lock.__aexit__(None, None, None)
    assert (await lock.acquire(timeout=1)).held
    read = anna.rwlock("y").read()
    for _ in range(2):
        await asyncio.create_task(read.__aenter__())
    with pytest.raises(UsageError, match="ends in another task"):
        await read.__aexit__(None, None, None)


@scenario
async def test_a_writer_is_not_passed_over_by_readers_for_ever(group: Group) -> None:
    anna, ben, _ = await three(group)
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            async with anna.rwlock("x").read():
                await asyncio.sleep(0.01)

    readers = [asyncio.create_task(read()) for _ in range(4)]
    await asyncio.sleep(0.1)
    async with ben.rwlock("x").write():
        done.set()
    await asyncio.gather(*readers)


@scenario
async def test_several_locks_in_one_order(group: Group) -> None:
    anna, ben, _ = await three(group)

    async def work(node: Node, names: list[str]) -> None:
        for _ in range(10):
            async with node.lock_all(names) as holds:
                assert [hold.name for hold in holds] == ["a", "b"]
                await asyncio.sleep(0.001)

    await asyncio.wait_for(asyncio.gather(work(anna, ["a", "b"]), work(ben, ["b", "a"])), 60)


@scenario
async def test_two_algorithms_for_one_lock_get_a_clear_error(group: Group) -> None:
    anna, ben, _ = await three(group)
    async with anna.lock("x"):
        with pytest.raises(
            Disagreement, match=r"suzuki-kasami-a .* carvalho-roucairol|carvalho-roucairol .* suzuki-kasami-a"
        ):
            await ben.lock("x", algorithm="carvalho-roucairol").acquire(timeout=5)
    with pytest.raises(UsageError, match="silence for permission"):
        anna.lock("x", algorithm="ricart-agrawala-implicit")


@scenario
async def test_priorities(group: Group) -> None:
    anna, ben, cleo = await three(group)
    hold = await ben.lock("x", priority=1).acquire()
    order = []

    async def work(node: Node, priority: int) -> None:
        async with node.lock("x", priority=priority):
            order.append(node.name)

    # They ask at the same time. Among equals the lower number would be first: anna.
    tasks = [asyncio.create_task(work(anna, 50)), asyncio.create_task(work(cleo, 1))]
    await asyncio.sleep(1)
    hold.release()
    await asyncio.gather(*tasks)
    assert order == ["cleo", "anna"]
    with pytest.raises(UsageError, match="knows no priorities"):
        anna.lock("y", algorithm="suzuki-kasami-a", priority=2)


# -- what goes wrong -------------------------------------------------------------------------------------


@scenario
async def test_a_crashed_holder_does_not_keep_the_lock(group: Group) -> None:
    anna, ben, cleo = await three(group)
    first = await anna.lock("x").acquire()
    waiting = [asyncio.create_task(node.lock("x").acquire()) for node in (ben, cleo)]
    await asyncio.sleep(1)
    group.crash(anna)
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    (hold,) = [task.result() for task in done]
    assert hold.fence > first.fence
    assert ben.members == ("ben", "cleo")


@scenario
async def test_leaving_loses_what_is_held_and_says_so(group: Group) -> None:
    anna, ben, _ = await three(group)
    ended = []

    async def body() -> None:
        try:
            async with anna.lock("x"):
                await asyncio.sleep(3600)
        except LockLost as problem:
            ended.append(str(problem))

    task = asyncio.create_task(body())
    await asyncio.sleep(1)
    waiter = asyncio.create_task(anna.lock("x").acquire())
    await asyncio.sleep(1)
    await anna.leave()
    await task
    assert "left the group" in ended[0]
    with pytest.raises(NodeClosed, match="never held"):
        await waiter
    with pytest.raises(NodeClosed, match="join again"):
        await anna.lock("x").acquire()
    assert (await ben.lock("x").acquire(timeout=5)).held


def lose(node: Node, name: str) -> None:
    node._shell.core.table.locks[name].lose(f"The lock {name} is lost, for this test.")
    node._shell.carry_out()


@scenario
async def test_loss_cancels_the_body_and_a_cancel_from_outside_goes_on(group: Group) -> None:
    anna, *_ = await three(group)

    async def body() -> None:
        async with anna.lock("x"):
            await asyncio.sleep(3600)

    lost, cancelled = asyncio.create_task(body()), None
    await asyncio.sleep(1)
    hold = anna._shell.core.table.locks["x"].holder
    assert isinstance(hold, Hold)
    assert not hold.lost.is_set()
    lose(anna, "x")
    with pytest.raises(LockLost, match="for this test"):
        await lost
    assert hold.lost.is_set()
    assert hold.remaining() == 0
    cancelled = asyncio.create_task(body())
    await asyncio.sleep(1)
    cancelled.cancel()
    lose(anna, "x")
    with pytest.raises((asyncio.CancelledError, LockLost)):
        await cancelled


@scenario
async def test_a_cut_link_loses_nothing(group: Group) -> None:
    anna, ben, cleo = await three(group)
    hold = await anna.lock("x").acquire()
    waiter = asyncio.create_task(ben.lock("x").acquire())
    await asyncio.sleep(0.01)
    group.cut(anna, ben)
    hold.release()  # the token is lost on its way
    await asyncio.sleep(0.5)
    group.heal()
    assert (await asyncio.wait_for(waiter, 60)).held
    assert cleo.epoch == 3, "and nobody was excluded"


@scenario
async def test_status(group: Group) -> None:
    anna, ben, cleo = await three(group)
    hold = await anna.lock("orders").acquire()
    waiter = asyncio.create_task(ben.lock("orders").acquire())
    await asyncio.sleep(2)
    status = await cleo.status()
    assert status.members == ("anna", "ben", "cleo")
    (lock,) = status.locks
    assert (lock.name, [holder.node for holder in lock.holders], lock.holders[0].fence) == (
        "orders",
        ["anna"],
        hold.fence,
    )
    assert [waiter.node for waiter in lock.waiters] == ["ben"]
    assert lock.waiters[0].seconds > 1
    hold.release()
    (await waiter).release()
    assert (await cleo.status()).locks == ()


@scenario
async def test_idle_locks_are_forgotten(group: Group) -> None:
    anna = await group.join("anna", limits=Limits(idle_locks=10))
    ben = await group.join("ben", limits=Limits(idle_locks=10))
    hold = await anna.lock("kept").acquire()
    for number in range(100):
        async with ben.lock(f"lock-{number}"):
            pass
    await asyncio.sleep(1)
    assert len(ben._shell.core.table.locks) < 25
    assert hold.held
    assert await ben.lock("kept").try_acquire(patience_s=1) is None


def test_a_test_that_waits_for_ever_fails_with_a_sentence() -> None:
    async def whole() -> None:
        group = Group()
        anna = await group.join("anna")
        (await anna.lock("x").acquire()).detach()
        await anna.lock("x").acquire()

    with pytest.raises(NothingHappens, match="a task waits for ever"):
        run(whole())


# -- cancellation at every await ---------------------------------------------------------------------------


class Stepper:
    """Runs a coroutine and cancels its task when it has been resumed a given number of times."""

    def __init__(self, at: int) -> None:
        self.at, self.steps = at, 0

    async def run(self, coroutine: Any) -> bool:
        """True: it was cancelled; False: it came to its end before."""
        task: asyncio.Task[Any]

        class Counted:
            def __await__(inner) -> Any:  # noqa: N805
                work = coroutine.__await__()
                problem: BaseException | None = None
                try:
                    while True:
                        waited = work.send(None) if problem is None else work.throw(problem)
                        problem = None
                        self.steps += 1
                        if self.steps == self.at:
                            asyncio.get_running_loop().call_soon(task.cancel)
                        try:
                            yield waited
                        except BaseException as thrown:
                            problem = thrown
                except StopIteration as end:
                    return end.value

        async def main() -> Any:
            return await Counted()

        task = asyncio.create_task(main())
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False


async def _use(node: Node, kind: str) -> None:
    match kind:
        case "with":
            async with node.lock("x"):
                await asyncio.sleep(0.01)
        case "acquire":
            hold = await node.lock("x").acquire(timeout=100)
            hold.release()
        case "try":
            found = await node.lock("x").try_acquire(patience_s=100)
            if found is not None:
                found.release()
        case "read":
            async with node.rwlock("rw").read():
                await asyncio.sleep(0.01)
        case "all":
            async with node.lock_all(["x", "y", "z"]):
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["with", "acquire", "try", "read", "all"])
@pytest.mark.parametrize("contended", [False, True])
def test_cancellation_at_every_await_leaves_nothing_behind(kind: str, contended: bool) -> None:
    cancelled, at = 0, 0
    while True:
        at += 1

        async def whole(at: int = at) -> bool:
            group = Group()
            anna, ben, _ = await three(group)
            for name in ("x", "y", "z"):
                async with anna.lock(name):
                    pass
            held = []
            if contended:
                held = [await ben.lock(name).acquire() for name in ("x", "y", "z")]
                held.append(await ben.rwlock("rw").write().acquire())
                for number, hold in enumerate(held):
                    asyncio.get_running_loop().call_later(1 + number, hold.release)
            anna._shell.pace.yield_at = 0.0
            was = await Stepper(at).run(_use(anna, kind))
            await asyncio.sleep(10)
            # Whatever happened: everything can be had again by the others, at once.
            for name in ("x", "y", "z"):
                (await ben.lock(name).acquire(timeout=5)).release()
            (await ben.rwlock("rw").write().acquire(timeout=5)).release()
            assert not list(anna._shell.core.table.busy())
            return was

        if not run(whole()):
            break
        cancelled += 1
        assert at < 50
    assert cancelled, "there was something to cancel"


def test_cancelled_between_grant_and_wake_up_passes_the_lock_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        group = Group()
        anna, ben, cleo = await three(group)
        hold = await anna.lock("x").acquire()
        first = asyncio.create_task(ben.lock("x").acquire())
        await asyncio.sleep(1)
        second = asyncio.create_task(cleo.lock("x").acquire())
        await asyncio.sleep(1)
        before, granted = Hold.woken, []

        def woken(self: Hold) -> None:
            before(self)
            if self._lock._shell is ben._shell:
                granted.append(self.held)
                first.cancel()  # granted, and its task has not run yet

        monkeypatch.setattr(Hold, "woken", woken)
        hold.release()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert granted == [True]
        assert (await asyncio.wait_for(second, 10)).held

    run(whole())
