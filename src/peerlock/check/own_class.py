"""Is a step of a user's own class a function of the local state and the input?

The model looks steps up, and a look-up is only as good as that. A user's class may break it: it may
choose at random, read a clock, or keep something outside of its fields. So its steps are taken
twice: the first ones all, later ones now and then, and a sample of them again at the end. The
second time all values are equal and other objects, and sets give their members in another order.
What differs is refused, with a sentence that says what to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerlock.algorithms import AlgorithmSpec
from peerlock.contract import AnyAlgorithm, Inside, NodeId, Shape, Wire
from peerlock.errors import ContractError
from peerlock.trace import told
from peerlock.user_algorithm import check_message, check_state, has_order, twin

if TYPE_CHECKING:
    from peerlock.check.model import Detail, Done, Local, Model

FIRST, EVERY = 200, 64  # steps that are taken twice: so many, then one of so many
STARTS = 16  # a class that uses chance starts otherwise sooner or later
AT_THE_END = 100  # of these are taken once more


class OwnClass:
    """Takes steps of an algorithm again and refuses an algorithm that does not repeat them."""

    def __init__(self, model: Model, spec: AlgorithmSpec) -> None:
        self.model, self.spec = model, spec
        self.sample: list[tuple[int, int, str, Detail, Done]] = []  # steps to be taken once more

    def start(self, node: NodeId, shape: Shape, inside: Inside) -> AnyAlgorithm:
        with self.spec.blamed("start"):
            algorithm: AnyAlgorithm = self.spec.start(node, shape, inside)
            self.check_value(algorithm, ())
            if any(self.spec.start(node, shape, inside).key() != algorithm.key() for _ in range(STARTS)):
                raise ContractError(
                    f"{self.spec.name}: start() of node {node} did not make the same state twice. It may use its arguments "
                    "only: no random number, no clock, no id(), and no variable of the module."
                )
        return algorithm

    def check_value(self, algorithm: AnyAlgorithm, sent: Sequence[tuple[NodeId, Wire]]) -> None:
        """What can change, or cannot be hashed, has no place in a state."""
        check_state(self.spec, algorithm)
        for _, message in sent:
            check_message(self.spec, message)
        key = algorithm.key()
        try:
            hash(key)
        except TypeError:
            kind = type(key).__name__
            raise ContractError(
                f"{self.spec.name}.key() returned a {kind}, which cannot be hashed; return a tuple."
            ) from None

    def check_step(self, at: int, number: int, what: str, detail: Detail, done: Done) -> None:
        """Take a step once more, with equal values; most steps are not looked at."""
        calls = self.model.handler_calls
        if calls > FIRST and calls % EVERY:
            return
        local = self.model.columns[at].locals[number]
        equal = detail if isinstance(detail, str | None) else detail._replace(message=twin(detail.message))
        other = local._replace(algorithm=twin(local.algorithm))
        if not self.repeats(at, other, what, equal, done):
            # With chance in it, some of these would come out otherwise.
            if (has_order(local.algorithm) or has_order(detail)) and all(
                self.repeats(at, local, what, detail, done) and not self.repeats(at, other, what, equal, done)
                for _ in range(8)
            ):
                raise ContractError(
                    f"{self.spec.name}: what node {self.model.nodes[at]} does ({_input(what, detail)}) depends on the order "
                    "of a set, which has none. Use sorted(), min() or max()."
                )
            raise self.changeable(at, what, detail)
        if len(self.sample) < AT_THE_END:
            self.sample.append((at, number, what, detail, done))

    def look_again(self) -> None:
        """Take a sample once more, at the end, and from other states with the same key."""
        for at, number, what, detail, done in self.sample:
            column = self.model.columns[at]
            local = column.locals[number]
            equal = (column.equals or {}).get(number, local.algorithm)
            if not self.repeats(at, local._replace(algorithm=equal), what, detail, done):
                if equal is local.algorithm or not all(self.repeats(at, local, what, detail, done) for _ in range(8)):
                    raise self.changeable(at, what, detail)
                raise ContractError(
                    f"{self.spec.name} has two states with one key() that do not do the same (node {self.model.nodes[at]}, "
                    f"{_input(what, detail)}): let key() tell them apart, or leave it out."
                )

    def changeable(self, at: int, what: str, detail: Detail) -> ContractError:
        return ContractError(
            f"{self.spec.name}: node {self.model.nodes[at]} did not do the same twice in the same state "
            f"({_input(what, detail)}). A handler may use its fields and its arguments only: no random number, no clock, "
            "no id(), and no variable of the module."
        )

    def repeats(self, at: int, local: Local, what: str, detail: Detail, done: Done) -> bool:
        """Does the step come to the same, whatever the order in which observers hear of it?"""
        calls = self.model.handler_calls
        after, sends, entered = self.model.run(at, local, what, detail)
        self.model.handler_calls = calls
        heard = len(self.model.nodes)
        letters, before = ({send for send in each if send[0] < heard} for each in (sends, done[1]))
        return (after, letters, entered) == (done[0], before, done[2])


def _input(what: str, detail: Detail) -> str:
    """What a step was about, in words."""
    if not isinstance(detail, str | None):
        return f"receive {told(detail.message)} from {detail.source}"
    return f"on_timeout {detail}" if what == "timeout" else what
