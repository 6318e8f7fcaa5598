"""Who may ask the lab, and which code it runs: the user who started it, and files that this user has agreed to."""

from __future__ import annotations

import json
import os
import py_compile
import re
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labs import LAB, PROGRAM, Lab, asked

QUESTIONS = ("film", "state", "check", "export")
NOBODY = 65534
MINE = """
open({ran!r}, "a").close()
from peerlock.algorithms.ricart_agrawala import RicartAgrawala as Mine
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.end()


class Code:
    """A file with an algorithm, and whether it has been run."""

    def __init__(self, folder: Path) -> None:
        self.file, self.ran = folder / "mine.py", folder / "ran"
        self.file.write_text(MINE.format(ran=str(self.ran)))

    def question(self, name: str | None = None) -> dict[str, Any]:
        algorithm = f"{self.file if name is None else name}:Mine"
        return {"experiment": {"algorithm": algorithm, "nodes": 3, "entries": 1}, "format": "svg"}


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


def as_nobody(act: Callable[[], Any]) -> Any:
    """What another local user gets."""
    "".encode("idna")  # the other user cannot read this interpreter's files: what is needed is loaded before
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(found)


# -- another user of this machine ------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"x-token": ""}, {"x-token": "guessed"}, {"cookie": "token="}])
def test_another_user_of_this_machine_is_refused(lab: Lab, code: Code, headers: dict[str, str]) -> None:
    def tries() -> list[Any]:
        asks = [("about", None), ("trace", {}), ("agree", {"file": str(code.file)})]
        asks += [(question, code.question()) for question in QUESTIONS]
        return [[os.geteuid(), *lab.ask(what, body, headers)] for what, body in asks]

    for user, status, text in as_nobody(tries):
        assert (user, status) == (NOBODY, 403)
        assert "A token is needed: open the address that peerlock lab has printed." in text
    assert not code.ran.exists()
    assert lab.ask("agree", {"file": f"{code.file}:Mine"})[0] == 200
    assert lab.ask("film", code.question())[0] == 200, "the user who has the token may"
    assert code.ran.exists()


def upgraded(port: int, query: str, origin: str | None = None, host: str | None = None) -> str:
    """The first line of what a WebSocket's handshake is answered."""
    lines = [f"GET /api/live{query} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", "Connection: Upgrade"]
    lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    lines += [f"Origin: {origin}"] if origin is not None else []
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection.recv(4096).decode(errors="replace").partition("\r\n")[0]


def test_a_live_group_is_not_shown_to_another_user(lab: Lab) -> None:
    assert "403" in as_nobody(lambda: upgraded(lab.port, ""))
    assert "403" in as_nobody(lambda: upgraded(lab.port, "?token=guessed"))
    assert "101" in upgraded(lab.port, f"?token={lab.token}")


def words_of_processes() -> str:
    """What any user sees of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text())
        except OSError:
            continue
    return "\n".join(found)


@pytest.mark.parametrize("command", ["lab", "check", "diagram"])
def test_the_token_is_not_in_the_words_that_start_a_browser(command: str, tmp_path: Path) -> None:
    """`ps` shows these words to all users, so the browser gets a file that only this user can read."""
    started, browser = tmp_path / "started", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$$ $1" > {started}.new\nmv {started}.new {started}\nexec sleep 60\n')
    browser.chmod(0o755)
    trace = tmp_path / "run.jsonl"
    commands = {
        "lab": (*LAB, "--open"),
        "check": ("check", "suzuki-kasami-b", "-n", "2", "--entries", "4", "--as-printed", "--open"),
        "diagram": ("diagram", str(trace), "--open"),
    }
    words = ["sim", "ricart-agrawala", "-n", "2", "--entries", "1", "--trace", str(trace)]
    subprocess.run([*PROGRAM, *words], check=True, capture_output=True)
    lab = Lab(command=commands[command], env={"BROWSER": f"{browser} %s &"})
    try:
        until = time.monotonic() + 20
        while not started.exists():
            assert time.monotonic() < until, "no browser was started"
            time.sleep(0.01)
        process, address = started.read_text().split()
        seen = as_nobody(words_of_processes)
        os.kill(int(process), signal.SIGKILL)
        assert len(lab.token) >= 20
        assert lab.token not in seen
        assert address.startswith("file://")
        page = Path(address.removeprefix("file://"))
        assert lab.address in page.read_text()
        assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
        assert as_nobody(lambda: os.access(page, os.R_OK)) is False
    finally:
        lab.end()
    assert not page.parent.exists(), "nothing is left of it"


def test_every_lab_has_another_token(lab: Lab) -> None:
    other = Lab()
    try:
        assert len({lab.token, other.token, ""}) == 3
        assert other.ask("about", headers={"x-token": lab.token})[0] == 403
    finally:
        other.end()


# -- names and origins -----------------------------------------------------------------------------------------


def test_only_this_machine_s_names_and_the_page_s_own_origin(lab: Lab) -> None:
    own, token = f"127.0.0.1:{lab.port}", {"x-token": lab.token}
    for host in (own, f"localhost:{lab.port}", f"[::1]:{lab.port}", "localhost", "127.0.0.1:9"):
        assert lab.ask("about", headers={**token, "host": host})[0] == 200, host
    for host in ("evil.example", f"evil.example:{lab.port}", "127.0.0.1.evil.example", "localhost.evil", "[::1", ""):
        assert lab.ask("about", headers={**token, "host": host})[0] == 403, host
        assert asked(lab.port, "/", None, {"host": host})[0] == 403, "a name that was made to point here gets no page"
    assert lab.ask("about", headers={**token, "origin": f"http://{own}"})[0] == 200
    for origin in ("null", "http://evil.example", "http://127.0.0.1:9", f"http://127.0.0.1:{lab.port}.evil.example"):
        assert lab.ask("about", headers={**token, "origin": origin})[0] == 403, origin
        assert "403" in upgraded(lab.port, f"?token={lab.token}", origin), origin
    assert "403" in upgraded(lab.port, f"?token={lab.token}", host="evil.example")


def test_a_wrong_token_in_an_address_gets_no_page(lab: Lab) -> None:
    assert asked(lab.port, "/?token=wrong", None, {})[0] == 403
    assert asked(lab.port, "/?token=", None, {})[0] == 403
    assert asked(lab.port, "/", None, {})[0] == 200, "the page itself is no secret"
    assert asked(lab.port, f"/api/about?token={lab.token}", None, {})[0] == 403, "an address is no place for a token"


# -- which code ------------------------------------------------------------------------------------------------


def forms(code: Code) -> dict[str, str]:
    """Files that Python can load, and other ways to write the name of one."""
    folder = code.file.parent
    compiled = folder / "compiled.pyc"
    py_compile.compile(str(code.file), str(compiled), doraise=True)
    (folder / "library.so").write_bytes(b"\x7fELF")
    (folder / "package.py").mkdir()
    (folder / "package.py" / "__init__.py").write_text(code.file.read_text())
    os.mkfifo(folder / "pipe.py")
    (folder / "text.txt").write_text(code.file.read_text())
    return {
        "a compiled file": str(compiled),
        "a library": str(folder / "library.so"),
        "a directory": str(folder / "package.py"),
        "a directory, written as one": f"{folder}/package.py/",
        "a file, written as a directory": f"{code.file}/",
        "a file, written as a directory's own": f"{code.file}/.",
        "a pipe": str(folder / "pipe.py"),
        "a text": str(folder / "text.txt"),
        "a terminal": "/dev/tty",
        "nothing": "",
    }


def test_nothing_but_python_text_is_run_or_agreed_to(lab: Lab, code: Code) -> None:
    for words, name in forms(code).items():
        for question in QUESTIONS:
            assert lab.ask(question, code.question(name))[0] in (400, 403), words
        status, text = lab.ask("agree", {"file": f"{name}:Mine"})
        assert (status, "error" in text) == (400, True), words
        for question in QUESTIONS:
            status, text = lab.ask(question, code.question(name))
            assert status == 400, words
            assert json.loads(text)["error"], words
    assert not code.ran.exists()


def test_a_file_is_run_when_it_was_agreed_to(lab: Lab, code: Code) -> None:
    for name in (None, os.path.relpath(code.file), f"{code.file.parent}/./{code.file.name}"):
        for question in QUESTIONS:
            status, text = lab.ask(question, code.question(name))
            assert status == 403
            answer = json.loads(text)
            assert answer["agree"] == code.question(name)["experiment"]["algorithm"]
            assert str(code.file) in answer["error"], "by its full name, whatever the address calls it"
    assert not code.ran.exists()
    assert lab.ask("agree", {"file": f"{code.file}:Mine"}) == (
        200,
        json.dumps({"agreed": str(code.file)}, separators=(",", ":")),
    )
    for question in QUESTIONS:
        assert lab.ask(question, code.question(os.path.relpath(code.file)))[0] == 200
    assert code.ran.exists()


def test_a_link_is_agreed_to_as_the_file_that_it_leads_to(lab: Lab, code: Code, tmp_path: Path) -> None:
    link, harmless = tmp_path / "link.py", tmp_path / "harmless.py"
    harmless.write_text("from peerlock.algorithms.ricart_agrawala import RicartAgrawala as Mine\n")
    link.symlink_to(harmless)
    assert lab.ask("agree", {"file": f"{link}:Mine"})[0] == 200
    assert lab.ask("film", code.question(str(link)))[0] == 200
    link.unlink()
    link.symlink_to(code.file)
    assert lab.ask("film", code.question(str(link)))[0] == 403
    assert not code.ran.exists()


def test_what_is_agreed_to_is_the_text_and_not_what_was_compiled_from_another(lab: Lab, code: Code) -> None:
    """Python would load a compiled file beside the text, without a look at the text if the compiled file says so."""
    planted = code.file.parent / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        str(code.file), str(planted), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    code.file.write_text("from peerlock.algorithms.ricart_agrawala import RicartAgrawala as Mine\n")
    assert lab.ask("agree", {"file": f"{code.file}:Mine"})[0] == 200
    assert lab.ask("film", code.question())[0] == 200
    assert not code.ran.exists()


def test_a_counterexample_s_file_was_named_on_the_command_line(tmp_path: Path) -> None:
    """The user has just had it checked: the lab of `check --open` may run it."""
    file = tmp_path / "alone.py"
    file.write_text(
        "from peerlock.contract import NOBODY, State\n"
        "class Alone(State):\n"
        "    me: int\n"
        "    @classmethod\n"
        "    def start(cls, me, shape, inside=NOBODY): return cls(me)\n"
        "    def request(self, mode, out): out.enter()\n"
        "    def release(self, out): out.idle()\n"
        "    def receive(self, source, message, out): pass\n"
    )
    lab = Lab(command=("check", f"{file}:Alone", "-n", "2", "--open"), env={"BROWSER": "true"})
    try:
        question = {"experiment": {"algorithm": f"{file}:Alone", "nodes": 2}}
        assert lab.ask("film", question)[0] == 200
        assert lab.ask("film", {"experiment": {"algorithm": f"{file.parent / 'other.py'}:Alone"}})[0] == 400
    finally:
        lab.end()


def test_what_the_lab_prints_has_a_token_of_its_own_on_loopback_too(lab: Lab) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}", lab.address)
