"""The page's server: files, questions and their answers, and the status of a live group.

It listens on loopback unless told otherwise. Other users of this machine reach loopback, too, so
every question must come with the token, which is in the address that the command prints. The page
keeps it for its own origin. A cookie would not do: it goes to all ports of a host. The page and its
files are no secret, so an address that another page links to opens without the token.

A file of Python code is run only after the user has agreed to it: named it on the command line or
in the form, or said yes to the page's question. The list of these files is kept here, where no
address can change it.

The lab only reads: it asks a group for its status, and nothing that is done on the page reaches it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from peerlock.errors import PeerlockError
from peerlock.lab import api as questions
from peerlock.lab.answers import Question, Shown
from peerlock.user_algorithm import file_of, source

T = TypeVar("T")
Json: TypeAlias = Mapping[str, object]  # an answer: one JSON object
STATIC = Path(__file__).with_name("static")
LIVE_S = 0.5
LARGEST = 64 * 2**20  # bytes of a request: a trace file may be dropped on the page

# The page cannot be framed, and loads nothing from elsewhere.
ALONE = {
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'",
}


class Agreement(Struct, frozen=True, forbid_unknown_fields=True):
    file: str  # and class, as in an experiment


class NotAgreed(Exception):
    """Code that the user has not agreed to."""


class Lab:
    """What one server shows."""

    def __init__(
        self,
        *,
        names: Collection[str] = (),
        status: Callable[[], Json] | None = None,
        group: str = "",
        trace: Shown | None = None,
        agreed: Iterable[str] = (),
    ) -> None:
        """`names`: of the server; none: any. `agreed`: algorithms whose files may be run."""
        self.token = secrets.token_urlsafe(24)
        self.names, self.status, self.group, self.trace = names, status, group, trace
        self.agreed: set[Path] = set()
        for name in agreed:
            if file_of(name) is not None:
                self.agree(name)

    def app(self) -> Starlette:
        asked: dict[str, Callable[[Question], Json]] = {
            "film": questions.film, "state": questions.state, "check": questions.check, "export": questions.export,
        }  # fmt: skip
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/api/about", self.about),
                Route("/api/agree", self.agreeing, methods=["POST"]),
                Route("/api/trace", self.dropped, methods=["POST"]),
                *(Route(f"/api/{name}", self.answering(answer), methods=["POST"]) for name, answer in asked.items()),
                WebSocketRoute("/api/live", self.live),
                Mount("/static", StaticFiles(directory=STATIC)),
            ],
            middleware=[Middleware(_Guard, token=self.token, names=self.names)],
        )

    async def page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-store", **ALONE})

    async def about(self, request: Request) -> Response:
        return _json({"algorithms": questions.algorithms(), "group": self.group, "trace": self.trace})

    # -- code of the user's own --------------------------------------------------------------------

    def agree(self, name: str) -> Path:
        """From now on the file that is part of this name may be run."""
        file = source(file_of(name) or "").resolve()
        self.agreed.add(file)
        return file

    def check_agreed(self, name: str) -> None:
        path = file_of(name)
        if path is not None and (file := source(path).resolve()) not in self.agreed:
            raise NotAgreed(f"{file} is Python code. Run it only if you know what it does.", name)

    async def agreeing(self, request: Request) -> Response:
        return await _answered(request, Agreement, lambda about: {"agreed": str(self.agree(about.file))})

    def answering(self, answer: Callable[[Question], Json]) -> Callable[[Request], Awaitable[Response]]:
        def checked(question: Question) -> Json:
            self.check_agreed(questions.plan_of(question).experiment.algorithm)
            return answer(question)

        async def respond(request: Request) -> Response:
            return await _answered(request, Question, checked)

        return respond

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


async def _answered(request: Request, form: type[T], answer: Callable[[T], Json]) -> Response:
    body = await _body(request)
    if body is None:
        return _json({"error": TOO_LARGE}, 413)
    try:
        question = msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return _json({"error": f"The page asked what the server does not understand: {problem}."}, 400)
    return await _thought(lambda: answer(question))


TOO_LARGE = f"The lab takes {LARGEST // 2**20} MB at most."


async def _body(request: Request) -> bytes | None:
    """The body of a request; None: it is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            return None
    return bytes(body)


async def _thought(answer: Callable[[], Json]) -> Response:
    """An answer that takes a while, or a sentence about what is wrong, also with the lab itself."""

    def found() -> Response:
        try:
            return _json(answer())
        except NotAgreed as problem:
            why, name = problem.args
            return _json({"error": why, "agree": name}, 403)
        except PeerlockError as problem:
            return _json({"error": in_the_page(str(problem))}, 400)
        except Exception as problem:
            traceback.print_exc()
            return _json(
                {"error": f"The lab has failed ({problem!r}). Its terminal says where; please report it."}, 500
            )

    return await asyncio.to_thread(found)


# The page's words for options of the command line.
_WORDS = {
    "--topology": "network", "-n": "nodes", "--nodes": "nodes", "--fifo": "“in order”", "--delay": "delays",
    "--load": "work", "--entries": "entries", "--seed": "seed", "--as-printed": "“as printed”",
}  # fmt: skip


def in_the_page(sentence: str) -> str:
    """The same sentence for a user with a form instead of options."""
    return re.sub(r"(?<![\w-])--?[a-z][a-z-]*", lambda found: _WORDS.get(found[0], found[0]), sentence)


def _json(value: Json, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


class _Guard:
    """A question without the token, or from a page of another site, gets a sentence."""

    def __init__(self, app: ASGIApp, token: str, names: Collection[str]) -> None:
        self.app, self.token, self.names = app, token, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self.refuses(scope) if scope["type"] in ("http", "websocket") else ""
        if not why:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            said = Response(why, 403, media_type="text/plain") if scope["path"] == "/" else _json({"error": why}, 403)
            await said(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 4403, "reason": why[:120]})

    def refuses(self, scope: Scope) -> str:
        headers = {key.decode().lower(): value.decode("latin-1") for key, value in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        # Another name may have been made to point here by a page of another site.
        if self.names and _name(host) not in self.names:
            return f"This lab is not called {host}."
        if origin is not None and origin.partition("://")[2] != host:
            return f"A page of {origin} may not ask this lab."
        path = scope["path"]
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("token")
        if path.startswith("/static/") or (path == "/" and query is None):
            return ""  # nothing in there is a secret
        # A browser's WebSocket has no headers of its own. Other questions keep the token out of the
        # address.
        by_address = path == "/" or scope["type"] == "websocket"
        given = (query or [""])[0] if by_address else headers.get("x-token", "")
        if hmac.compare_digest(given.encode(), self.token.encode()):
            return ""
        return "A token is needed: open the address that peerlock lab has printed."


def _name(host: str) -> str | None:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
