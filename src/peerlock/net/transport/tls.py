"""TLS: the files of a node, checked before anything is dialled, and plain words for what goes
wrong.

A node that no other node can let in says so at once: its own certificate is put through a
handshake with itself, with the same contexts that its peers meet. What is left are mistakes between
two nodes. Each end logs its own view of them: the one that refuses sends an alert (RFC 8446, 6.2),
and the other one reads it.

asyncio closes a connection whose handshake has failed without sending that alert. So the contexts
here send it themselves: they know the socket of the handshake under way (`handshake_on`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from peerlock.errors import UsageError
from peerlock.net.complaints import warn_once
from peerlock.net.transport.certificates import name_in
from peerlock.net.transport.endpoint import Endpoint, is_loopback

HANDSHAKE_S = 5.0  # for a connection that came
SHUTDOWN_S = 2.0  # for the other end to close, too
ALERT = b"\x15\x03\x03\x00\x02\x02\x46"  # what a peer without TLS can recognise: fatal, protocol version
NOT_TLS = bytes(8)  # what a peer with TLS can recognise
HELLO_OF_TLS, ALERT_OF_TLS = 0x1603, 0x1503  # the first bytes, where without TLS the length of a frame is expected
ONLY_THERE = "speaks TLS, and this node does not: give this node tls=, or none of the group"

_under_way: ContextVar[socket.socket | None] = ContextVar("_under_way", default=None)


@contextlib.contextmanager
def handshake_on(made: socket.socket) -> Iterator[None]:
    """A handshake that begins in here is that socket's."""
    token = _under_way.set(made)
    try:
        yield
    finally:
        _under_way.reset(token)


class _Telling(ssl.SSLObject):
    """A handshake that fails tells the other end why."""

    under_way: socket.socket | None = None
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.under_way is not None:
                alert(self.under_way, self.outgoing.read())
            raise
        self.under_way = None


class Context(ssl.SSLContext):
    sslobject_class = _Telling

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *words: Any, **more: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *words, **more)
        assert isinstance(made, _Telling)
        made.under_way, made.outgoing = _under_way.get(), outgoing
        return made


def alert(made: socket.socket, words: bytes) -> None:
    """The last words of a handshake. Where there are none, the other end did not speak TLS; it may
    know what these mean.
    """
    with contextlib.suppress(OSError):
        socket.socket.send(made, words or ALERT)  # past the layer of TLS, if there is one


class Tls(Struct, frozen=True):
    """Files in PEM: the authority that signed every node's certificate, this node's certificate,
    its key.
    """

    ca: str
    cert: str
    key: str


# -- our own files -----------------------------------------------------------------------------------------


def check_tls(group: str, tls: Tls | None, insecure: bool, where: Iterable[Endpoint]) -> None:
    if tls is not None or insecure:
        return
    if not all(is_loopback(endpoint.host) for endpoint in where):
        raise UsageError(
            "Nodes on several hosts talk over TLS: give tls= (ca, cert, key); `peerlock certs` makes them. "
            "With insecure=True any program that can reach the ports can take the locks."
        )
    warn_once(
        f"Without TLS every user of this host can join the group {group} as a node that is not there, and take its locks. "
        "Give tls= (`peerlock certs` makes the files), or insecure=True if all of them may."
    )


def contexts(tls: Tls, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For links that the node of that name makes, and for those that come."""
    made = tls_context(tls, server=False), tls_context(tls, server=True)
    check_own(tls, name, *made)
    return made


def tls_context(tls: Tls, server: bool) -> ssl.SSLContext:
    """Both sides show a certificate of the same authority; the name in it is checked against who it
    says to be.
    """
    made = Context(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)  # and no authority but ours
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # a node's name is no host's name; `misnamed` checks it
    made.verify_mode = ssl.CERT_REQUIRED
    load(made, tls.ca, tls.cert, tls.key)
    return made


def check_readable(ca: str | None, cert: str | None, key: str | None) -> None:
    for what, path in (("authority", ca), ("certificate", cert), ("key", key)):
        try:
            if path is not None:
                with open(path, "rb") as stream:
                    stream.read(1)
        except OSError as problem:
            raise UsageError(f"{path}, the file with the {what} for TLS, cannot be read: {problem.strerror}.") from None
        except ValueError as problem:  # a NUL character
            raise UsageError(f"{path!r} cannot be the file with the {what} for TLS: {problem}.") from None


def load(made: ssl.SSLContext, ca: str | None, cert: str | None, key: str | None) -> None:
    check_readable(ca, cert, key)
    if ca is not None:
        try:
            made.load_verify_locations(ca)
        except ssl.SSLError:
            raise UsageError(f"{ca} has no certificate of an authority in it, in PEM.") from None
    if key is not None and os.stat(key).st_mode & 0o006:
        warn_once(
            f"{key} can be read by every user of this host, who can be this node with it. Run: chmod o-rwx {shlex.quote(key)}"
        )
    if cert is not None:
        try:
            made.load_cert_chain(cert, key, _no_passphrase)
        except ssl.SSLError as problem:
            if problem.reason == "KEY_VALUES_MISMATCH":
                raise UsageError(
                    f"{key or cert} is not the key of {cert}: give the two that were made together."
                ) from None
            raise UsageError(
                f"{cert} and {key} are not a certificate and its key, in PEM: {problem.reason or problem}."
            ) from None
        except _PassphraseWanted:
            raise UsageError(
                f"{key or cert} has a passphrase, and a node has no user to type it: give a key without one."
            ) from None


class _PassphraseWanted(Exception):
    pass


def _no_passphrase() -> str:
    raise _PassphraseWanted


def check_own(tls: Tls, name: str, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """What no peer would accept, waiting does not heal."""
    try:
        shown = handshake_with_oneself(client, server)
    except ssl.SSLCertVerificationError as problem:
        known = OWN.get(problem.verify_code, "").replace("CA", tls.ca)
        raise UsageError(f"{tls.cert} {known or f'is not accepted: {problem.verify_message}'}.") from None
    except ssl.SSLError as problem:
        raise UsageError(f"{tls.cert} cannot be used for TLS: {problem.reason or problem}.") from None
    if shown != name:
        raise UsageError(
            f"{tls.cert} is the certificate of {shown}, and this node is called {name}: give the certificate of {name}, "
            f"or say with name= that this is {shown}."
        )


def handshake_with_oneself(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The name that the server shows."""
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(here, there), server.wrap_bio(there, here, server_side=True)]
    under_way = list(ends)
    while under_way:
        for end in list(under_way):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                under_way.remove(end)
    return name_in(ends[0].getpeercert())


FOREIGN = (2, 7, 18, 19, 20, 21)  # of OpenSSL's codes: no way from the certificate to an authority that we know
OWN = {
    9: "is not valid yet: look at the clock of this host, or make a new certificate",
    10: "has expired: make a new certificate, and start this node again",
    26: "may not be used for both ends of a link: it needs clientAuth and serverAuth, or no extended key usage at all",
    **dict.fromkeys(FOREIGN, "is not of the authority in CA: give the two that belong together"),
}

# -- the other end -----------------------------------------------------------------------------------------

THEIRS = {
    9: "its certificate is not valid yet, by the clock of this host",
    10: "its certificate has expired, by the clock of this host",
    26: "its certificate may not be used for that end of a link (extended key usage)",
    **dict.fromkeys(FOREIGN, "its certificate is not of this node's authority"),
}
REFUSES = "it refuses the certificate of this node"
ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{REFUSES}: expired, by its clock",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{REFUSES}: not valid yet by its clock, or damaged",
    "TLSV1_ALERT_UNKNOWN_CA": f"{REFUSES}: not of its authority",
    "TLSV1_ALERT_DECRYPT_ERROR": f"{REFUSES}: not of its authority, which has the same name",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": f"{REFUSES}: not for that end of a link (extended key usage)",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": f"{REFUSES}: revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{REFUSES}, and does not say why",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"{REFUSES}: none was shown",
}
NO_TLS = "it does not speak TLS, and this node does"
NO_VERSION = "it speaks no version of TLS that this node speaks (1.3)"
REASONS = {
    **ALERTS,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has shown no certificate",
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"), NO_TLS),
    **dict.fromkeys(("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"), NO_VERSION),
}


def reason(problem: BaseException) -> str:
    """Why a connection was not made, in plain words."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return THEIRS.get(problem.verify_code, f"its certificate is not accepted: {problem.verify_message}")
    if isinstance(problem, ssl.SSLEOFError):
        return "it has closed the connection in the middle of the handshake of TLS"
    if isinstance(problem, ssl.SSLError):
        return REASONS.get(problem.reason or "", f"TLS: {problem.reason or problem}")
    if isinstance(problem, ConnectionAbortedError):
        return "no handshake of TLS in time"
    if isinstance(problem, OSError) and problem.errno is not None and problem.errno > 0:
        return os.strerror(problem.errno)
    return str(problem) or "no answer in time"


def refuses_us(problem: BaseException | None) -> bool:
    """Has the other end said that our certificate is not good? It is who it should be, for we have
    accepted its own.
    """
    return isinstance(problem, ssl.SSLError) and problem.reason in ALERTS


__all__ = [
    "HANDSHAKE_S",
    "SHUTDOWN_S",
    "Context",
    "alert",
    "check_own",
    "contexts",
    "handshake_on",
    "load",
    "reason",
    "refuses_us",
]
