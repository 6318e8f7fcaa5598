"""Registries: each decides the views of a group, and says which node may hold locks.

base                 what a shell asks of a registry
host                 processes of one host: `group_directory` and `liveness_lock` are its files and locks
static               a fixed list of nodes
leased               what registries with leases have in common; `heartbeat_thread` is their thread
quorum, etcd         voters; a store
"""
