"""`peerlock bench`: measurements of the lock, as ratios within one run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from peerlock.cli.app import AsJson, app, console, print_json
from peerlock.cli.progress import progress

bench = typer.Typer(help="Measure the lock beside something comparable, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("lock")
def bench_lock(json: AsJson = False) -> None:
    """Measure the lock between real processes: entries beside asyncio.Lock, hand-overs beside bare
    messages, memory.
    """
    from rich.status import Status

    from peerlock.bench import lock

    err = Console(stderr=True)
    with Status("", console=err) as shown:
        figures = lock.measure(lambda words: shown.update(words) if err.is_terminal else None)
    if json:
        print_json(figures)
        return
    table = Table("what", "here", "beside", "ratio", "bound", title=f"event loop: {figures.loop}")
    for what, here, beside, other, ratio, bound in (
        ("uncontended entry, attached", figures.attached_us, "asyncio.Lock",
         figures.attached_us / figures.attached_over_asyncio_lock, figures.attached_over_asyncio_lock, "3.5"),
        ("uncontended entry, a member", figures.uncontended_us, "asyncio.Lock", figures.asyncio_lock_us,
         figures.uncontended_over_asyncio_lock, "2.5"),
        ("hand-over to another process", figures.handover_us, "a bare message", figures.wire_us,
         figures.handover_over_wire, "3"),
        ("the same, after 2 ms of sleep", figures.cold_handover_us, "a bare message", figures.cold_wire_us,
         figures.cold_handover_over_wire, ""),
        ("first use of a lock, 5 members", figures.first_touch_us, "a bare message", figures.wire_us,
         figures.first_touch_over_wire, ""),
    ):  # fmt: skip
        table.add_row(what, f"{here:,.2f} us", f"{beside} {other:,.2f} us", f"{ratio:.2f}", bound)
    table.add_row("a lock used once", f"{figures.bytes_a_lock:.0f} bytes", "", "", "1024")
    table.add_row("the same after collection", f"{figures.bytes_a_lock_after_collection:.1f} bytes", "", "", "0")
    console().print(table)
    console().print(f"Messages sent for the uncontended entries: {figures.uncontended_messages}.")


@bench.command("algorithms")
def bench_algorithms(
    seconds: Annotated[float, typer.Option(help="Duration of each of the three parts, per algorithm.", min=0.5)] = 3.0,
    json: AsJson = False,
) -> None:
    """Measure each algorithm that the lock can use, with five real processes and one lock."""
    from peerlock.bench import algorithms
    from peerlock.node.wire_algorithms import ON_THE_WIRE

    rows = list(progress(algorithms.lines(seconds), "algorithms", len(ON_THE_WIRE)))
    if json:
        print_json(rows)
        return
    table = Table(
        "algorithm", "entries/s", "messages", "hand-over", "99 % within", "entries/s, alone", "wait, now and then", "messages",
        title=f"{algorithms.PROCESSES} processes: all want the lock and keep it {algorithms.HOLD_US} us; one wants it; "
        f"each wants it every {algorithms.THINK_US // 1000} ms",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.algorithm, f"{row.entries_a_second:,.0f}", f"{row.messages_an_entry:.2f}", f"{row.hand_over_us:,.0f} us",
            f"{row.hand_over_99_us:,.0f} us", f"{row.alone_a_second:,.0f}", f"{row.now_and_then_us:,.0f} us",
            f"{row.now_and_then_messages:.2f}",
        )  # fmt: skip
    console().print(table)
