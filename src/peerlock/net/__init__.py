"""The node of `peerlock.node` on real sockets.

settings             what the caller, the environment and a file say about a group
shell                drives a core, for both kinds of nodes: it carries out effects
link_table, membership, permission, clients
                     its parts: links, views, the right to hold locks, the command line
aio/                 the lock and the node for asyncio
threads/             the lock and the node for threads
transport/           sockets, frames, TLS, certificates
attached/            a host node and the processes attached to it
registries/          one host, a fixed list, voters, etcd
voters/              a voter as a server, its record, its replacement
control/             what the command line asks a node: locks, status, traces
processes/           process groups that run under a lock; the watchdog
files, hold, yielding, complaints
                     helpers that several of them use
"""
