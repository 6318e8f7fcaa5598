"""What drives a node, for tests that look inside or take something away."""

from __future__ import annotations

import peerlock
import peerlock.sync
from peerlock.net.aio.shell import AioShell
from peerlock.net.threads.shell import ThreadShell


def member(node: peerlock.Node) -> AioShell:
    """Of a node that is a member itself."""
    shell = node._shell
    assert isinstance(shell, AioShell), shell
    return shell


def thread_member(node: peerlock.sync.Node) -> ThreadShell:
    shell = node._shell
    assert isinstance(shell, ThreadShell), shell
    return shell
