"""When a holder goes: that the next one is in, with every registry, and within what is promised."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.takeover import REGISTRIES, takeover


@pytest.mark.parametrize("registry", REGISTRIES)
def test_the_next_one_is_in_within_the_lease_and_a_second(registry: str) -> None:
    found = takeover(registry, 2.0, 1)
    assert 0 < found.killed[0] < 3.0
    assert (found.lease_s is None) == (registry == "host")
    if registry != "host":
        assert found.killed[0] > 1.0, "nobody can know before the lease is over"
    assert 0 < found.left[0] < found.killed[0] or registry == "host"


def test_as_a_user_asks_for_it() -> None:
    run = CliRunner().invoke(app, ["takeover", "--registry", "host", "--runs", "1", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.output)["rows"][0]["registry"] == "host"
    run = CliRunner().invoke(app, ["takeover", "--registry", "zookeeper"])
    assert "there are: host, embedded, etcd" in str(run.exception)
