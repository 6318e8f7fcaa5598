"""Whole nodes in virtual time, with every fault of a network, by a seed.

process              the world of nodes on one host: processes that join, lock, stop, crash and leave
leased_process       the same with leases, voters or a store
voter_process        the processes of such a group
network              which hosts reach each other
nemesis              which faults happen when
"""
