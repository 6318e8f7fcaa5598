"""How fast is the simulator? Beside SimPy and beside the least that a simulator can do.

Messages a second, Suzuki-Kasami A with 5 nodes in a closed loop, uniform delays. Three programs, each several times in turn,
so that a slow moment of a shared machine hits all alike:

- *peerlock*: the simulator as users run it, metrics on, no trace.
- *SimPy 4*: the same algorithm object. A message is a process that waits the delay and puts into the receiver's Store, which
  a node process gets from. No metrics.
- *heapq*: no algorithm and no metrics. A message is made, given a uniform delay, pushed, popped and handed to a receiver
  that sends the next one: what any event loop with a heap has to do. *heapq, inlined* is the same without the receiver's
  call and without making the message: nothing that could be called a simulator, but the limit of the heap itself.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from peerlock.algorithms import CATALOGUE, choose
from peerlock.algorithms.suzuki_kasami_a import Request
from peerlock.contract import Members, NodeId, Wire
from peerlock.errors import UsageError
from peerlock.observe.metrics import Metrics
from peerlock.sim.experiment import Experiment

NODES = 5


def peerlock(messages: int) -> float:
    prepared = Experiment(algorithm="suzuki-kasami-a", nodes=NODES, entries=messages // NODES // NODES).prepare()
    metrics = Metrics()
    world = prepared.world(recorders=[metrics])
    began = time.perf_counter()
    world.run()
    return metrics.messages / (time.perf_counter() - began)


def simpy_4(messages: int) -> float:
    try:
        import simpy
    except ModuleNotFoundError:
        raise UsageError("This benchmark runs beside SimPy: pip install 'peerlock[bench]'.") from None

    env = simpy.Environment()
    draw = random.Random(1).random
    stores = {j: simpy.Store(env) for j in range(1, NODES + 1)}
    sent = 0

    def carry(source: NodeId, to: NodeId, message: Wire) -> Generator[Any, Any, None]:
        yield env.timeout(0.5 + draw())
        yield stores[to].put((source, message))

    class Out:
        def __init__(self, me: NodeId) -> None:
            self.me, self.entered = me, env.event()

        def send(self, to: NodeId, message: Wire) -> None:
            nonlocal sent
            sent += 1
            env.process(carry(self.me, to, message))

        def enter(self) -> None:
            self.entered.succeed()

        def idle(self) -> None:
            pass

    def node(algorithm: Any, out: Out) -> Generator[Any, Any, None]:
        get = stores[out.me].get
        while True:
            source, message = yield get()
            algorithm.receive(source, message, out)

    def user(algorithm: Any, out: Out) -> Generator[Any, Any, None]:
        for _ in range(messages // NODES // NODES):
            out.entered = env.event()
            algorithm.request("write", out)
            yield out.entered
            yield env.timeout(0.1)
            algorithm.release(out)

    spec, shape = choose("suzuki-kasami-a"), Members(tuple(stores), 1)
    users = []
    for j in stores:
        algorithm, out = spec.start(j, shape), Out(j)
        env.process(node(algorithm, out))
        users.append(env.process(user(algorithm, out)))
    began = time.perf_counter()
    env.run(simpy.AllOf(env, users))
    return sent / (time.perf_counter() - began)


def heapq_loop(messages: int) -> float:
    queue: list[tuple[float, int, NodeId, NodeId, Request]] = []
    number, uniform = count(), random.Random(1).uniform

    def receive(now: float, source: NodeId, to: NodeId, message: Request) -> None:
        heappush(queue, (now + uniform(0.5, 1.5), next(number), to, source, Request(message.n + 1)))

    for _ in range(NODES * (NODES - 1)):
        receive(0.0, 1, 2, Request(0))
    began = time.perf_counter()
    for _ in range(messages):
        now, _, source, to, message = heappop(queue)
        receive(now, source, to, message)
    return messages / (time.perf_counter() - began)


def heapq_inlined(messages: int) -> float:
    number, draw = count(), random.Random(1).random
    queue = [(draw(), next(number), 1, 2) for _ in range(NODES * (NODES - 1))]
    queue.sort()
    began = time.perf_counter()
    for _ in range(messages):
        now, _, source, to = heappop(queue)
        heappush(queue, (now + 0.5 + draw(), next(number), to, source))
    return messages / (time.perf_counter() - began)


PROGRAMS: dict[str, Callable[[int], float]] = {
    "peerlock": peerlock, "SimPy 4": simpy_4, "heapq": heapq_loop, "heapq, inlined": heapq_inlined,
}  # fmt: skip


def speeds(runs: int, messages: int) -> Iterator[tuple[str, float]]:
    """Every program, again and again, in turn."""
    for _ in range(runs):
        for name, program in PROGRAMS.items():
            yield name, program(messages)


def medians(measured: list[tuple[str, float]]) -> dict[str, float]:
    return {name: statistics.median(speed for other, speed in measured if other == name) for name in PROGRAMS}


# All nodes ask at time 0, once: the messages are a formula of N alone. With implicit replies how many are deferred depends
# on the order, but each deferral is a DEFERRED and a REPLY and each pair of nodes defers once.
FORMULAS: dict[str, tuple[str, Callable[[int], int]]] = {
    "suzuki-kasami-a": ("(N-1) N", lambda n: (n - 1) * n),
    "suzuki-kasami-b": ("(N-1) N", lambda n: (n - 1) * n),
    "ricart-agrawala": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "ricart-agrawala-broadcast": ("N N", lambda n: n * n),
    "ricart-agrawala-implicit": ("2(N-1) N", lambda n: (n - 1) * n + n * (n - 1)),
    "ricart-agrawala-broadcast-implicit": ("N + (N-1) N", lambda n: n + n * (n - 1)),
    "ricart-agrawala-rw": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "ricart-agrawala-priority": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "ricart-agrawala-dynamic": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "ricart-agrawala-failures": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "carvalho-roucairol": ("2(N-1) N", lambda n: 2 * (n - 1) * n),
    "ricart-agrawala-token": ("(N-1) N", lambda n: (n - 1) * n),
}


def large(n: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every complete-network algorithm with `n` nodes, one entry each, all at time 0."""
    for name, entry in CATALOGUE.items():
        if entry.needs.shape is Members and name in FORMULAS:
            words, formula = FORMULAS[name]
            # Nobody is dead here, so nobody is suspected: else the questions outnumber all other messages.
            options = {"timeout": 1e6} if name == "ricart-agrawala-failures" else {}
            prepared = Experiment(
                algorithm=name, options=options, nodes=n, entries=1, hold="constant:0.01", readers=0.0
            ).prepare()
            metrics = Metrics()
            began = time.perf_counter()
            stuck = prepared.run(recorders=[metrics]).stuck()
            yield (
                name,
                {
                    "entries": sum(metrics.entries.values()),
                    "messages": metrics.messages,
                    "formula": words,
                    "expected": formula(n),
                    "seconds": time.perf_counter() - began,
                    "violations": metrics.violations,
                    "stuck": len(stuck),
                },
            )
