"""Algorithms in virtual time: the world, the network, topologies, workloads, transcripts."""
