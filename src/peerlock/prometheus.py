"""Metrics for Prometheus: numbers that a node counts anyway, read when Prometheus asks.

    from peerlock.prometheus import Metrics
    prometheus_client.REGISTRY.register(Metrics(node))

They cost an entry nothing: the core counts in plain integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from peerlock.errors import UsageError, shown

if TYPE_CHECKING:
    from prometheus_client import Metric

    from peerlock.net.aio.node import Node as AioNode
    from peerlock.net.threads.node import Node as ThreadsNode

Node: TypeAlias = "AioNode | ThreadsNode"


def _check_installed() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError("Metrics need prometheus-client: pip install 'peerlock[metrics]'.") from None


class Metrics:
    """A collector for `prometheus_client`: register it with any registry of that library."""

    def __init__(self, node: Node) -> None:
        _check_installed()
        self.node = node

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        shell = self.node._shell
        table = shell.core.table
        labels, values = ["group", "node"], [self.node.group, self.node.name]

        counter, gauge, busy = CounterMetricFamily, GaugeMetricFamily, list(table.busy())
        for family, name, words, value in (
            (counter, "grants", "Locks granted here", table.grants),
            (counter, "losses", "Locks lost here", table.losses),
            (counter, "messages", "Messages of the algorithms sent from here", table.messages),
            (counter, "hold_seconds", "Seconds that locks were held here", table.hold_s),
            (counter, "view_changes", "Epochs started here", shell.epochs),
            (gauge, "epoch", "The epoch of the group", shell.epoch),
            (gauge, "members", "Members of the group", len(shell.members)),
            (gauge, "held", "Locks held here now", sum(local_lock.has for local_lock in busy)),
            (gauge, "waiting", "Waiters here now", sum(len(local_lock.queue or ()) for local_lock in busy)),
            (gauge, "locks", "Locks that this node remembers", len(table.locks)),
        ):
            made = family(f"peerlock_{name}", words, labels=labels)
            made.add_metric(values, value)
            yield made
        waits = HistogramMetricFamily("peerlock_wait_seconds", "From asking to having", labels=labels)
        waited, total, buckets = dict(table.waited), 0, []
        first = next(iter(waited))
        waited[first] += table.grants - sum(waited.values())  # granted at once
        for bound, count in waited.items():
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        waits.add_metric(values, buckets, table.wait_s)
        yield waits


def serve(node: Node, port: int) -> None:
    """Serve the metrics of a node to Prometheus, on loopback."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise UsageError(f"Metrics need a port from 1 to 65535; got {shown(port)}.")
    _check_installed()
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(Metrics(node))
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as problem:
        raise UsageError(f"Metrics cannot be served at port {port}: {problem.strerror}.") from None
