"""Options and helpers of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the transcripts of tests/scenarios"
    )


@pytest.fixture(autouse=True)
def share(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are about members of a group. Those that are about what users get without a word about
    it are marked.
    """
    if request.node.get_closest_marker("as_users_do") is None:
        monkeypatch.setenv("PEERLOCK_SHARE", "never")
