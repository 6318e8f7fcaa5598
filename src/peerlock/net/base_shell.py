"""What drives a core for its callers, whether the process is a member of the group or is attached to
a host node: what `Lock`, `Hold` and `Node` need of either.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from peerlock.contract import Mode
from peerlock.errors import AfterFork, LockTimeout, NodeClosed, UsageError, shown
from peerlock.net.complaints import Complaints
from peerlock.net.control.status import NodeStatus
from peerlock.node.inputs import Callers
from peerlock.node.wire_algorithms import WireAlgorithm, wire_algorithm

C = TypeVar("C", bound=Callers[Any])
Handlers: TypeAlias = dict[type, Callable[[Any], object]]  # what is done about an effect, by its type

log = logging.getLogger("peerlock")

LOWEST = 2**31 - 1  # priority; a larger number might not fit into a message

shells_of_this_process: weakref.WeakSet[BaseShell[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for shell in list(shells_of_this_process):
        shell.after_fork()


os.register_at_fork(after_in_child=_after_fork)


class BaseShell(Generic[C]):
    core: C
    membership: Any
    clock: Callable[[], float]  # what `now` says, without the call in between

    def __init__(self, group: str, algorithm: str) -> None:
        self.group, self.algorithm = group, wire_algorithm(algorithm)
        self.pid, self.forked, self.clock = os.getpid(), False, self.now
        self.at_work = False  # on an event loop: a finalizer that runs now may not use the core
        self.closing = False
        self.complaints = Complaints()
        self.reason = ""  # the last thing that went wrong, for a caller that waits to join
        shells_of_this_process.add(self)

    # -- what asyncio and threads do in their own ways ---------------------------------------------------

    def now(self) -> float:
        raise NotImplementedError

    def after(self, seconds: float, act: Callable[[], object]) -> object:
        raise NotImplementedError

    def post(self, act: Callable[[], object]) -> None:
        """Do that in the thread of the node, soon. May be called from any thread."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Nothing that is posted will be done any more."""
        return False

    def over(self) -> bool:
        """The node has ended, without leaving."""
        return False

    def carry_out(self) -> None:
        """Do what the core asks for, and what it asks for because of that."""
        raise NotImplementedError

    def ask_status(self, done: Callable[[NodeStatus], None], wait_s: float) -> None:
        """Ask every member; `done` hears what is known when all have answered, or after a while."""
        raise NotImplementedError

    def enter_group(self) -> None:
        """Begin to join. `membership.on_started` is called when that is done, or will never be."""
        raise NotImplementedError

    def not_in_time(self, timeout: float) -> LockTimeout:
        """The error for a caller that waited for it to join, and waits no more."""
        raise NotImplementedError

    def say_farewell(self) -> None:
        """Nothing is granted here any more: callers that wait and holders are told. Then the group
        goes on without us.
        """
        raise NotImplementedError

    def read_now(self) -> None:
        """What has come, without waiting for the turn of an event loop, if that can be."""
        raise NotImplementedError

    # -- callers -----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    @property
    def epochs(self) -> int:
        """Epochs that were started here."""
        raise NotImplementedError

    @property
    def members(self) -> tuple[str, ...]:
        raise NotImplementedError

    def record_process_groups(self, words: bytes) -> None:
        """These work under locks of this process: they must be gone before a lock is another's."""
        raise NotImplementedError

    def choice(self, algorithm: str | None, priority: int | None) -> tuple[WireAlgorithm, Mode, int]:
        """What a lock is made with."""
        if algorithm is not None and not isinstance(algorithm, str):
            raise UsageError(f"An algorithm is given by its name; got {shown(algorithm)}.")
        spec = self.algorithm if algorithm is None else wire_algorithm(algorithm)
        if priority is not None:
            if algorithm is None:
                spec = wire_algorithm("ricart-agrawala-priority")
            if spec.spec.name != "ricart-agrawala-priority":
                raise UsageError(f"{spec.spec.name} knows no priorities: use ricart-agrawala-priority.")
            if not isinstance(priority, int) or isinstance(priority, bool) or not 1 <= priority <= LOWEST:
                raise UsageError(
                    f"A priority is a whole number from 1, the highest, to {LOWEST}; got {shown(priority)}."
                )
        return spec, "write", priority or 0

    def alive(self) -> None:
        if self.forked:
            raise AfterFork(
                f"This process was forked from {self.pid}, which joined the group {self.group}: the child is not a member "
                "and holds nothing. Call join in the child."
            )

    def usable(self) -> None:
        self.alive()
        if self.closing:
            raise NodeClosed(f"This node has left the group {self.group}: join again.")

    def collect(self) -> None:
        """Forget idle locks."""
        raise NotImplementedError

    def complain(self, why: str) -> None:
        """One line in the log, and the same one not again for a while."""
        self.reason = why
        if self.complaints.are_new(why, self.now()):
            log.warning("group %s: %s", self.group, why)

    # -- a forked child ----------------------------------------------------------------------------------

    def open_descriptors(self) -> list[int]:
        """That a forked child must not keep open."""
        return []

    def after_fork(self) -> None:
        """In the child: the parent's node is not ours.

        Nor are its sockets. As long as a process has them open, the others do not see the parent's
        end, so the child's copies become something else.
        """
        self.forked = True
        self.core.table.wedge()
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in self.open_descriptors():
            if descriptor >= 0:
                os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    def __repr__(self) -> str:
        return f"<node {self.name} of the group {self.group}, epoch {self.epoch}>"
