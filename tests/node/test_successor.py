"""Requests that are sent to the successor alone, at first: five cores in one process, and every message in our hands."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Any

from peerlock.node.core import Core
from peerlock.node.effects import BeginHolding, WithheldDueAt
from peerlock.node.locks.local_lock import LocalLock
from peerlock.node.locks.successor import SUCCESSOR_KNOWN_S
from peerlock.node.locks.table import WITHHOLD_S_PER_MEMBER
from peerlock.node.locks.ticket import HELD, WAITING, Ticket
from peerlock.node.peer import Peer
from peerlock.node.wire import LENGTH, opened
from peerlock.node.wire_algorithms import DEFAULT, wire_algorithm


class _Shell:
    """Puts writes under way, allows to hold, and notes reminders."""

    def __init__(self, group: Group, me: Peer) -> None:
        self.group = group
        self.core = Core(me, "g", None, group.now)
        self.reminders: list[float] = []

    def carry_out(self) -> None:
        core = self.core
        for effect in core.effects:
            if isinstance(effect, WithheldDueAt):
                self.reminders.append(effect.when)
        held_back = any(isinstance(effect, BeginHolding) for effect in core.effects)
        core.effects.clear()
        if held_back:
            core.holding_allowed(self.group.now)
            self.carry_out()
        for peer, data in core.take_writes():
            self.write(peer, data)

    def write(self, peer: Peer, data: bytes) -> None:
        while data:
            (length,) = LENGTH.unpack_from(data)
            frame, data = data[LENGTH.size : LENGTH.size + length], data[LENGTH.size + length :]
            self.group.under_way.append((self.core.me, peer, frame))


class Group:
    """Cores that are linked with each other, and a clock that stands still."""

    def __init__(self, size: int) -> None:
        self.peers = tuple(Peer(f"n{number}", number) for number in range(1, size + 1))
        self.under_way: deque[tuple[Peer, Peer, bytes]] = deque()
        self.now = 100.0
        self.shells = {peer: _Shell(self, peer) for peer in self.peers}
        self.cores = {peer: shell.core for peer, shell in self.shells.items()}
        self.learn(1, self.peers)

    def learn(self, epoch: int, members: tuple[Peer, ...]) -> None:
        for peer in members:
            self.cores[peer].learn(epoch, members, self.now)
            for other in members:
                if other != peer and not self.cores[peer].links.session(other).linked:
                    self.cores[peer].links.linked(other, 0, self.now)
            self.shells[peer].carry_out()
        self.deliver()

    def deliver(self) -> None:
        while self.under_way:
            source, to, frame = self.under_way.popleft()
            core = self.cores[to]
            view = core.receive(source, opened(frame), self.now)
            assert view is None
            self.shells[to].carry_out()

    def local_lock(self, peer: Peer) -> LocalLock:
        return self.cores[peer].table.local_lock("job", wire_algorithm(DEFAULT))

    def ask(self, peer: Peer) -> Ticket:
        ticket = Ticket()
        self.cores[peer].acquire(self.local_lock(peer), ticket, self.now)
        self.shells[peer].carry_out()
        return ticket

    def release(self, peer: Peer, ticket: Ticket) -> None:
        self.cores[peer].release(ticket, self.now)
        self.shells[peer].carry_out()

    def messages(self) -> int:
        return sum(core.table.messages for core in self.cores.values())

    def all_want_it(self) -> dict[Peer, Ticket]:
        wishes = {peer: self.ask(peer) for peer in self.peers}
        self.deliver()
        return wishes

    def turn(self, wishes: dict[Peer, Ticket]) -> Peer:
        """Whoever has it passes it on, and asks again."""
        (peer,) = (peer for peer, ticket in wishes.items() if ticket.state == HELD)
        self.release(peer, wishes[peer])
        wishes[peer] = self.ask(peer)
        self.deliver()
        return peer


def just_passed_on() -> tuple[Group, dict[Peer, Ticket], Peer]:
    """Everybody wants it and has had its turn, and one has just released it: what it said is under way."""
    group = Group(5)
    wishes = group.all_want_it()
    for _ in range(5):
        group.turn(wishes)
    (peer,) = (peer for peer, ticket in wishes.items() if ticket.state == HELD)
    group.release(peer, wishes[peer])
    return group, wishes, peer


def test_where_everybody_wants_it_an_entry_costs_two_messages_and_all_have_their_turn() -> None:
    group = Group(5)
    wishes = group.all_want_it()
    order = [group.turn(wishes) for _ in range(10)]
    before = group.messages()
    order += [group.turn(wishes) for _ in range(100)]
    assert group.messages() - before == 200
    assert all(len(set(order[at : at + 5])) == 5 for at in range(10, 105)), "one after the other"


def test_three_members_tell_everybody_at_once() -> None:
    group = Group(3)
    wishes = group.all_want_it()
    before = group.messages()
    for _ in range(30):
        group.turn(wishes)
    assert group.messages() - before == 90


def test_who_asks_a_while_after_it_has_passed_it_on_tells_everybody() -> None:
    group, _, peer = just_passed_on()
    group.deliver()
    group.now += 2 * SUCCESSOR_KNOWN_S
    before = group.messages()
    group.ask(peer)
    assert group.messages() - before == 4


def test_what_came_too_late_for_the_successor_is_told_to_all() -> None:
    """The privilege has gone past the successor when the request reaches it, and nobody else has heard of that request."""
    group, wishes, peer = just_passed_on()
    privilege = group.under_way.popleft()
    withheld = group.ask(peer)
    (request,) = group.under_way
    group.under_way = deque([privilege])
    group.deliver()
    for _ in range(4):  # each of the others has it, and nobody asks again
        (holder,) = (each for each, ticket in wishes.items() if ticket.state == HELD)
        group.release(holder, wishes[holder])
        if wishes[holder] is wishes[request[1]]:
            group.deliver()
            group.under_way.append(request)  # now the successor hears of it
        group.deliver()
    assert withheld.state == WAITING
    core, shell = group.cores[peer], group.shells[peer]
    assert shell.reminders
    assert shell.reminders[-1] - group.now < 6 * WITHHOLD_S_PER_MEMBER
    group.now = shell.reminders[-1]
    core.on_withheld_due(group.now)
    shell.carry_out()
    group.deliver()
    assert withheld.state == HELD


def test_a_reminder_finds_what_was_granted_gone_and_one_is_enough() -> None:
    group = Group(5)
    wishes = group.all_want_it()
    for _ in range(50):
        group.turn(wishes)
    shells = group.shells.values()
    assert all(len(shell.reminders) <= 1 for shell in shells), "one is under way, however often something is held back"
    for peer, ticket in wishes.items():
        if ticket.state == WAITING:
            group.local_lock(peer).cancel(ticket, group.now)
    for _ in range(5):  # those wishes are over: the privilege goes past, and who held back has nothing to say
        for peer in group.peers:
            if wishes[peer].state == HELD:
                group.release(peer, wishes[peer])
        group.deliver()
    before = group.messages()
    for core in group.cores.values():
        core.on_withheld_due(group.now + 1.0)
    assert group.messages() == before
    assert not any(core.table.withheld_timer_set for core in group.cores.values())


def test_a_new_epoch_begins_with_nothing_held_back() -> None:
    group = Group(5)
    wishes = group.all_want_it()
    for _ in range(7):
        group.turn(wishes)
    assert any(group.local_lock(peer).withheld for peer in group.peers)
    group.learn(2, group.peers)
    assert not any(group.local_lock(peer).withheld for peer in group.peers)
    for _ in range(10):
        group.turn(wishes)


class _Told:
    def __getattr__(self, name: str) -> Any:
        return lambda *words: None


def test_in_a_trace_there_is_everything_that_the_algorithm_says() -> None:
    group = Group(5)
    told: Any = _Told()
    for core in group.cores.values():
        core.table.observers["job"] = told
    wishes = group.all_want_it()
    before = group.messages()
    for _ in range(20):
        group.turn(wishes)
    assert group.messages() - before == 100


def test_a_node_knows_how_long_it_waited_for_the_group_whoever_waits_at_home() -> None:
    group = Group(2)
    holder, other = sorted(group.peers, key=lambda peer: group.ask(peer).state != HELD)
    held = group.local_lock(holder).holder
    local_lock = group.local_lock(other)
    group.deliver()
    assert held is not None
    assert local_lock.waited == local_lock.due_at() == inf
    second = group.ask(other)
    group.now += 0.25
    group.release(holder, held)
    group.deliver()
    assert local_lock.waited == 0.25
    assert local_lock.holder is not None
    group.now += 8.0
    group.release(other, local_lock.holder)
    assert second.state == HELD, "without a message"
    assert local_lock.waited == 0.25, "nobody but the group was waited for"
    again = group.ask(holder)
    group.deliver()
    group.release(other, second)
    group.deliver()
    assert again.state == HELD
    asked_at = group.now
    group.ask(other)
    group.now += 0.125
    assert local_lock.due_at() == asked_at + 0.25


def test_where_turns_are_slow_the_others_are_told_later_and_where_they_are_very_slow_at_once() -> None:
    group = Group(5)
    wishes = group.all_want_it()

    def turns_that_take(seconds: float) -> LocalLock:
        last = group.peers[0]
        for _ in range(10):
            group.now += seconds
            last = group.turn(wishes)
        return group.local_lock(last)

    local_lock = turns_that_take(2 * WITHHOLD_S_PER_MEMBER)
    wait = 4 * 2 * WITHHOLD_S_PER_MEMBER  # for the four others
    assert abs(local_lock.withheld_until() - (group.now + 2 * wait)) < WITHHOLD_S_PER_MEMBER
    assert local_lock.withheld
    assert not turns_that_take(10 * WITHHOLD_S_PER_MEMBER).withheld
