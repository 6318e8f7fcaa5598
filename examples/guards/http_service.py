"""An HTTP service that refuses a late holder: it remembers the largest fence that it has seen.

A caller sends the fence of its hold with each request, even when it only reads. From then on, the
service refuses every earlier holder: the answer to a smaller fence is 409. The comparison and the
change are under one mutex of the service, so no other request comes in between.

    python examples/guards/http_service.py
"""

from __future__ import annotations

import asyncio
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import peerlock
from peerlock.errors import StaleFence


class Service(ThreadingHTTPServer):
    """Keeps one value."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.mutex = threading.Lock()
        self.fence, self.value = 0, b""


class Handler(BaseHTTPRequestHandler):
    @property
    def service(self) -> Service:
        assert isinstance(self.server, Service)
        return self.server

    def do_PUT(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def do_GET(self) -> None:
        self.answer(None)

    def answer(self, body: bytes | None) -> None:
        fence = int(self.headers.get("Fence", "0"))
        with self.service.mutex:
            stale = fence < self.service.fence
            if not stale:
                self.service.fence = fence
                self.service.value = self.service.value if body is None else body
            value = self.service.value
        self.send_response(409 if stale else 200)
        self.send_header("Content-Length", "0" if stale else str(len(value)))
        self.end_headers()
        if not stale:
            self.wfile.write(value)

    def log_message(self, format: str, *args: object) -> None:
        pass


def call(port: int, fence: int, value: bytes | None = None) -> bytes:
    """Read the value, or write a new one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET" if value is None else "PUT", "/", value, {"Fence": str(fence)})
        answer = connection.getresponse()
        if answer.status == 409:
            raise StaleFence(f"The service has seen a later holder than {fence}. Nothing was changed.")
        return answer.read()
    finally:
        connection.close()


async def main() -> None:
    service = Service()
    threading.Thread(target=service.serve_forever, daemon=True).start()
    async with peerlock.join("service-example") as node:
        async with node.lock("value") as hold:
            late = hold.fence
            call(service.server_port, hold.fence, b"first")
        async with node.lock("value") as hold:
            value = call(service.server_port, hold.fence)
            call(service.server_port, hold.fence, value + b", second")
        try:
            call(service.server_port, late, b"too late")
        except StaleFence as problem:
            print(problem)
    print("value:", service.value.decode())
    service.shutdown()
    service.server_close()


if __name__ == "__main__":
    asyncio.run(main())
