"""What a simulation is made of, and what came of it."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from peerlock.errors import PeerlockError
from peerlock.node.attached.sharing import Sharing
from peerlock.node.core import Core
from peerlock.node.membership.lease import Lease
from peerlock.node.membership.static import StaticMember
from peerlock.node.quorum.member import QuorumMember
from peerlock.node.quorum.voter import Voter
from peerlock.node.store.member import StoreMember
from peerlock.node.store.memory import MemoryStore

# Not counted as faults of their own: nothing breaks, or it is counted as a reset already.
HARMLESS = ("gave up", "renewal", "reset in a frame")
SERIOUS_FAULTS = 5  # that each run has, at least


class Broken(PeerlockError):
    """The oracle saw what must never be."""


class Plan(Struct, frozen=True):
    """One host."""

    algorithm: str = "suzuki-kasami-a"
    nodes: int = 4
    most: int = 6  # nodes that are up at one time
    locks: int = 2
    grants: int = 200  # before the faults stop
    delay_s: float = 0.001
    fault_every_s: float = 0.05
    readers: bool = False
    core: type[Core] = Core
    pace_s: float = 0.0  # of the users; 0: as fast as messages
    registry: str = "host"

    @property
    def pace(self) -> float:
        return self.pace_s or self.delay_s


class AttachedPlan(Plan, frozen=True):
    """One host, with a host node, processes that are attached to it, and members beside it."""

    registry: str = "attached"
    attached: int = 5
    nodes: int = 2
    most: int = 4
    sharing: type[Sharing] = Sharing
    members_wait: bool = True  # for the next host node, if one is dead
    silence_is_death: bool = False  # a process whose connection has ended is taken for dead


class StaticPlan(Plan, frozen=True):
    """A fixed list of hosts."""

    registry: str = "static"
    fault_every_s: float = 0.2
    pace_s: float = 0.02
    static_member: type[StaticMember] = StaticMember


class LeasedPlan(Plan, frozen=True):
    """Several hosts, with voters or a store."""

    registry: str = "voters"  # or store
    lease_s: float = 3.0
    stall_s: float = 4.0
    fault_every_s: float = 0.35
    pace_s: float = 0.06
    voter: type[Voter] = Voter
    member: type[QuorumMember] = QuorumMember
    lease: type[Lease] = Lease
    store_member: type[StoreMember] = StoreMember
    memory: type[MemoryStore] = MemoryStore


class Result(Struct):
    seed: int
    grants: int = 0
    faults: Counter[str] = Counter()
    epochs: int = 0
    messages: int = 0
    seconds: float = 0.0  # of virtual time
