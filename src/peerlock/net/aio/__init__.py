"""The lock for asyncio: the `lock`, the `node`, its `shell` (sockets and timers of an event loop),
and when a waiter spins.
"""
