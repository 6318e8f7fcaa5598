"""A fixed list of hosts: mutual TLS, who is let in, who is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import peerlock
import peerlock.sync
from peerlock.errors import LockTimeout, RegistryError, UsageError
from peerlock.net.aio.node import Node
from peerlock.net.registries.static import StaticRegistry
from peerlock.net.settings import gather, registry_for
from peerlock.net.threads.node import Node as ThreadNode
from peerlock.net.threads.shell import ThreadShell
from peerlock.node import wire
from places import files, joined, make_certs, until
from ports import free_ports
from shells import member, thread_member


class Place:
    """A list of nodes, and what each needs to join."""

    def __init__(self, directory: Path, *names: str, tls: bool = False) -> None:
        self.directory = directory
        ports = free_ports(len(names))
        self.nodes = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        self.certs = directory / "certs"
        self.tls = tls
        if tls:
            make_certs(self.certs, *names)

    def join(self, name: str, group: str = "g", **more: Any) -> Any:
        more.setdefault("nodes", self.nodes)
        more.setdefault("state", self.directory / f"{name}.json")
        if self.tls:
            more.setdefault("tls", {key: str(self.certs / file) for key, file in files(name).items()})
        return peerlock.join(group, name=name, **more)

    async def all(self) -> list[Node]:
        return await asyncio.gather(*(asyncio.ensure_future(joined(self.join(name))) for name in self.nodes))


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_three_hosts_share_a_lock(tmp_path: Path, tls: bool) -> None:
    async def whole() -> None:
        nodes = await Place(tmp_path, "anna", "ben", "cleo", tls=tls).all()
        inside, fences = 0, []

        async def work(node: Node) -> None:
            nonlocal inside
            for _ in range(50):
                async with node.lock("x") as hold:
                    inside += 1
                    assert inside == 1
                    fences.append(hold.fence)
                    await asyncio.sleep(0)
                    inside -= 1

        await asyncio.gather(*map(work, nodes))
        assert len(fences) == 150
        assert fences == sorted(set(fences))
        for node in nodes:
            await node.leave()

    asyncio.run(whole())


def listens(server: socket.socket) -> socket.socket:
    """Whoever has dialled, and is not answered."""
    server.settimeout(10)
    made, _ = server.accept()
    made.settimeout(10)
    assert made.recv(65536), "it has said who it is"
    return made


@pytest.mark.parametrize("shell", ["asyncio", "threads"])
def test_who_leaves_hangs_up_on_those_who_have_not_answered(tmp_path: Path, shell: str) -> None:
    place = Place(tmp_path, "anna", "ben")
    with socket.create_server(("127.0.0.1", int(place.nodes["anna"].rpartition(":")[2]))) as server:

        async def ben() -> None:
            joining = asyncio.ensure_future(joined(place.join("ben")))
            heard = await asyncio.to_thread(listens, server)
            joining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await joining
            with heard:
                assert await asyncio.to_thread(heard.recv, 1) == b"", "the link is closed"

        if shell == "asyncio":
            asyncio.run(ben())
            return
        settings = gather(None, name="ben", nodes=place.nodes, state=tmp_path / "ben.json")
        node = ThreadShell(registry_for("g", settings), "g")
        node.reader.start()
        with node.mutex:
            node.membership.enter_group()
        with listens(server) as heard:
            node.leave()
            assert heard.recv(1) == b""


def test_a_socket_that_could_not_be_made_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are too many open files for a while."""
    place, fails = Place(tmp_path, "anna", "ben"), 0
    made = dict[str, ThreadNode]()

    def join(name: str) -> None:
        made[name] = peerlock.sync.join("g", name=name, nodes=place.nodes, state=tmp_path / f"{name}.json")

    joining = [threading.Thread(target=join, args=(name,)) for name in place.nodes]
    for each in joining:
        each.start()
    for each in joining:
        each.join(30)
    anna, ben = made["anna"], made["ben"]

    class Scarce(socket.socket):
        def __init__(self, *what: Any, **more: Any) -> None:
            nonlocal fails
            if (
                threading.current_thread() in (anna._shell.reader, ben._shell.reader)
                and not more.get("fileno")
                and fails < 2
            ):
                fails += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            super().__init__(*what, **more)

    monkeypatch.setattr(socket, "socket", Scarce)
    for node in (anna, ben):
        with node._shell.mutex:
            for link in list(thread_member(node).links.by_peer.values()):
                link.close()
    asyncio.run(until(lambda: fails == 2))
    for node in (anna, ben):
        with node.lock("x").acquire(timeout=20):
            pass
    for node in (anna, ben):
        node.leave()


def crash(node: Node) -> None:
    """As if the process were gone: links and files are closed, and nobody is told."""
    node._shell.closing = True
    member(node)._unlisten()
    for link in list(member(node).links.up):
        link.close()
    member(node).registry.close()


def test_a_crash_blocks_until_the_node_is_back(tmp_path: Path) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben", "cleo")
        anna, ben, cleo = await place.all()
        hold = await cleo.lock("x").acquire()
        crash(cleo)
        with pytest.raises(LockTimeout):
            await anna.lock("x").acquire(timeout=0.5)
        assert "cleo" in (await anna.status(0.2)).waits_for
        again = await place.join("cleo")
        after = await asyncio.wait_for(anna.lock("x").acquire(), 10)
        assert after.fence > hold.fence
        assert again.epoch == anna.epoch == 2
        after.release()
        for node in (anna, ben, again):
            await node.leave()

    asyncio.run(whole())


def test_the_operator_says_that_a_node_is_dead(tmp_path: Path) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben", "cleo")
        anna, ben, cleo = await place.all()
        with pytest.raises(UsageError, match="cleo is alive"):
            member(anna).registry.kick("cleo")
        with pytest.raises(UsageError, match="not on the list"):
            member(anna).registry.kick("dora")
        await anna.lock("x").acquire()
        crash(anna)  # the first of the list, which decides
        await until(lambda: "anna" in member(ben).registry.waits_for())
        waiter = asyncio.create_task(cleo.lock("x").acquire())
        await asyncio.sleep(0.2)
        assert not waiter.done()
        assert "make sure that it is off" in member(cleo).registry.kick("anna")
        assert (await asyncio.wait_for(waiter, 10)).held
        assert ben.members == ("ben", "cleo")
        anna = await place.join("anna")
        await until(lambda: ben.members == ("anna", "ben", "cleo"))
        (await waiter).release()
        for node in (anna, ben, cleo):
            await node.leave()

    asyncio.run(whole())


def test_a_node_that_starts_waits_for_the_whole_list(tmp_path: Path) -> None:
    """ben's file says that anna has left. Meanwhile she was started again, and told that ben is dead."""

    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben")
        anna, ben = await place.all()
        await anna.leave()
        await until(lambda: ben.members == ("ben",))
        crash(ben)
        anna = await place.join("anna", assume_dead=("ben",))
        hold = await anna.lock("x").acquire()
        for link in list(anna._shell.links.by_peer.values()):
            link.close()
        nodes = {**place.nodes, "anna": f"127.0.0.1:{free_ports(1)[0]}"}  # ben does not reach her
        joining = asyncio.ensure_future(joined(place.join("ben", nodes=nodes)))
        anna._shell.registry.nodes = {**anna._shell.registry.nodes, "ben": anna._shell.registry.nodes["anna"]}
        await asyncio.sleep(0.5)
        assert not joining.done(), "ben waits for anna"
        assert hold.held
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        hold.release()
        await anna.leave()

    asyncio.run(whole())


def test_old_news_of_who_is_absent_is_not_heeded(tmp_path: Path) -> None:
    """cleo left and came back while ben was down; ben still has it in its file that she is absent."""

    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben", "cleo")
        anna, ben, cleo = await place.all()
        await cleo.leave()
        await until(lambda: anna.members == ben.members == ("anna", "ben"))
        crash(ben)
        await until(lambda: "ben" in member(anna).registry.waits_for())
        member(anna).registry.kick("ben")
        cleo = await place.join("cleo")
        hold = await asyncio.wait_for(cleo.lock("x").acquire(), 10)
        assert hold.held
        for link in list(cleo._shell.links.by_peer.values()):  # cut off, and alive
            cleo._shell.registry.nodes = {
                **cleo._shell.registry.nodes,
                "anna": cleo._shell.registry.nodes["cleo"],
                "ben": cleo._shell.registry.nodes["cleo"],
            }
            link.close()
        cleo._shell._unlisten()
        ben_again = asyncio.ensure_future(joined(place.join("ben")))
        with pytest.raises(LockTimeout):
            await anna.lock("x").acquire(timeout=1)
        assert not ben_again.done(), "they wait for cleo"
        assert hold.held
        ben_again.cancel()
        await asyncio.gather(ben_again, return_exceptions=True)
        crash(cleo)
        await anna.leave()

    asyncio.run(whole())


def test_a_node_that_was_taken_for_dead_and_lives_loses_everything_and_joins_again(tmp_path: Path) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben", "cleo")
        anna, ben, cleo = await place.all()
        hold = await cleo.lock("x").acquire()
        dial = member(cleo).links.dial
        member(cleo).links.dial = lambda peer: None  # type: ignore[method-assign]
        for link in list(member(cleo).links.by_peer.values()):
            link.close()
        await until(lambda: "cleo" in member(ben).registry.waits_for())
        crash(anna)
        anna = await place.join("anna", assume_dead=("cleo",))
        assert anna.members == ("anna", "ben")
        member(cleo).links.dial = dial  # type: ignore[method-assign]
        for name in ("anna", "ben"):
            member(cleo).links.dial(type(member(cleo).core.me)(name, 0))
        await until(lambda: anna.members == ben.members == cleo.members == ("anna", "ben", "cleo"))
        assert hold.lost.is_set()
        for node in (anna, ben, cleo):
            (await asyncio.wait_for(node.lock("x").acquire(), 5)).release()
        for node in (anna, ben, cleo):
            await node.leave()

    asyncio.run(whole())


def test_only_our_own_authority_is_trusted(tmp_path: Path) -> None:
    place = Place(tmp_path, "anna", tls=True)
    registry = peerlock.net.settings.registry_for(
        "g",
        gather(
            name="anna",
            nodes=place.nodes,
            state=tmp_path / "s",
            tls={key: str(place.certs / file) for key, file in files("anna").items()},
        ),
    )
    for server in (False, True):
        context = registry.tls(server)
        assert context is not None
        assert context.cert_store_stats()["x509_ca"] == 1
    registry.close()


def test_assume_dead_from_the_start(tmp_path: Path) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben", "cleo")
        anna = asyncio.ensure_future(joined(place.join("anna")))
        await asyncio.sleep(0.1)
        ben = await place.join("ben", assume_dead=("cleo",))
        assert (await anna).members == ben.members == ("anna", "ben")
        for node in (await anna, ben):
            await node.leave()
        with pytest.raises(UsageError, match="must be another node of the list"):
            await place.join("ben", assume_dead=("ben",))

    asyncio.run(whole())


def test_one_process_a_name(tmp_path: Path) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna")
        async with place.join("anna"):
            with pytest.raises(RegistryError, match="runs already on this host"):
                await place.join("anna")

    asyncio.run(whole())


# -- who is not let in -----------------------------------------------------------------------------------------


def refused(caplog: pytest.LogCaptureFixture, here: str, there: str) -> bool:
    text = " ".join(record.getMessage() for record in caplog.records)
    return here in text and there in text


async def dials_in(place: Place, caplog: pytest.LogCaptureFixture, here: str, there: str, **intruder: Any) -> None:
    """anna waits for ben; another process dials, as ben would. Both logs say why nothing comes of it."""
    waiting = asyncio.ensure_future(joined(place.join("anna")))
    await asyncio.sleep(0.05)
    dialling = asyncio.ensure_future(joined(place.join(**intruder)))
    try:
        await until(lambda: refused(caplog, here, there), 5)
        assert not waiting.done()
        assert not dialling.done()
    finally:
        for task in (waiting, dialling):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_node_that_is_not_on_the_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peerlock")

    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben")
        more = {**place.nodes, "eve": f"127.0.0.1:{free_ports(1)[0]}"}
        await dials_in(
            place,
            caplog,
            "eve was not let in: eve is not on the list",
            "does not let us in: eve is not",
            name="eve",
            nodes=more,
        )

    asyncio.run(whole())


def test_another_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peerlock")

    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben")
        sentence = "it is of the group 'other', this node is of the group 'g'"
        await dials_in(
            place,
            caplog,
            f"ben was not let in: {sentence}",
            f"does not let us in: {sentence}",
            name="ben",
            group="other",
        )

    asyncio.run(whole())


def test_another_version(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "peerlock")
    before = wire.packed

    def newer(message: Any) -> bytes:
        if isinstance(message, wire.Hello) and message.peer.name == "ben":
            message = wire.Hello(9, message.group, message.peer, message.to, message.received, newest=9)
        return before(message)

    monkeypatch.setattr(
        "peerlock.net.link_table.framed", lambda message: wire.LENGTH.pack(len(newer(message))) + newer(message)
    )

    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben")
        sentence = "it speaks version 9 of the protocol, this node speaks 1 to 2: upgrade this node first"
        await dials_in(place, caplog, f"ben was not let in: {sentence}", f"does not let us in: {sentence}", name="ben")

    asyncio.run(whole())


# -- what can be said, and where -------------------------------------------------------------------------------


def test_settings_from_a_file_the_environment_and_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.toml"
    tls = 'ca = "ca.pem"\ncert = "{name}.pem"\nkey = "{name}.key"\n'
    path.write_text('algorithm = "ricart-agrawala"\n[nodes]\na = "h:1"\nb = "h:2"\n[tls]\n' + tls)
    found = gather(path, name="b")
    assert found.nodes == {"a": "h:1", "b": "h:2"}
    assert found.tls is not None
    assert found.tls.cert == str(tmp_path / "b.pem")
    monkeypatch.setenv("PEERLOCK_CONFIG", str(path))
    monkeypatch.setenv("PEERLOCK_NAME", "a")
    monkeypatch.setenv("PEERLOCK_ALGORITHM", "carvalho-roucairol")
    assert (gather().name, gather().algorithm) == ("a", "carvalho-roucairol")
    assert gather(algorithm="dijkstra-ring").algorithm == "dijkstra-ring"
    monkeypatch.setenv("PEERLOCK_NODES", "x=h:1, y=h:2")
    assert gather().nodes == {"x": "h:1", "y": "h:2"}
    monkeypatch.setenv("PEERLOCK_NODES", "x")
    with pytest.raises(UsageError, match="NAME=HOST:PORT"):
        gather()


@pytest.mark.parametrize(
    ("text", "words"),
    [("nodes = 3", "not right"), ("colour = 1", "known are"), ("[", "is not TOML")],
)
def test_a_bad_file(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        gather(path)


def test_bad_lists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not on the list"):
        StaticRegistry("g", "c", {"a": "127.0.0.1:1"}, state=tmp_path / "x")
    with pytest.raises(UsageError, match="HOST:PORT"):
        StaticRegistry("g", "a", {"a": "127.0.0.1"}, state=tmp_path / "x")
    with pytest.raises(UsageError, match="talk over TLS"):
        StaticRegistry("g", "a", {"a": "10.1.2.3:1"}, state=tmp_path / "x")
    with pytest.raises(UsageError, match="Which of a"):
        peerlock.net.settings.registry_for("g", gather(nodes={"a": "127.0.0.1:1"}))
    (tmp_path / "damaged.json").write_text("{")
    with pytest.raises(RegistryError, match="Restore it"):
        StaticRegistry("g", "a", {"a": "127.0.0.1:1"}, state=tmp_path / "damaged.json")
    (tmp_path / "foreign.json").write_text('{"group":"h","name":"a","epoch":3,"absent":{}}')
    with pytest.raises(RegistryError, match="is of the node a of the group h"):
        StaticRegistry("g", "a", {"a": "127.0.0.1:1"}, state=tmp_path / "foreign.json")


def test_a_node_that_has_closed_does_not_touch_what_its_successor_writes_down(tmp_path: Path) -> None:
    words = b"4711 1 4711 boot\n"
    before = StaticRegistry("g", "a", {"a": "127.0.0.1:1"}, state=tmp_path / "a.json")
    before.close()
    after = StaticRegistry("g", "a", {"a": "127.0.0.1:1"}, state=tmp_path / "a.json")
    after.record_process_groups(words)
    before.record_process_groups(b"")  # a client of the one before is noticed to be gone only now
    assert after.process_groups.read_bytes() == words
    after.close()


def test_a_second_process_of_a_name_is_not_let_in_while_the_first_one_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def whole() -> None:
        place = Place(tmp_path, "anna", "ben")
        anna, ben = await place.all()
        async with anna.lock("x") as hold:
            await asyncio.sleep(3.0)  # it says nothing for a while
            (tmp_path / "second.json").write_text('{"group":"g","name":"anna","epoch":0,"starts":5,"absent":{}}')
            nodes = {**place.nodes, "anna": f"127.0.0.1:{free_ports(1)[0]}"}
            second = asyncio.ensure_future(joined(place.join("anna", nodes=nodes, state=tmp_path / "second.json")))
            with pytest.raises(LockTimeout):
                await ben.lock("x").acquire(timeout=4.0)
            hold.check()
            assert "anna is here already" in caplog.text
            assert not second.done()
            second.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await second
        for node in (anna, ben):
            await node.leave()

    asyncio.run(whole())
