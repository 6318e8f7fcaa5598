"""peerlock: a distributed lock with no lock server, and the papers that it comes from."""

from peerlock.algorithms import CATALOGUE, Chosen, choose
from peerlock.contract import (
    NOBODY,
    Algorithm,
    Ask,
    Book,
    Grant,
    Members,
    Mode,
    Needs,
    Neighbours,
    Node,
    Out,
    Ring,
    Row,
    State,
    Wire,
    look,
    note,
    put,
    row,
    strike,
)  # fmt: skip
from peerlock.errors import PeerlockError

__all__ = [
    "CATALOGUE", "NOBODY", "Algorithm", "Ask", "Book", "Chosen", "Grant", "Members", "Mode", "Needs", "Neighbours", "Node",
    "Out", "PeerlockError", "Ring", "Row", "State", "Wire", "choose", "look", "note", "put", "row", "strike",
]  # fmt: skip
