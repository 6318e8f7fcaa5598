"""A web application with one counter, which several gunicorn workers change under a lock.

    gunicorn --workers 3 --config examples/gunicorn_app.py 'examples.gunicorn_app:application'

gunicorn forks its workers. A node belongs to the process that joined, so each worker joins after
the fork, in gunicorn's hook `post_worker_init`. It leaves in `worker_exit`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import peerlock.sync

COUNTER = Path(os.environ.get("COUNTER", "counter"))
node: Any = None


def post_worker_init(worker: Any) -> None:
    """gunicorn calls this in the worker, after the fork and before the first request."""
    import examples.gunicorn_app as app

    app.node = peerlock.sync.join("shop", dir=os.environ.get("PEERLOCK_DIR"))


def worker_exit(server: Any, worker: Any) -> None:
    """gunicorn calls this in the worker, before the worker exits."""
    import examples.gunicorn_app as app

    if app.node is not None:
        app.node.leave()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    with node.lock("counter"):
        value = int(COUNTER.read_text() or 0) + 1
        COUNTER.write_text(str(value))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{value} {os.getpid()}\n".encode()]
