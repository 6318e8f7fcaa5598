"""A real group under real faults: `peerlock verify`.

`run` starts processes (`cluster`, `worker`) on hosts of their own (`hosts`), does to them what
networks, machines and operators do (`nemesis`), and judges their logs (`log`, `history`): which
process believed that it held the lock from when to when, and what became of every write.
`syscalls` does the same on one host, with faults in single system calls (`attacks`).
"""
