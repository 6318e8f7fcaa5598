"""`peerlock lab`: a page to watch, step, break and share a run, and to watch a live group."""

from __future__ import annotations

import contextlib
import html
import shutil
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peerlock.cli.app import app
from peerlock.cli.group_options import Config, Directory
from peerlock.errors import UsageError
from peerlock.trace import Event, read

if TYPE_CHECKING:
    from peerlock.lab.server import Lab

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.command()
def lab(
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any free port.", min=0, max=65535)] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    group: Annotated[str | None, typer.Option("-g", "--group", help="Show this running group.")] = None,
    config: Config = None,
    directory: Directory = None,
    trace: Annotated[Path | None, typer.Option(help="Show this trace file.")] = None,
) -> None:
    """Serve a page to watch, step and break runs, with the checker and lessons. Ends with Ctrl-C.

    The printed address contains a token. The page opens only with it.
    """
    events = read(trace) if trace is not None else None
    serve(make_lab(group, config, directory, events, names=_names(host)), host, port, open_)


def _names(host: str) -> Collection[str]:
    """The names that a lab on loopback answers to. None: any, since elsewhere the machine may have
    any name.
    """
    try:
        on_loopback = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        on_loopback = False
    return {*LOOPBACK, host} if on_loopback else ()


def make_lab(
    group: str | None,
    config: str | None,
    directory: str | None,
    events: list[Event] | None,
    *,
    names: Collection[str] = LOOPBACK,
    agreed: Iterable[str] = (),
) -> Lab:
    try:
        from peerlock.lab.server import Lab
    except ModuleNotFoundError as problem:
        raise UsageError(f"The lab needs {problem.name}: pip install 'peerlock[lab]'.") from None
    from peerlock.lab import api as questions

    recorded = questions.recorded(events) if events is not None else None
    if group is None:
        return Lab(names=names, trace=recorded, agreed=agreed)
    from peerlock.net.control.client import reach
    from peerlock.net.control.status import NodeStatus
    from peerlock.net.settings import gather

    settings = gather(config, needs_tls=False, dir=directory)

    def status() -> dict[str, object]:
        caller = reach(group, settings)
        if caller is None:
            raise UsageError(f"No node of the group {group} runs on this host. Waiting for one …")
        with contextlib.closing(caller):
            return dict(msgspec.to_builtins(msgspec.convert(caller.call("status"), NodeStatus)))

    return Lab(names=names, status=status, group=group, trace=recorded, agreed=agreed)


def watch(events: list[Event], finding: str = "", agreed: Iterable[str] = ()) -> None:
    """Show a recorded run in the lab. `finding` says what is wrong with it; the user has agreed to
    run `agreed`.
    """
    made = make_lab(None, None, None, events, agreed=agreed)
    assert made.trace is not None
    made.trace["finding"] = finding
    serve(made, "127.0.0.1", 0, True)


def serve(made: Lab, host: str, port: int, open_page: bool) -> None:
    import socket

    import uvicorn

    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(64)  # from now on a browser that opens the address waits for the server
    except OSError as problem:
        listening.close()
        why = f"The lab cannot listen at {host}:{port}: {problem.strerror}."
        raise UsageError(f"{why} Give another --port, or 0.") from None
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={made.token}"
    print(f"The lab is at {address}  (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(made.app(), log_level="warning", ws="websockets-sansio", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the opened page is removed
    try:
        with _opened(address) if open_page else contextlib.nullcontext():
            server.run(sockets=[listening])
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        listening.close()


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open an address in a browser. The command line of a process is public, so the token goes into
    a file instead.
    """
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
