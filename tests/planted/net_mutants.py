"""Faults planted in `net/`: fast paths and registries, each with one rule taken away, and the tests that must notice.

`peerlock.mutants` has the mutants of `node/`, as classes. Here a rule is often part of one expression on a fast path. So a
mutant is a change of the source text, made when the module is imported: a line that is left out, or moved.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"


@dataclass(frozen=True)
class Mutant:
    rule: str  # that is taken away
    module: str
    old: str
    new: str
    tests: tuple[str, ...]  # below tests/: at least one of them fails

    @property
    def path(self) -> Path:
        return SOURCE / Path(*self.module.split(".")).with_suffix(".py")

    def changed(self, source: str) -> str:
        found = source.count(self.old)
        assert found == 1, f"{self.rule}: the text to change is {found} times in {self.module}: adapt the mutant"
        return source.replace(self.old, self.new)


class Planting(SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Never from a cache, and never into one."""
        return compile(self.mutant.changed(Path(self.path).read_text()), self.path, "exec", dont_inherit=True)


class Finder:
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.mutant.module:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None, f"{name} is not found"
        assert spec.origin is not None, f"{name} has no source"
        return importlib.util.spec_from_file_location(name, spec.origin, loader=Planting(self.mutant, spec.origin))


def plant(rule: str) -> None:
    (mutant,) = [mutant for mutant in (*MUTANTS, *HOST_MUTANTS) if mutant.rule == rule]
    sys.meta_path.insert(0, Finder(mutant))


LEASES, STATIC, VOTERS, LOCK = "net/test_leases.py", "net/test_static.py", "net/test_voters.py", "net/test_lock.py"
DURABILITY, FAST, ATTACHED = "net/test_durability.py", "net/test_fast_paths.py", "net/test_attached.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "asyncio: a free lock is granted while the lease runs",
        "peerlock.net.aio.lock",
        "            and local_lock.mode == self.mode\n            and now < self._deadline.until\n",
        "            and local_lock.mode == self.mode\n",
        (f"{FAST}::test_nothing_is_granted_after_the_lease",),
    ),
    Mutant(
        "asyncio: the end of a body looks at the lease",
        "peerlock.net.aio.lock",
        "if local_lock.free and table.open and now < self._deadline.until:",
        "if local_lock.free and table.open:",
        (f"{FAST}::test_the_end_of_a_body_tells_of_the_loss",),
    ),
    Mutant(
        "asyncio: a grant that is lost before its task runs is none",
        "peerlock.net.aio.lock",
        "                timer.cancel()\n        self._still(hold)\n",
        "                timer.cancel()\n",
        (f"{FAST}::test_a_grant_that_is_lost_before_its_task_runs_is_none",),
    ),
    Mutant(
        "asyncio: who is cancelled after the grant gives the lock back",
        "peerlock.net.aio.lock",
        "        if hold.state == HELD:\n            hold.release()\n        elif hold.state == WAITING",
        "        if hold.state == WAITING",
        (f"{LOCK}::test_cancelled_between_grant_and_wake_up_passes_the_lock_on",),
    ),
    Mutant(
        "threads: whoever looks at a hold looks at the clock",
        "peerlock.net.threads.shell",
        "        if deadline.expired(self.now()):\n            inner",
        "        if False:\n            inner",
        (f"{FAST}::test_a_thread_that_looks_is_told_at_once",),
    ),
    Mutant(
        "threads: what a socket does not take at once is kept",
        "peerlock.net.threads.link",
        "            if sent < len(data):\n                self.out += data[sent:]\n",
        "",
        (f"{FAST}::test_what_a_socket_does_not_take_at_once_follows",),
    ),
    Mutant(
        "a record is synced before it takes the place of the old one",
        "peerlock.net.files",
        "            write_all(fd, data)\n            os.fsync(fd)\n",
        "            write_all(fd, data)\n",
        (f"{DURABILITY}::test_a_file_is_the_old_one_or_the_new_one_wherever_the_power_is_cut",),
    ),
    Mutant(
        "the directory of a record is synced",
        "peerlock.net.files",
        "path.parent, os.O_RDONLY | os.O_CLOEXEC)\n        try:\n            os.fsync(fd)\n",
        "path.parent, os.O_RDONLY | os.O_CLOEXEC)\n        try:\n            pass\n",
        (f"{DURABILITY}::test_a_file_is_the_old_one_or_the_new_one_wherever_the_power_is_cut",),
    ),
    Mutant(
        "a voter speaks when its record is written",
        "peerlock.net.voters.server",
        "        self.file.write(stored)\n        self.stored = stored\n",
        "        self.stored = stored\n        asyncio.get_running_loop().call_soon(self.file.write, stored)\n",
        (f"{DURABILITY}::test_a_voter_says_nothing_that_it_could_forget",),
    ),
    Mutant(
        "a voter's words wait for its record",
        "peerlock.node.quorum.voter_driver",
        """        if self.voter.record != self.saved:
            record = self.voter.record
            self.io.save(record)
            self.saved = record
        held, self.held = self.held, []
        for say, *what in held:
            say(*what)
""",
        """        held, self.held = self.held, []
        for say, *what in held:
            say(*what)
        if self.voter.record != self.saved:
            record = self.voter.record
            self.io.save(record)
            self.saved = record
""",
        (f"{DURABILITY}::test_a_voter_says_nothing_that_it_could_forget",),
    ),
    Mutant(
        "a record that is damaged is refused",
        "peerlock.net.voters.record_file",
        "not head.startswith(HEAD) or head[len(HEAD) :] != hashlib.sha256(body).hexdigest().encode()",
        "not head.startswith(HEAD)",
        (f"{VOTERS}::test_a_damaged_record_is_refused",),
    ),
    Mutant(
        "a voter is one process",
        "peerlock.net.voters.record_file",
        'self.lock = lock_for_one(path, f"The voter {name} of the group {group}")',
        'import os; self.lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT)',
        (f"{VOTERS}::test_two_processes_are_not_one_voter",),
    ),
    Mutant(
        "the name in the certificate of a member",
        "peerlock.net.registries.base",
        "        if self.tls(server=False) is None or certificate == name:\n",
        "        if True:\n",
        ("net/test_impostors.py::test_nobody_answers_for_a_member",),
    ),
    Mutant(
        "the name in the certificate at a voter",
        "peerlock.net.voters.connection",
        "if self.owner.tls is not None and certificate != hello.name:",
        "if False:",
        (f"{FAST}::test_a_certificate_is_for_one_name[voter]",),
    ),
    Mutant(
        "a fixed list: an epoch is written down before it is used",
        "peerlock.node.membership.static",
        "            try:\n                self.out.write(self.record)\n            except BaseException:",
        "            try:\n                pass\n            except BaseException:",
        (f"{DURABILITY}::test_no_epoch_is_used_that_could_come_again",),
    ),
    Mutant(
        "a fixed list: old news of who is absent is not heeded",
        "peerlock.node.membership.static",
        "if name not in self.order or name == self.name or self.is_old(name, incarnation):",
        "if name not in self.order or name == self.name:",
        (f"{STATIC}::test_old_news_of_who_is_absent_is_not_heeded",),
    ),
    Mutant(
        "etcd: a view takes the place of the one that was read",
        "peerlock.net.registries.etcd",
        '                compare.append(_is("view", revision, self.base))\n                compare += ',
        "                compare += ",
        ("net/test_etcd.py::test_the_real_store_does_what_the_one_in_memory_does",),
    ),
    Mutant(
        "etcd: an excluded member sent no heartbeat since",
        "peerlock.net.registries.etcd",
        '                compare += [_is(f"heartbeat/{who:x}", seen, self.base) for who, seen in heartbeats]\n',
        "",
        ("net/test_etcd.py::test_the_real_store_does_what_the_one_in_memory_does",),
    ),
    Mutant(
        "a node that hangs sends no heartbeat",
        "peerlock.net.registries.leased",
        "        return silent < registry.stall_s\n",
        "        return True\n",
        (f"{FAST}::test_a_node_that_hangs_loses_its_lease",),
    ),
    Mutant(
        "a forked child has none of its parent's sockets",
        "peerlock.net.base_shell",
        "                os.dup2(nothing, descriptor, inheritable=False)\n",
        "                pass\n",
        ("net/test_host.py::test_a_child_that_outlives_its_parent_keeps_nothing",),
    ),
)

ATTACKS, MISUSE, HOST = "net/test_host_attacks.py", "net/test_misuse.py", "net/test_host.py"

# The host registry's system calls; its rules are taken away in `peerlock.check.protocols.host_mutants`.
HOST_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a liveness lock has no descriptor",
        "peerlock.net.registries.group_directory",
        "        file.keep()\n",
        "        pass\n",
        (f"{ATTACKS}::test_closing_every_descriptor_drops_no_lock",),
    ),
    Mutant(
        "a liveness lock is not given to forked children",
        "peerlock.net.registries.liveness_lock",
        "        if libc.madvise(where, PAGE, MADV_DONTFORK):",
        "        if False:",
        (f"{HOST}::test_a_child_that_outlives_its_parent_keeps_nothing",),
    ),
    Mutant(
        "a liveness lock is no POSIX lock",
        "peerlock.net.registries.liveness_lock",
        'SET_OFD_LOCK = getattr(fcntl, "F_OFD_SETLK", None)',
        "SET_OFD_LOCK = fcntl.F_SETLK",
        (f"{ATTACKS}::test_a_holder_stays_the_only_one",),
    ),
    Mutant(
        "one host: a file is synced",
        "peerlock.net.registries.group_directory",
        "        os.fsync(file.descriptor)\n",
        "        pass\n",
        (f"{DURABILITY}::test_no_epoch_is_used_that_could_come_again[host]",),
    ),
    Mutant(
        "one host: a directory is synced",
        "peerlock.net.registries.group_directory",
        "            os.fsync(descriptor)\n",
        "            pass\n",
        (f"{DURABILITY}::test_no_epoch_is_used_that_could_come_again[host]",),
    ),
    Mutant(
        "a machine-id that cannot be read is an error",
        "peerlock.net.files",
        '    except FileNotFoundError:\n        found = ""\n',
        '    except OSError:\n        found = ""\n',
        (f"{ATTACKS}::test_a_machine_id_that_cannot_be_read_is_no_other_place",),
    ),
    Mutant(
        "a holder looks whether its directory is there",
        "peerlock.net.aio.shell",
        "        if self.core.table.may_hold and not self.membership.stands():",
        "        if False:",
        (f"{ATTACKS}::test_a_directory_that_goes_is_noticed_at_the_next_check",),
    ),
    Mutant(
        "a process group is killed before it is looked for",
        "peerlock.net.processes.groups",
        "        killed = _kill(number, rights)\n",
        "        killed = True\n",
        (f"{ATTACKS}::test_a_command_that_forks_and_exits_is_not_taken_for_gone",),
    ),
    Mutant(
        "a client names only process groups of its own user",
        "peerlock.net.processes.groups",
        '(group > 1 and os.stat(f"/proc/{group}").st_uid == user)',
        "group > 1",
        (f"{ATTACKS}::test_a_client_of_another_user_names_only_its_own_commands",),
    ),
    Mutant(
        "a client's command is ended with the client's rights",
        "peerlock.net.processes.groups",
        "rights = rights if owner == 0 else owner",
        "rights = owner",
        (f"{ATTACKS}::test_only_what_belongs_to_the_owner_is_killed",),
    ),
    Mutant(
        "a member's file ends processes with the rights of its owner",
        "peerlock.net.registries.group_directory",
        "end_process_groups(groups, file.owner)",
        "end_process_groups(groups, os.geteuid())",
        (f"{ATTACKS}::test_a_member_file_of_another_user_ends_nothing_of_root",),
    ),
    Mutant(
        "asyncio: a body that is cancelled before it begins gives the lock back",
        "peerlock.net.aio.lock",
        "                except BaseException:\n                    self._give_up(hold)\n                    raise\n",
        "                except BaseException:\n                    raise\n",
        ("net/test_misuse.py::test_a_body_that_is_cancelled_before_it_begins_leaves_nothing_behind",),
    ),
    Mutant(
        "threads: a watch over each body gives back what a signal's handler left behind",
        "peerlock.net.threads.lock",
        "                hold._watch = watch = watch_over(self)\n",
        "                watch = watch_over(self)\n",
        ("net/test_misuse.py::test_a_handler_that_raises_before_the_first_step_of_the_end_leaves_no_hold",),
    ),
    Mutant(
        "a member looks for the newest view that it knows",
        "peerlock.node.membership.host",
        'return not self.highest or self.files.exists(f"views/{self.highest}") or self.has_gone_on()',
        "return True",
        (f"{ATTACKS}::test_views_that_go_are_noticed",),
    ),
    Mutant(
        "only processes of the user that named them are killed",
        "peerlock.net.processes.groups",
        "        if me == owner:\n",
        "        if True:\n",
        (f"{ATTACKS}::test_only_what_belongs_to_the_owner_is_killed",),
    ),
    Mutant(
        "a lock is used in the thread of its loop",
        "peerlock.net.aio.lock",
        "        if _thread() != self._thread:\n",
        "        if False:\n",
        (f"{MISUSE}::test_a_lock_is_not_granted_to_a_task_of_another_loop",),
    ),
    Mutant(
        "a finalizer's release waits its turn",
        "peerlock.net.aio.hold",
        "if lock._shell.at_work or (running()",
        "if (running()",
        (f"{MISUSE}::test_a_release_in_the_middle_of_the_core_waits_its_turn",),
    ),
    Mutant(
        "threads: nothing is asked for in the middle of the core",
        "peerlock.net.threads.on_threads",
        "self.is_in_core: Callable[[], bool] = self.mutex._is_owned",
        "self.is_in_core: Callable[[], bool] = lambda: False",
        ("net/test_threads.py::test_on_loss_may_exit_and_may_not_ask_a_node_that_leaves",),
    ),
    Mutant(
        "attached: a process looks before it enters again",
        "peerlock.net.aio.attached",
        "            if page.signals[slot] < local_lock.number:\n                local_lock.holder",
        "            if True:\n                local_lock.holder",
        (f"{ATTACHED}::test_a_process_looks_before_it_enters_again",),
    ),
    Mutant(
        "attached: a process marks before it enters again",
        "peerlock.net.aio.attached",
        "            page.inside[slot] = local_lock.mark_word\n",
        "",
        (f"{ATTACHED}::test_a_process_that_is_inside_is_seen_to_be",),
    ),
    Mutant(
        "attached: what a member does not look at is not free here",
        "peerlock.net.aio.attached",
        "            local_lock.catch_up()  # what is free to a member is not free here\n",
        "            pass\n",
        (f"{ATTACHED}::test_a_process_looks_before_it_enters_again",),
    ),
    Mutant(
        "attached: a host node is not excluded while one of its processes lives",
        "peerlock.net.registries.group_directory",
        'theirs = line.startswith(ATTACHED) and name != self.adopts and "/" not in name',
        "theirs = False",
        (f"{ATTACHED}::test_a_member_of_the_group_waits_for_what_is_attached_to_a_dead_host_node",),
    ),
    Mutant(
        "attached: a new host node adopts what is held",
        "peerlock.net.attached.serving",
        "            self.sharing.adopt(self.shell.now())\n",
        "            pass\n",
        (f"{ATTACHED}::test_a_member_of_the_group_waits_for_what_is_attached_to_a_dead_host_node",),
    ),
    Mutant(
        "attached: a new host node waits for reports",
        "peerlock.net.attached.serving",
        "            self.sharing.was_attached(process)\n",
        "            pass\n",
        (f"{ATTACHED}::test_what_a_silent_process_is_inside_of_outlives_the_host_node",),
    ),
)
