"""The protocols around the algorithms, in every interleaving, also without each of their rules.

view_change          from one view to the next
quorum, store        voters; a store
host, disk           the registry of one host, over a model of the file system
all                  the list of what `peerlock check-registries` explores
"""
