"""The reliable channel over links that break."""

from __future__ import annotations

import random

import pytest

from peerlock.errors import ProtocolError
from peerlock.node.peer import Peer
from peerlock.node.session import EVERY, Session
from peerlock.node.wire import LENGTH, Ack, Ping, Report, framed, opened

A, B = Peer("a", 1), Peer("b", 2)


def post(session: Session, epoch: int) -> None:
    session.post(epoch, framed(Report(session.seq + 1, session.received, epoch, (A, B), ())))


def frames(data: bytes) -> list[object]:
    found: list[object] = []
    while data:
        (length,) = LENGTH.unpack_from(data)
        found.append(opened(data[LENGTH.size : LENGTH.size + length]))
        data = data[LENGTH.size + length :]
    return found


def test_what_was_not_acknowledged_is_sent_again() -> None:
    session = Session(B)
    post(session, 1)
    session.link(0)
    assert [frame.seq for frame in frames(session.drain())] == [1]  # type: ignore[attr-defined]
    post(session, 1)
    session.drain()
    session.unlink()
    session.link(1)
    assert [frame.seq for frame in frames(session.drain())] == [2]  # type: ignore[attr-defined]


def test_duplicates_are_dropped_and_acknowledgements_ride() -> None:
    session = Session(B)
    assert session.accept(1, 0)
    assert not session.accept(1, 0)
    session.link(0)
    post(session, 1)
    (report,) = frames(session.drain())
    assert report.ack == 1  # type: ignore[attr-defined]


def test_who_only_listens_acknowledges_now_and_then() -> None:
    session = Session(B)
    session.link(0)
    for seq in range(1, EVERY + 1):
        session.accept(seq, 0)
    assert frames(session.drain()) == [Ack(EVERY)]


def test_an_acknowledgement_of_what_was_never_sent_is_nonsense() -> None:
    with pytest.raises(ProtocolError, match="acknowledges message 5; only 0"):
        Session(B).on_ack(5)


def test_epochs_that_are_over_are_forgotten() -> None:
    session = Session(B)
    post(session, 1)
    post(session, 2)
    session.forget(2)
    session.link(0)
    assert [frame.epoch for frame in frames(session.drain())] == [2]  # type: ignore[attr-defined]


def test_random_breaks_lose_nothing_and_repeat_nothing() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        one, two, wire, seen = Session(B), Session(A), list[object](), list[int]()
        one.link(0)
        two.link(0)
        for number in range(60):
            post(one, number)
            wire += frames(one.drain())
            while wire and chance.random() < 0.7:
                frame = wire.pop(0)
                if isinstance(frame, Report) and two.accept(frame.seq, frame.ack):
                    seen.append(frame.epoch)
            for frame in frames(two.drain()):
                assert isinstance(frame, Ack | Ping)
                if isinstance(frame, Ack):
                    one.on_ack(frame.ack)
            if chance.random() < 0.2:  # the link breaks; the new one may know, or not, how far the other has got
                wire.clear()
                one.link(chance.choice((0, two.received)))
                wire += frames(one.drain())
        one.link(two.received)
        seen += [frame.epoch for frame in frames(one.drain()) if isinstance(frame, Report) and two.accept(frame.seq, 0)]
        assert seen == list(range(60)), seed


def test_requests_that_later_ones_supersede_are_not_kept_for_ever() -> None:
    """A stopped member is sent a request for each entry of the others. Only the last one for a lock says something."""
    session = Session(B)
    for number in range(100_000):
        session.post(1, b"", f"lock {number % 3}")
        if number % 1000 == 0:
            post(session, number)
    assert len(session.kept) < 1500
    about = [what for _, _, _, what in session.kept if what]
    assert set(about) == {"lock 0", "lock 1", "lock 2"}
    assert sum(not what for _, _, _, what in session.kept) == 100, "everything else is there"
    assert [entry[0] for entry in session.kept] == sorted(entry[0] for entry in session.kept)
