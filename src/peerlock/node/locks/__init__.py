"""The locks of one node.

table                all locks by name, and what they share: the epoch, the lease, the counters
local_lock           one lock at this node: its waiters, its holder, and its algorithm
participant          what the users of a lock want, reconciled with what its algorithm has
ticket               one request and what became of it
fence                the strictly increasing numbers of holds
"""
