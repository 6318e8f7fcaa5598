"""The contract: values, messages, states, and what every algorithm of the catalogue keeps."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from peerlock.algorithms import CATALOGUE, choose
from peerlock.contract import Effects, Members, Needs, Neighbours, Ring, Shape, Wire, look, note, put, row, strike
from peerlock.sim.experiment import Experiment
from peerlock.trace import Recorder


def test_rows_are_indexed_by_node() -> None:
    rn = row((1, 2, 3), -1)
    assert put(rn, 2, 5)[2] == 5
    assert rn[2] == -1
    assert len(put(rn, 3, 0)) == 4


def test_books_are_indexed_by_name() -> None:
    book = note(note(note((), 7, 1), 3, 2), 7, 4)
    assert book == ((3, 2), (7, 4))
    assert (look(book, 7, -1), look(book, 5, -1), look((), 5, -1)) == (4, -1, -1)
    assert strike(book, 3) == ((7, 4),)
    assert strike(book, 99) == book


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Request", "REQUEST"), ("AreYouThere", "ARE_YOU_THERE"), ("YesIAmHere", "YES_I_AM_HERE"), ("Req", "REQ")],
)
def test_kinds_are_the_papers_names(name: str, kind: str) -> None:
    made: Any = type(name, (Wire,), {}, frozen=True)
    assert made().kind == kind


def shape_for(needs: Needs) -> Shape:
    if needs.shape is Ring:
        return Ring(3, 2, 1)
    return Neighbours((2, 3), 1) if needs.shape is Neighbours else Members((1, 2, 3), 1, 1.0)


FORMS = [(name, form == "as_printed") for name, entry in CATALOGUE.items() for form in entry.forms]


@pytest.mark.parametrize(("name", "as_printed"), FORMS)
def test_states_are_values(name: str, as_printed: bool) -> None:
    spec = choose(name, as_printed=as_printed)
    node = spec.start(1, shape_for(spec.needs))
    before = copy.copy(node)
    assert before == node
    assert hash(before) == hash(node)
    assert before.key() == node.key()
    node.request("write", Effects())
    assert before.key() != node.key()


@pytest.mark.parametrize(("name", "as_printed"), FORMS)
def test_a_group_of_one_enters_at_once(name: str, as_printed: bool) -> None:
    """The papers have N >= 2; a real group may shrink to one."""
    spec = choose(name, as_printed=as_printed)
    alone: Shape = Members((1,), 1, 1.0)
    if spec.needs.shape is Ring:
        alone = Ring(1, 1, 1)
    elif spec.needs.shape is Neighbours:
        alone = Neighbours((), 1)
    node, out = spec.start(1, alone), Effects()
    node.request("write", out)
    assert out.entered
    node.release(out)
    assert out.ended
    assert out.sent == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_messages_survive_the_wire(name: str) -> None:
    """Encoded and decoded by its own type, every message is itself again."""
    kinds: set[type[Wire]] = set()

    class Codec(Recorder):
        def sent(self, t: float, id: int, node: int, to: int, message: Wire) -> None:
            kinds.add(type(message))
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message

    faults = (
        ("join:5@3", "leave:2@9") if name.endswith("dynamic") else ("crash:2@9",) if name.endswith("failures") else ()
    )
    Experiment(algorithm=name, nodes=4, faults=faults, hold="constant:3").prepare().run(recorders=[Codec()])
    assert len(kinds) >= (1 if "broadcast" in name else 2)


@pytest.mark.parametrize("name", CATALOGUE)
def test_tags_of_an_algorithm_differ(name: str) -> None:
    kinds: dict[Any, type[Wire]] = {}

    class Tags(Recorder):
        def sent(self, t: float, id: int, node: int, to: int, message: Wire) -> None:
            tag = type(message).__struct_config__.tag
            assert kinds.setdefault(tag, type(message)) is type(message)

    options = {"first_pass": True} if name == "ricart-agrawala-token" else {}
    Experiment(algorithm=name, nodes=4, options=options, hold="constant:3").prepare().run(recorders=[Tags()])


def test_the_catalogue_names_every_algorithm() -> None:
    assert list(CATALOGUE) == [
        "suzuki-kasami-a", "suzuki-kasami-b", "helary-plouzeau-raynal", "dijkstra-ring", "ricart-agrawala",
        "ricart-agrawala-broadcast", "ricart-agrawala-implicit", "ricart-agrawala-broadcast-implicit", "ricart-agrawala-rw",
        "ricart-agrawala-priority", "ricart-agrawala-dynamic", "ricart-agrawala-failures", "carvalho-roucairol",
        "ricart-agrawala-token", "naimi-trehel",
    ]  # fmt: skip


def test_what_has_two_forms() -> None:
    both = {name for name, entry in CATALOGUE.items() if set(entry.forms) == {"repaired", "as_printed"}}
    assert both == {"suzuki-kasami-b", "helary-plouzeau-raynal", "ricart-agrawala-failures"}
