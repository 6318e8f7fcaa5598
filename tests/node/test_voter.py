"""Voters and members, one step after the other: what reviewers found, so that it stays found."""

from __future__ import annotations

from typing import Any

from peerlock.node.membership.lease import RHO, Lease, support_s
from peerlock.node.membership.view import View
from peerlock.node.peer import Peer
from peerlock.node.quorum.agent import QuorumAgent
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.messages import Heartbeat, HeartbeatAck, Promise, ViewDecided
from peerlock.node.quorum.voter import EVERYBODY, Voter, VoterRecord
from peerlock.node.quorum.voter_driver import VoterDriver
from peerlock.node.store.member import StoreMember
from peerlock.node.store.memory import MemoryStore
from peerlock.node.store.requests import Snapshot, StoredHeartbeat
from peerlock.sim.cluster import authority

A, B = Peer("a", 1), Peer("b", 2)
OLD = (("v1", ""), ("v2", ""), ("v3", ""))
NEW = (("v1", ""), ("v2", ""), ("v4", ""))


class _Ear:
    """Hears everything that is asked of a driver."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.said.append((name, *words))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [words for words in self.said if words[0] == name]


class _AgentIO(_Ear):
    def may_send_heartbeat(self) -> bool:
        return True


Ear: Any = _Ear


def voter(name: str = "v1") -> Voter:
    return Voter(name, 5.0, View(1, (A, B), OLD, 1))


def test_the_clocks_of_every_time_service_are_inside_the_promise() -> None:
    chrony, ntpd, quartz = 83_333e-6, 500e-6, 500e-6  # the largest rates of slewing by default; a bad oscillator
    assert max(chrony, ntpd) + quartz < RHO
    assert max(chrony, ntpd) + quartz < authority.WRONG_RATE, "and the simulator tries such clocks"


def test_a_lease_is_over_before_the_promise_it_rests_on() -> None:
    lease = Lease(5.0)
    number = lease.heartbeat(100.0)
    assert not lease.confirm("v1", number, 2, 100.4)
    assert lease.confirm("v2", number, 2, 100.5)
    assert lease.until == 100.0 + 5.0 * (1 - RHO)
    # The slowest clock of the member against the fastest of the voter: both began at the same time at the earliest.
    assert support_s(5.0) / (1 + RHO) >= 5.0 * (1 - RHO) / (1 - RHO)


def test_answers_that_come_too_late_are_no_lease() -> None:
    lease = Lease(5.0)
    number = lease.heartbeat(100.0)
    assert not lease.confirm("store", number, 1, 105.0)
    assert not lease.runs(105.0)


def test_the_same_voter_twice_is_no_majority() -> None:
    lease = Lease(5.0)
    number = lease.heartbeat(0.0)
    assert not lease.confirm("v1", number, 2, 0.1)
    assert not lease.confirm("v1", number, 2, 0.1)


def test_a_voter_that_was_replaced_and_comes_back_waits() -> None:
    """It learns of epoch 3 straight from epoch 1: in between it was no voter, and others have made promises."""
    mine = voter("v3")
    mine.learn(View(3, (A, B), OLD, 3), 10.0, Ear())
    assert mine.supports(A)
    mine.expire(10.0 + support_s(5.0))
    assert not mine.supports(A)


def test_a_restarted_voter_supports_every_member() -> None:
    mine = Voter.restarted("v1", 5.0, VoterRecord(View(1, (A, B), OLD, 1)), 0.0)
    assert (EVERYBODY, support_s(5.0)) in mine.supported
    assert not mine.accept(16, View(2, (A,), OLD, 1), ())
    assert mine.suspected == (B,)


def test_a_longer_lease_than_the_voters_is_refused() -> None:
    ear = Ear()
    voter().on_heartbeat(Heartbeat(1, A, 1, lease_s=10.0), 0.0, ear)
    [(_, _, ack)] = ear.of("answer")
    assert not ack.ok
    assert "they must be the same" in ack.why


def test_a_joiner_that_few_have_heard_of_is_not_admitted() -> None:
    mine = voter()
    mine.on_heartbeat(Heartbeat(1, Peer("c", 3), 1, "join", lease_s=5.0), 0.0, Ear())
    mine.propose(0.0, Ear())
    mine.receive("v2", Promise(2, mine.ballot, None, (A, B), ()), 0.0, Ear())
    assert mine.value is None
    ear = Ear()
    mine.receive("v3", Promise(2, mine.ballot, None, (A, B), (), (Peer("c", 3),)), 0.0, ear)
    assert mine.value is not None
    assert Peer("c", 3) in mine.value.members


def test_an_order_survives_other_decisions() -> None:
    mine = voter()
    mine.wanted = NEW
    mine.learn(View(2, (A,), OLD, 1), 0.0, Ear())
    assert mine.wants()
    mine.learn(View(3, (A,), NEW, 3), 0.0, Ear())
    assert not mine.wanted


def test_an_answer_to_an_earlier_incarnation_confirms_nothing() -> None:
    io: Any = _AgentIO()
    home = QuorumAgent(io, 5.0, OLD)
    home.arrive(A, 0.0)
    for at in range(5):
        home.heartbeat(float(at))
    last = home.member.lease.number
    home.arrive(B, 10.0)
    home.on_word("v1", ViewDecided(View(1, (B,), OLD, 1)), 10.0)
    for name in ("v1", "v2"):
        home.on_word(name, HeartbeatAck(last, True), 10.1)
    assert not io.of("leased")


def test_who_may_have_been_a_member_without_knowing_does_not_come_back() -> None:
    ear = Ear()
    member = QuorumMember(B, Lease(5.0), View(1, (A,), OLD, 1), "join")
    member.heartbeat(0.0, ear)
    member.learn(View(3, (A,), OLD, 1), ear)
    assert ear.of("comes_back")
    calm = Ear()
    other = QuorumMember(B, Lease(5.0), View(1, (A,), OLD, 1), "join")
    other.heartbeat(0.0, calm)
    other.learn(View(2, (A,), OLD, 1), calm)
    assert not calm.of("comes_back")


def snapshot(
    *heartbeats: StoredHeartbeat, leaving: tuple[Peer, ...] = (), members: tuple[Peer, ...] = (A, B)
) -> Snapshot:
    return Snapshot(9, 5, View(2, members, leaving=leaving, lease_s=5.0), heartbeats)


def member(me: Peer, found: Snapshot) -> StoreMember:
    made = StoreMember(me, Lease(5.0), wish="")
    made.saw(found, 0.0, Ear())
    return made


def test_what_the_dead_said_marks_nobody() -> None:
    mine = member(B, snapshot(StoredHeartbeat(1, 3, (2,)), StoredHeartbeat(2, 4)))
    assert mine.victim(0.0) == B
    assert mine.victim(100.0) is None


def test_who_is_marked_leaves_out_the_dead() -> None:
    memory = MemoryStore(snapshot(StoredHeartbeat(1, 3), StoredHeartbeat(2, 4), leaving=(B,)))
    mine, ear = member(B, memory.snapshot), Ear()
    assert not mine.maintain_view(1.0, ear)
    assert mine.maintain_view(100.0, ear)
    done, after = memory.ask(ear.of("ask")[0][1])
    assert done
    assert after.view == View(3, (B,), leaving=(), lease_s=5.0)


def test_leases_of_different_lengths_do_not_go_together() -> None:
    ear = Ear()
    StoreMember(Peer("c", 3), Lease(3.0)).saw(snapshot(), 0.0, ear)
    assert "it must be the same for all" in ear.of("refuse")[0][1]


def test_a_backup_that_was_restored_is_not_believed() -> None:
    mine, ear = member(A, snapshot(StoredHeartbeat(1, 3), StoredHeartbeat(2, 4))), Ear()
    mine.look(ear)
    mine.answered(mine.number, True, Snapshot(4, 2, View(1, (A,)), ()), 1.0, 1.0, ear)
    assert mine.view.epoch == 2
    assert "a backup was restored" in ear.of("complain")[0][1]


def test_an_incarnation_that_is_over_says_nothing_until_the_next_one_arrives() -> None:
    """Its node may hang: then the next one comes late, and meanwhile this one must not ask to be admitted again."""

    io: Any = _AgentIO()
    home = QuorumAgent(io, 5.0, OLD)
    home.arrive(B, 0.0)
    home.on_word("v1", ViewDecided(View(1, (A,), OLD, 1)), 0.0)
    home.reached(frozenset({A}), 0.1)
    assert any(message.wish == "join" for _, _, message in io.of("send"))
    home.on_word("v1", ViewDecided(View(4, (A,), OLD, 1)), 0.2)  # it may have been in 2, and excluded from 3
    assert len(io.of("new_incarnation")) == 1
    said = len(io.of("send"))
    home.reached(frozenset({A}), 0.3)
    home.on_word("v2", ViewDecided(View(5, (A,), OLD, 1)), 0.4)
    home.tick(9.0)
    assert len(io.of("send")) == said
    home.arrive(Peer("b", 3), 10.0)
    assert {message.peer.id for _, _, message in io.of("send")[said:]} == {3}


def test_a_store_is_asked_to_leave_out_only_so_many_at_once() -> None:
    """etcd takes 128 comparisons in a transaction. Who is left is excluded with the next view."""
    many = tuple(Peer(f"n{number}", number + 10) for number in range(130))
    heartbeats = tuple(StoredHeartbeat(peer.id, 2) for peer in many)
    ear = Ear()
    member = StoreMember(A, Lease(1.0), Snapshot(5, 5, View(1, tuple(sorted((A, *many)))), heartbeats), 1, wish="")
    member.saw(member.snapshot, 0.0, ear)
    assert member.maintain_view(100.0, ear)
    (_, request) = ear.of("ask")[-1]
    assert len(request.heartbeats) == len(request.without) == 50
    assert len(request.view.members) == 81


def test_a_new_voter_that_has_not_heard_of_it_is_told_by_the_gossip_of_an_old_one() -> None:
    """One that was replaced still knows the newest view; those who should decide the next may not (seed 39930)."""
    old, new = Ear(), Ear()
    knows = VoterDriver(Voter("v3", 5.0, View(7, (A, B), NEW, 7)), old, 0.0)
    waits = VoterDriver(Voter("v4", 5.0, View(0, (), ())), new, 0.0)
    knows.tick(0.0)
    (gossip,) = [words[2] for words in old.of("send") if words[1] == "v4"]
    waits.receive("v3", gossip, 0.1)
    (_, to, question) = new.of("send")[-1]
    assert to == "v3"
    knows.receive("v4", question, 0.2)
    (_, to, message) = old.of("send")[-1]
    assert to == "v4"
    waits.receive("v3", message, 0.3)
    assert waits.voter.votes_here


def test_who_left_without_having_been_let_in_is_not_remembered_for_ever() -> None:
    at, out = voter(), Ear()
    for number in range(100, 200):
        stranger = Peer("s", number)
        at.expire(0.0)
        at.on_heartbeat(Heartbeat(1, stranger, 1, "join"), 0.0, out)
        assert stranger in at.joiners
        at.on_heartbeat(Heartbeat(2, stranger, 1, "leave"), 0.0, out)
        at.on_heartbeat(Heartbeat(1, stranger, 1, "join"), 0.0, out)  # said before it left, and late
        assert stranger not in at.joiners
        at.on_heartbeat(Heartbeat(2, Peer("t", number), 1, "leave"), 0.0, out)
    at.on_heartbeat(Heartbeat(1, A, 1, "leave"), 0.0, out)
    at.expire(support_s(5.0) + 1.0)
    assert at.leavers == (A,), "a member is remembered until it is out"
    assert not at.joiners
