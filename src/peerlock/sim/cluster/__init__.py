"""Whole nodes in virtual time, with every fault of hosts and networks, by a seed.

    run(7, Plan(algorithm="suzuki-kasami-a"))
    run(7, LeasedPlan(registry="store"))

plan              what a simulation is made of
world             time, and the parts below, put together
process, users    a node with its shell; what its users do
network           links and datagrams
host, static      what decides views: one host, a fixed list
attached          a host node and the processes attached to it
authority, leases the same with leases: voters and a store, and a member's half
nemesis           which faults happen when; lease_nemesis: with leases
oracle            whether a promise was broken
"""

from peerlock.sim.cluster.plan import AttachedPlan, Broken, LeasedPlan, Plan, Result, StaticPlan
from peerlock.sim.cluster.world import KINDS, run

__all__ = ["KINDS", "AttachedPlan", "Broken", "LeasedPlan", "Plan", "Result", "StaticPlan", "run"]
