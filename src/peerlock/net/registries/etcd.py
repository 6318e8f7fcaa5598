"""The registry of a group whose views are kept in etcd.

All that is thought about is in `peerlock.node.store.requests`. This carries its requests through
etcd's JSON gateway, each as one transaction, whose both branches end with a read of everything
under the group's prefix: so every answer is a snapshot.

    PREFIX/GROUP/view           the newest view
    PREFIX/GROUP/heartbeat/ID   the heartbeats

Several endpoints are tried in turn: the one that answered last first. A request that was not
answered is not repeated: whether it was carried out is not known, and the agent knows what to do
then. A watch on the view tells of changes at once; if it is broken, the next heartbeat tells.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from peerlock.errors import RegistryError, UsageError
from peerlock.net.complaints import warn_once
from peerlock.net.registries.leased import AgentShell, LeasedRegistry
from peerlock.net.transport.endpoint import is_loopback, parse_address
from peerlock.net.transport.tls import check_readable, load, reason, refuses_us
from peerlock.node.membership.view import View
from peerlock.node.store.agent import StoreAgent
from peerlock.node.store.requests import Look, Renew, Request, Snapshot, StoredHeartbeat, Swap

PREFIX = "/peerlock"
STALE_TOKEN = ("revision of auth store is old", "invalid auth token")  # users were changed, and tokens are void
ANSWER_S = 1.0  # a request that takes longer is given up
WATCH_AGAIN_S = 0.3  # after a watch that failed


class Etcd(Struct, frozen=True, forbid_unknown_fields=True):
    """Where etcd is, and as which user it knows us."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    prefix: str = PREFIX


class Store(Protocol):
    """What a store must be able to do: a file for each kind of store."""

    name: str

    async def ask(self, request: Request) -> tuple[bool, Snapshot]:
        """Carry that out as one transaction. What is there right after it. `OSError` or
        `TimeoutError`: that is not known.
        """
        ...

    async def watch(self) -> None:
        """Return when the view may have changed."""
        ...

    async def close(self) -> None: ...


class EtcdStore:
    def __init__(self, group: str, etcd: Etcd, source: str | None = None) -> None:
        self.source = source
        self.etcd, self.name = etcd, "etcd"
        self.base = f"{etcd.prefix.rstrip('/')}/{group}/"
        self.endpoints = list(etcd.endpoints)
        self.token: str | None = None
        self.session: Any = None
        self.tls = _context(etcd)

    # -- HTTP ----------------------------------------------------------------------------------------------

    async def _session(self) -> Any:
        if self.session is None:
            try:
                import aiohttp
            except ModuleNotFoundError:
                raise RegistryError("A group in etcd needs aiohttp: pip install 'peerlock[etcd]'.") from None
            local = (self.source, 0) if self.source is not None else None
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=local))
        return self.session

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """To the first endpoint that can be connected to. Once something was sent, there is no
        second try.
        """
        session = await self._session()
        import aiohttp

        problem = ""
        for _ in range(len(self.endpoints)):
            endpoint = self.endpoints[0]
            try:
                if self.etcd.user is not None and self.token is None and path != "/auth/authenticate":
                    await self._authenticate()
                headers = {"Authorization": self.token} if self.token else {}
                async with session.post(
                    f"{endpoint}/v3{path}", json=body, headers=headers, ssl=self.tls,
                    timeout=aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=ANSWER_S / 2),
                ) as answer:  # fmt: skip
                    found: Any = await answer.json(content_type=None)
                    if not isinstance(found, dict):
                        raise ValueError(f"{answer.status} {answer.reason}, and no JSON object")
                    error = str(found.get("error", ""))
                    if answer.status == 401 or found.get("code") == 16 or any(words in error for words in STALE_TOKEN):
                        self.token = None  # it has run out
                        raise OSError(f"{endpoint}: {error or 'not allowed'}")
                    if "authentication failed" in error:
                        raise RegistryError(
                            f"etcd at {endpoint} does not know the user {self.etcd.user!r} with that password"
                        )
                    if "user name is empty" in error:
                        raise RegistryError(f"etcd at {endpoint} wants a user and a password: set them under etcd")
                    if found.get("code") == 7 or "permission denied" in error:
                        raise RegistryError(
                            f"etcd at {endpoint} does not let the user {self.etcd.user!r} use the keys under {self.base}: "
                            "give it a role that may read and write them"
                        )
                    if answer.status != 200:
                        self._next(endpoint)
                        raise OSError(f"{endpoint}: {found.get('error', answer.status)}")
                    return found
            except aiohttp.ClientConnectorCertificateError as why:
                raise RegistryError(
                    f"the certificate of etcd at {endpoint} is not signed by the authority in {self.etcd.ca or 'the system'}, "
                    f"or is for another name: {why.certificate_error}"
                ) from None
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as why:
                self._next(endpoint)
                problem = self._why(endpoint, why)
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, ValueError) as why:
                if refuses_us(why.__cause__):
                    raise RegistryError(
                        f"etcd at {endpoint} refuses {self.etcd.cert or 'a client without a certificate'}: give cert and key "
                        "under etcd that are of its authority for clients and have not expired"
                    ) from None
                self._next(endpoint)
                raise OSError(self._why(endpoint, why)) from None
        raise OSError(f"{problem}, and so none of {', '.join(self.endpoints)} is reached")

    def _why(self, endpoint: str, problem: Exception) -> str:
        import aiohttp

        cause = getattr(problem, "os_error", problem)
        if isinstance(cause, ConnectionResetError) and endpoint.startswith("https"):
            return f"{endpoint}: it has closed the connection in the middle of the handshake: does it speak TLS?"
        if isinstance(problem, aiohttp.ServerDisconnectedError) and not endpoint.startswith("https"):
            return f"{endpoint}: it has closed the connection without an answer: does it want https?"
        return f"{endpoint}: {reason(cause)}"

    def _next(self, failed: str) -> None:
        """Another endpoint first, unless some other request has seen to that."""
        if self.endpoints[0] == failed:
            self.endpoints.append(self.endpoints.pop(0))

    async def _authenticate(self) -> None:
        found = await self.post("/auth/authenticate", {"name": self.etcd.user, "password": self.etcd.password})
        self.token = found.get("token")

    # -- requests as transactions --------------------------------------------------------------------------

    async def ask(self, request: Request) -> tuple[bool, Snapshot]:
        compare: list[dict[str, Any]] = []
        success: list[dict[str, Any]] = []
        match request:
            case Renew(_, revision, who, apart):
                compare.append(_is("view", revision, self.base))
                success.append(self._put(f"heartbeat/{who:x}", msgspec.json.encode(apart)))
            case Swap(_, revision, heartbeats, view, heartbeat, without):
                compare.append(_is("view", revision, self.base))
                compare += [_is(f"heartbeat/{who:x}", seen, self.base) for who, seen in heartbeats]
                success.append(self._put("view", msgspec.json.encode(view)))
                success += [{"request_delete_range": {"key": _64(f"{self.base}heartbeat/{who:x}")}} for who in without]
                success += [self._put(f"heartbeat/{heartbeat:x}", b"[]")] if heartbeat else []
            case Look():
                pass
        everything = {"request_range": {"key": _64(self.base), "range_end": _64(self.base[:-1] + "0")}}
        found = await self.post(
            "/kv/txn", {"compare": compare, "success": [*success, everything], "failure": [everything]}
        )
        try:
            return bool(found.get("succeeded")), self._snapshot(found)
        except (KeyError, ValueError, IndexError, msgspec.DecodeError) as problem:
            raise OSError(f"etcd answers what makes no sense under {self.base}: {problem!r}") from None

    def _put(self, key: str, value: bytes) -> dict[str, Any]:
        return {"request_put": {"key": _64(self.base + key), "value": base64.b64encode(value).decode()}}

    def _snapshot(self, found: dict[str, Any]) -> Snapshot:
        revision, view, heartbeats = 0, None, []
        for pair in found["responses"][-1]["response_range"].get("kvs", ()):
            key = base64.b64decode(pair["key"]).decode().removeprefix(self.base)
            value, written = base64.b64decode(pair.get("value", "")), int(pair["mod_revision"])
            if key == "view":
                revision, view = written, msgspec.json.decode(value, type=View)
            elif key.startswith("heartbeat/"):
                heartbeats.append(
                    StoredHeartbeat(
                        int(key.removeprefix("heartbeat/"), 16),
                        written,
                        msgspec.json.decode(value, type=tuple[int, ...]),
                    )
                )
        return Snapshot(
            int(found["header"]["revision"]),
            revision,
            view,
            tuple(sorted(heartbeats, key=lambda heartbeat: heartbeat.id)),
        )

    async def watch(self) -> None:
        session = await self._session()
        import aiohttp

        endpoint = self.endpoints[0]
        headers = {"Authorization": self.token} if self.token else {}
        body = {"create_request": {"key": _64(f"{self.base}view")}}
        try:
            async with session.post(
                f"{endpoint}/v3/watch", json=body, headers=headers, ssl=self.tls,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S),
            ) as answer:  # fmt: skip
                async for line in answer.content:
                    if b'"events"' in line:
                        return
        except (aiohttp.ClientError, TimeoutError, RuntimeError, ValueError) as problem:
            raise OSError(str(problem)) from None
        raise OSError("the watch has ended")

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()


def _64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _is(key: str, revision: int, base: str) -> dict[str, Any]:
    return {"key": _64(base + key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def _context(etcd: Etcd) -> Any:
    if not any(endpoint.startswith("https") for endpoint in etcd.endpoints):
        return False
    try:
        check_readable(etcd.ca, etcd.cert, etcd.key)
        made = ssl.create_default_context(cafile=etcd.ca)
        load(made, None, etcd.cert, etcd.key)
    except (UsageError, OSError, ValueError) as problem:
        raise UsageError(f"The certificates for etcd cannot be used: {problem}") from None
    return made


class StoreRegistry(LeasedRegistry[StoreAgent]):
    """A member's registry, whatever the store."""

    kind = "store"
    store: Store

    def make_agent(self, shell: AgentShell) -> StoreAgent:
        return StoreAgent(shell, self.lease_s, self.store.name)

    def begin(self) -> None:
        self.heartbeat_thread.at_end.append(self.store.close)
        self.heartbeat_thread.spawn(self._watch())

    async def _watch(self) -> None:
        while True:
            try:
                await self.store.watch()
            except OSError:
                await asyncio.sleep(WATCH_AGAIN_S)
            except RegistryError as problem:
                self.agent.refuse(str(problem))
                return
            self.agent.heartbeat_at = 0.0
            if self.agent.started:
                self.agent.tick(self.clock())

    def ask(self, request: Request) -> None:
        self.heartbeat_thread.spawn(self._ask(request, self.me))

    async def _ask(self, request: Request, me: Any) -> None:
        try:
            done, snapshot = await self.store.ask(request)
        except (OSError, TimeoutError) as problem:
            self.agent.complain(f"{self.store.name} does not answer: {problem}")
            return
        except RegistryError as problem:
            self.agent.refuse(str(problem))
            return
        if me == self.agent.me:
            self.agent.answered(request.number, done, snapshot, self.clock())


class EtcdRegistry(StoreRegistry):
    kind = "etcd"

    def __init__(self, group: str, etcd: Etcd, name: str | None = None, **rest: Any) -> None:
        where = []
        for endpoint in etcd.endpoints:
            scheme, _, address = endpoint.partition("://")
            if scheme not in ("http", "https") or not address:
                raise UsageError(f"An endpoint of etcd is http://HOST:PORT or https://HOST:PORT; got {endpoint!r}.")
            where.append(parse_address("etcd", address.rstrip("/")))
            if scheme == "http" and not is_loopback(where[-1].host) and not rest.get("insecure"):
                warn_once(
                    f"{endpoint} is asked without TLS: any program on the way to etcd can change the group {group}"
                    f"{' and read its password' if etcd.password else ''}. Write https://, with ca = under etcd."
                )
        if not where:
            raise UsageError('Say where etcd is: endpoints = ["http://HOST:PORT", ...].')
        self.store = EtcdStore(group, etcd, rest.get("bind"))
        super().__init__(group, name, where=where, **rest)


__all__ = ["Etcd", "EtcdRegistry", "EtcdStore", "Store", "StoreRegistry"]
