"""The page's server: files, questions and their answers, and what a live group says, over a WebSocket.

On loopback unless told otherwise; elsewhere everybody who asks must have the token. It only reads: of a group it asks the
status, and nothing that somebody does on the page reaches it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from peerlock.errors import PeerlockError
from peerlock.lab import questions
from peerlock.lab.questions import Question

STATIC = Path(__file__).with_name("static")
LIVE_S = 0.5
LARGEST = 64 * 2**20  # that anybody may send: a trace file may be dropped on the page


# The page is nobody's frame, and takes nothing from elsewhere.
ALONE = {
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'",
}


class Lab:
    """What one server shows."""

    def __init__(
        self,
        *,
        token: str = "",
        status: Callable[[], Any] | None = None,
        group: str = "",
        trace: dict[str, Any] | None = None,
    ) -> None:
        self.token, self.status, self.group, self.trace = token, status, group, trace

    def app(self) -> Starlette:
        asked: dict[str, Callable[[Question], Any]] = {
            "film": questions.film, "state": questions.state, "check": questions.check,
        }  # fmt: skip
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/api/about", self.about),
                Route("/api/export", self.export, methods=["POST"]),
                Route("/api/trace", self.dropped, methods=["POST"]),
                *(Route(f"/api/{name}", self.answering(answer), methods=["POST"]) for name, answer in asked.items()),
                WebSocketRoute("/api/live", self.live),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[Middleware(_Guard, token=self.token)],
        )

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-store", **ALONE})

    async def about(self, request: Request) -> Response:
        return _json({"algorithms": questions.algorithms(), "group": self.group, "trace": self.trace})

    def answering(self, answer: Callable[[Question], Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            return await _answered(request, answer)

        return respond

    async def export(self, request: Request) -> Response:
        return await _answered(
            request, lambda question: dict(zip(("text", "name"), questions.export(question), strict=True))
        )

    async def dropped(self, request: Request) -> Response:
        """A trace file, as it was dropped on the page."""
        from peerlock import trace

        body = await _body(request)
        if body is None:
            return _json({"error": TOO_LARGE}, 413)
        return await _thought(lambda: questions.recorded(trace.parse(body, "the file")))

    async def live(self, socket: WebSocket) -> None:
        await socket.accept()
        if self.status is None:
            await socket.send_json({"error": "This lab shows no group: start it with peerlock lab --group NAME."})
            await socket.close()
            return
        try:
            while True:
                try:
                    found = await asyncio.to_thread(self.status)
                    await socket.send_text(msgspec.json.encode({"status": found}).decode())
                except PeerlockError as problem:
                    await socket.send_json({"error": str(problem)})
                await asyncio.sleep(LIVE_S)
        except (WebSocketDisconnect, RuntimeError):
            pass


async def _answered(request: Request, answer: Callable[[Question], Any]) -> Response:
    body = await _body(request)
    if body is None:
        return _json({"error": TOO_LARGE}, 413)
    try:
        question = msgspec.json.decode(body, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return _json({"error": f"The page asked what the server does not understand: {problem}."}, 400)
    return await _thought(lambda: answer(question))


TOO_LARGE = f"The lab takes {LARGEST // 2**20} MB at most."


async def _body(request: Request) -> bytes | None:
    """What was sent; None: too much."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            return None
    return bytes(body)


async def _thought(answer: Callable[[], Any]) -> Response:
    """An answer that takes a while, or a sentence: also for what should not have happened."""

    def found() -> Response:
        try:
            return _json(answer())
        except PeerlockError as problem:
            return _json({"error": in_the_page(str(problem))}, 400)
        except Exception as problem:
            traceback.print_exc()
            return _json(
                {"error": f"The lab has failed ({problem!r}). Its terminal says where; please report it."}, 500
            )

    return await asyncio.to_thread(found)


# What the command line calls otherwise.
_WORDS = {
    "--topology": "network", "-n": "nodes", "--nodes": "nodes", "--fifo": "“in order”", "--delay": "delays",
    "--load": "work", "--entries": "entries", "--seed": "seed", "--as-printed": "“as printed”",
}  # fmt: skip


def in_the_page(sentence: str) -> str:
    """The same sentence for somebody who has a form before him, and no options."""
    return re.sub(r"(?<![\w-])--?[a-z][a-z-]*", lambda found: _WORDS.get(found[0], found[0]), sentence)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class _Guard:
    """Who comes with a wrong token, or from a page of another site, gets a sentence."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        why = self.refuses(scope) if scope["type"] in ("http", "websocket") else ""
        if not why:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            said = Response(why, 403, media_type="text/plain") if scope["path"] == "/" else _json({"error": why}, 403)
            await said(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4403, "reason": why[:120]})

    def refuses(self, scope: Any) -> str:
        headers = {key.decode().lower(): value.decode("latin-1") for key, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return f"A page of {origin} may not ask this lab."
        if self.token and scope.get("path", "").startswith("/static/"):
            return ""  # nothing in there is anybody's
        if not self.token:
            # A name that somebody else has made point here: only the ones that mean this machine are ours.
            name = host.rpartition(":")[0].strip("[]") or host
            return "" if name in ("localhost", "127.0.0.1", "::1") else f"This lab is not called {host}."
        query = dict(part.partition("=")[::2] for part in scope.get("query_string", b"").decode("latin-1").split("&"))
        cookies = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
        given = query.get("token") or headers.get("x-token") or cookies.get("token") or ""
        if hmac.compare_digest(given.encode(), self.token.encode()):
            return ""
        return "A token is needed: open the address that peerlock lab has printed."
