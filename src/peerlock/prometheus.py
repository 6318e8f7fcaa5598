"""Metrics for Prometheus: numbers that a node counts anyway, read when somebody asks.

    from peerlock.prometheus import Metrics
    prometheus_client.REGISTRY.register(Metrics(node))

Nothing is added to the way of an entry: the core counts in plain integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from peerlock.errors import UsageError, shown

if TYPE_CHECKING:
    from peerlock.net.node import BaseNode


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError:
        raise UsageError("Metrics need prometheus-client: pip install 'peerlock[metrics]'.") from None
    return prometheus_client


class Metrics:
    """A collector for `prometheus_client`: register it with any registry of that library."""

    def __init__(self, node: BaseNode[Any]) -> None:
        _client()
        self.node = node

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        core = self.node._shell.core
        table = core.table
        labels, values = ["group", "node"], [self.node.group, self.node.name]

        def counter(name: str, words: str, value: float) -> Any:
            family = CounterMetricFamily(f"peerlock_{name}", words, labels=labels)
            family.add_metric(values, value)
            return family

        def gauge(name: str, words: str, value: float) -> Any:
            family = GaugeMetricFamily(f"peerlock_{name}", words, labels=labels)
            family.add_metric(values, value)
            return family

        yield counter("grants", "Locks granted here", table.grants)
        yield counter("losses", "Locks lost here", table.losses)
        yield counter("messages", "Messages of the algorithms sent from here", table.messages)
        yield counter("hold_seconds", "Seconds that locks were held here", table.hold_s)
        yield counter("view_changes", "Epochs started here", core.views)
        yield gauge("epoch", "The epoch of the group", core.view_change.epoch)
        yield gauge("members", "Members of the group", len(core.view_change.members))
        yield gauge("held", "Locks held here now", sum(local_lock.has for local_lock in table.busy()))
        yield gauge("waiting", "Waiters here now", sum(len(local_lock.queue or ()) for local_lock in table.busy()))
        yield gauge("locks", "Locks that this node remembers", len(table.locks))
        waits = HistogramMetricFamily("peerlock_wait_seconds", "From asking to having", labels=labels)
        waited, total, buckets = dict(table.waited), 0, []
        first = next(iter(waited))
        waited[first] += table.grants - sum(waited.values())  # granted at once
        for bound, count in waited.items():
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), total))
        waits.add_metric(values, buckets, table.wait_s)
        yield waits


def serve(node: BaseNode[Any], port: int) -> None:
    """A page for Prometheus on loopback."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise UsageError(f"Metrics need a port from 1 to 65535; got {shown(port)}.")
    client = _client()
    registry = client.CollectorRegistry()
    registry.register(Metrics(node))
    try:
        client.start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as problem:
        raise UsageError(f"Metrics cannot be served at port {port}: {problem.strerror}.") from None
