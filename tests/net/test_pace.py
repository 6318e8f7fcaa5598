"""Turns that a node misses: when it does something about it, and when not."""

from __future__ import annotations

from peerlock.net.pace import DISPLACED_S, LATE_S, Pace
from peerlock.node.table import Desk
from peerlock.node.wire import spoken


def test_turns_that_were_missed_are_counted_and_forgiven() -> None:
    pace, desk = Pace(), Desk("x", spoken("suzuki-kasami-a"), None)  # type: ignore[arg-type]
    now = 0.0

    def round_of(grants: int, late: float = 0.0, took: float = 2 * DISPLACED_S) -> bool:
        """We ask again, are granted it as the last of so many grants, and give it away."""
        nonlocal now
        now += late
        pace.asked(now)
        desk.clock += grants
        now += 1.0
        pace.gave(desk, 3, now, now + took)
        now += took
        return pace.together

    assert not any(round_of(3) for _ in range(1000)), "everybody once"
    assert not any(round_of(grants) for _ in range(1000) for grants in (2, 4)), (
        "now and then one is missed, or one more had"
    )
    assert not any(round_of(50, late=LATE_S / 2) for _ in range(100)), "who asks late has itself to thank for it"
    assert not any(round_of(50, took=DISPLACED_S / 2) for _ in range(100)), "others have several tasks that want it"
    assert not any(round_of(0) for _ in range(100)), "a new epoch counts anew"
    assert not round_of(50), "one turn is missed at a time"

    def rounds_until_together() -> int:
        return next(count for count in range(1, 1000) if round_of(4))

    assert rounds_until_together() < 20, "one turn missed in each"
    assert [round_of(3) for _ in range(1000)].count(True) > 10, "it goes on for a while"
    assert not round_of(3), "and ends"

    found = []
    for _ in range(5):
        found.append(rounds_until_together())
        round_of(3, late=2 * LATE_S)
        assert not pace.together, "a release has waited in vain"
    assert found[4] > 8 * found[0], "so it is tried less and less"
    rounds_until_together()
    assert all(round_of(4) for _ in range(100_000))
    round_of(3, late=2 * LATE_S)
    assert rounds_until_together() <= 2 * found[0] + 2, "until it has done well for long"

    rounds_until_together()
    other = Desk("y", spoken("suzuki-kasami-a"), None)  # type: ignore[arg-type]
    pace.gave(other, 3, now, now)
    assert not pace.together, "what was missed was missed with the other lock"
