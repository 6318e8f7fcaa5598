"""Every exception of peerlock, one tree.

A caller's mistake says what was done, in which state, and what to do instead. Whatever a user can
cause is a `PeerlockError`; the command line prints its sentence and exits with 2. A broken
invariant of our own is an `assert` and never one of these.
"""


def shown(value: object) -> str:
    """What a caller gave, for a sentence: on one line, short, and whatever it is."""
    try:
        text = repr(value)
    except Exception:  # an object of a stranger, or a number with thousands of digits
        text = f"a value of the type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


class PeerlockError(Exception):
    """The root: catch this to catch everything that peerlock raises on purpose."""


class UsageError(PeerlockError, ValueError):
    """The caller asked for something that cannot be: a bad name, number, file or combination."""


class UnknownAlgorithm(UsageError):
    """No algorithm of that name; the message names the near ones."""


class ContractError(UsageError):
    """A class that is no algorithm, or an algorithm that broke the contract while it ran."""


class TopologyError(UsageError):
    """A network that cannot be used: no graph, not connected, the wrong shape for the algorithm."""


class TraceError(UsageError):
    """A file that is not a trace, or a trace of another format."""


class ScriptError(UsageError):
    """A transcript with a line that cannot be carried out."""


class Unfinished(PeerlockError):
    """A run was cut off by a limit before it came to its end."""


# -- the lock ----------------------------------------------------------------------------------------


class LockError(PeerlockError):
    """A lock was not given, or is no longer held. Each of these says whether it may have been held."""


class LockTimeout(LockError, TimeoutError):
    """It was not granted in time, and was never held."""


class LockLost(LockError):
    """It was held and is not any more: others may hold it now."""


class StaleFence(LockError):
    """A resource has refused a write: it has seen a later holder of the lock."""


class NodeClosed(LockError):
    """The node has left its group."""


class AlreadyHeld(UsageError, RuntimeError):
    """A task or thread that has the lock asked for it again, and would have waited for itself."""


class Disagreement(UsageError):
    """Two nodes use one lock with different algorithms."""


class AfterFork(UsageError, RuntimeError):
    """A node was used in a child of the process that joined."""


class RegistryError(PeerlockError):
    """The place where a group keeps its members cannot be used."""


class Unreachable(LockError):
    """No group, or no majority of one, could be reached."""


class ProtocolError(PeerlockError):
    """A peer said something that makes no sense: its link is closed, and nothing else."""
