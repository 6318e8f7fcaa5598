"""`peerlock lab`: a page to watch, step, break and share a run, and to watch a live group."""

from __future__ import annotations

import html
import shutil
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer

from peerlock.cli.app import app
from peerlock.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.command()
def lab(
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="The address to listen at. The page needs the token in the printed address.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    group: Annotated[str | None, typer.Option("-g", "--group", help="Show this group as it lives.")] = None,
    config: Annotated[str | None, typer.Option(help="A TOML file that describes the group.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Directory of a group shared between users.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Show this trace file.")] = None,
) -> None:
    """Serve the lab: runs to watch, step and break, the checker, lessons, and with --group a live group. Ends with Ctrl-C."""
    made = make_lab(group, config, directory, trace, names=_names(host))
    serve(made, host, port, open_)


def _names(host: str) -> Collection[str]:
    """What a lab on loopback may be called; none: elsewhere the machine may have any name."""
    try:
        on_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        on_loopback = False
    return {*LOOPBACK, host} if on_loopback else ()


def make_lab(
    group: str | None,
    config: str | None,
    directory: str | None,
    trace: Path | None,
    events: list[Any] | None = None,
    *,
    names: Collection[str] = LOOPBACK,
    agreed: Iterable[str] = (),
) -> Any:
    try:
        from peerlock.lab.server import Lab
    except ModuleNotFoundError as problem:
        raise UsageError(f"The lab needs {problem.name}: pip install 'peerlock[lab]'.") from None
    from peerlock.lab import api as questions
    from peerlock.trace import read

    if trace is not None:
        events = read(trace)
    recorded = questions.recorded(events) if events is not None else None
    if group is None:
        return Lab(names=names, trace=recorded, agreed=agreed)
    from peerlock.net.control.client import reach
    from peerlock.net.settings import gather

    settings = gather(config, dir=directory)

    def status() -> Any:
        caller = reach(group, settings)
        if caller is None:
            raise UsageError(f"No node of the group {group} runs on this host. Waiting for one …")
        try:
            return caller.call("status")
        finally:
            caller.close()

    return Lab(names=names, status=status, group=group, trace=recorded, agreed=agreed)


def watch(events: list[Any], finding: str = "", agreed: Iterable[str] = ()) -> None:
    """What was recorded, in the lab; `finding` says what is wrong with it, `agreed` whose code the user has named."""
    made = make_lab(None, None, None, None, events, agreed=agreed)
    made.trace["finding"] = finding
    serve(made, "127.0.0.1", 0, True)


def serve(made: Any, host: str, port: int, open_page: bool) -> None:
    import socket

    import uvicorn

    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)  # from now on whoever opens the address is served, sooner or later
    except OSError as problem:
        listening.close()
        raise UsageError(
            f"The lab cannot listen at {host}:{port}: {problem.strerror}. Give another --port, or 0."
        ) from None
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={made.token}"
    print(f"The lab is at {address}  (Ctrl-C ends it)", flush=True)
    server = uvicorn.Server(
        uvicorn.Config(made.app(), log_level="warning", ws="websockets-sansio", timeout_graceful_shutdown=1)
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and what was opened is removed
    try:
        with _opened(address) if open_page else nullcontext():
            server.run(sockets=[listening])
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        listening.close()


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open an address in a browser. All users see the words that start a process, so the token is in a file instead."""
    folder = Path(tempfile.mkdtemp(prefix="peerlock-lab-"))  # for this user alone
    quoted = html.escape(address)
    page = folder / "open.html"
    page.write_text(
        "<!doctype html><meta charset=utf-8><title>peerlock lab</title>"
        f'<meta http-equiv="refresh" content="0; url={quoted}"><p><a href="{quoted}">Open the lab</a></p>\n'
    )
    try:
        webbrowser.open(page.as_uri())
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
