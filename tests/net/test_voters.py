"""A group that decides for itself: voters, their records, and what they do when some of them are gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import peerlock
from peerlock.errors import LockTimeout, RegistryError, UsageError
from peerlock.net.aio.node import Node
from peerlock.net.files import write_durably
from peerlock.net.processes.groups import process_group_of
from peerlock.net.registries.quorum import EmbeddedRegistry
from peerlock.net.voters import record_file as record
from peerlock.net.voters.server import VoterServer
from peerlock.node.peer import Peer
from peerlock.node.quorum.messages import Heartbeat, VoterHello, enveloped
from places import joined, until
from ports import free_port, free_ports
from shells import member

LEASE_S = 1.0


class Voters:
    """Three voters in processes of their own, and how to join."""

    def __init__(self, directory: Path, count: int = 3) -> None:
        self.directory = directory
        self.names = [f"v{at}" for at in range(1, count + 1)]
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(self.names, free_ports(count), strict=True)}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def config(self, addresses: dict[str, str] | None = None) -> Path:
        path = self.directory / "group.toml"
        lines = [f"{name} = {address!r}" for name, address in (addresses or self.addresses).items()]
        path.write_text(f"lease_s = {LEASE_S}\n[voters]\n" + "\n".join(lines) + "\n")
        return path

    def start(self, name: str, first: bool = False, addresses: dict[str, str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from peerlock.cli import main; main()", "node", "-g", "g", "--config",
             str(self.config(addresses)), "--name", name, "--voter", "--state", str(self.directory / name),
             *(["--first-start"] if first else [])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        self.processes[name] = process
        return process

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        end(self.processes[name])

    def join(self, name: str, **more: Any) -> Any:
        words = {"voters": self.addresses, "lease_s": LEASE_S, "state": self.directory / f"member-{name}", **more}
        return peerlock.join("g", name=name, **words)

    @contextlib.asynccontextmanager
    async def nodes(self, *names: str, **more: Any) -> AsyncIterator[list[Node]]:
        nodes = await asyncio.wait_for(asyncio.gather(*(joined(self.join(name, **more)) for name in names)), 20.0)
        try:
            yield nodes
        finally:
            for node in nodes:
                await node.leave()


@contextlib.contextmanager
def voters(directory: Path, count: int = 3) -> Iterator[Voters]:
    made = Voters(directory, count)
    try:
        for name in made.names:
            made.start(name, first=True)
        yield made
    finally:
        for process in made.processes.values():
            if process.poll() is None:
                process.terminate()
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def test_members_come_and_go_while_one_voter_is_dead(tmp_path: Path) -> None:
    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b") as nodes:
            group.kill("v2")
            async with group.nodes("c") as more:
                await until(lambda: set(nodes[0].members) == {"a", "b", "c"})
                async with more[0].lock("x") as hold:
                    fence = hold.fence
            await until(lambda: set(nodes[0].members) == {"a", "b"})
            group.start("v2")
            group.kill("v1")
            async with group.nodes("d") as more, more[0].lock("x") as hold:
                assert hold.fence > fence

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_five_voters_two_of_them_dead(tmp_path: Path) -> None:
    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b") as nodes:
            group.kill("v2")
            group.kill("v5")
            async with group.nodes("c") as more:
                await until(lambda: set(nodes[0].members) == {"a", "b", "c"})
                async with more[0].lock("x"):
                    pass
            group.kill("v1")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(joined(group.join("d")), 3.0)
            group.start("v5")
            async with asyncio.timeout(20), nodes[1].lock("x"):
                pass

    with voters(tmp_path, 5) as group:
        asyncio.run(whole(group))


def test_without_a_majority_nothing_is_granted_and_the_status_says_why(tmp_path: Path) -> None:
    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b") as nodes:
            async with nodes[0].lock("x"):
                pass
            group.kill("v1")
            group.kill("v3")
            await until(lambda: not nodes[0]._shell.core.table.may_hold and not nodes[1]._shell.core.table.may_hold)
            for node in nodes:
                with pytest.raises(LockTimeout):
                    await node.lock("x").acquire(timeout=0.3)
            status = await nodes[0].status()
            assert {"voter v1", "voter v3"} <= set(status.waits_for)
            group.start("v3")
            async with asyncio.timeout(15), nodes[1].lock("x"):
                pass
            await until(lambda: not member(nodes[0]).registry.waits_for())

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_all_voters_restarted_at_once(tmp_path: Path) -> None:
    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b") as nodes:
            async with nodes[0].lock("x") as hold:
                fence = hold.fence
            for name in group.names:
                group.kill(name)
            for name in group.names:
                group.start(name)
            async with asyncio.timeout(20), nodes[1].lock("x") as hold:
                assert hold.fence > fence

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_a_dead_member_is_excluded_when_its_lease_is_over(tmp_path: Path) -> None:
    program = (
        "import sys, peerlock.sync, time\n"
        "voters = dict(word.split('=') for word in sys.argv[2:])\n"
        "node = peerlock.sync.join('g', name='dead', voters=voters, lease_s=1.0, state=sys.argv[1])\n"
        "hold = node.lock('x').acquire()\nprint(hold.fence, flush=True)\ntime.sleep(60)\n"
    )

    async def whole(group: Voters) -> None:
        listed = [f"{name}={address}" for name, address in group.addresses.items()]
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "dead"), *listed], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            fence = int(await asyncio.to_thread(process.stdout.readline))
            async with group.nodes("a") as nodes:
                await until(lambda: set(nodes[0].members) == {"a", "dead"})
                process.kill()
                began = time.monotonic()
                async with asyncio.timeout(15), nodes[0].lock("x") as hold:
                    waited = time.monotonic() - began
                    assert hold.fence > fence
                    assert waited > 0.5 * LEASE_S, "nobody is excluded before its lease is over"

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_a_voter_is_replaced(tmp_path: Path) -> None:
    from peerlock.cli import app
    from peerlock.cli import voters as voters_command

    _ = voters_command

    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b") as nodes:
            async with nodes[0].lock("x") as hold:
                fence = hold.fence
            group.kill("v3")
            new = f"127.0.0.1:{free_port()}"
            group.start("v4", first=True, addresses={**_without(group.addresses, "v3"), "v4": new})
            done = await asyncio.to_thread(
                CliRunner().invoke, app.app,
                ["voters", "replace", "v3", f"v4={new}", "-g", "g", "--config", str(group.config())],
            )  # fmt: skip
            assert done.exit_code == 0, done.output
            assert "v1, v2, v4" in done.output
            group.kill("v1")  # from now on v2 and v4 are the majority
            async with asyncio.timeout(20), nodes[1].lock("x") as hold:
                assert hold.fence > fence
            await asyncio.sleep(1.5 * LEASE_S)
            async with asyncio.timeout(20), nodes[0].lock("x"):
                pass
            registry: Any = member(nodes[0]).registry
            assert [name for name, _ in registry.agent.view.voters] == ["v1", "v2", "v4"]
            again = await asyncio.to_thread(
                CliRunner().invoke, app.app,
                ["voters", "replace", "v3", f"v4={new}", "-g", "g", "--config", str(group.config())],
            )  # fmt: skip
            assert again.exit_code != 0

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_a_voter_that_nobody_reaches_is_not_put_in_the_place_of_another(tmp_path: Path) -> None:
    from peerlock.cli import app
    from peerlock.cli import voters as voters_command

    _ = voters_command
    with voters(tmp_path) as group:
        where = f"127.0.0.1:{free_port()}"
        words = ["voters", "replace", "v3", f"v4={where}", "-g", "g", "--config", str(group.config())]
        done = CliRunner().invoke(app.app, words)
        for _ in range(50):
            if "has not heard of a majority" not in str(done.exception):
                break
            time.sleep(0.2)  # the voters have to hear of each other first
            done = CliRunner().invoke(app.app, words)
        assert isinstance(done.exception, UsageError)
        assert f"The new voter v4 at {where} is not reached from v1" in str(done.exception)


def test_a_command_ends_with_the_lease_though_its_node_is_stopped(tmp_path: Path) -> None:
    """`peerlock run` through a resident node that never says that the lease is over."""
    program = [sys.executable, "-c", "from peerlock.cli import main; main()"]
    with voters(tmp_path) as group:
        there = ["-g", "g", "--config", str(group.config())]
        environment = {**os.environ, "PEERLOCK_STATE": str(tmp_path / "resident"), "PEERLOCK_NAME": "resident"}
        resident = subprocess.Popen([*program, "node", *there], stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert resident.stdout is not None
            assert "is a member" in resident.stdout.readline()
            written = tmp_path / "written"
            command = ["sh", "-c", f"while :; do date >> {written}; sleep 0.05; done"]
            run = subprocess.Popen(
                [*program, "run", "job", *there, "--", *command], stderr=subprocess.PIPE, env=environment
            )
            for _ in range(200):
                if written.exists():
                    break
                time.sleep(0.05)
            time.sleep(2 * LEASE_S)
            assert run.poll() is None, "the lease is renewed, and the command goes on"
            resident.send_signal(signal.SIGSTOP)
            _, said = run.communicate(timeout=3 * LEASE_S)
            assert run.returncode == 75, said
            size = written.stat().st_size
            time.sleep(0.3)
            assert written.stat().st_size == size, "nobody writes any more"
        finally:
            resident.kill()
            end(resident)


def test_what_works_under_a_lock_is_ended_by_the_next_one_of_that_name_only_if_its_owner_is_dead(
    tmp_path: Path,
) -> None:
    def registry() -> EmbeddedRegistry:
        made = EmbeddedRegistry(
            "g", {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}, "m", state=tmp_path / "m"
        )
        opened.append(made)
        return made

    opened: list[EmbeddedRegistry] = []
    at_work = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        first = registry()
        first.record_process_groups(process_group_of(at_work.pid))
        registry()._end_orphans()
        assert at_work.poll() is None, "the first one is alive"
        assert first.process_groups is not None
        os.close(first.process_groups[1])  # as a death does
        first.process_groups = None
        registry()._end_orphans()
        assert at_work.wait(5) == -signal.SIGKILL
        assert not list(tmp_path.glob("*.groups"))
    finally:
        at_work.kill()
        at_work.wait()
        for made in opened:
            made.close()


def _without(addresses: dict[str, str], name: str) -> dict[str, str]:
    return {other: address for other, address in addresses.items() if other != name}


# -- records -----------------------------------------------------------------------------------------------


def voter_server(path: Path, group: str = "g", name: str = "v1", first: bool = False) -> VoterServer:
    made = VoterServer(
        group, name, (("v1", "127.0.0.1:1"), ("v2", "127.0.0.1:2"), ("v3", "127.0.0.1:3")), path, 1.0, first_start=first
    )
    made.file.close()
    return made


def test_a_missing_record_is_refused_unless_it_is_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"has no record.*--first-start.*peerlock voters replace v1"):
        voter_server(tmp_path / "r")
    voter_server(tmp_path / "r", first=True)


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    whole = voter_server(tmp_path / "r", first=True)
    whole.write()
    data = (tmp_path / "r").read_bytes()
    voter_server(tmp_path / "r")
    for damaged in (
        b"",
        data[: len(data) // 2],
        data[:-2],
        data.replace(b'"counter":0', b'"counter":9'),
        b"x" * 100,
        data[10:],
    ):
        (tmp_path / "r").write_bytes(damaged)
        with pytest.raises(RegistryError, match=r"damaged.*peerlock voters replace"):
            voter_server(tmp_path / "r")
        with pytest.raises(RegistryError, match="damaged"):
            voter_server(tmp_path / "r", first=True)


def test_a_record_of_another_is_refused(tmp_path: Path) -> None:
    voter_server(tmp_path / "r", first=True).write()
    with pytest.raises(RegistryError, match="is the record of the voter v1 of the group g, not of v2"):
        voter_server(tmp_path / "r", name="v2")
    with pytest.raises(RegistryError, match="of the group g, not of v1 of other"):
        voter_server(tmp_path / "r", group="other")


def test_two_processes_are_not_one_voter(tmp_path: Path) -> None:
    first = VoterServer("g", "v1", (("v1", "127.0.0.1:1"),), tmp_path / "r", 1.0, first_start=True)
    with pytest.raises(RegistryError, match="runs already on this host"):
        voter_server(tmp_path / "r")
    first.file.close()


async def refusal(process: subprocess.Popen[str]) -> str:
    """What a voter says that the others do not trust."""
    assert process.stderr is not None
    late = asyncio.get_running_loop().call_later(20.0, process.kill)
    try:
        while line := await asyncio.to_thread(process.stderr.readline):
            if "replaced by an old copy" in line:
                return line
    finally:
        late.cancel()
    raise AssertionError("it was not refused")


def test_an_old_copy_of_a_record_is_refused_by_the_others(tmp_path: Path) -> None:
    async def whole(group: Voters) -> None:
        async with group.nodes("a"):
            await asyncio.sleep(LEASE_S)  # until all voters have reached each other
        shutil.copy(tmp_path / "v3", tmp_path / "copy")
        async with group.nodes("a", "b") as nodes:
            nodes[0].collect()
            await asyncio.sleep(0.3)
        await until(lambda: (tmp_path / "v3").read_bytes() != (tmp_path / "copy").read_bytes())
        group.kill("v3")
        shutil.copy(tmp_path / "copy", tmp_path / "v3")
        assert "peerlock voters replace v3" in await refusal(group.start("v3"))
        group.kill("v1")  # v2 and the old copy are no majority
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(joined(group.join("c")), 3.0)

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_a_voter_without_its_record_does_not_vote_whatever_it_is_told(tmp_path: Path) -> None:
    """`--first-start` in a group that there is already, after the file was lost: the others remember."""

    async def whole(group: Voters) -> None:
        async with group.nodes("a", "b"):
            await asyncio.sleep(LEASE_S)  # the voters have told each other which members they support
        group.kill("v3")
        (tmp_path / "v3").unlink()
        await refusal(group.start("v3", first=True))
        group.kill("v1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(joined(group.join("c")), 3.0)

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter that cannot write says nothing; with two of them like that there is no majority."""
    full = set[str]()
    write = write_durably

    def written(path: Path, data: bytes) -> None:
        if path.name in full:
            raise RegistryError(f"{path} cannot be written: No space left on device.")
        write(path, data)

    monkeypatch.setattr(record, "write_durably", written)
    ports = free_ports(3)
    names = [f"v{at}" for at in (1, 2, 3)]
    listed = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}

    def join(name: str) -> Any:
        return joined(
            peerlock.join("g", name=name, voters=listed, lease_s=LEASE_S, state=tmp_path / name, first_start=True)
        )

    async def whole() -> None:
        nodes: list[Node] = await asyncio.wait_for(asyncio.gather(*map(join, names)), 20.0)
        await until(lambda: len(nodes[0].members) == 3)
        before = nodes[0].epoch
        full.update({"v2", "v3"})
        nodes[0].collect()
        await asyncio.sleep(1.0)
        assert nodes[0].epoch == before
        full.clear()
        await until(lambda: nodes[0].epoch > before)
        async with asyncio.timeout(10), nodes[0].lock("x"):
            pass
        for node in nodes:
            await node.leave()

    asyncio.run(whole())


# -- who is let in -----------------------------------------------------------------------------------------


def test_nonsense_closes_one_line_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(1)

    async def whole(group: Voters) -> None:
        async with group.nodes("a") as nodes:
            for at in range(200):
                host, _, port = group.addresses[chance.choice(group.names)].rpartition(":")
                with socket.create_connection((host, int(port))) as made:
                    kind = at % 4
                    if kind == 0:
                        made.sendall(chance.randbytes(200))
                    elif kind == 1:
                        made.sendall(b"\xff\xff\xff\xff")
                    elif kind == 2:
                        made.sendall(enveloped(0, 0, VoterHello(1, "another group", "x", False)))
                    else:
                        made.sendall(enveloped(0, 0, Heartbeat(1, Peer("x", 1), 0)))
            async with asyncio.timeout(10), nodes[0].lock("x") as hold:
                await asyncio.sleep(1.5 * LEASE_S)
                hold.check()

    with voters(tmp_path) as group:
        asyncio.run(whole(group))


def test_settings_that_cannot_be() -> None:
    two = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}
    with pytest.raises(UsageError, match="three voters or five"):
        EmbeddedRegistry("g", two)
    with pytest.raises(UsageError, match="address of its own"):
        EmbeddedRegistry("g", {"a": "127.0.0.1:1", "b": "127.0.0.1:1", "c": "127.0.0.1:2"})
    three = {**two, "c": "127.0.0.1:3"}
    with pytest.raises(UsageError, match="A lease is at least"):
        EmbeddedRegistry("g", three, lease_s=0.1)
    with pytest.raises(UsageError, match="over TLS"):
        EmbeddedRegistry("g", {"a": "10.0.0.1:1", "b": "10.0.0.2:1", "c": "10.0.0.3:1"}, address="10.0.0.9")
    with pytest.raises(UsageError, match="different kinds"):
        asyncio.run(_never(voters=three, nodes=three, name="a"))


async def _never(**words: Any) -> None:
    await peerlock.join("g", **words)


def test_mutual_tls(tmp_path: Path) -> None:
    from peerlock.cli import app, certs

    _ = certs
    done = CliRunner().invoke(app.app, ["certs", "v1", "v2", "v3", "a", "-o", str(tmp_path / "certs")])
    assert done.exit_code == 0, done.output
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(("v1", "v2", "v3"), free_ports(3), strict=True)}

    def words(name: str, certificate: str | None = None) -> dict[str, Any]:
        of = certificate or name
        tls = {"ca": "ca.pem", "cert": f"{of}.pem", "key": f"{of}.key"}
        return {
            "name": name, "voters": addresses, "lease_s": LEASE_S, "first_start": True, "state": tmp_path / f"s-{name}",
            "tls": {key: str(tmp_path / "certs" / file) for key, file in tls.items()},
        }  # fmt: skip

    async def whole() -> None:
        nodes = await asyncio.wait_for(
            asyncio.gather(*(joined(peerlock.join("g", **words(name))) for name in ("v1", "v2", "v3", "a"))), 30
        )
        async with nodes[3].lock("x"):
            pass
        with pytest.raises(UsageError, match="is the certificate of a, and this node is called ben"):
            await asyncio.wait_for(joined(peerlock.join("g", **words("ben", "a"))), 20.0)
        for node in nodes:
            await node.leave()

    asyncio.run(whole())
