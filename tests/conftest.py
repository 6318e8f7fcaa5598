"""Options and helpers of the whole suite."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the transcripts of tests/scenarios"
    )


os.environ["PEERLOCK_SHARE"] = "never"  # most tests are about members of a group


@pytest.fixture(autouse=True)
def share(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tests are about what users get without a word about it."""
    if request.node.get_closest_marker("as_users_do") is not None:
        monkeypatch.delenv("PEERLOCK_SHARE")
