"""`peerlock bench`: measurements, as ratios within one run."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from peerlock.cli.app import app, console, print_json
from peerlock.cli.progress import progress

bench = typer.Typer(help="Measure, beside something else, in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("lock")
def bench_lock(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The lock between real processes: an entry beside asyncio.Lock, a hand-over beside a bare message, memory."""
    import msgspec
    from rich.status import Status

    from peerlock.bench import lock

    err = Console(stderr=True)
    with Status("", console=err) as shown:
        figures = lock.measure(lambda words: shown.update(words) if err.is_terminal else None)
    if json:
        print_json(msgspec.to_builtins(figures))
        return
    table = Table("what", "here", "beside", "ratio", "bound", title=f"event loop: {figures.loop}")

    def us(value: float) -> str:
        return f"{value:,.2f} us"

    table.add_row(
        "an entry nobody competes for", us(figures.uncontended_us), f"asyncio.Lock {us(figures.asyncio_lock_us)}",
        f"{figures.uncontended_over_asyncio_lock:.2f}", "2.5",
    )  # fmt: skip
    table.add_row(
        "hand-over to another process", us(figures.handover_us), f"a bare message {us(figures.wire_us)}",
        f"{figures.handover_over_wire:.2f}", "3",
    )  # fmt: skip
    table.add_row(
        "the same, after 2 ms of sleep", us(figures.cold_handover_us), f"a bare message {us(figures.cold_wire_us)}",
        f"{figures.cold_handover_over_wire:.2f}", "",
    )  # fmt: skip
    table.add_row(
        "first touch of a lock, 5 members", us(figures.first_touch_us), f"a bare message {us(figures.wire_us)}",
        f"{figures.first_touch_over_wire:.2f}", "",
    )  # fmt: skip
    table.add_row("a lock used once", f"{figures.bytes_a_lock:.0f} bytes", "", "", "1024")
    table.add_row("the same after collection", f"{figures.bytes_a_lock_after_collection:.1f} bytes", "", "", "0")
    console().print(table)
    console().print(f"Messages sent for the entries that nobody competed for: {figures.uncontended_messages}.")


@bench.command("algorithms")
def bench_algorithms(
    seconds: Annotated[float, typer.Option(help="For each algorithm, twice.", min=0.5)] = 3.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The algorithms that the lock can use, beside each other: five real processes and one lock."""
    import msgspec

    from peerlock.bench import algorithms
    from peerlock.node.wire_algorithms import ON_THE_WIRE

    rows = list(progress(algorithms.lines(seconds), "algorithms", len(ON_THE_WIRE)))
    if json:
        print_json(msgspec.to_builtins(rows))
        return
    table = Table(
        "algorithm", "entries/s", "messages", "hand-over", "99 % within", "entries/s, alone", "wait, now and then", "messages",
        title=f"{algorithms.PEOPLE} processes: all want the lock and keep it {algorithms.HOLD_US} us; one wants it; "
        f"each wants it every {algorithms.THINK_US // 1000} ms",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.algorithm, f"{row.entries_a_second:,.0f}", f"{row.messages_an_entry:.2f}", f"{row.hand_over_us:,.0f} us",
            f"{row.hand_over_99_us:,.0f} us", f"{row.alone_a_second:,.0f}", f"{row.now_and_then_us:,.0f} us",
            f"{row.now_and_then_messages:.2f}",
        )  # fmt: skip
    console().print(table)
