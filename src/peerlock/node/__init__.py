"""A node of a group without input, output, clock or randomness.

    core                 puts the parts together; a shell drives it
    inputs, effects      what a shell tells the core, and what the core asks of its shell
    links                a session per peer, and which side dials; failure_detector: which peers are silent
    locks/               the lock table, each lock with its waiters, tickets and fences
    membership/          views, the view change, leases; host, static: the rules of one host and of a fixed list;
                         proofs: which members are dead; files: what the registries write; reports: what members tell each other
    attached/            a host node and the processes attached to it
    quorum/              groups with voters: the voter, its driver, the member
    store/               groups whose views are kept in a store (etcd)
    session              a reliable channel between two peers, over links that break
    wire, wire_algorithms, peer
                         the messages between members

`peerlock.net` runs it on sockets, `peerlock.sim.cluster` in virtual time, and
`peerlock.check.protocols` explores its protocols in every interleaving.
"""
