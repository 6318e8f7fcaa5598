"""The lock for threads: `lock`, the `node`, and its `shell` (one reader thread for sockets and
timers).
"""
