"""Put measured figures into the marked places of docs/guide/performance.md: all tables, and the sentences that go with them.

python scripts/performance_page.py out   (where `make bench-peers` has put its figures and plots)
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.peers.curves import Curves
from benchmarks.peers.drivers import ROWS
from benchmarks.peers.figures import CROWDS, Comparison
from benchmarks.peers.tables import IN_TURNS, rounds
from benchmarks.scale import KINDS, Point
from benchmarks.scale_tables import BESIDE, middle
from benchmarks.stuck import Standstill
from benchmarks.takeover import Takeover

NETWORKED = {row.name for row in ROWS if row.networked and not row.ours}
PAGE = Path(__file__).parents[1] / "docs" / "guide" / "performance.md"


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def milliseconds(seconds: list[float]) -> list[str]:
    return [f"{1000 * sorted(seconds)[len(seconds) // 2]:,.0f}", f"{1000 * max(seconds):,.0f}"]


def prose(text: str, bullet: str = "") -> str:
    """A paragraph, or an item of a list, wrapped as the rest of the page."""
    return textwrap.fill(
        text, 100, initial_indent=bullet, subsequent_indent=" " * len(bullet),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def headline(peers: Comparison) -> str:
    """Three numbers: the entry that no other process wants, the hand-over, the waiter that sleeps."""
    ours, targets = peers.rows["peerlock"], {target.words: target.value for target in peers.targets}
    networked = {name: row for name, row in peers.rows.items() if name in NETWORKED}
    quickest = min((row.uncontended_us, name) for name, row in networked.items() if row.uncontended_us)
    changes = max(
        (row.contended[3].owner_changes_a_second, name) for name, row in networked.items() if 3 in row.contended
    )
    parked = min((row.parked_us, name) for name, row in networked.items() if row.parked_us)
    times = targets["peerlock: uncontended, times as fast as the best networked peer, at least"]
    ratio = targets["peerlock: 3 processes, owner changes over the best networked peer's, at least"]
    tcp = peers.rows["peerlock, TCP"]
    like = {
        each.row: median(each.ratios)
        for each in rounds(peers)
        if each.scene == "3 processes" and each.peer == changes[1]
    }
    says = (
        f"**{number(ours.uncontended_us)} us for an uncontended entry**: to take a lock that no other process wants, and give "
        f"it back. That is {number(ours.over_asyncio_lock)} times an `asyncio.Lock`. It is {number(times)} times as fast as "
        f"{quickest[1]}, the fastest networked lock beside it ({number(quickest[0])} us).",
        f"**{number(ours.contended[3].owner_changes_a_second)} owner changes per second**, where three processes want one lock "
        f"all the time. {changes[1]}, the fastest networked lock, makes {number(changes[0])}. Measured in turns with it, this "
        f"lock makes {number(ratio)} times as many; with both over TCP, {number(like['peerlock, TCP'])} times.",
        f"**{number(ours.parked_us)} us from a release to a waiter that slept.** {parked[1]} takes {number(parked[0])} us, "
        f"this lock over TCP {number(tcp.parked_us)} us.",
    )
    return "\n".join(prose(each, "- ") for each in says)


def run(peers: Comparison, curves: Curves) -> str:
    """On what, with what, and what was not there."""
    about = dict(peers.about)
    machine = [about.pop(key, "?") for key in ("processor", "cores", "system", "Python")]
    lines = [
        f"The machine: {machine[0]}, {machine[1]} cores of a shared virtual machine; {machine[2]}; Python {machine[3]}. The "
        f"comparison is the median of {peers.runs} runs. A scene takes {peers.seconds:g} s where several processes compete, "
        "and half of that elsewhere. Curves, takeover and profile are one run. What sleeping cores cost was measured in turns, "
        "twice.",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in about.items()) + ".",
    ]
    for name, why in {**peers.skipped, **curves.skipped}.items():
        lines.append(f"Not there: {name} ({why}).")
    for name, why in peers.failed.items():
        lines.append(f"Failed in a run, and not counted in that one: {name} ({why}).")
    return "\n\n".join(map(prose, lines))


def limits(peers: Comparison, curves: Curves) -> str:
    """Where it is at its end, in the figures of this run."""
    ours = peers.rows["peerlock"].contended[5]
    fought = {each.row: each for each in rounds(peers) if each.scene == "5 processes" and each.peer in NETWORKED}
    us, ring = (fought[name] for name in ("peerlock", "peerlock, dijkstra-ring"))
    twenty = {p.algorithm: p.owner_changes_a_second for p in curves.members if p.nodes == 20}
    says = (
        f"**Five processes on two cores** send {ours.messages_an_entry:.2f} messages per entry and take "
        f"{number(ours.cpu_us_an_entry)} us of CPU time for it. In turns with {us.peer}, this lock makes "
        f"{number(median(us.mine))} changes per second, {median(us.ratios):.2f} times as many. `dijkstra-ring` has less to do "
        f"per message, and makes {median(ring.ratios):.2f} times as many.",
        f"**Twenty processes on two cores** make {number(twenty['suzuki-kasami-a'])} changes per second with the default "
        f"algorithm and {number(twenty['dijkstra-ring'])} with `dijkstra-ring`.",
        where_a_peer_is_better(peers),
        *ahead(peers),
        threads(peers),
    )
    return "\n".join(prose(each, "- ") for each in says)


def where_a_peer_is_better(peers: Comparison) -> str:
    ours, kernel, files = (peers.rows[name] for name in ("peerlock", "multiprocessing.Lock", "flock"))
    times = kernel.contended[3].owner_changes_a_second / ours.contended[3].owner_changes_a_second
    fair = [
        f"{name} {row.contended[3].fairness:.2f}"
        for name, row in peers.rows.items()
        if name in NETWORKED and 3 in row.contended and row.contended[3].fairness > ours.contended[3].fairness
    ]
    fairer = (
        f" Of three forked processes these were fairer than this lock ({ours.contended[3].fairness:.2f}): {', '.join(fair)}. A "
        "release of theirs waits for the server's answer, so the releasing process sleeps, and no process has to displace it."
        if fair
        else ""
    )
    parked = [
        f"{name} {number(row.parked_us)} us" for name, row in (("multiprocessing.Lock", kernel), ("flock", files))
    ]
    return (
        "**Where a peer is better.** On one machine, for processes that need no fairness, `multiprocessing.Lock` changes "
        f"owners {number(times)} times as often as this lock. It is a number in shared memory, and the first process to come "
        "takes it. But a holder that is killed leaves it locked for ever. `flock` costs nothing to set up, and the kernel "
        "releases it. The kernel itself wakes the waiters of both, without a message in between "
        f"({', '.join(parked)}, this lock {number(ours.parked_us)} us).{fairer}"
    )


def threads(peers: Comparison) -> str:
    """What the lock for threads is short of."""
    ours = peers.rows["peerlock, threads"]
    best = max(
        (row.contended[3].owner_changes_a_second, name)
        for name, row in peers.rows.items()
        if name in NETWORKED and 3 in row.contended
    )
    return (
        f"**Threads.** In threads an uncontended entry of this lock costs as much as {number(ours.over_asyncio_lock)} "
        "`asyncio.Lock`s, for there is a real mutex in it. Three processes change owners "
        f"{number(ours.contended[3].owner_changes_a_second)} times per second, {best[1]} {number(best[0])} times. Threads "
        "sleep at once, and each grant wakes two of them."
    )


def ahead(peers: Comparison) -> list[str]:
    """Where a networked peer has the better figure: the first touch of a name, the wait, the CPU time of the clients."""
    ours = peers.rows["peerlock"]
    networked = {name: row for name, row in peers.rows.items() if name in NETWORKED}
    said = []

    def compare(words: str, mine: float, others: dict[str, float]) -> None:
        better = [f"{name} {number(value)}" for name, value in others.items() if value < mine]
        if better:
            said.append(f"{words} (this lock {number(mine)}): {', '.join(better)}")

    compare(
        "the first touch of a name, us",
        ours.first_touch_us or 0.0,
        {name: row.first_touch_us for name, row in networked.items() if row.first_touch_us},
    )
    for of in CROWDS:
        crowds = {name: row.contended[of] for name, row in networked.items() if of in row.contended}
        # Locks that hardly ever change hands make no process wait but those that they starve.
        fair = {name: crowd for name, crowd in crowds.items() if crowd.fairness > 0.9}
        mine = ours.contended[of]
        compare(f"the wait with {of} processes, us", mine.wait_us, {name: each.wait_us for name, each in fair.items()})
        compare(
            f"CPU time of the clients with {of}, us per entry, the server's not counted",
            mine.cpu_us_an_entry,
            {name: each.cpu_us_an_entry for name, each in fair.items()},
        )
    return [f"**Networked peers with a better figure.** {each[0].upper()}{each[1:]}." for each in said]


def profile(found: dict[str, Any]) -> str:
    """What scripts/profile_handover.py has measured."""
    rows = [
        [each["name"], number(each["messages_a_second"]), number(each["user_us"]), number(each["system_us"]),
         f"{each['busy_cores']:.2f}", number(each["most_messages_a_second"])]
        for each in found["rows"]
    ]  # fmt: skip
    head = [
        "",
        "messages/s",
        "CPU us per message, program",
        "kernel",
        "cores busy",
        "messages/s if two cores were always busy",
    ]
    shares = [[f"`{name}`", f"{100 * share:.1f} %", f"{calls:.1f}"] for name, share, calls in found["profile"]]
    return (
        table(head, rows)
        + "\n\n"
        + table(["one of five processes: function", "of the time in Python's functions", "calls per entry"], shares)
    )


def duels(peers: Comparison) -> str:
    """Round by round, of all runs."""
    return table(list(IN_TURNS), [each.cells(number) for each in rounds(peers)])


def gains(found: dict[str, Any]) -> str:
    """What telling the successor first and spinning give, in turns."""
    rows = []
    for each in found["gains"]:
        changes, messages, cpu_us = each["figures"]
        whole = each["way"] == "as it is"
        rows.append(
            [
                f"{each['of']} processes" if whole else "",
                each["way"],
                number(changes),
                f"{messages:.2f}",
                number(cpu_us),
            ]
        )
    return table(["", "", "owner changes/s", "messages per change", "CPU us per change"], rows)


def after_sleep(found: dict[str, Any]) -> str:
    """The first time, the second, the last."""
    first, second, *_, last = found["after_sleep"]
    return prose(
        f"Twenty additions in Python after 2 ms of sleep: {first:.2f} us the first time, {second:.2f} us the second time, "
        f"{last:.2f} us the tenth time."
    )


def turns(found: dict[str, Any]) -> str:
    """Three processes, the first two on one core."""
    rows = []
    for name, each in found["turns"].items():
        entries = [process["entries"] for process in each]
        fairness = f"{min(entries) / max(entries):.2f}"
        rows += [
            [
                name if process is each[0] else "",
                f"{process['number'] + 1}, on core {1 if process['number'] < 2 else 2}",
                f"{process['entries']:,}",
                f"{process['displaced']:.2f}",
                f"{100 * process['overtaken']:.0f} %",
                fairness if process is each[0] else "",
            ]
            for process in each
        ]
    head = ["scheduling", "process", "entries", "displaced, times per entry", "another was in before it asked again"]
    return table([*head, "fairness"], rows)


def parts(found: dict[str, Any]) -> str:
    """Of a hand-over between two processes, each on a core of its own."""
    rows = [[name, *(number(each) for each in times)] for name, *times in found["parts"]]
    rows.append(["these together", *(number(sum(part[at] for part in found["parts"])) for at in (1, 2, 3))])
    return table(["a hand-over, us", "hot", "hot, if waiters sleep at once", "after 2 ms of sleep"], rows)


def apart(peers: Comparison) -> str:
    """Processes that were started one by one, beside those that were forked from one."""
    rows = [
        [name, *(text for of in CROWDS for text in (
            number(row.contended[of].owner_changes_a_second), number(row.apart[of].owner_changes_a_second),
            f"{row.apart[of].fairness:.2f}"))]
        for name, row in peers.rows.items()
        if all(of in row.apart for of in CROWDS)
    ]  # fmt: skip
    head = [text for of in CROWDS for text in (f"{of}: owner changes/s, forked", "one by one", "fairness, one by one")]
    return table(["", *head], rows)


def sections(peers: Comparison, curves: Curves, takeovers: list[Takeover]) -> dict[str, str]:
    found = {
        "headline": headline(peers),
        "run": run(peers, curves),
        "targets": table(
            ["target", "bound", "measured", "of each run", ""],
            [
                [
                    t.words,
                    f"{t.bound:g}",
                    number(t.value),
                    ", ".join(number(value) for value in t.of_runs),
                    "met" if t.met else "**missed**",
                ]
                for t in peers.targets
            ],
        ),
        "single": table(
            [
                "microseconds",
                "uncontended",
                "99 %",
                "x asyncio.Lock",
                "parked",
                "99 %",
                "parked, two cores",
                "x a bare message there",
                "first touch",
                "alternations/s",
            ],
            [
                [
                    name,
                    number(row.uncontended_us),
                    number(row.uncontended_99_us),
                    number(row.over_asyncio_lock),
                    number(row.parked_us),
                    number(row.parked_99_us),
                    number(row.parked_two_cores_us),
                    number(row.parked_over_bare),
                    number(row.first_touch_us),
                    number(row.alternations_a_second),
                ]
                for name, row in peers.rows.items()
            ],
        ),
        "floor": table(
            ["a bare message, one way, us", "cores", "hot", "after 2 ms of sleep"],
            [[ground.loop, ground.cores, number(ground.hot_us), number(ground.idle_us)] for ground in peers.floor],
        ),
        "members": table(
            [
                "algorithm",
                "members",
                "owner changes/s",
                "messages per change (ricart-agrawala: per entry)",
                "formula",
                "CPU us per change",
                "fairness",
            ],
            [
                [
                    p.algorithm,
                    str(p.nodes),
                    number(p.owner_changes_a_second),
                    f"{p.messages_a_change:.2f}",
                    str(p.formula),
                    number(p.cpu_us_a_change),
                    f"{p.fairness:.2f}",
                ]
                for p in curves.members
            ],
        ),
        "names": table(["names in use", "entry, us"], [[f"{n.names:,}", number(n.entry_us)] for n in curves.names]),
        "waiters": table(
            ["waiting tasks in each of two processes", "grants/s", "owner changes/s", "wait, us", "99 %"],
            [
                [
                    f"{w.waiters:,}",
                    number(w.grants_a_second),
                    number(w.owner_changes_a_second),
                    number(w.wait_us),
                    number(w.wait_99_us),
                ]
                for w in curves.waiters
            ],
        ),
        "kinds": table(
            ["three processes", "uncontended, us", "owner changes/s", "parked, us"],
            [
                [k.registry, number(k.uncontended_us), number(k.owner_changes_a_second), number(k.parked_us)]
                for k in curves.kinds
            ],
        ),
    }
    found["takeover"] = table(
        ["milliseconds", "lease", "killed: the next holder is in", "longest", "left: the next holder is in", "longest",
         "leave took", "longest"],
        [
            [each.registry, "" if each.lease_s is None else f"{1000 * each.lease_s:,.0f}", *milliseconds(each.killed),
             *milliseconds(each.left), *milliseconds(each.leaving)]
            for each in takeovers
        ],
    )  # fmt: skip
    found["limits"] = limits(peers, curves)
    for of in CROWDS:
        found[f"crowd{of}"] = table(
            [
                f"{of} processes",
                "owner changes/s",
                "grants/s",
                "wait, us",
                "99 %",
                "fairness",
                "lost updates",
                "client CPU, us per entry",
            ],
            [
                [
                    name,
                    number(each.owner_changes_a_second),
                    number(each.grants_a_second),
                    number(each.wait_us),
                    number(each.wait_99_us),
                    f"{each.fairness:.2f}",
                    f"{each.lost_updates:.0f}",
                    number(each.cpu_us_an_entry),
                ]
                for name, row in peers.rows.items()
                if (each := row.contended.get(of)) is not None
            ],
        )
    return found


def scale(points: list[Point]) -> str:
    rows = []
    for count in dict.fromkeys(point.processes for point in points):
        beside = middle(points, BESIDE, count, "changes")
        for kind in KINDS:
            if (changes := middle(points, kind, count, "changes")) is not None:
                joined, fair, cpu, memory = (middle(points, kind, count, what) for what in SCALED)
                times = number(changes / beside) if beside else ""
                rows.append(
                    [
                        str(count),
                        kind,
                        number(joined),
                        number(changes),
                        times,
                        number(fair),
                        number(cpu),
                        number(memory),
                    ]
                )
    head = [
        "processes",
        "lock",
        "all in, s",
        "owner changes/s",
        f"/ {BESIDE}",
        "fairness",
        "CPU us per change",
        "MB each",
    ]
    return table(head, rows)


SCALED = ("join_s", "fairness", "cpu_us", "memory_mb")


def stuck(rows: list[Standstill]) -> str:
    head = ["what happens, for 3 s", "processes are", "A stands still, ms", "B stands still, ms"]
    return table(head, [[row.event, row.share, f"{1000 * row.a_s:,.0f}", f"{1000 * row.b_s:,.0f}"] for row in rows])


def from_peers(place: Path) -> dict[str, str]:
    """Of `make bench-peers`."""
    if not (place / "peers.json").exists():
        return {}
    peers = msgspec.json.decode((place / "peers.json").read_bytes(), type=Comparison, strict=False)
    curves = msgspec.json.decode((place / "curves.json").read_bytes(), type=Curves)
    takeovers = msgspec.convert(msgspec.json.decode((place / "takeover.json").read_bytes())["rows"], list[Takeover])
    profiled = msgspec.json.decode((place / "profile.json").read_bytes())
    for plot in ("peers.svg", "curves.svg"):
        shutil.copy(place / plot, PAGE.parent / "img" / plot)
    return sections(peers, curves, takeovers) | {
        "profile": profile(profiled),
        "parts": parts(profiled),
        "turns": turns(profiled),
        "gains": gains(profiled),
        "after-sleep": after_sleep(profiled),
        "duels": duels(peers),
        "apart": apart(peers),
    }


def from_scale(place: Path) -> dict[str, str]:
    """Of `make bench-scale`."""
    made = {}
    if (place / "scale.json").exists():
        made["scale"] = scale(msgspec.json.decode((place / "scale.json").read_bytes(), type=list[Point]))
        shutil.copy(place / "scale.svg", PAGE.parent / "img" / "scale.svg")
    if (place / "stuck.json").exists():
        made["stuck"] = stuck(msgspec.json.decode((place / "stuck.json").read_bytes(), type=list[Standstill]))
    return made


def main(directory: str) -> None:
    text, made = PAGE.read_text(), from_peers(Path(directory)) | from_scale(Path(directory))
    for name, words in made.items():
        text, count = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m, w=words: f"{m[1]}\n{w}\n\n{m[2]}", text, flags=re.DOTALL
        )
        assert count == 1, f"{PAGE} has no place for {name}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
