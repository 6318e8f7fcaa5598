"""Mutants: protocols with one rule taken away. The checker, the simulator or `verify` notices each.

    views, sessions      for `peerlock check-views` and the simulator
    quorum, store        for `peerlock check-registries` and the simulator
    nodes                whole nodes, and the lists that `peerlock sim-nodes --planted` knows

Mutants of algorithms are in `peerlock.check.mutants`, those of the registry of one host in
`check/protocols/host_mutants.py`.
"""
