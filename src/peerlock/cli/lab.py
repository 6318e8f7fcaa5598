"""`peerlock lab`: a page to watch, step, break and share a run, and to watch a live group."""

from __future__ import annotations

import secrets
import sys
import webbrowser
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
        str, typer.Option(help="The address to listen at. Elsewhere than on loopback a token is needed.")
    ] = "127.0.0.1",
    open_: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    group: Annotated[str | None, typer.Option("-g", "--group", help="Show this group as it lives.")] = None,
    config: Annotated[str | None, typer.Option(help="A TOML file that describes the group.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Directory of a group shared between users.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Show this trace file.")] = None,
) -> None:
    """Serve the lab: runs to watch, step and break, the checker, lessons, and with --group a live group. Ends with Ctrl-C."""
    made = make_lab(group, config, directory, trace, "" if host in LOOPBACK else secrets.token_urlsafe(16))
    serve(made, host, port, "", open_)


def make_lab(
    group: str | None,
    config: str | None,
    directory: str | None,
    trace: Path | None,
    token: str,
    events: list[Any] | None = None,
) -> Any:
    try:
        from peerlock.lab.server import Lab
    except ModuleNotFoundError as problem:
        raise UsageError(f"The lab needs {problem.name}: pip install 'peerlock[lab]'.") from None
    from peerlock.lab import questions
    from peerlock.trace import read

    if trace is not None:
        events = read(trace)
    recorded = questions.recorded(events) if events is not None else None
    if group is None:
        return Lab(token=token, trace=recorded)
    from peerlock.net.client import reach
    from peerlock.net.group import gather

    settings = gather(config, dir=directory)

    def status() -> Any:
        caller = reach(group, settings)
        if caller is None:
            raise UsageError(f"No node of the group {group} runs on this host. Waiting for one …")
        try:
            return caller.call("status")
        finally:
            caller.close()

    return Lab(token=token, status=status, group=group, trace=recorded)


def watch(events: list[Any]) -> None:
    """What was recorded, in the lab."""
    made = make_lab(None, None, None, None, "", events)
    serve(made, "127.0.0.1", 0, "", True)


def serve(made: Any, host: str, port: int, fragment: str, open_page: bool) -> None:
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
    token = f"?token={made.token}" if made.token else ""
    address = f"http://{shown}:{listening.getsockname()[1]}/{token}{fragment}"
    print(f"The lab is at {address}  (Ctrl-C ends it)", flush=True)
    if open_page:
        webbrowser.open(address)
    server = uvicorn.Server(
        uvicorn.Config(made.app(), log_level="warning", ws="websockets-sansio", timeout_graceful_shutdown=1)
    )
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        print(file=sys.stderr)
    finally:
        listening.close()
