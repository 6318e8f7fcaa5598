"""A lab in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlsplit

PROGRAM = [sys.executable, "-c", "from peerlock.cli import main; main()"]
LAB = ("lab", "--port", "0")


class Lab:
    def __init__(self, *words: str, env: Mapping[str, str] | None = None, command: Sequence[str] = LAB) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *command, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if "The lab is at" in line)
        self.address = line.split()[4]
        found = urlsplit(self.address)
        self.base, self.port = f"{found.scheme}://{found.netloc}/", found.port or 80
        self.token = parse_qs(found.query).get("token", [""])[0]

    def ask(self, what: str, body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """An answer's status and text; with the token, unless the headers say otherwise."""
        return asked(self.port, f"/api/{what}", body, {"x-token": self.token} if headers is None else headers)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def asked(port: int, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
